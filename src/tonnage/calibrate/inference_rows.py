"""Rows of inference measurements as candidates, and what is predicted of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from tonnage import datafiles
from tonnage.calibrate.inference_fit import Observation
from tonnage.calibrate.row_fields import (
    cache_formats,
    device_of_row,
    engine_of_row,
    host_of_row,
    layout_of_row,
    number,
    weights_format,
)
from tonnage.calibrate.row_models import model_of_row
from tonnage.engines.sglang.accounting import default_limits as sglang_limits
from tonnage.engines.vllm.accounting import default_limits
from tonnage.estimate.compose_serving import (
    multiplied_in,
    serving_load,
    short_by_bytes,
    smallest_num_cpu_expert_layers,
)
from tonnage.estimate.serving import ServingLoad
from tonnage.estimate.serving_memory import at_least
from tonnage.estimate.serving_speed import batch_of_step, decode_work, prefill_work
from tonnage.estimate.types import Candidate, EngineAccounting, EngineSettings, Offload
from tonnage.estimate.weights import weights_bytes
from tonnage.hardware.types import Cluster, Device, Host, Link, Node
from tonnage.model.types import Model, Moe
from tonnage.units import GIB, MIB, Count
from tonnage.workload.precision import Precision
from tonnage.workload.types import Serving

__all__ = ["Case", "case_of_row", "load_of_case", "observations_of", "running_requests"]

Row = Mapping[str, Any]
_ASSUMED_HOST: Final = Host(
    memory_bytes=1 << 50,
    bandwidth_bytes_per_s=80e9,
    num_cores=16,
    pcie=Link(name="pcie", kind="pcie", bytes_per_s=31.5e9),
    is_assumed=True,
)
# What no desktop board holds is on a server: eight channels of DDR5-4800, between older and larger ones.
_LARGEST_DESKTOP_GIB: Final = 192
_ASSUMED_SERVER: Final = replace(_ASSUMED_HOST, bandwidth_bytes_per_s=307.2e9, num_cores=32)
# What each measured speed is a measure of.
_KINDS: Final = {
    "decode_tps_single": "decode", "prefill_tps": "prefill", "throughput_tps": "throughput", "ttft_ms": "ttft",
    "tpot_ms": "tpot",
}  # fmt: skip
_CORE_BANDWIDTH: Final = 50e9  # one core alone cannot draw more, bytes a second; assumed
_MOST_RUNNING: Final = 4096.0  # trtllm-bench's cap, NVIDIA/TensorRT-LLM tensorrt_llm/bench/build/tuning.py
_GGUF: Final = frozenset({"llama.cpp", "ik_llama.cpp", "ollama"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A row as a candidate, with how its speeds were taken."""

    row: Row
    candidate: Candidate
    decode_depth_tokens: float
    prefill_tokens: int
    is_context_known: bool
    is_model_known: bool
    is_cache_known: bool
    is_host_known: bool
    num_drafted: float  # tokens drafted a step; 0 without drafting


