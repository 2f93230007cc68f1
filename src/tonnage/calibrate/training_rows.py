"""Training rows: from the words of a source to a candidate, the quantity measured, and what the source left open."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tonnage.calibrate.devices import cluster_of, device_of, is_above_capacity
from tonnage.calibrate.training_model import model_of
from tonnage.calibrate.types import Row, Scored
from tonnage.estimate import parameters
from tonnage.estimate.compose_training import software
from tonnage.estimate.types import Candidate, EngineSettings, Layout, Offload, Recompute
from tonnage.messages import say
from tonnage.workload.precision import Precision
from tonnage.workload.types import Training, TrainingKind

METRICS: Final = ("peak_mem_gib", "tokens_per_s_per_gpu", "step_time_s")
_KINDS: Final = {
    "pretrain": TrainingKind.PRETRAIN,
    "full_ft": TrainingKind.FULL,
    "lora": TrainingKind.LORA,
    "qlora": TrainingKind.QLORA,
    "adapter": TrainingKind.LORA,
    "adapter_v2": TrainingKind.LORA,
    "llamapro": TrainingKind.LORA,
}
# First match wins; what a program trains with underneath.
_ENGINES: Final = (
    ("deepspeed zero-3", "deepspeed"),
    ("+ deepspeed", "deepspeed"),
    ("megatron + deepspeed", "deepspeed"),
    ("megatron-deepspeed", "megatron-deepspeed"),
    ("megatron", "megatron"),
    ("nemo", "megatron"),
    ("foundry", "llm-foundry"),
    ("composer", "llm-foundry"),
    ("torchtitan", "torchtitan"),
    ("torchtune", "torchtune"),
    ("litgpt", "litgpt"),
    ("unsloth", "unsloth"),
    ("colossal", "colossalai"),
    ("fsdp2", "torchtitan"),
    ("deepspeed", "deepspeed"),
)
_MICRO_STEP: Final = ("litgpt", "fsdp_qlora", "universal llm trainer")  # their step time is of one micro-batch
_RELEASES: Final = (  # month of a torch release, where a row tells no date
    ("torch 2.1", 2023.8), ("torch 2.2", 2024.1), ("torch 2.3", 2024.3), ("torch 2.4", 2024.6), ("torch 2.5", 2024.8),
    ("torch 2.6", 2025.0), ("torch 2.7", 2025.3), ("torch 2.8", 2025.6), ("torch 2.9", 2025.8), ("2.10.0", 2026.1),
    ("2.14.0", 2026.8),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRow:
    """A row as a candidate: what it measured, of which quantity and rank, and the fields that were assumed."""

    row: Row
    candidate: Candidate
    unknown: frozenset[str]
    quantity: str
    rank: str
    step_is_micro: bool
    mean_tokens: float | None  # of a sample, where lengths vary below a cap


def engine_of(row: Row) -> str:
    """Return the name of the training software whose traits a row's framework has."""
    text = str(row.get("framework") or "").lower()
    return next((engine for words, engine in _ENGINES if words in text), "transformers")


def release_year(text: str) -> float | None:
    """Return when a release was made, in years, from however a row says it.

    >>> release_year("NeMo container 25.09"), release_year("Feb 2022"), release_year("torch 2.6 nightly 2024-12-23")
    (2025.67, 2022.08, 2024.92)
    >>> release_year("dgxc-benchmarking v25.05.01")
    2025.33
    """
    if match := re.search(r"\b(20\d\d)-(\d\d)(?:-\d\d)?\b", text):
        return round(int(match[1]) + (int(match[2]) - 1) / 12, 2)
    if match := re.search(r"(?<![\d.])(2\d)\.(0[1-9]|1[0-2])\b", text):
        return round(2000 + int(match[1]) + (int(match[2]) - 1) / 12, 2)
    months = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
    for words, year in _RELEASES:
        if words in text:
            return year
    if match := re.search(r"\b(20\d\d)\b", text):
        month = next((i for i, name in enumerate(months) if name in text.lower()), 5)
        return round(int(match[1]) + month / 12, 2)
    return None


