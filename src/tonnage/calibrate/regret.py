"""Which of several measured layouts of one job an estimate would have chosen, and how much slower that is than the best.

Rows that carry the same `sweep` are one job in which only the layout differs. The choice is that of a plan: of what fits,
the fastest by the estimate, whose constants were fitted without the row's source. What ran out of memory must not be chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tonnage.calibrate.training_score import PARTS, fold_constants, predicted_step, prepare
from tonnage.calibrate.types import Row
from tonnage.estimate.compose_training import memory_of

MEASURED = "tokens_per_s_per_gpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One measured layout of a job."""

    id: str
    measured: float | None  # tokens per second; None: it ran out of memory
    predicted: float
    needs_ratio: float  # predicted memory over what the device has


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What would have been chosen for one job."""

    sweep: str
    model: str
    gpu: str
    source: str
    ways: tuple[Way, ...]

    @property
    def chosen(self) -> Way:
        """The fastest by the estimate of what fits; where nothing does, what misses least."""
        fitting = [way for way in self.ways if way.needs_ratio <= 1]
        if fitting:
            return max(fitting, key=lambda way: way.predicted)
        return min(self.ways, key=lambda way: way.needs_ratio)

    @property
    def best(self) -> Way:
        """The fastest measured."""
        return max(self.ways, key=lambda way: way.measured or 0.0)

    @property
    def ran_out(self) -> bool:
        """Whether what was chosen ran out of memory."""
        return self.chosen.measured is None

    @property
    def regret_ratio(self) -> float:
        """Share of the best speed that the choice gives away."""
        return 1 - (self.chosen.measured or 0.0) / (self.best.measured or 1.0)

    @property
    def tau(self) -> float | None:
        """Kendall's rank correlation of predicted and measured speeds; None where one of them never differs."""
        ran = [(way.predicted, way.measured) for way in self.ways if way.measured is not None]
        return kendall_tau(*zip(*ran, strict=True)) if len(ran) > 1 else None


def kendall_tau(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Return Kendall's tau-b of two rankings, 1 for the same order and -1 for the opposite; None where one is constant.

    References
    ----------
    .. [1] M. G. Kendall, "The treatment of ties in ranking problems", Biometrika 33(3), 1945.

    Examples
    --------
    >>> kendall_tau([1, 2, 3, 4], [10, 30, 20, 40])
    0.6666666666666666
    """
    a, b = (np.sign(np.subtract.outer(values, values)) for values in (one, other))
    norm = float(np.sqrt(np.sum(a * a) * np.sum(b * b)))
    return float(np.sum(a * b)) / norm if norm else None


def choices(rows: Sequence[Row], leave_out: str | None = "source") -> list[Choice]:
    """Choose among the measured layouts of each job.

    Parameters
    ----------
    rows : sequence of mapping
        Training measurements; constants are fitted to all of them but the row's own source or unit.
    leave_out : {"source", "unit"}, optional
        What is left out of the fit; None takes the constants shipped.

    Returns
    -------
    list of Choice
        One a sweep of two or more rows that tell a speed, or that they ran out of memory.
    """
    prepared, _ = prepare(rows)
    items = {item.row.row["id"]: item for item in prepared}
    folds = fold_constants(rows, items, leave_out)
    key = {"unit": "unit", "source": "source_key", None: ""}[leave_out]

    def way(row: Row) -> Way:
        item, fold = items[row["id"]], str(row.get(key) or row.get("source") or row["id"]) if leave_out else ""
        constants = {part: folds[part].get(fold, folds[part][""]) for part in PARTS}
        seconds, tokens = predicted_step(item, constants["time"])
        needed = memory_of(item.case, item.columns, constants["memory"], "driver", "max").total
        return Way(
            id=row["id"],
            measured=None if row.get("oom") else float(row[MEASURED]),
            predicted=float(tokens / seconds),
            needs_ratio=float(needed) / item.case.device.memory_bytes,
        )

    jobs: dict[str, list[Row]] = {}
    for row in rows:
        if row.get("sweep") and row["id"] in items and (row.get("oom") or row.get(MEASURED)):
            jobs.setdefault(str(row["sweep"]), []).append(row)
    return [
        _choice(sweep, job, way) for sweep, job in jobs.items() if len(job) > 1 and any(r.get(MEASURED) for r in job)
    ]


def _choice(sweep: str, job: Sequence[Row], way: Callable[[Row], Way]) -> Choice:
    first = job[0]
    return Choice(
        sweep=sweep,
        model=str(first.get("model") or ""),
        gpu=str(first.get("gpu") or ""),
        source=str(first.get("source_key") or first.get("source") or ""),
        ways=tuple(way(row) for row in job),
    )


def choice_object(choice: Choice) -> dict[str, Any]:
    """Return a choice as plain values."""
    return {
        "sweep": choice.sweep,
        "model": choice.model,
        "gpu": choice.gpu,
        "source": choice.source,
        "num_ways": len(choice.ways),
        "chosen": choice.chosen.id,
        "best": choice.best.id,
        "ran_out": choice.ran_out,
        "regret_ratio": choice.regret_ratio,
        "tau": choice.tau,
    }


def summary(found: Sequence[Choice], within: float = 0.05) -> dict[str, Any]:
    """Return how many choices are within a share of the best, how many ran out of memory, and the mean rank correlation."""
    taus = [tau for choice in found if (tau := choice.tau) is not None]
    return {
        "n": len(found),
        "within": sum(choice.regret_ratio <= within for choice in found) / len(found) if found else None,
        "ran_out": sum(choice.ran_out for choice in found),
        "mean_regret": float(np.mean([choice.regret_ratio for choice in found])) if found else None,
        "mean_tau": float(np.mean(taus)) if taus else None,
    }


def failed(figures: Mapping[str, Any], bounds: Mapping[str, float]) -> list[str]:
    """Return one line for each bound on choices that is not met."""
    if not figures["n"]:
        return ["no sweep was found"]
    lines: list[str] = []
    if figures["within"] < bounds["share_at_least"]:
        lines.append(
            f"{figures['within']:.3f} of the choices are near the best, fewer than {bounds['share_at_least']:g}"
        )
    if figures["ran_out"] > bounds["ran_out_at_most"]:
        lines.append(f"{figures['ran_out']} choices ran out of memory, more than {bounds['ran_out_at_most']:g}")
    return lines