def case_of_row(row: Row) -> Case:
    """Turn a row into a candidate.

    Raises
    ------
    RequestError
        The row says too little: no known device, engine or model shape.
    """
    engine = engine_of_row(row)
    named = model_of_row(row)
    host = host_of_row(row)
    devices = device_of_row(row)
    is_host_known = host is not None
    weights = weights_format(row, engine)
    host = host or (_ASSUMED_SERVER if _needs_server(row, named.model, weights) else _ASSUMED_HOST)
    if threads := re.search(r"threads (\d+)", str(row.get("offload") or "")):
        host = replace(host, num_cores=int(threads[1]))
    if devices is None:
        devices = (_processor(host),)
    devices = tuple(sorted(devices, key=lambda device: device.bandwidth_bytes_per_s))  # the slowest sets the pace
    layout = layout_of_row(row, engine, len(devices))
    keys, values = cache_formats(row)
    weights = weights or _format_that_fits(named.model, devices)
    input_tokens, output_tokens = _lengths(row)
    stated_context = number(row.get("ctx")) or _noted_context(row)
    context = int(stated_context or input_tokens + output_tokens)
    concurrency = int(number(row.get("concurrency")) or 1)
    version = _dated_version(row) if engine in _GGUF else _version(row) or _released_version(row, engine)
    extra = {"version": version}
    if (file_amount := number(row.get("file_size_gib"))) and engine in _GGUF:
        extra["file_bytes"] = str(round(file_amount * GIB))
    if values != keys:
        extra["value_cache"] = values
    extra["latent_cache"] = _latent_cache(row, engine)
    extra |= _draft(row)
    if "mmproj" in str(row.get("quant") or "") and named.model.encoder is not None:
        extra["mmproj"] = "fp16"
    if scores := re.search(r"attn_max_b=(\d+)", _said(row)):
        extra["score_bytes"] = str(int(scores[1]) * MIB) if int(scores[1]) else ""
    if backend := re.search(r"vulkan|hip|rocwmma|metal", f"{row.get('engine')} {row.get('engine_version')}".lower()):
        extra["backend"] = {"rocwmma": "hip"}.get(backend[0], backend[0])
        if extra["backend"] == "hip":
            words = str(row.get("engine_version"))
            extra["library"] = "hipblaslt" if "hipblaslt" in words else "rocblas"
            extra["library"] += "+rocwmma" if "rocwmma" in words else ""
    candidate = Candidate(
        model=named.model,
        workload=Serving(
            context_tokens=max(context, 1),
            concurrency=concurrency,
            input_tokens=max(input_tokens, 1),
            output_tokens=max(output_tokens, 1),
        ),
        cluster=Cluster(
            node=Node(
                devices=devices, host=host, intra_link=_link(row, devices), reserved_bytes=_taken_before(row, devices)
            )
        ),
        engine=engine,
        layout=layout,
        precision=Precision(weights=weights, kv=keys, compute=multiplied_in(weights, devices[0], engine)),
        offload=_offload(
            row, named.model.num_layers, any(_is_moe(named.model.layers[i]) for i in range(named.model.num_layers))
        ),
        settings=EngineSettings(
            max_num_seqs=int(number(row.get("max_num_seqs")) or 0) or None,
            max_batched_tokens=int(number(row.get("max_num_batched_tokens")) or 0) or None,
            utilization_ratio=number(row.get("gpu_memory_utilization")) or _noted_utilization(row),
            has_flash_attention=bool(row.get("flash_attn", True)),
            extra={key: value for key, value in extra.items() if value},
        ),
    )
    return Case(
        row=row,
        candidate=candidate,
        decode_depth_tokens=_decode_depth(row, engine, input_tokens, output_tokens),
        prefill_tokens=_prefill_tokens(row, engine, input_tokens),
        is_context_known=stated_context is not None,
        is_model_known=named.is_known,
        is_cache_known=named.is_cache_known,
        is_host_known=is_host_known,
        num_drafted=float(extra.get("draft_tokens", 0)),
    )


def _taken_before(row: Row, devices: tuple[Device, ...]) -> int:
    """Return what was taken of each device before the engine started, where a row tells what was free."""
    match = re.search(r"([\d.]+) GB free", str(row.get("gpu") or ""))
    return max(0, round(devices[0].memory_bytes - float(match[1]) * GIB)) if match else 0


def _said(row: Row) -> str:
    """Return the settings that a row tells in words or as flags."""
    return f"{row.get('notes') or ''} {row.get('settings') or ''}"


def _needs_server(row: Row, model: Model, weights: str | None) -> bool:
    """Whether what is on the host is more than a desktop board holds: the file, or experts of that format."""
    held_bytes = (number(row.get("file_size_gib")) or 0.0) * GIB
    if not held_bytes and weights and row.get("placement") == "experts_cpu":
        held_bytes = sum(weights_bytes(model, weights).values())
    return held_bytes > _LARGEST_DESKTOP_GIB * GIB


def _format_that_fits(model: Model, devices: tuple[Device, ...]) -> str:
    """Return the format where a row says nothing: 4 bits on cards without stacked memory, else the widest that fits."""
    if "hbm" not in devices[0].memory_type.lower():
        return "int4"
    room = 0.9 * sum(device.memory_bytes for device in devices)
    return next((name for name in ("bf16", "fp8") if sum(weights_bytes(model, name).values()) < room), "int4")


def _is_moe(layer: Any) -> bool:
    return any(isinstance(part, Moe) for part in layer.feed_forwards)