def _precision(row: Row, kind: TrainingKind, engine: str) -> tuple[Precision, set[str]]:
    text = str(row.get("precision") or "").lower()
    quant = str(row.get("quant") or "").lower()
    unknown = set() if text else {"precision"}
    compute = "fp16" if "fp16" in text and "bf16" not in text else "bf16"
    if "nvfp4" in text:
        compute = "nvfp4"
    elif "mxfp8" in text or "fp8-mx" in text:
        compute = "mxfp8"
    elif "fp8" in text or "float8" in quant:
        compute = "fp8_rowwise" if "rowwise" in quant else "fp8"
    elif text.startswith("fp32"):
        compute = "fp32"
    half = "fp16" if compute == "fp16" else "bf16"
    if kind in (TrainingKind.LORA, TrainingKind.QLORA):
        return _adapter_precision(text, quant, kind, compute, engine), unknown
    if engine in ("megatron", "colossalai"):
        # Megatron-Bridge reduces gradients in 16 bit (grad_reduce_in_fp32 = False in its recipes), others in fp32.
        is_bridge = "bridge" in str(row.get("framework") or "").lower()
        return Precision(
            weights=half, compute=compute, gradients=half if is_bridge else "fp32", has_fp32_master=True
        ), unknown
    if engine in ("megatron-deepspeed", "deepspeed"):
        is_fp32 = "fp32 grad" in str(row.get("optimizer") or "").lower()
        gradients = "fp32" if is_fp32 else half
        return Precision(weights=half, compute=compute, gradients=gradients, has_fp32_master=True), unknown
    is_pure = any(word in text for word in ("pure", "bf16-true")) or text == "bf16"
    if is_pure and "mixed_precision=pure" not in text:
        return Precision(weights="bf16", compute=compute, gradients="bf16"), unknown
    return Precision(weights="fp32", compute=compute, gradients="fp32"), unknown


def _adapter_precision(text: str, quant: str, kind: TrainingKind, compute: str, engine: str) -> Precision:
    half = "fp16" if compute == "fp16" else "bf16"
    weights = half
    if kind is TrainingKind.QLORA or quant:
        if "gptq" in quant or "awq" in quant:
            weights = "gptq_int8" if "int8" in quant else "gptq_int4"
        elif "int8" in quant:
            weights = "int8"
        elif not quant.startswith("float8"):
            weights = "nf4_dq" if "dq" in quant or engine == "unsloth" else "nf4"
    elif "fp32 weights" in text or text.startswith("fp32") or "no mixed" in text:
        weights = "fp32"
    is_true = any(word in text for word in ("bf16-true", "pure bf16"))
    # peft's prepare_model_for_kbit_training holds everything that bitsandbytes does not quantise in fp32.
    is_prepared = engine == "transformers" and weights in ("nf4", "nf4_dq", "int8") and not is_true
    keeps_fp32 = "kept fp32" in text and weights not in ("fp16", "bf16")
    return Precision(
        weights=weights,
        compute=compute,
        gradients=half if is_true else "fp32",
        # Quantised products return the type of their input: without autocast attention runs in that of the norms.
        attention="fp32" if keeps_fp32 and "mixed" not in text else None,
        unquantized="fp32" if keeps_fp32 or is_prepared else None,
    )


def _optimizer(row: Row, precision: Precision) -> tuple[str, set[str]]:
    text = str(row.get("optimizer") or "").lower()
    unknown = set() if text else {"optimizer"}
    pure = precision.gradients in ("bf16", "fp16") and not precision.has_fp32_master
    if "8bit" in text or "8-bit" in text:
        return ("paged_adamw_8bit" if "paged" in text else "adamw_8bit"), unknown
    if "paged" in text:
        return "paged_adamw", unknown
    for name in ("adafactor", "muon", "sgd"):
        if name in text:
            return name, unknown
    return ("adamw_bf16" if pure else "adamw"), unknown


