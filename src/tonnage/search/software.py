"""What a person fixed that training software does not do or that says nothing; and what its formats pass over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tonnage.estimate.types import Candidate, Recompute
from tonnage.estimate.weights import find_format
from tonnage.hardware.types import Cluster
from tonnage.messages import say
from tonnage.workload.precision import is_plain
from tonnage.workload.types import Training, TrainingKind

if TYPE_CHECKING:
    from tonnage.search.training_space import TrainingSpace, TrainingWays

_LAYER_FORMATS: Final = "bitsandbytes"  # kind of the formats that are made layer by layer while a model is loaded
_HALVES: Final = ("bf16", "fp16")


def cannot(ways: TrainingWays, kind: TrainingKind, cluster: Cluster) -> str | None:
    """Return why a training software cannot do a method on some devices, or None."""
    if kind.value not in ways.methods:
        return say("search.no_method", name=ways.name, method=kind.value)
    foreign = next((d for d in cluster.node.devices if d.vendor.lower() not in ways.vendors), None)
    return say("search.no_vendor", name=ways.name, device=foreign.name) if foreign else None


def does_not(ways: TrainingWays, base: Candidate) -> str | None:
    """Return what of a candidate, whatever its layout, its training software does not do, or None."""
    load, weights = base.workload, base.precision.weights
    assert isinstance(load, Training)
    if load.kind in (TrainingKind.FULL, TrainingKind.PRETRAIN) and not is_plain(weights):
        return say("search.frozen_only", weights=weights)
    if weights not in ways.weights:
        return say("search.no_weights", name=ways.name, weights=weights, known=", ".join(ways.weights))
    if base.optimizer not in ways.optimizers:
        known = ", ".join(ways.optimizers)
        return say("search.no_optimizer", name=ways.name, optimizer=base.optimizer, known=known)
    for number, what in ((base.offload.num_cpu_expert_layers, "experts"), (base.offload.num_cpu_layers, "layers")):
        if number and what not in ways.offload:
            return say("search.no_offload", name=ways.name, what=what)
    return None


def means_nothing(space: TrainingSpace, x: Mapping[str, Any]) -> Iterator[tuple[Any, str]]:
    """Yield where a fixed field says nothing beside another, as a mask, with the reason; no search makes such cells."""
    pinned = space.pinned
    if "recompute_every" in pinned:
        alone = (x["recompute_every"] > 1) & (x["recompute"] != list(Recompute).index(Recompute.FULL))
        yield alone, say("search.nothing", path="recompute_every", without="--recompute full")
    if "layout.num_virtual_stages" in pinned:
        alone = (x["num_virtual_stages"] > 1) & (x["pp"] == 1)
        yield alone, say("search.nothing", path="layout.num_virtual_stages", without="--pp 2")
    if space.base.layout.has_sequence_parallel and "layout.has_sequence_parallel" in pinned:
        yield x["tp"] == 1, say("search.nothing", path="layout.has_sequence_parallel", without="--tp 2")


def with_kept_experts(ways: TrainingWays, candidate: Candidate) -> Candidate:
    """Return the candidate with routed experts in 16 bit where the software's format passes over them."""
    precision = candidate.precision
    if ways.quantizes_experts or not candidate.model.is_moe or is_plain(precision.weights):
        return candidate
    if find_format(precision.weights).kind != _LAYER_FORMATS:
        return candidate
    half = precision.compute if precision.compute in _HALVES else _HALVES[0]
    return replace(candidate, precision=replace(precision, experts=half))