def _processor(host: Host) -> Device:
    """Return the host itself as a device: its memory, its bandwidth, its cores' rate."""
    return Device(
        slug="host", name="host", vendor="cpu", architecture="cpu", form_factor="host", memory_bytes=host.memory_bytes,
        memory_type="DDR", bandwidth_bytes_per_s=min(host.bandwidth_bytes_per_s, _CORE_BANDWIDTH * host.num_cores),
        flop_per_s=dict.fromkeys(("fp16", "bf16", "int8"), host.core_flop_per_s * host.num_cores),
        is_unified_memory=True,
    )  # fmt: skip


def _version(row: Row) -> str:
    """Return a version number when the row has one; dates, builds and prose are none."""
    text = str(row.get("engine_version") or "")
    text = re.sub(r"^(0\.\d)x", r"\g<1>0", text)
    match = re.search(r"<=\s*(\d+\.\d+)", text) or re.match(r"v?(\d+\.\d+[\w.]*)", text)
    return match[1].rstrip(".x") if match and not match[1].startswith("0.1.dev") else ""


_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def _released_version(row: Row, engine: str) -> str:
    """Return the version that was newest when a row was taken, where it tells only the day or the month."""
    text = f"{row.get('date') or ''} {row.get('engine_version') or ''}".lower()
    if match := re.search(r"\b(20\d\d)-(\d\d)(?:-(\d\d))?\b", text):
        day = f"{match[1]}-{match[2]}-{match[3] or 15}"
    elif match := re.search(rf"\b({'|'.join(_MONTHS)})[a-z]* (20\d\d)\b", text):
        day = f"{match[2]}-{_MONTHS.index(match[1]) + 1:02}-15"
    else:
        return ""
    before = [one for one in datafiles.rows("engines/releases.csv") if one["engine"] == engine and one["day"] <= day]
    return max(before, key=lambda one: one["day"])["version"] if before else ""


def _dated_version(row: Row) -> str:
    """Return the build's number, or its year and month: programs that are built daily have no better one."""
    if build := re.search(r"\bb(\d{4,5})\b", str(row.get("engine_version") or "")):
        return f"b{build[1]}"
    text = f"{row.get('date') or ''} {row.get('engine_version') or ''}"
    match = re.search(r"\b(20\d\d)(?:-(\d\d))?", text)
    return f"{match[1]}.{int(match[2] or 1)}" if match else ""


def _lengths(row: Row) -> tuple[int, int]:
    prompt, generated = number(row.get("isl")), number(row.get("osl"))
    if prompt is None and generated is None:
        return 512, 128
    return int(prompt or 0), int(generated or 0)


def _is_bench(row: Row) -> bool:
    """Whether prompt and generation were timed apart, each from an empty cache, as llama-bench does."""
    text = f"{_said(row)} {row.get('engine_version') or ''}"
    return bool(re.search(r"llama-bench|\b(pp|tg)\d+|sweep", text))


def _decode_depth(row: Row, engine: str, input_tokens: int, output_tokens: int) -> float:
    if engine in _GGUF and _is_bench(row):
        return output_tokens / 2
    return input_tokens + output_tokens / 2


def _prefill_tokens(row: Row, engine: str, input_tokens: int) -> int:
    stated = number(row.get("prefill_isl"))
    if stated:
        return int(stated)
    if engine in _GGUF and row.get("isl") is None:
        return int(number(row.get("max_num_batched_tokens")) or 512)
    return max(input_tokens, 1)


def _latent_cache(row: Row, engine: str) -> str:
    """Return what a latent cache keeps: the log names one type for the latent alone, two where values are kept too."""
    if engine not in _GGUF:
        return ""
    arch = row.get("arch") or {}
    has_pair = "/" in str(row.get("kv_dtype") or "")
    if not has_pair:
        return "latent"
    mode = re.search(r"mla_attn=(\d)", _said(row))
    if arch.get("head_dim_k") == 576 or (mode and mode[1] == "1") or arch.get("mla_kv_lora_plus_rope"):
        return "latent_and_values"
    return "full"


