"""What rules a candidate out before it is estimated, each with its reason: divisibility, hardware, requirements."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from tonnage.estimate.types import Candidate
from tonnage.hardware.types import Cluster, Device
from tonnage.messages import say
from tonnage.model.types import (
    Attention,
    CompressedAttention,
    GatedDeltaNet,
    LatentAttention,
    Layer,
    LightningAttention,
    Mamba2,
    Model,
    Moe,
)
from tonnage.workload.types import Training

Reason = str
_NO_BF16: Final = frozenset({"Turing", "Volta", "Pascal", "Maxwell"})


def head_counts(model: Model) -> tuple[int, ...]:
    """Return the numbers of heads that tensor parallelism must divide, of every kind of layer."""
    return _shape(model)[0]


def num_experts(model: Model) -> int:
    """Return the routed experts of a layer, 0 for a dense model."""
    return _shape(model)[1]


_SHAPES: dict[int, tuple[tuple[Layer, ...], tuple[tuple[int, ...], int]]] = {}
_MOST_SHAPES: Final = 16


def _shape(model: Model) -> tuple[tuple[int, ...], int]:
    """Return heads and experts, counted once a model: a search asks thousands of times."""
    known = _SHAPES.get(id(model.layers))
    if known is None or known[0] is not model.layers:
        if len(_SHAPES) >= _MOST_SHAPES:
            _SHAPES.clear()
        known = _SHAPES[id(model.layers)] = model.layers, (_count_heads(model), _count_experts(model))
    return known[1]


def _count_heads(model: Model) -> tuple[int, ...]:
    counts: set[int] = set()
    for layer, _ in model.groups():
        for mixer in layer.mixers:
            if isinstance(mixer, (Attention, CompressedAttention, LatentAttention, LightningAttention, Mamba2)):
                counts.add(mixer.num_heads)
            elif isinstance(mixer, GatedDeltaNet):
                counts |= {mixer.num_key_heads, mixer.num_value_heads}
    return tuple(sorted(counts))


def _count_experts(model: Model) -> int:
    parts = (part for layer, _ in model.groups() for part in layer.feed_forwards)
    return max((part.num_experts for part in parts if isinstance(part, Moe)), default=0)


def _too_few_devices(candidate: Candidate) -> Reason | None:
    needed, there = candidate.layout.num_devices, candidate.cluster.num_devices
    return say("search.too_few_devices", needed=needed, there=there) if needed > there else None


def _heads_do_not_divide(candidate: Candidate) -> Reason | None:
    tp = candidate.layout.tp
    for heads in head_counts(candidate.model):
        if heads % tp:
            return say("search.heads", heads=heads, tp=tp)
    return None


def _too_few_layers(candidate: Candidate) -> Reason | None:
    stages = candidate.layout.pp * candidate.layout.num_virtual_stages
    if stages > candidate.model.num_layers:
        return say("search.layers", layers=candidate.model.num_layers, stages=stages)
    return None


def _experts_do_not_divide(candidate: Candidate) -> Reason | None:
    ep, experts = candidate.layout.ep, num_experts(candidate.model)
    if ep > 1 and not experts:
        return say("search.no_experts", ep=ep)
    if ep > 1 and experts % ep:
        return say("search.experts", experts=experts, ep=ep)
    layout = candidate.layout
    if ep > 1 and (layout.dp * layout.tp * layout.cp) % ep:
        return say("search.expert_group", ep=ep, ranks=layout.dp * layout.tp * layout.cp)
    if candidate.offload.num_cpu_expert_layers and not experts:
        return say("search.no_experts_to_move")
    return None


def _compute_not_there(candidate: Candidate) -> Reason | None:
    compute = candidate.precision.compute
    for device in candidate.cluster.node.devices:
        is_old = device.vendor == "NVIDIA" and device.architecture in _NO_BF16
        if (compute == "bf16" and is_old) or (compute in ("fp8", "fp4") and not device.flop_per_s.get(compute)):
            return say("search.compute", name=device.name, compute=compute)
    return None


def _batch_does_not_divide(candidate: Candidate) -> Reason | None:
    load = candidate.workload
    if not isinstance(load, Training):
        return None
    one = candidate.layout.dp * candidate.micro_batch_size
    return say("search.batch", total=load.global_batch_size, one=one) if load.global_batch_size % one else None


_CHECKS: Final[tuple[Callable[[Candidate], Reason | None], ...]] = (
    _too_few_devices,
    _heads_do_not_divide,
    _too_few_layers,
    _experts_do_not_divide,
    _compute_not_there,
    _batch_does_not_divide,
)


def why_not(candidate: Candidate) -> Reason | None:
    """Return why a candidate cannot be, or None.

    >>> why_not.__name__
    'why_not'
    """
    return next((reason for check in _CHECKS if (reason := check(candidate)) is not None), None)


def lacks(device: Device, requirements: Iterable[str]) -> Reason | None:
    """Return which required feature a device lacks, or does not say that it has; None when it has all."""
    has = {
        "ecc": device.has_ecc,
        "p2p": device.has_p2p or device.nvlink_bytes_per_s is not None,
        "nvlink": device.nvlink_bytes_per_s is not None,
        "official": not device.is_unofficial,
    }
    missing = [name for name in requirements if not has[name]]
    return say("search.lacks", name=device.name, feature=missing[0]) if missing else None


def power_watts(cluster: Cluster) -> float | None:
    """Return the power limit of all devices together, None when one is not known."""
    limits = [device.power_watts for device in cluster.node.devices]
    return None if None in limits else sum(w for w in limits if w is not None) * cluster.num_nodes
