"""Largest training jobs that fit: exact, the value found fits and the next one does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from tonnage.estimate.compose_training.case import TrainingCase, filled
from tonnage.estimate.compose_training.constants import training_constants
from tonnage.estimate.compose_training.memory import Memory, rank_memory
from tonnage.estimate.pipeline import has_fuller_middle

LARGEST: Final = 1 << 24  # of a micro-batch or a length: nothing larger is asked for
COUNTED: Final = frozenset(("weights", "gradients", "master_weights", "optimizer_states"))
"""Pools that are counts of parameters times bytes; the others are modelled, and a measured run may correct them."""
_BOUNDLESS: Final = 1 << 60  # memory of a device on which whatever the allocator caches has room


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A training job whose size is looked for: what is fixed, its columns, and what it may take."""

    case: TrainingCase
    columns: Mapping[str, Any]
    host_memory_bytes: float = float("inf")
    margin: float = 1.0  # factor on the estimate: the upper end of an interval over its best value
    modelled_ratio: float = 1.0  # factor on the pools that are no counts, as a measured run says

    def fits(self, **changed: Any) -> Any:
        """Whether every pipeline rank and the host hold the job with some columns changed; arrays are columns."""
        held = _ranks(self, {**self.columns, **changed})
        device, host = (np.maximum.reduce(np.broadcast_arrays(*same)) for same in zip(*held, strict=True))
        capacity = self.case.device.memory_bytes
        return (device * self.margin <= capacity) & (host * self.margin <= self.host_memory_bytes)


def _ranks(job: Job, columns: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    """Return the bytes of the device and of the host of each pipeline rank that may be the fullest."""
    c, x = training_constants(), filled(columns)
    held = (rank_memory(job.case, c, x, rank, "driver") for rank in _of_pipeline(job.case, x))
    return [(_corrected(job, one), one.host_total) for one in held]


def _corrected(job: Job, held: Memory) -> Any:
    """Return the total with what is modelled scaled, cached segments given back before the device runs out.

    Where device and host have one memory, what lies on the host counts as well.
    """
    host = held.host_total if job.case.device.is_unified_memory else 0.0
    if job.modelled_ratio == 1.0:
        full = np.maximum(job.case.device.memory_bytes, held.least + host)
        return np.minimum(held.total + host, full) if np.any(host) else held.total
    counted = sum(held.pools[name] for name in COUNTED)
    total = counted + job.modelled_ratio * (held.total - counted) + host
    cached = job.modelled_ratio * held.pools.get("fragmentation", 0.0)
    return np.maximum(total - cached, np.minimum(total, job.case.device.memory_bytes))


def _of_pipeline(case: TrainingCase, x: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the pipeline ranks that may be the fullest."""
    if not np.any(x["pp"] > 1):
        return ("first",)
    is_fuller = has_fuller_middle(case.model.num_layers, x["pp"], x["first_stage_layers"], x["last_stage_layers"])
    return ("first", "second", "last") if np.any(is_fuller) else ("first", "last")


def needed_bytes(job: Job) -> float:
    """Return the least memory of a device that a job fits, host memory aside unless the device has no other.

    Notes
    -----
    Cached segments are given back before a device runs out, so at the best estimate what tensors take decides; a
    device on which the upper end fits has room for what is cached too.
    """
    boundless = replace(job.case, device=replace(job.case.device, memory_bytes=_BOUNDLESS))
    c, x = training_constants(), filled(job.columns)
    ranks = _of_pipeline(job.case, x)
    held = [rank_memory(boundless, c, x, rank, "driver") for rank in ranks]
    needs = [float(one.least if job.margin == 1.0 else one.total) for one in held]
    if job.case.device.is_unified_memory:
        needs = [need + float(one.host_total) for need, one in zip(needs, held, strict=True)]
    counted = [sum(float(one.pools[name]) for name in COUNTED) for one in held]
    return job.margin * max(n + job.modelled_ratio * (need - n) for n, need in zip(counted, needs, strict=True))


def largest(fits: Callable[[int], bool], *, limit: int = LARGEST) -> int:
    """Return the largest whole number that fits, given that every smaller one fits too; 0 when one does not.

    Examples
    --------
    >>> largest(lambda n: n * n <= 50), largest(lambda n: False)
    (7, 0)
    """
    if not fits(1):
        return 0
    low, high = 1, 2
    while high <= limit and fits(high):
        low, high = high, 2 * high
    high = min(high, limit + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def largest_micro_batch(job: Job) -> int:
    """Return the largest micro-batch that fits, in sequences; 0 when none does.

    The number of micro-batches in a step stays, so the global batch grows with it.
    """
    return largest(lambda n: bool(job.fits(micro_batch_size=n)))


def longest_sequence(job: Job) -> int:
    """Return the longest sequence that fits, in tokens; 0 when none does.

    Ranks that share a sequence each take an equal part of it, so that only multiples of their number are possible.
    """
    step = token_step(job.columns)
    return step * largest(lambda n: bool(job.fits(seq_len=n * step)), limit=LARGEST // step)


def token_step(columns: Mapping[str, Any]) -> int:
    """Return how many tokens a sequence is longer by at least: two for each context rank, each cut over tensor ranks.

    >>> token_step({"cp": 2, "tp": 4, "has_sequence_parallel": 1}), token_step({})
    (16, 1)
    """
    x = filled(columns)
    cp, tp = int(x["cp"]), int(x["tp"])
    return cp * (2 if cp > 1 else 1) * (tp if x["has_sequence_parallel"] else 1)


def fewest(job: Job, way: str, numbers: Sequence[int]) -> int:
    """Return the fewest ranks along one way to split the work that make a job fit; 0 when none of those asked for does.

    Parameters
    ----------
    job : Job
        The job; its other columns stay.
    way : {"dp", "tp", "pp", "cp", "ep"}
        Column of the ranks: replicas whose shards shrink with their number, tensor-parallel or pipeline ranks.
    numbers : sequence of int
        Numbers that are possible. [1]

    Returns
    -------
    int
        The least of them that fits. [1]
    """
    in_order = np.array(sorted(numbers), dtype=float)
    fits = np.broadcast_to(job.fits(**{way: in_order}), in_order.shape)
    return int(in_order[int(fits.argmax())]) if fits.any() else 0