def _link(row: Row, devices: tuple[Device, ...]) -> Link | None:
    if len(devices) < 2:
        return None
    first = devices[0]
    says_bridge = re.search(r"nvlink", f"{row.get('gpu')} {_said(row)}".lower()) is not None
    denied = re.search(r"no nvlink|nvlink[^.;]{0,40}(disable|pcie)|without nvlink", _said(row).lower())
    is_server = first.form_factor.lower().startswith(("sxm", "superchip", "module", "oam"))
    if first.nvlink_bytes_per_s and (is_server or (says_bridge and not denied)):
        return Link(
            name="nvlink", kind="nvlink", bytes_per_s=first.nvlink_bytes_per_s, achieved_ratio=0.8, latency_seconds=1e-5
        )
    rate = {3: 15.75e9, 4: 31.5e9, 5: 63e9}.get(first.pcie_generation or 4, 31.5e9)
    return Link(name="pcie", kind="pcie", bytes_per_s=rate, achieved_ratio=0.4, latency_seconds=2.5e-5)


def _offload(row: Row, num_layers: int, is_moe: bool) -> Offload:
    """Return what stays on the host, as flags or the placement say."""
    text = str(row.get("offload") or "")
    placement = row.get("placement")
    if is_moe and (match := re.search(r"(\d+)% of experts on GPU", text)):
        return Offload(num_cpu_expert_layers=round(num_layers * (1 - int(match[1]) / 100)))
    if match := re.search(r"--n-cpu-moe (\d+)", text):
        return Offload(num_cpu_expert_layers=int(match[1]))
    if match := re.search(r"experts of (\d+) of \d+ layers to CPU", text):
        return Offload(num_cpu_expert_layers=int(match[1]))
    if placement == "experts_cpu" and is_moe:
        kept = _layers_named(text)
        return Offload(num_cpu_expert_layers=num_layers - min(len(kept), num_layers))
    if placement in ("layers_cpu", "cpu") and (match := re.search(r"layers (\d+)/(\d+)", text)):
        return Offload(num_cpu_layers=max(0, num_layers - int(match[1])))
    return Offload()


def _layers_named(text: str) -> set[int]:
    """Return the layers whose experts `-ot` puts on a device: `blk\\.(3|4)\\.ffn_.*=CUDA0`."""
    found: set[int] = set()
    for pattern in re.findall(r"blk\\?\\?\.?\(?\[?([0-9|\-\[\]()]+)[^=,]*=CUDA", text):
        for part in re.split(r"[|()]", pattern):
            if match := re.fullmatch(r"\[?(\d+)-(\d+)\]?", part):
                found |= set(range(int(match[1]), int(match[2]) + 1))
            elif part.strip("[]").isdigit():
                found.add(int(part.strip("[]")))
    return found


def _noted_utilization(row: Row) -> float | None:
    match = re.search(r"mem-util (0\.\d+)", _said(row))
    return float(match[1]) if match else None


def _noted_context(row: Row) -> float | None:
    match = re.search(r"(?:^|\s)(?:-c|--ctx-size) (\d{3,7})\b", _said(row))
    return float(match[1]) if match else None


def _draft(row: Row) -> dict[str, str]:
    """Return what drafting adds: tokens guessed a step, and attention layers of the draft."""
    text = str(row.get("spec_decode") or "").lower()
    if not text:
        return {}
    stated = re.search(r"n=(\d+)", text)
    if "dflash" in text:
        return {"draft_tokens": stated[1] if stated else "5", "draft_layers": "5"}
    tokens = stated[1] if stated else "3"
    if "mtp" in text:
        return {"draft_tokens": tokens, "draft_layers": "1", "draft": "mtp"}
    return {"draft_tokens": tokens, "draft_layers": "0"}


def _fewest_host_layers(load: ServingLoad, accounting: EngineAccounting) -> int:
    """Return how many layers a program leaves on the host that fills the device with the others."""
    for num_layers in range(load.shape.num_layers + 1):
        one = replace(load, num_cpu_layers=num_layers)
        if short_by_bytes(one, accounting.memory(one)) <= 0:
            return num_layers
    return load.shape.num_layers


