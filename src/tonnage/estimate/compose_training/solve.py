"""Largest training jobs that fit: exact, the value found fits and the next one does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tonnage.estimate.compose_training.case import TrainingCase, filled
from tonnage.estimate.compose_training.constants import training_constants
from tonnage.estimate.compose_training.memory import rank_memory

LARGEST: Final = 1 << 24  # of a micro-batch or a length: nothing larger is asked for


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


def fits_with(case: TrainingCase, columns: dict[str, float], name: str) -> Callable[[int], bool]:
    """Return whether a job fits its device, and every pipeline rank does, as a function of one column."""
    c = training_constants()

    def fits(value: int) -> bool:
        x = filled({**columns, name: value})
        ranks = ("first", "last") if x["pp"] > 1 else ("first",)
        need = max(float(rank_memory(case, c, x, rank, "driver").total) for rank in ranks)
        return need <= case.device.memory_bytes

    return fits


def largest_micro_batch(case: TrainingCase, columns: dict[str, float]) -> int:
    """Return the largest micro-batch that fits, in sequences; 0 when none does."""
    return largest(fits_with(case, columns, "micro_batch_size"))


def longest_sequence(case: TrainingCase, columns: dict[str, float]) -> int:
    """Return the longest sequence that fits, in tokens; 0 when none does."""
    return largest(fits_with(case, columns, "seq_len"))


def fewest_replicas(case: TrainingCase, columns: dict[str, float], *, limit: int = 4096) -> int:
    """Return the fewest data-parallel replicas whose shards fit; 0 when even the limit does not.

    Shards shrink with their number, so that what fits on few fits on more.
    """
    fits = fits_with(case, columns, "dp")
    if not fits(limit):
        return 0
    return limit - largest(lambda n: n < limit and fits(limit - n), limit=limit - 1)
