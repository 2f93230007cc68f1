"""Compose a serving estimate: candidate -> load -> memory by the engine's accounting, speed by its rates."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tonnage.errors import RequestError
from tonnage.estimate.batching import Waiting, waiting
from tonnage.estimate.serving import ServingLoad, ServingMemory, ServingRates
from tonnage.estimate.serving_memory import at_least
from tonnage.estimate.serving_shape import held, resized, serving_shape
from tonnage.estimate.serving_speed import ServingTimes, serving_times
from tonnage.estimate.types import (
    Candidate,
    Cost,
    EngineAccounting,
    Estimate,
    Footprint,
    Interval,
    Performance,
    Pool,
    Provenance,
    StepTime,
    Storage,
    TimePart,
)
from tonnage.estimate.weights import find_format, weights_bytes
from tonnage.hardware.types import Device, Drive
from tonnage.units import Bytes, format_bytes
from tonnage.workload.precision import BYTES_PER_ELEMENT
from tonnage.workload.types import Serving

__all__ = [
    "estimate_serving",
    "largest_concurrency",
    "largest_context",
    "multiplied_in",
    "serving_load",
    "short_by_bytes",
    "smallest_num_cpu_expert_layers",
]

# Bytes of one cache element; blocks of 32 with a scale for the quantised kinds (ggml/src/ggml-common.h).
CACHE_BYTES_PER_ELEMENT = {
    **BYTES_PER_ELEMENT, "q8_0": 34 / 32, "q5_1": 24 / 32, "q5_0": 22 / 32, "q4_1": 20 / 32, "q4_0": 18 / 32,
    "f16": 2.0, "f32": 4.0, "iq4_nl": 18 / 32, "fp8_e4m3": 1.0, "fp8_e5m2": 1.0,
    "tq3": 3.5 / 8, "q6_0": 26 / 32,
}  # fmt: skip


_BACKENDS = {"nvidia": "cuda", "amd": "hip", "apple": "metal", "intel": "vulkan"}


def serving_load(candidate: Candidate, accounting: EngineAccounting) -> ServingLoad:
    """Turn a candidate into numbers, with the engine's defaults where a setting is not given."""
    workload = candidate.workload
    assert isinstance(workload, Serving)
    node, layout = candidate.cluster.node, candidate.layout
    if not node.devices:
        raise RequestError("no accelerator to serve on", where="--gpu", fix="name one, as --gpu rtx-4090")
    kv = candidate.precision.kv
    if kv not in CACHE_BYTES_PER_ELEMENT:
        raise RequestError(
            f"'{kv}' is not a cache format", where="--kv", fix=f"one of {', '.join(sorted(CACHE_BYTES_PER_ELEMENT))}"
        )
    device, host, link = node.devices[0], node.host, node.intra_link
    compute = candidate.precision.compute
    numbers = (
        compute if compute in ("fp8", "fp4") else multiplied_in(candidate.precision.weights, device, candidate.engine)
    )
    flop_per_s = (
        device.flop_per_s.get(numbers)
        or device.flop_per_s.get(compute)
        or device.flop_per_s.get("fp16")
        or device.flop_per_s.get("fp32")
        or 0.0
    )
    pcie = host.pcie
    extra = candidate.settings.extra
    shape = serving_shape(candidate.model, candidate.precision.weights)
    if "file_bytes" in extra:
        shape = resized(shape, float(extra["file_bytes"]))
    load = ServingLoad(
        shape=shape,
        vendor=device.vendor.lower(),
        architecture=device.architecture.lower(),
        memory_bytes=device.memory_bytes,
        free_bytes=device.memory_bytes - node.reserved_bytes,
        bandwidth_bytes_per_s=device.bandwidth_bytes_per_s,
        flop_per_s=flop_per_s or 10 * device.bandwidth_bytes_per_s,
        int8_flop_per_s=device.flop_per_s.get("int8") or flop_per_s or 10 * device.bandwidth_bytes_per_s,
        memory_type=device.memory_type.lower(),
        host_memory_bytes=host.memory_bytes,
        host_bandwidth_bytes_per_s=host.bandwidth_bytes_per_s,
        host_flop_per_s=host.num_cores * host.core_flop_per_s,
        num_host_cores=host.num_cores,
        pcie_bytes_per_s=pcie.bytes_per_s * pcie.achieved_ratio if pcie else 16e9,
        link_bytes_per_s=link.bytes_per_s * link.achieved_ratio if link else 10e9,
        link_latency_seconds=link.latency_seconds if link else 2e-5,
        is_unified_memory=device.is_unified_memory,
        compute_capability=float(device.compute_capability or 0) if device.vendor.lower() == "nvidia" else 0.0,
        is_switched=link is not None and link.kind == "nvlink",
        tp=layout.tp,
        pp=layout.pp,
        dp=layout.dp,
        ep=layout.ep,
        num_cpu_layers=candidate.offload.num_cpu_layers,
        num_cpu_expert_layers=candidate.offload.num_cpu_expert_layers,
        context_tokens=workload.context_tokens,
        concurrency=-(-workload.concurrency // layout.dp),
        input_tokens=workload.input_tokens,
        output_tokens=workload.output_tokens,
        cache_bytes_per_element=(CACHE_BYTES_PER_ELEMENT[kv] + CACHE_BYTES_PER_ELEMENT[extra.get("value_cache", kv)])
        / 2,
        key_over_value_bytes=CACHE_BYTES_PER_ELEMENT[kv] - CACHE_BYTES_PER_ELEMENT[extra.get("value_cache", kv)],
        compute_bytes_per_element=BYTES_PER_ELEMENT.get(compute, 2.0),
        has_flash_attention=candidate.settings.has_flash_attention,
        most_score_bytes=float(extra.get("score_bytes", "inf")),
        library=extra.get("library", ""),
        backend=extra.get("backend") or _BACKENDS.get(device.vendor.lower(), "cpu"),
        latent_cache=extra.get("latent_cache", "latent"),
        projector_bytes=_projector_bytes(candidate),
        num_draft_tokens=float(extra.get("draft_tokens", "0")),
        num_draft_layers=int(extra.get("draft_layers", "0")),
        has_draft_head=extra.get("draft", "") == "mtp",
        multiplied_in=numbers,
        weights_format=candidate.precision.weights,
        cache_format=kv,
        version=extra.get("version", ""),
    )
    load = accounting.with_defaults(load, candidate.settings)
    return _mapped(load, accounting, host.drive) if candidate.offload.experts_nvme and host.drive else load


# An assumption: pages that are missed come in by requests of a few threads, not in one long read.
_FAULT_RATIO: Final = 0.5
_FAULT_ERROR: Final = 0.5  # half-width of the interval, of the time that the drive takes


def _mapped(load: ServingLoad, accounting: EngineAccounting, drive: Drive) -> ServingLoad:
    """Return the load with the experts that host memory does not hold read from a drive, page by page as they are chosen.

    Notes
    -----
    Derived: which experts a token chooses is taken to be even, and the system drops pages that were not used for longest. An
    expert is there when it is chosen if what was read since its last use is less than the memory for experts. After g
    tokens a part 1 - (1 - p)^g of the experts has been read, and just so likely is that one came by within g tokens:
    the part that is there is the part that fits.
    """
    has = held(load.shape, load.pp, load.num_cpu_layers, load.num_cpu_expert_layers)
    missing = float(accounting.memory(load).host_bytes()) - load.host_memory_bytes
    if not has.host_expert_bytes or missing > has.host_expert_bytes:
        return load
    return replace(
        load,
        host_memory_bytes=math.inf,
        drive_bytes_per_s=drive.read_bytes_per_s * _FAULT_RATIO,
        drive_miss_ratio=max(0.0, missing / has.host_expert_bytes),
    )


def _projector_bytes(candidate: Candidate) -> float:
    """Return the encoder of images as a file of its own, in the plain format that the candidate names; else nothing."""
    chosen = candidate.settings.extra.get("mmproj", "")
    if not chosen:
        return 0.0
    if candidate.model.encoder is None:
        raise RequestError(
            f"{candidate.model.name} has no encoder", where="--set settings.extra.mmproj", fix="leave it out"
        )
    found = find_format(chosen)
    if found.kind != "plain":
        raise RequestError(
            f"'{chosen[:40]}' is not a plain format", where="--set settings.extra.mmproj", fix="bf16, fp16 or fp32"
        )
    return float(weights_bytes(candidate.model, found.name)["vision_audio"])


def multiplied_in(weights: str, device: Device, engine: str) -> str:
    """Return the type in which matrices are multiplied: the weights' own where device and engine have it."""
    is_server = "hbm" in device.memory_type.lower() or engine == "tensorrt-llm"
    for word, kind in (("nvfp4", "fp4"), ("mxfp4", "fp8"), ("fp8", "fp8")):
        if word in weights and device.flop_per_s.get(kind) and (is_server or kind != "fp4"):
            return kind
    return "fp16" if device.flop_per_s.get("fp16") else "bf16"


def short_by_bytes(load: ServingLoad, needs: ServingMemory) -> Bytes:
    """Bytes missing on the device or on the host.

    Parameters
    ----------
    load : ServingLoad
        The load, or a column of them.
    needs : ServingMemory
        What an engine's accounting says of it.

    Returns
    -------
    numeric
        0 where it fits. [B]

    Notes
    -----
    Derived: the larger of both shortfalls.
    """
    device = needs.device_bytes() - needs.capacity_bytes
    return at_least(at_least(device, needs.host_bytes() - load.host_memory_bytes), 0.0)


def _largest(fits: Callable[[int], bool], guess: int, limit: int) -> int:
    """Return the largest whole number up to `limit` that fits, 0 when none does; a good guess costs two trials."""
    low, high, step = 0, limit + 1, 1
    tried = max(1, min(guess, limit))
    while high - low > 1:
        if fits(tried):
            low = tried
            tried = min(tried + step, (low + high + 1) // 2 if step > high - low else tried + step)
        else:
            high = tried
            tried = max(tried - step, (low + high) // 2 if step > high - low else tried - step)
        step *= 4
        if not low < tried < high:
            tried = (low + high) // 2
    return low


def _fits(load: ServingLoad, accounting: EngineAccounting) -> bool:
    return bool(short_by_bytes(load, accounting.memory(load)) <= 0)


def largest_context(load: ServingLoad, accounting: EngineAccounting, limit_tokens: int = 1 << 24) -> int:
    """Longest context, at the load's concurrency, that fits: one token more does not. 0 when nothing fits."""
    needs = accounting.memory(load)
    more = accounting.memory(replace(load, context_tokens=load.context_tokens + 4096))
    slope = max(float(more.device_bytes() - needs.device_bytes()) / 4096, 1e-9)
    spare = float(needs.capacity_bytes - needs.device_bytes())
    guess = int(max(1.0, min(load.context_tokens + spare / slope, limit_tokens)))
    return _largest(lambda tokens: _fits(replace(load, context_tokens=tokens), accounting), guess, limit_tokens)


def largest_concurrency(load: ServingLoad, accounting: EngineAccounting, limit: int = 1 << 16) -> int:
    """Most requests in flight, each at the load's full context, that fit one replica: one more does not."""
    needs = accounting.memory(load)
    more = accounting.memory(accounting.with_concurrency(load, load.concurrency + 1))
    slope = max(float(more.device_bytes() - needs.device_bytes()), 1.0)
    spare = float(needs.capacity_bytes - needs.device_bytes())
    guess = int(max(1.0, min(load.concurrency + spare / slope, limit)))
    return _largest(lambda number: _fits(accounting.with_concurrency(load, number), accounting), guess, limit)


def smallest_num_cpu_expert_layers(load: ServingLoad, accounting: EngineAccounting) -> int | None:
    """Fewest layers whose experts must stay on the host; None when even all of them do not make it fit."""

    def fits_device(number: int) -> bool:
        return _fits(replace(load, num_cpu_expert_layers=number, host_memory_bytes=math.inf), accounting)

    if not fits_device(load.shape.num_layers):
        return None
    low, high = -1, load.shape.num_layers
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits_device(middle) else (middle, high)
    return high if _fits(replace(load, num_cpu_expert_layers=high), accounting) else None


def estimate_serving(candidate: Candidate, accounting: EngineAccounting, *, has_largest: bool = True) -> Estimate:
    """Predict memory and speed of one serving candidate on one engine.

    Parameters
    ----------
    candidate : Candidate
        What is served, where and how; `candidate.workload` is a `Serving`.
    accounting : EngineAccounting
        The engine's rules, as `tonnage.engines.find_engine(name).accounting`.
    has_largest : bool
        Whether to look for the largest concurrency too, which takes as long as the rest.

    Returns
    -------
    Estimate
        Pools, step time and performance; cost is left empty.

    Raises
    ------
    RequestError
        Where a format has no known size or there is no device.

    Notes
    -----
    Derived: composed of `estimate.serving_memory`, `estimate.latency` and the engine's accounting.
    """
    load = serving_load(candidate, accounting)
    needs = accounting.memory(load)
    rates = accounting.rates(load)
    times = serving_times(load, rates, needs.cache_tokens)
    rates = _less_sure(rates, load, times)
    footprint = _footprint(candidate, needs)
    replicas = load.dp
    in_flight = candidate.workload.concurrency if isinstance(candidate.workload, Serving) else replicas
    # Copies without a request of their own give nothing: one request on eight copies is served by one of them.
    busy = in_flight / -(-in_flight // replicas)
    throughput = float(times.throughput_tokens_per_s) * busy
    found, requests_per_s = _waiting(load, times), throughput / load.output_tokens
    kept = found.goodput_per_s(*_latency_limits(candidate)) / found.requests_per_s
    most = Interval.exact(float(largest_concurrency(load, accounting) * replicas)) if has_largest else None
    return Estimate(
        candidate=candidate,
        footprint=footprint,
        step_time=StepTime(
            parts=tuple(
                TimePart(name=name, seconds=float(seconds), formula="tonnage.estimate.serving_speed.decode_parts")
                for name, seconds in times.decode_parts
            ),
            total=Interval.around(float(times.tpot_seconds), rates.relative_error),
        ),
        performance=Performance(
            tokens_per_s=Interval.around(throughput, rates.batch_relative_error),
            tokens_per_s_per_gpu=Interval.around(throughput / candidate.layout.num_devices, rates.batch_relative_error),
            prefill_tokens_per_s=Interval.around(float(times.prefill_tokens_per_s), rates.prefill_relative_error),
            ttft_seconds=Interval.around(found.ttft_seconds, rates.prefill_relative_error),
            tpot_seconds=Interval.around(found.tpot_seconds, rates.relative_error),
            ttft_p99_seconds=Interval.around(found.ttft_quantile_seconds(0.99), rates.prefill_relative_error),
            tpot_p99_seconds=Interval.around(found.tpot_quantile_seconds(0.99), rates.relative_error),
            requests_per_s=Interval.around(requests_per_s, rates.batch_relative_error),
            goodput_requests_per_s=Interval.around(requests_per_s * kept, rates.batch_relative_error),
            max_concurrency=most,
        ),
        cost=Cost(),
        storage=Storage(weights_bytes=load.shape.weights_bytes),
        provenance=Provenance(
            formulae=tuple(sorted({pool.formula for pool in needs.pools} | {"tonnage.estimate.latency"})),
            is_calibrated=rates.is_calibrated,
            assumptions=needs.assumptions,
            warnings=(*candidate.model.warnings, *needs.warnings),
        ),
    )


def _less_sure(rates: ServingRates, load: ServingLoad, times: ServingTimes) -> ServingRates:
    """Return the rates with intervals widened by the part of the time that a drive takes."""
    if not load.drive_miss_ratio:
        return rates
    part = dict(times.decode_parts).get("drive", 0.0) / times.tpot_seconds
    names = ("relative_error", "prefill_relative_error", "batch_relative_error")
    return replace(rates, **{name: min(0.9, getattr(rates, name) + _FAULT_ERROR * float(part)) for name in names})


def _waiting(load: ServingLoad, times: ServingTimes) -> Waiting:
    """Return what the requests of one replica see; of fewer than run together, as many as there are."""
    running = float(times.num_running)
    return waiting(
        num_requests=max(float(load.concurrency), running),
        num_running=running,
        output_tokens=float(load.output_tokens),
        token_seconds=float(times.tpot_seconds),
        busy_token_seconds=float(times.busy_token_seconds),
        prompt_seconds=float(times.prefill_seconds),
        first_token_seconds=float(times.single_tpot_seconds),
    )


def _latency_limits(candidate: Candidate) -> tuple[float | None, float | None]:
    workload = candidate.workload
    assert isinstance(workload, Serving)
    return workload.ttft_limit_seconds, workload.tpot_limit_seconds


def _footprint(candidate: Candidate, needs: ServingMemory) -> Footprint:
    """Turn numbers into named pools; the total's interval is the engine's, not the sum of the pools' ones."""
    pools = tuple(
        Pool(
            name=pool.name,
            bytes=float(pool.bytes),
            formula=pool.formula,
            detail=format_bytes(float(pool.bytes), 2),
            is_on_host=pool.is_on_host,
            relative_error=pool.relative_error,
        )
        for pool in needs.pools
        if pool.bytes > 0
    )
    if candidate.offload.experts_nvme:
        pools = _within(pools, candidate.cluster.node.host.memory_bytes)
    device = sum(pool.bytes for pool in pools if not pool.is_on_host)
    host = sum(pool.bytes for pool in pools if pool.is_on_host)
    allocated = needs.allocated_bytes
    return Footprint(
        capacity_bytes=int(needs.capacity_bytes),
        pools=pools,
        total=Interval.around(device, needs.relative_error),
        host_capacity_bytes=candidate.cluster.node.host.memory_bytes,
        host_total=Interval.exact(host)
        if candidate.offload.experts_nvme
        else Interval.around(host, needs.relative_error),
        allocated_bytes=None if allocated is None else float(allocated),
        is_shared=candidate.cluster.node.devices[0].is_unified_memory,
    )


def _within(pools: tuple[Pool, ...], memory_bytes: int) -> tuple[Pool, ...]:
    """Return the pools with the host's weights no more than its memory holds: the system keeps what fits of the file."""
    over = sum(pool.bytes for pool in pools if pool.is_on_host) - memory_bytes
    return tuple(
        replace(pool, bytes=max(0.0, pool.bytes - max(0.0, over))) if pool.name == "host_weights" else pool
        for pool in pools
    )