def load_of_case(case: Case, accounting: EngineAccounting) -> ServingLoad:
    """Return a case as numbers, with the engine's own limits where the row states none."""
    load = serving_load(case.candidate, accounting)
    settings = case.candidate.settings
    offload = str(case.row.get("offload") or "")
    if "--fit" in offload or _leaves_experts_unsaid(load, offload):
        # the program, or the person, leaves 1 GiB and moves experts to the host until the rest fits
        room = replace(load, free_bytes=load.free_bytes - GIB)
        return replace(load, num_cpu_expert_layers=smallest_num_cpu_expert_layers(room, accounting) or 0)
    if case.row.get("placement") == "layers_cpu" and not load.num_cpu_layers:
        return replace(load, num_cpu_layers=_fewest_host_layers(load, accounting))
    if case.candidate.engine == "vllm" and settings.max_num_seqs is None:
        load = replace(load, max_num_seqs=_likely_num_seqs(load))
    if case.candidate.engine == "sglang":
        ratio, chunk, state_ratio = sglang_limits(load)
        load = replace(
            load,
            state_ratio=state_ratio,
            utilization_ratio=settings.utilization_ratio or ratio,
            max_batched_tokens=settings.max_batched_tokens or chunk,
        )
    return load


def _likely_num_seqs(load: ServingLoad) -> Count:
    """Return vLLM's limit of sequences where a row tells none: servers run the default, other machines something below.

    Smaller cards, and memory shared with the host, leave too little to let it be: taken as the middle of the requests
    there were and the default.
    """
    most = at_least(default_limits(load)[0], load.concurrency)
    is_server = "hbm" in load.memory_type or (load.memory_bytes >= 70 * GIB and not load.is_unified_memory)
    return most if is_server else (most + load.concurrency) // 2


def _leaves_experts_unsaid(load: ServingLoad, offload: str) -> bool:
    """Whether a log counts all layers as offloaded though the file is larger than all cards: tensors were overridden."""
    is_all = re.search(r"layers (\d+)/\1\b", offload) is not None
    experts = sum(load.shape.expert_bytes)
    total = load.pp * load.tp * load.memory_bytes
    return is_all and experts > 0 and not load.num_cpu_expert_layers and load.shape.weights_bytes > total


def observations_of(case: Case, accounting: EngineAccounting) -> dict[str, Observation]:
    """Return a case's measured speeds as what a fit takes, by metric; none where the device is not known."""
    device = case.candidate.cluster.node.devices[0]
    measured = case.row.get("measured", {})
    if not device.slug or not any(metric in measured for metric in _KINDS):
        return {}
    load = load_of_case(case, accounting)
    memory_room, rates = accounting.memory(load), accounting.rates(load)
    found: dict[str, Observation] = {}
    for metric, kind in _KINDS.items():
        value = number(measured.get(metric))
        if value is None or value <= 0:
            continue
        one = replace(load, input_tokens=case.prefill_tokens) if kind == "prefill" else load
        running = 1.0
        depth = max(case.decode_depth_tokens, 1.0)
        if kind in ("throughput", "tpot"):
            running = running_requests(case, load, memory_room.cache_tokens)
            depth = load.input_tokens + load.output_tokens / 2
        micro = batch_of_step(one, running, rates) if kind in ("throughput", "tpot") else running
        requests = (number(case.row.get("num_requests")) or 0.0) / load.dp
        num_waves, num_rest = divmod(requests, running) if kind == "throughput" and requests else (1.0, 0.0)
        found[metric] = Observation(
            kind=kind,
            measured=value / 1e3 if kind in ("ttft", "tpot") else value,
            group=f"{metric}/{case.row.get('group') or case.row['id']}",
            load=one,
            decode=decode_work(one, micro, depth),
            prefill=prefill_work(one),
            num_running=running,
            num_prompt_tokens=float(one.input_tokens),
            num_output_tokens=float(one.output_tokens),
            num_replicas=float(one.dp),
            constants=accounting.constants,
            num_waves=num_waves,
            rest=decode_work(one, batch_of_step(one, num_rest, rates), depth) if num_rest else None,
            num_rest=num_rest,
        )
    return found


def running_requests(case: Case, load: ServingLoad, cache_tokens: Count | None) -> float:
    """Return how many requests of a row run together on one replica: as stated, or as many as the cache holds."""
    stated = number(case.row.get("concurrency"))
    if stated is None and load.num_cpu_expert_layers:
        return 1.0  # experts on the host are run for one person
    most = float(stated / load.dp) if stated else _MOST_RUNNING
    most = min(most, (number(case.row.get("num_requests")) or most * load.dp) / load.dp)
    if cache_tokens is not None and not stated:
        most = min(most, float(cache_tokens) / (load.input_tokens + load.output_tokens))
    return max(most, 1.0)
