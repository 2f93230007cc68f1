"""Half-widths of the 80 % intervals of training estimates: by metric, by what is unknown and by kind of job."""

from __future__ import annotations

from math import exp
from typing import Final

from tonnage.estimate.compose_training.case import TrainingCase
from tonnage.estimate.compose_training.constants import Constants
from tonnage.estimate.compose_training.timing import architecture_key
from tonnage.estimate.types import Interval

MOST_UNKNOWN: Final = 4  # fields that widen; more widen no further


def memory_width(case: TrainingCase, c: Constants, *, num_unknown: int = 0, has_lengths: bool = True) -> float:
    """Return the half-width of a memory estimate, in natural logarithm."""
    return (
        c["width.memory.base"]
        + c["width.memory.unknown"] * min(num_unknown, MOST_UNKNOWN)
        + c["width.memory.experts"] * case.model.is_moe
        + c["width.lengths"] * (not has_lengths)
    )


def time_width(
    case: TrainingCase, c: Constants, launched: float, *, num_unknown: int = 0, has_lengths: bool = True
) -> float:
    """Return the half-width of a step's time, in natural logarithm.

    Parameters
    ----------
    case : TrainingCase
        The job.
    c : mapping of str to float
        Constants.
    launched : float
        Share of the step in which the device waits for its host. [0-1]
    num_unknown : int
        Fields that were assumed. [1]
    has_lengths : bool
        Whether the lengths of the samples are known.

    Returns
    -------
    float
        Half-width in natural logarithm.
    """
    is_sibling = architecture_key(case, "matmul_ratio", c).endswith(".other")
    return (
        c["width.time.base"]
        + c["width.time.unknown"] * min(num_unknown, MOST_UNKNOWN)
        + c["width.time.experts"] * case.model.is_moe
        + c["width.time.launches"] * launched * (case.software.launches == "ahead")  # serial ones only add up
        + c["width.time.sibling"] * is_sibling
        + c["width.lengths"] * (not has_lengths)
    )


def spread(value: float, width: float) -> Interval:
    """Return the interval of a value whose logarithm is known within a half-width."""
    return Interval(best=value, low=value * exp(-width), high=value * exp(width))