def _recompute(row: Row, engine: str) -> tuple[Recompute, tuple[str, ...], bool, set[str]]:
    text = str(row.get("activation_checkpointing") or "").lower()
    offloads = "offload of checkpoints" in text
    if text.startswith("full"):
        return Recompute.FULL, (), offloads, set()
    if text.startswith("selective"):
        names = text.partition(":")[2]
        modules = tuple(name.strip() for name in names.split(",") if name.strip())
        return Recompute.SELECTIVE, modules, offloads, set()
    if text:
        return Recompute.NONE, (), offloads, set()
    return Recompute(software(engine).recompute), (), offloads, {"recompute"}


def _offload(row: Row, num_layers: int, *, activations: bool) -> Offload:
    text = str(row.get("offload") or "").lower()
    everything = any(word in text for word in ("full", "param", "fsdp"))
    cpu_experts = num_layers if "experts" in text else 0
    return Offload(
        optimizer=everything or "optimizer" in text,
        parameters=everything,
        activations=activations,
        num_cpu_expert_layers=cpu_experts,
    )


def _zero_stage(row: Row, engine: str) -> tuple[int, set[str]]:
    if (stage := row.get("zero_stage")) is not None:
        return int(stage), set()
    text = str(row.get("fsdp_sharding") or "").lower()
    if "full" in text or "fsdp" in text:
        return 3, set()
    return (1 if engine == "megatron" else 0), {"zero_stage"}


def _whole(row: Row, name: str, otherwise: int) -> int:
    value = row.get(name)
    return int(value) if isinstance(value, (int, float)) and value > 0 else otherwise


def pipeline_chunks(text: str) -> list[str]:
    """Return the model chunks of a Megatron pipeline layout, in order.

    >>> pipeline_chunks("Et*2|(tt|)*2t|tmL")
    ['Ett', 'tt', 'tt', 't', 'tmL']
    """
    spread = re.sub(r"\(([^()]*)\)\*(\d+)", lambda m: m[1] * int(m[2]), text[:200])
    spread = re.sub(r"([A-Za-z])\*(\d+)", lambda m: m[1] * min(int(m[2]), 1000), spread)
    return [chunk for chunk in spread.split("|") if chunk]


def _stage_layers(row: Row, pp: int) -> tuple[int | None, int | None]:
    """Return the layers of the first and the last rank, where the row tells."""
    if row.get("pp_layout") and pp > 1:
        chunks = [chunk.count("t") for chunk in pipeline_chunks(str(row["pp_layout"]))]
        return sum(chunks[::pp]), sum(chunks[pp - 1 :: pp])
    return row.get("first_stage_layers"), row.get("last_stage_layers")


