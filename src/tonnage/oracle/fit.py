"""Does a model that no formula covers fit? Weights, states and activations as traced; sharded over equal devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from tonnage.estimate.compose_training import training_constants
from tonnage.estimate.workspace import collective_buffer_bytes, reserved_bytes
from tonnage.nouns import noun
from tonnage.oracle.types import Job, Traced

_SHARDED: Final = ("weights", "gradients", "optimizer_states")
_MOST_SEQUENCES: Final = 1 << 16


@noun
class Way:
    """One way to train it: the largest micro-batch that fits, and what that takes of one device by pool.

    Where none fits, the micro-batch is 1 and the bytes are more than the capacity.
    """

    recomputes: bool
    micro_batch_size: int
    pools: Mapping[str, float]
    peak_phase: str
    capacity_bytes: int

    @property
    def total_bytes(self) -> float:
        """All pools together."""
        return sum(self.pools.values())

    @property
    def short_by_bytes(self) -> int:
        """Bytes missing; 0 where it fits."""
        return max(0, round(self.total_bytes - self.capacity_bytes))


@noun
class Fits:
    """The ways that were looked at, the better first, and the trace of one sequence without recomputation."""

    job: Job
    traced: Traced
    num_devices: int
    ways: tuple[Way, ...]


def fits(
    job: Job,
    capacity_bytes: int,
    num_devices: int,
    tracer: Callable[[Job], Traced],
    *,
    recomputes: bool | None = None,
    micro_batch_size: int | None = None,
    most_sequences: int = _MOST_SEQUENCES,
) -> Fits:
    """Find the largest micro-batch that fits, without and with recomputation.

    Parameters
    ----------
    job : Job
        What to train; its micro-batch and recomputation are chosen here.
    capacity_bytes : int
        Memory of one device. [B]
    num_devices : int
        Devices that weights, gradients and states are sharded over (ZeRO-3, FSDP2). [1]
    tracer : callable
        `oracle.trace.trace`, or what stands in for it.
    recomputes, micro_batch_size : optional
        Fix the choice.
    most_sequences : int
        Largest micro-batch that makes sense. [1]

    Returns
    -------
    Fits
        A way for each choice, the one that fits and recomputes less first.

    Notes
    -----
    Two traces, of one sequence and of two, give each part of a step as a line in the micro-batch. Gathered layers,
    context, communicators and fragmentation are the training formulae's.
    """
    ways: list[Way] = []
    first: Traced | None = None
    for mode in (False, True) if recomputes is None else (recomputes,):
        one = tracer(replace(job, recomputes=mode, micro_batch_size=1))
        two = tracer(replace(job, recomputes=mode, micro_batch_size=2))
        first = first or one

        def at(number: int, one: Traced = one, two: Traced = two, mode: bool = mode) -> Way:
            return _way(one, two, number, num_devices, capacity_bytes, is_recomputed=mode)

        number = micro_batch_size or _largest(lambda n, at=at: at(n).short_by_bytes == 0, most_sequences)
        ways.append(at(max(1, number)))
    assert first is not None
    ways.sort(key=lambda way: (way.short_by_bytes > 0, way.recomputes))
    return Fits(job=job, traced=first, num_devices=num_devices, ways=tuple(ways))


def _largest(does: Callable[[int], bool], most: int) -> int:
    """Return the largest number up to `most` that does, 0 where 1 does not; more never does where less does not."""
    if not does(1):
        return 0
    low, high = 1, 2
    while high <= most and does(high):
        low, high = high, 2 * high
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if does(middle) else (low, middle)
    return low


def _way(one: Traced, two: Traced, number: int, num_devices: int, capacity: int, *, is_recomputed: bool) -> Way:
    c = training_constants()
    best: dict[str, float] = {}
    phase = ""
    for name in one.phases:
        pools = _line(one.phases[name].pools, two.phases[name].pools, number)
        for pool in _SHARDED:
            if pool in pools:
                pools[pool] /= num_devices
        if num_devices > 1:
            pools["gathered_weights"] = _largest_layer(one) * c["gathered_units"]
        if sum(pools.values()) > sum(best.values()):
            best, phase = pools, name
    comes_and_goes = sum(value for pool, value in best.items() if pool not in _SHARDED)
    cached = reserved_bytes(comes_and_goes, c["fragmentation_ratio"], c["reserve_floor_bytes"]) - comes_and_goes
    outside = c["context_bytes"] + collective_buffer_bytes(int(num_devices > 1), c["communicator_bytes"])
    room = max(0.0, capacity - sum(best.values()) - outside)
    best["fragmentation"] = min(cached, room)
    best["context"] = outside
    return Way(
        recomputes=is_recomputed,
        micro_batch_size=number,
        pools={name: value for name, value in best.items() if value},
        peak_phase=phase,
        capacity_bytes=capacity,
    )


def _line(one: Mapping[str, float], two: Mapping[str, float], number: int) -> dict[str, float]:
    names = dict.fromkeys((*one, *two))
    return {
        name: max(0.0, one.get(name, 0.0) + (number - 1) * (two.get(name, 0.0) - one.get(name, 0.0))) for name in names
    }


def _largest_layer(traced: Traced) -> float:
    """Return the bytes of the largest layer's weights, those outside the layers counted as one."""
    weights = traced.kept.pools.get("weights", 0.0)
    return max((kind.weights_bytes for kind in traced.kept_by_kind), default=weights)
