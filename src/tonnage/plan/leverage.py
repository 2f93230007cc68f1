"""How much of a training plan hangs on each calibrated constant: what its plausible range moves."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Final

from tonnage import datafiles
from tonnage.estimate.compose_training import case_of, columns_of, memory_of, step_timing, training_constants
from tonnage.estimate.compose_training.case import filled
from tonnage.estimate.compose_training.constants import CALIBRATION, evidence_of
from tonnage.estimate.types import Candidate

_LEAST: Final = 0.01  # of memory or time: less is not worth a word


@dataclass(frozen=True, slots=True, kw_only=True)
class Leverage:
    """A constant with its range, how far that moves a plan, and what it rests on."""

    name: str
    value: float
    low: float
    high: float
    meaning: str
    basis: str
    num_rows: int
    sources: tuple[str, ...]
    memory_ratio: float  # change of the device's memory from the lower to the upper end of the range, in logarithm
    time_ratio: float  # … of the step's time


def leverage_of(candidate: Candidate) -> tuple[Leverage, ...]:
    """Return the constants that a training plan hangs on, the most first; those that hardly move it are left out.

    The range is that of what is plausible before any measurement: fitted values are known much better.
    """
    case, x, fixed = case_of(candidate), filled(columns_of(candidate)), training_constants()

    def at(name: str, value: float) -> tuple[float, float]:
        constants = {**fixed, name: value}
        device_bytes = float(memory_of(case, x, constants, "driver", "max").total)
        return log(device_bytes), log(float(step_timing(case, constants, x).total))

    found: list[Leverage] = []
    for name, row in datafiles.table(CALIBRATION).items():
        if row["part"] not in ("memory", "time"):
            continue
        (memory_low, time_low), (memory_high, time_high) = at(name, row["low"]), at(name, row["high"])
        evidence = evidence_of(name)
        found.append(
            Leverage(
                name=name,
                value=fixed[name],
                low=row["low"],
                high=row["high"],
                meaning=row["meaning"],
                basis=row["basis"],
                num_rows=evidence.num_rows,
                sources=evidence.sources,
                memory_ratio=abs(memory_high - memory_low),
                time_ratio=abs(time_high - time_low),
            )
        )
    moving = [one for one in found if max(one.memory_ratio, one.time_ratio) >= _LEAST]
    return tuple(sorted(moving, key=lambda one: -max(one.memory_ratio, one.time_ratio)))
