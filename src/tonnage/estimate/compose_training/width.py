"""Half-widths of the 80 % intervals of training estimates: by metric, by what is unknown and by what was never measured."""

from __future__ import annotations

from collections.abc import Mapping
from math import exp
from typing import Final

from tonnage.estimate.compose_training.case import TrainingCase
from tonnage.estimate.compose_training.constants import Constants
from tonnage.estimate.compose_training.evidence import FEATURES, Evidence, setup_of, shipped_evidence
from tonnage.estimate.types import Interval
from tonnage.hardware.siblings import OTHER_GENERATION, STEPS

MOST_UNKNOWN: Final = 4  # fields that widen; more widen no further
CAUSES: Final = {
    "memory": ("base", "unknown", "experts", "software", "kind", "far"),  # hardly a matter of the device
    "time": ("base", "unknown", "experts", "launches", "sibling", "stranger", *FEATURES),
}


def width_causes(
    part: str,
    case: TrainingCase,
    seq_len: float,
    *,
    launched: float = 0.0,
    num_unknown: int = 0,
    evidence: Evidence | None = None,
) -> dict[str, float]:
    """Return how much of each cause of an interval's width an estimate has.

    Parameters
    ----------
    part : str
        "memory" or "time".
    case : TrainingCase
        The job.
    seq_len : float
        Tokens of a sample. [1]
    launched : float
        Share of the step in which the device waits for its host. [0-1]
    num_unknown : int
        Fields that were assumed. [1]
    evidence : Evidence, optional
        Runs that the constants rest on, instead of those shipped.

    Returns
    -------
    dict of str to float
        Amounts by the names of CAUSES, each times its constant a part of the half-width.
    """
    missing = (evidence or shipped_evidence(part)).missing(setup_of(case, seq_len))
    causes = {"base": 1.0, "unknown": float(min(num_unknown, MOST_UNKNOWN)), "experts": float(case.model.is_moe)}
    if part == "time":
        causes["launches"] = launched * (case.software.launches == "ahead")  # serial ones only add up
        step = case.matmul_lender.step if case.matmul_lender else len(STEPS)
        causes["sibling"], causes["stranger"] = float(0 < step < OTHER_GENERATION), float(step >= OTHER_GENERATION)
    causes |= missing
    return {name: causes[name] for name in CAUSES[part]}


def half_width(part: str, causes: Mapping[str, float], c: Constants, *, has_lengths: bool = True) -> float:
    """Return the half-width of an 80 % interval, in natural logarithm."""
    width = sum(c[f"width.{part}.{name}"] * amount for name, amount in causes.items() if amount)
    return width + c["width.lengths"] * (not has_lengths)


def memory_width(
    case: TrainingCase, c: Constants, seq_len: float, *, num_unknown: int = 0, has_lengths: bool = True
) -> float:
    """Return the half-width of a memory estimate, in natural logarithm."""
    causes = width_causes("memory", case, seq_len, num_unknown=num_unknown)
    return half_width("memory", causes, c, has_lengths=has_lengths)


def time_width(
    case: TrainingCase,
    c: Constants,
    seq_len: float,
    launched: float,
    *,
    num_unknown: int = 0,
    has_lengths: bool = True,
) -> float:
    """Return the half-width of a step's time, in natural logarithm; `launched` as in `width_causes`."""
    causes = width_causes("time", case, seq_len, launched=launched, num_unknown=num_unknown)
    return half_width("time", causes, c, has_lengths=has_lengths)


def spread(value: float, width: float) -> Interval:
    """Return the interval of a value whose logarithm is known within a half-width."""
    return Interval(best=value, low=value * exp(-width), high=value * exp(width))
