"""What a candidate asks for, in the words that refusals are written in, and whether a refusal holds for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from tonnage.engines.types import Refusal
from tonnage.estimate.types import Candidate, Recompute
from tonnage.estimate.weights import is_gguf_file
from tonnage.model.types import (
    Attention,
    CompressedAttention,
    GatedDeltaNet,
    LatentAttention,
    LightningAttention,
    Mamba1,
    Mamba2,
    Model,
    Moe,
)
from tonnage.workload.types import Serving, Training

__all__ = ["holds", "refusals_of", "traits_of_candidate"]

_STATES = (GatedDeltaNet, LightningAttention, Mamba1, Mamba2)
_GGUF = ("q?_*", "iq*", "tq*", "gguf_bf16")


def refusals_of(rows: Iterable[Mapping[str, Any]]) -> tuple[Refusal, ...]:
    """Return refusals from a data file's tables."""
    lists = ("formats", "architectures", "vendors", "families", "traits", "lacks")
    return tuple(
        Refusal(
            reason=one["reason"],
            source=one["source"],
            below_capability=float(one.get("below_capability", 0.0)),
            **{name: tuple(one.get(name, ())) for name in lists},
        )
        for one in rows
    )


def holds(refusal: Refusal, candidate: Candidate, has: frozenset[str]) -> bool:
    """Whether a refusal is about a candidate that has some traits: everything that it names must be there."""
    devices = candidate.cluster.node.devices
    capability = float(devices[0].compute_capability or 0.0) if devices and devices[0].vendor == "NVIDIA" else 0.0
    if refusal.below_capability and not 0 < capability < refusal.below_capability:
        return False
    return (
        _matches(refusal.formats, candidate.precision.weights)
        and _matches(refusal.architectures, devices[0].architecture if devices else "cpu")
        and _matches(refusal.vendors, devices[0].vendor if devices else "cpu")
        and _matches(refusal.families, candidate.model.family)
        and has.issuperset(refusal.traits)
        and has.isdisjoint(refusal.lacks)
    )


def _matches(patterns: tuple[str, ...], value: str) -> bool:
    return not patterns or any(fnmatchcase(value.lower(), pattern.lower()) for pattern in patterns)


def traits_of_candidate(candidate: Candidate) -> frozenset[str]:
    """Return what a candidate asks for.

    Of the load: serving, or the kind of training (pretrain, full, lora, qlora) and `trains_all`. Of the model: moe or
    dense, gguf (a GGUF file), latent_attention, windows, states, encoder, sinks, tied, odd_head (channels no multiple of
    32). Of the formats: weights by name,
    `gguf_weights`, `compute:NAME`, `kv:NAME`, `fp32_master`. `engine:NAME` is the software that the plan counted. Of the layout: tp, pp, cp, ep, dp where there are several
    ways, zero1 … zero3, `heads_uneven`, `kv_heads_uneven`, `experts_uneven`, `stages_uneven`, `tokens_uneven` (twice
    the context-parallel ranks do not divide a sequence), virtual_stages, uneven_ends. Of the way it runs:
    recompute_full, recompute_selective, recompute_groups, what is on the host, `no_flash_attention`, draft, compile, kv_quantised, several_requests, over_256_requests, tp_over_4, the
    optimizer. Of the machine: its maker or cpu, several_devices, several_nodes.
    """
    layout, workload = candidate.layout, candidate.workload
    devices = candidate.cluster.node.devices
    weights = candidate.precision.weights
    has = {
        str(workload.kind) if isinstance(workload, Training) else "serving",
        weights,
        f"compute:{candidate.precision.compute}",
        f"kv:{candidate.precision.kv}",
        candidate.optimizer,
        f"engine:{candidate.engine}",
        devices[0].vendor.lower() if devices else "cpu",
        *_of_model(candidate.model),
        *(way for way in ("tp", "pp", "cp", "ep", "dp") if getattr(layout, way) > 1),
        *_of_shape(candidate),
    }
    offload, settings = candidate.offload, candidate.settings
    for name, is_asked in (
        ("trains_all", has & {"pretrain", "full"}),
        ("gguf_weights", any(fnmatchcase(weights, pattern) for pattern in _GGUF)),
        ("several_devices", layout.num_devices > 1),
        ("several_nodes", candidate.cluster.num_nodes > 1),
        (f"zero{layout.zero_stage}", layout.zero_stage),
        ("virtual_stages", layout.num_virtual_stages > 1),
        ("uneven_ends", layout.first_stage_layers is not None or layout.last_stage_layers is not None),
        (f"recompute_{candidate.recompute}", candidate.recompute is not Recompute.NONE),
        ("recompute_groups", candidate.recompute is Recompute.FULL and candidate.recompute_every > 1),
        ("offload_optimizer", offload.optimizer),
        ("offload_parameters", offload.parameters),
        ("offload_activations", offload.activations),
        ("offload_nvme", offload.optimizer_nvme or offload.parameters_nvme),
        ("experts_on_host", offload.num_cpu_expert_layers),
        ("layers_on_host", offload.num_cpu_layers),
        ("no_flash_attention", not settings.has_flash_attention),
        ("compile", settings.has_compile),
        ("kv_quantised", candidate.precision.kv.startswith(("q", "iq"))),
        ("several_requests", _num_requests(candidate) > 1),
        ("over_256_requests", _num_requests(candidate) > 256),
        ("tp_over_4", layout.tp > 4),
        ("draft", settings.extra.get("draft_tokens", "0") != "0"),
        ("fp32_master", candidate.precision.has_fp32_master),
    ):
        if is_asked:
            has.add(name)
    return frozenset(has)