def _virtual_stages(row: Row, num_layers: int, pp: int) -> int:
    value = row.get("vpp")
    if row.get("pp_layout"):
        return max(1, len(pipeline_chunks(str(row["pp_layout"]))) // pp)
    if isinstance(value, str) and (match := re.search(r"layers/virtual stage (\d+)", value)):
        return max(1, num_layers // pp // int(match[1]))
    return _whole(row, "vpp", 1)


def _assumed_devices(row: Row, num_parameters: float, of_one_replica: int) -> int:
    """Return how many devices a job of unknown size has: one node, or one for each 0.25 B parameters if that is more.

    Experts need as many ranks as they are spread over, with each pipeline stage having its own.
    """
    num_nodes = _whole(row, "n_nodes", 0)
    usual = 8 * num_nodes if num_nodes else max(8, 8 * round(num_parameters / 2e9))
    spread = _whole(row, "ep", 1) * _whole(row, "etp", 1) * _whole(row, "pp", 1)
    least = max(usual, spread)
    return of_one_replica * max(1, -(-least // of_one_replica))


def _layout(row: Row, engine: str, num_layers: int, num_parameters: float) -> tuple[Layout, set[str]]:
    zero, unknown = _zero_stage(row, engine)
    tp, pp, cp = (_whole(row, name, 1) for name in ("tp", "pp", "cp"))
    num_devices = _whole(row, "n_gpus", 0)
    if not num_devices and row.get("dp") is None:
        num_devices = _assumed_devices(row, num_parameters, tp * pp * cp)
        unknown.add("n_gpus")
    dp = _whole(row, "dp", max(1, num_devices // (tp * pp * cp)) if num_devices else 8)
    if row.get("dp") is None and not row.get("n_gpus"):
        unknown.add("dp")
    # A job on several cards without any parallelism that splits work puts whole layers on each card in turn.
    if num_devices > dp * tp * pp * cp and dp * tp * pp * cp == 1:
        pp = num_devices
    first, last = _stage_layers(row, pp)
    return Layout(
        dp=dp,
        tp=tp,
        pp=pp,
        cp=cp,
        ep=_whole(row, "ep", 1),
        etp=row.get("etp"),
        zero_stage=zero,
        num_virtual_stages=_virtual_stages(row, num_layers, pp),
        has_sequence_parallel=bool(row.get("sp")),
        first_stage_layers=first,
        last_stage_layers=last,
    ), unknown


def _batch(row: Row, layout: Layout, engine: str) -> tuple[int, int, set[str]]:
    """Return micro-batch size and global batch size."""
    unknown = set() if row.get("micro_batch") else {"micro_batch"}
    micro = _whole(row, "micro_batch", 1)
    accumulation = _whole(row, "grad_accum", 0)
    total = _whole(row, "global_batch_seqs", 0)
    if engine == "torchtitan" and layout.pp > 1:
        accumulation = layout.pp * max(1, accumulation)
        micro = max(1, micro // layout.pp)
        total = micro * accumulation * layout.dp
    if not accumulation and not total:
        unknown.add("grad_accum")
    if not accumulation:
        accumulation = max(1, round(total / (layout.dp * micro))) if total else 1
    return micro, micro * accumulation * layout.dp, unknown


def _targets(row: Row) -> tuple[tuple[str, ...], set[str]]:
    if row.get("kind") == "adapter":  # a prefix in attention: no matrix carries anything
        return ("prefix",), set()
    if row.get("kind") == "adapter_v2":  # scale and bias on every matrix
        return ("all",), set()
    text = str(row.get("lora_targets") or "").lower()
    if not text:
        return ("q", "v"), {"lora_targets"}
    if text.startswith("all") or "all linear" in text:  # transformers 4 held each expert as linear layers
        return ("all",), set()
    if text.startswith("default"):
        inner = re.findall(r"[a-z_]+", text.partition("(")[2])
        return tuple(w for w in inner if w in ("q", "v", "c_attn", "qkv", "query_key_value")) or ("q", "v"), set()
    return tuple(word.strip() for word in text.partition("(")[0].split(",") if word.strip()), set()


def _mean_tokens(row: Row) -> float | None:
    text = str(row.get("seq_len_kind") or "")
    if match := re.search(r"median ~(\d+) tok", text):
        return float(match[1])
    return None


def to_candidate(row: Row) -> TrainingRow | str:
    """Return a row as a candidate, or the reason why it cannot be one."""
    kind = _KINDS.get(str(row.get("kind")))
    if kind is None:
        return say("score.no_kind", kind=row.get("kind"))
    model, unknown = model_of(row)
    if model is None:
        return say("score.no_shape")
    engine = engine_of(row)
    device, device_unknown = device_of(row)
    precision, precision_unknown = _precision(row, kind, engine)
    optimizer, optimizer_unknown = _optimizer(row, precision)
    recompute, modules, offloads, recompute_unknown = _recompute(row, engine)
    layout, layout_unknown = _layout(row, engine, model.num_layers, parameters.count(model).total)
    micro, total, batch_unknown = _batch(row, layout, engine)
    targets, target_unknown = _targets(row)
    unknown |= device_unknown | precision_unknown | optimizer_unknown | recompute_unknown | layout_unknown
    unknown |= batch_unknown | (target_unknown if kind in (TrainingKind.LORA, TrainingKind.QLORA) else set())
    unknown |= {name for name in ("seq_len", "flash_attention") if row.get(name) is None}
    if (
        str(row.get("seq_len_kind") or "fixed")
        .lower()
        .startswith(("fixed", "packed", "full", "dummy", "padded", "mock"))
        is False
    ):
        unknown.add("lengths")
    if row.get("framework_version") is None:
        unknown.add("version")
    flash = row.get("flash_attention")
    version = str(row.get("framework_version") or row.get("date") or "")
    year = release_year(version)
    quantity = str(row.get("mem_quantity") or "unknown")
    candidate = Candidate(
        model=model,
        workload=Training(
            kind=kind,
            seq_len=_whole(row, "seq_len", 512 if "lengths" in unknown else 2048),
            global_batch_size=total,
            lora_rank=_whole(row, "lora_rank", 1 if "adapter" in str(row["kind"]) else 8),
            lora_targets=targets,
            num_mtp_layers=_whole(row, "mtp_layers", 0),
        ),
        cluster=cluster_of(row, device),
        engine=engine,
        layout=layout,
        precision=precision,
        recompute=recompute,
        offload=_offload(row, model.num_layers, activations=offloads),
        micro_batch_size=micro,
        optimizer=optimizer,
        settings=EngineSettings(
            has_flash_attention=bool(flash) if flash is not None else True,
            has_fused_loss=str(row.get("ce_fusion") or "").lower() == "fused-linear",
            has_compile=bool(row.get("compile")),
            has_dropout=engine in ("megatron", "megatron-deepspeed") and year is not None and year < 2023,
            recompute_modules=modules,
            has_cuda_graphs=engine == "megatron" and any(word in version for word in ("container", "dgxc")),
            steps_in_backward="in_bwd" in str(row.get("optimizer") or "").lower(),
            version=version or None,
            release_year=year,
        ),
    )
    return TrainingRow(
        row=row,
        candidate=candidate,
        unknown=frozenset(unknown),
        quantity={"unknown": "reserved"}.get(quantity, quantity),
        rank={"first": "first", "last": "last"}.get(str(row.get("mem_rank")), "max"),
        step_is_micro=any(word in str(row.get("framework") or "").lower() for word in _MICRO_STEP),
        mean_tokens=_mean_tokens(row),
    )


def measured_metrics(row: Row) -> list[tuple[str, float]]:
    """Return the metrics a row is scored on; a peak before a failure is no measurement of a fit."""
    found = []
    for metric in METRICS:
        value = row.get(metric)
        if isinstance(value, (int, float)) and value > 0 and not (metric == "peak_mem_gib" and row.get("oom")):
            found.append((metric, float(value)))
    return found


def decides_oom(row: Row) -> bool:
    """Whether a row tells if the run fitted."""
    if row.get("score_oom") is False:
        return False
    if row.get("oom"):
        return True
    device, _ = device_of(row)
    return row.get("peak_mem_gib") is not None and not is_above_capacity(row, device)


def labels(row: Row) -> dict[str, Any]:
    """Return what a scored row is broken down by."""
    return {
        "id": str(row["id"]),
        "trust": str(row.get("trust") or ""),
        "group": str(row.get("group") or ""),
        "source": str(row.get("source_key") or row.get("source") or ""),
        "framework": str(row.get("framework") or ""),
        "gpu": str(row.get("gpu") or ""),
        "kind": str(row.get("kind") or ""),
    }


class _TrainingDomain:
    name = "training"

    def claims(self, row: Row) -> bool:
        return "measured" not in row and str(row.get("kind")) in _KINDS

    def score(self, rows: Sequence[Row], leave_out: str | None) -> list[Scored]:
        from tonnage.calibrate.training_score import score_training  # noqa: PLC0415  numpy work starts here

        return score_training(rows, leave_out)


DOMAIN: Final = _TrainingDomain()
