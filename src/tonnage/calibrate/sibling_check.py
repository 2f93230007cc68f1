"""How well a device without data is told by its nearest measured sibling: each measured device left out in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Any, Final

from tonnage.calibrate.training_score import LeftOut
from tonnage.estimate import efficiency
from tonnage.estimate.compose_training.width import half_width
from tonnage.hardware import catalogue, siblings

CURVES: Final = {"matrix products": siblings.MATMUL, "memory streams": siblings.STREAM}


@dataclass(frozen=True, slots=True, kw_only=True)
class Borrowed:
    """A measured fraction of peak beside what the sibling rule says without it."""

    device: str
    lender: str
    step: int  # of siblings.STEPS
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Predicted over measured, natural logarithm."""
        return log(self.predicted / self.measured)

    @property
    def cause(self) -> str:
        """What an interval widens by for it."""
        return "stranger" if self.step >= siblings.OTHER_GENERATION else "sibling"


def borrowed_curves(name: str, constants: Mapping[str, Any]) -> list[Borrowed]:
    """Predict each measured device's fraction of peak from its nearest sibling, itself left out."""
    operations = CURVES[name]
    found = []
    for slug in siblings.measured_devices(operations):
        device = catalogue.device(slug)
        own = siblings.lender(device, operations)
        other = siblings.lender(device, operations, {slug})
        predicted = other.ratio
        watts = siblings.watts_per_flop_per_s(device)
        if operations == siblings.MATMUL and watts and other.watts_per_flop_per_s:
            predicted *= float(efficiency.power_ratio(watts / other.watts_per_flop_per_s, constants["power_exponent"]))
        found.append(Borrowed(device=slug, lender=other.slug, step=other.step, measured=own.ratio, predicted=predicted))
    return found


def covered_share(found: Sequence[Borrowed], constants: Mapping[str, Any]) -> float:
    """Return the share of devices whose fraction lies within what an estimate's interval allows a borrowed one.

    Parameters
    ----------
    found : sequence of Borrowed
        Fractions beside their predictions.
    constants : mapping of str to float
        Constants, with the widths.

    Returns
    -------
    float
        Share. [0-1]
    """
    inside = [abs(one.error) <= half_width("time", {"base": 1.0, one.cause: 1.0}, constants) for one in found]
    return sum(inside) / len(inside)


def is_inside(one: LeftOut, constants: Mapping[str, Any]) -> bool:
    """Whether a run of a left-out device lies within its interval."""
    return abs(one.error) <= half_width("time", one.causes, constants)