def _num_requests(candidate: Candidate) -> int:
    """Return the requests in flight that a server is started for."""
    workload = candidate.workload
    return candidate.settings.max_num_seqs or (workload.concurrency if isinstance(workload, Serving) else 0)


def _of_model(model: Model) -> Iterable[str]:
    """Yield what the network is made of."""
    mixers = [mixer for layer, _ in model.groups() for mixer in layer.mixers]
    plain = [mixer for mixer in mixers if isinstance(mixer, Attention)]
    yield "moe" if model.is_moe else "dense"
    for name, is_so in (
        ("gguf", is_gguf_file(model) or model.name.endswith(".gguf")),
        ("latent_attention", any(isinstance(mixer, LatentAttention) for mixer in mixers)),
        ("odd_head", any(mixer.head_dim % 32 for mixer in plain)),
        ("windows", any(mixer.window_tokens is not None for mixer in plain)),
        ("sinks", any(mixer.num_sinks for mixer in plain)),
        ("states", any(isinstance(mixer, _STATES) for mixer in mixers)),
        ("encoder", model.encoder is not None),
        ("tied", model.is_tied),
    ):
        if is_so:
            yield name


def _of_shape(candidate: Candidate) -> Iterable[str]:
    """Yield what the layout does not divide."""
    layout, model = candidate.layout, candidate.model
    mixers = [mixer for layer, _ in model.groups() for mixer in layer.mixers]
    heads = [m.num_heads for m in mixers if isinstance(m, Attention | LatentAttention | CompressedAttention)]
    kv_heads = [m.num_kv_heads for m in mixers if isinstance(m, Attention)]
    experts = [f.num_experts for layer, _ in model.groups() for f in layer.feed_forwards if isinstance(f, Moe)]
    workload = candidate.workload
    tokens = workload.seq_len if isinstance(workload, Training) else 0
    for name, is_so in (
        ("heads_uneven", any(number % layout.tp for number in heads)),
        ("kv_heads_uneven", any(max(number, layout.tp) % min(number, layout.tp) for number in kv_heads)),
        ("experts_uneven", any(number % layout.ep for number in experts)),
        ("stages_uneven", model.num_layers % layout.pp and layout.first_stage_layers is None),
        ("tokens_uneven", layout.cp > 1 and tokens % (2 * layout.cp)),
    ):
        if is_so:
            yield name
