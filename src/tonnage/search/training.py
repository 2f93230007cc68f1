"""Walks the training space: all cells of a grid estimated together, masked with reasons, the fastest of each kind kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from tonnage.estimate.compose_training import case_of, estimate_training, step_timing, training_constants
from tonnage.estimate.compose_training.case import TrainingCase
from tonnage.estimate.compose_training.constants import Constants
from tonnage.estimate.compose_training.memory import rank_memory
from tonnage.estimate.compose_training.stack import stacked
from tonnage.estimate.compose_training.timing import is_staged
from tonnage.estimate.compose_training.width import memory_width
from tonnage.estimate.pipeline import has_fuller_middle
from tonnage.estimate.types import Candidate, Estimate
from tonnage.hardware.types import Cluster
from tonnage.model.types import Model
from tonnage.search.constraints import training_rules
from tonnage.search.explore import Explored, Fixed, RuledOut, compute_type
from tonnage.search.rank import NARROW, beyond, loses_updates
from tonnage.search.software import cannot, does_not, with_kept_experts
from tonnage.search.training_space import TrainingSpace, TrainingWays, grid_columns, training_space
from tonnage.workload.precision import Precision
from tonnage.workload.types import Training, TrainingKind

_BLOCK: Final = 16_384  # cells estimated together: small enough for the cache
_BOUNDLESS: Final = 1 << 60  # memory of a device on which whatever the allocator caches has room
_MOST_OF_A_KIND: Final = 6
_ADAPTER_PRECISION: Final[Mapping[TrainingKind, Mapping[str, str]]] = {
    TrainingKind.LORA: {"weights": "bf16", "gradients": "fp32"},
    TrainingKind.QLORA: {"weights": "nf4_dq", "gradients": "fp32"},
}


def explore_training(
    model: Model, load: Training, cluster: Cluster, software: Iterable[TrainingWays], fixed: Fixed
) -> Explored:
    """Walk every training software, precision, layout, recomputation, offload and micro-batch on one cluster."""
    found = Explored()
    for ways in software:
        base = Candidate(model=model, workload=load, cluster=cluster, engine=ways.name)
        reason = cannot(ways, load.kind, cluster)
        if reason is not None:
            out = RuledOut(engine=ways.name, weights=base.precision.weights, reason=reason)
            found += Explored(ruled_out=(out,), num_candidates=1)
            continue
        for whole in bases(base, ways, fixed):
            space = training_space(whole, ways, cluster, fixed.values, may_offload=fixed.may_offload)
            found += judge(space)
    return found


def bases(base: Candidate, ways: TrainingWays, fixed: Fixed) -> tuple[Candidate, ...]:
    """Return the candidate in every precision of its software, the fixed fields set."""
    load = base.workload
    assert isinstance(load, Training)
    precisions = _precisions(load.kind, ways, compute_type(base.cluster))
    applied = (fixed.apply(replace(base, precision=p, optimizer=o)) for p, o in precisions)
    if not fixed.holds("precision.experts"):
        applied = (with_kept_experts(ways, one) for one in applied)
    return tuple({(one.precision, one.optimizer): one for one in applied}.values())


def _precisions(kind: TrainingKind, ways: TrainingWays, compute: str) -> Iterator[tuple[Precision, str]]:
    if kind in _ADAPTER_PRECISION:
        held = _ADAPTER_PRECISION[kind]
        yield Precision(compute=compute, weights=held["weights"], gradients=held["gradients"]), "adamw"
        return
    for recipe in ways.recipes:
        precision = Precision(
            weights=recipe["weights"],
            gradients=recipe["gradients"],
            compute=recipe.get("compute", compute),
            has_fp32_master=recipe["master"],
        )
        yield precision, recipe.get("optimizer", "adamw")


def may_be(space: TrainingSpace, x: Mapping[str, Any]) -> tuple[np.ndarray, tuple[RuledOut, ...]]:
    """Return which cells nothing rules out, and each reason with the number of cells that it was the first to take."""
    alive = np.ones(space.shape, dtype=bool)
    out: list[RuledOut] = []
    impossible = does_not(space.software, space.base)
    if impossible is not None:
        weights = space.base.precision.weights
        whole = RuledOut(engine=space.software.name, weights=weights, reason=impossible, num_candidates=alive.size)
        return ~alive, (whole,)
    for mask, reason in training_rules(space, x):
        taken = alive & mask
        number = int(np.count_nonzero(taken))
        if number:
            row, way = np.unravel_index(int(taken.argmax()), space.shape)
            text = reason(space.candidate(int(row), int(way)))
            weights = space.base.precision.weights
            out.append(RuledOut(engine=space.software.name, weights=weights, reason=text, num_candidates=number))
            alive &= ~taken
    return alive, tuple(out)


def _blocks(rows: np.ndarray, num_ways: int) -> Iterator[np.ndarray]:
    step = max(1, _BLOCK // max(num_ways, 1))
    for start in range(0, len(rows), step):
        yield rows[start : start + step]


def _of_rows(x: Mapping[str, Any], rows: np.ndarray, num_rows: int) -> dict[str, Any]:
    return {k: v[rows] if np.ndim(v) == 2 and len(v) == num_rows and num_rows > 1 else v for k, v in x.items()}


class Grid:
    """Memory and rates of the cells of a space that may be, in blocks of layouts."""

    def __init__(self, space: TrainingSpace, case: TrainingCase | None = None) -> None:
        self.space = space
        self.case = case or case_of(space.base)
        self.constants = training_constants()
        self.columns = grid_columns(space)
        self.alive, self.ruled_out = may_be(space, self.columns)
        self.is_shared = self.case.device.is_unified_memory  # what lies on the host takes room from the device

    def memory(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the bytes of the fullest device and of a host, layouts down, ways across."""
        x = _of_rows(self.columns, rows, self.space.shape[0])
        ranks = [rank_memory(self.case, self.constants, x, rank, "driver") for rank in _ranks(self.space, x)]
        shape = (len(rows), self.space.shape[1])
        device = np.broadcast_to(ranks[0].total, shape)
        host = np.broadcast_to(ranks[0].host_total, shape)
        least = np.broadcast_to(ranks[0].least, shape)
        for other in ranks[1:]:
            device, host = np.maximum(device, other.total), np.maximum(host, other.host_total)
            least = np.maximum(least, other.least)
        if self.is_shared:
            full = np.maximum(self.case.device.memory_bytes, least + host)
            device = np.where(host > 0, np.minimum(device + host, full), device)
        return device, host

    def needs(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the bytes of the fullest device without and with what the allocator caches, and of a host."""
        x = _of_rows(self.columns, rows, self.space.shape[0])
        shape = (len(rows), self.space.shape[1])
        ranks = [rank_memory(self.case, self.constants, x, rank, "driver") for rank in _ranks(self.space, x)]
        parts = [(one.least, one.total, one.host_total) for one in ranks]
        least, device, host = (
            np.broadcast_to(np.maximum.reduce(np.broadcast_arrays(*same)), shape) for same in zip(*parts, strict=True)
        )
        return least + host * self.is_shared, device + host * self.is_shared, host

    def rates(
        self, rows: np.ndarray, case: TrainingCase | None = None, constants: Constants | None = None
    ) -> np.ndarray:
        """Return the tokens a second of all devices of each cell; of a stack of devices, for each of them."""
        x = _of_rows(self.columns, rows, self.space.shape[0])
        tokens = x["dp"] * x["micro_batch_size"] * x["num_micro_batches"] * x["seq_len"]
        seconds = step_timing(case or self.case, constants or self.constants, x).total
        shape = (len(rows), self.space.shape[1])
        return np.broadcast_to(tokens / seconds, (*np.shape(seconds)[:-2], *shape))


def _ranks(space: TrainingSpace, x: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the pipeline ranks that may be the fullest: without a pipeline the first is all there is."""
    if not np.any(x["pp"] > 1):
        return ("first",)
    layers = space.base.model.num_layers
    is_fuller = has_fuller_middle(layers, x["pp"], x["first_stage_layers"], x["last_stage_layers"])
    return ("first", "second", "last") if np.any(is_fuller) else ("first", "last")


def judge(space: TrainingSpace) -> Explored:
    """Estimate the cells of a space; keep the fastest of each kind that fits, or the cell that lacks least.

    Notes
    -----
    Nothing is left out but what cannot win. A layout of which no way fits is not timed: it is no plan. Of cells alike
    in how they split the work, in what they move to the host and in whether such were measured, all but the fastest cost more
    time, money and energy. A way that moves something to the host and is slower than one that moves nothing is worse
    in all of these and in host memory; where it is faster, it is kept. So each objective finds its best among what is
    kept. A cell that fits only at its best estimate is kept where none fits at the upper end of its interval.
    """
    num_rows, num_ways = space.shape
    if not num_rows or not num_ways:
        return Explored()
    grid = Grid(space)
    cluster, width = space.base.cluster, np.exp(_memory_width(grid.case, grid))
    capacity, host_capacity = grid.case.device.memory_bytes, cluster.node.host.memory_bytes
    rows = np.flatnonzero(grid.alive.any(axis=1))
    lacking = np.full(space.shape, np.inf)
    sure = np.zeros(space.shape, dtype=bool)
    for some in _blocks(rows, num_ways):
        device, host = grid.memory(some)
        alive = grid.alive[some]
        lacking[some] = np.where(alive, np.maximum(device - capacity, host - host_capacity), np.inf)
        sure[some] = alive & (device * width <= capacity) & (host * width <= host_capacity)
    fits = sure if sure.any() else lacking <= 0
    done = Explored(ruled_out=grid.ruled_out, num_candidates=num_rows * num_ways)
    if not fits.any():
        short = ()
        if len(rows):
            row, way = np.unravel_index(int(lacking.argmin()), space.shape)
            short = (estimate_training(space.candidate(int(row), int(way))),)
        return done + Explored(short=short)
    return done + Explored(kept=tuple(_fastest(grid, fits)))


def _fastest(grid: Grid, fits: np.ndarray) -> Iterator[Estimate]:
    """Yield the fastest that fits of each kind, the fastest first."""
    space = grid.space
    rate = np.zeros(space.shape)
    for some in _blocks(np.flatnonzero(fits.any(axis=1)), space.shape[1]):
        rate[some] = np.where(fits[some], grid.rates(some), 0.0)
    offloads = list(dict.fromkeys(way[2] for way in space.ways))
    of_way = np.array([offloads.index(way[2]) for way in space.ways])
    kinds = np.array([_split(space.candidate(row, 0)) for row in range(len(space.layouts))])
    best: list[tuple[float, int, int]] = []
    for number, offload in enumerate(offloads):
        ways = np.flatnonzero(of_way == number)
        of_rows = rate[:, ways]
        fastest_way = of_rows.argmax(axis=1)
        fastest = of_rows[np.arange(len(of_rows)), fastest_way]
        for kind in np.unique(kinds):
            rows = np.flatnonzero(kinds == kind)
            row = int(rows[fastest[rows].argmax()])
            is_slower = offload.is_any and any(fastest[row] <= one[0] for one in best)
            if fastest[row] > 0 and not is_slower:
                best.append((float(fastest[row]), row, int(ways[fastest_way[row]])))
    best.sort(key=lambda one: -one[0])
    for _, row, way in best[:_MOST_OF_A_KIND]:
        yield estimate_training(space.candidate(row, way))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fastest:
    """The fastest way on one cluster, whether it fits at the upper end of its interval, and how fast it is."""

    candidate: Candidate
    is_sure: bool
    tokens_per_s: float


def fastest_on_each(
    model: Model, load: Training, clusters: Sequence[Cluster], software: Iterable[TrainingWays], fixed: Fixed
) -> tuple[list[Fastest | None], int]:
    """Return the fastest way that fits on each of many clusters of as many devices and nodes, and how many were looked at.

    Parameters
    ----------
    model, load : Model, Training
        The job.
    clusters : sequence of Cluster
        Each of the same number of nodes and devices.
    software : iterable of TrainingWays
        What may be used.
    fixed : Fixed
        What is pinned.

    Returns
    -------
    tuple
        The fastest of those that fit surely, else of those that fit at the best estimate, else None, for each
        cluster; and the number of candidates.

    Notes
    -----
    Recipes that multiply in eight bits are left out unless that is fixed: they hold what their siblings in 16 bit hold,
    so wherever one fits the other does, and stands before it. What fits is found once for all devices. With P the peak of the tensors, C what the allocator caches beyond them
    where there is room and B context and buffers, the total on a device of memory M is min(P + B + C, max(M, P + B)).
    It is M or less if and only if P + B is. Times 1 + w, for a w above 0, it is M or less if and only if
    (P + B + C)(1 + w) is: where the first term is the lesser, that is what it says; where the second is, the total is
    M or more, and P + B + C is more still. P, B and C do not depend on the device.
    """
    best: list[Fastest | None] = [None] * len(clusters)
    num_candidates = 0
    for ways in software:
        groups: dict[tuple[object, ...], list[int]] = {}
        for number, cluster in enumerate(clusters):
            first = cluster.node.devices[0]
            if cannot(ways, load.kind, cluster) is None:
                staged = is_staged(case_of(Candidate(model=model, workload=load, cluster=cluster, engine=ways.name)))
                has_eight = bool(first.flop_per_s.get("fp8"))
                is_shared = first.is_unified_memory
                key = compute_type(cluster), first.num_multiprocessors is None, staged, has_eight, is_shared
                groups.setdefault(key, []).append(number)
        for numbers in groups.values():
            some = [clusters[n] for n in numbers]
            base = Candidate(model=model, workload=load, cluster=some[0], engine=ways.name)
            for whole in bases(base, ways, fixed):
                if whole.precision.compute in NARROW and not fixed.holds("precision.compute"):
                    continue
                space = training_space(whole, ways, some[0], fixed.values, may_offload=fixed.may_offload)
                num_candidates += space.shape[0] * space.shape[1] * len(some)
                for number, found in zip(numbers, _fastest_of_space(space, some), strict=True):
                    best[number] = _better(best[number], found)
    return best, num_candidates


def _better(one: Fastest | None, other: Fastest | None) -> Fastest | None:
    if one is None or other is None:
        return one or other
    return max(one, other, key=lambda it: (it.is_sure, not loses_updates(it.candidate), it.tokens_per_s))


def _memory_width(case: TrainingCase, grid: Grid) -> float:
    workload = grid.space.base.workload
    assert isinstance(workload, Training)
    return memory_width(case, grid.constants, workload.seq_len)


def _fastest_of_space(space: TrainingSpace, clusters: Sequence[Cluster]) -> Iterator[Fastest | None]:
    """Yield the fastest cell that fits on each cluster: memory once, times of all devices together."""
    candidates = [replace(space.base, cluster=cluster) for cluster in clusters]
    cases = [case_of(one) for one in candidates]
    none = [None] * len(clusters)
    grid = Grid(space, replace(cases[0], device=replace(cases[0].device, memory_bytes=_BOUNDLESS)))
    rows = np.flatnonzero(grid.alive.any(axis=1))
    if not len(rows):
        return iter(none)
    needs = [grid.needs(some) for some in _blocks(rows, space.shape[1])]
    least, device, host = (np.concatenate(part) for part in zip(*needs, strict=True))
    width = np.exp(_memory_width(cases[0], grid))
    capacity = np.array([case.device.memory_bytes for case in cases], dtype=float)[:, None, None]
    host_capacity = np.array([one.node.host.memory_bytes for one in clusters], dtype=float)[:, None, None]
    sure = (device * width <= capacity) & (host * width <= host_capacity) & grid.alive[rows]
    fits = (least <= capacity) & (host <= host_capacity) & grid.alive[rows]
    fits = np.where(sure.any(axis=(1, 2), keepdims=True), sure, fits)
    return _timed(grid, cases, candidates, rows, fits, sure)


def _timed(
    grid: Grid,
    cases: Sequence[Any],
    candidates: Sequence[Candidate],
    rows: np.ndarray,
    fits: np.ndarray,
    sure: np.ndarray,
) -> Iterator[Fastest | None]:
    """Yield the fastest of what fits on each device; layouts and devices on which nothing fits are not timed."""
    has_fit: np.ndarray = np.asarray(fits.any(axis=(1, 2)))
    numbers: list[int] = np.flatnonzero(has_fit).tolist()
    some: np.ndarray = np.asarray(fits.any(axis=(0, 2)))
    rate = np.zeros(fits.shape)
    if numbers:
        case, constants = stacked([cases[n] for n in numbers], grid.constants)
        timed = grid.rates(rows[some], case, constants)
        for number, one in zip(numbers, timed, strict=True):
            rate[number, some] = np.where(fits[number, some], one, 0.0)
    flat = rate.reshape(len(cases), -1)
    for number, place in enumerate(flat.argmax(axis=1).tolist()):
        if not has_fit[number]:
            yield None
            continue
        row, way = divmod(place, fits.shape[2])
        cell = replace(grid.space.candidate(int(rows[row]), way), cluster=candidates[number].cluster)
        yield Fastest(candidate=cell, is_sure=bool(sure[number, row, way]), tokens_per_s=float(flat[number, place]))


def _split(candidate: Candidate) -> int:
    """Return a number for the ways a layout splits the work, and whether it is wider than any that was measured."""
    layout = candidate.layout
    flags = (layout.tp > 1, layout.pp > 1, layout.cp > 1, layout.ep > 1, beyond(candidate))
    return sum(bool(flag) << i for i, flag in enumerate(flags)) + 32 * layout.zero_stage
