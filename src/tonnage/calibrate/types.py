"""The nouns of scoring: a prediction beside its measurement, and the domain that makes predictions of its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Row = Mapping[str, Any]
LEAVE_OUT = ("unit", "source")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """One metric of one measured row: predicted, or refused with the reason.

    For the metric `oom` measured and predicted are truth values: true means that it does not fit.
    """

    id: str
    metric: str
    measured: float | bool
    predicted: float | bool | None = None
    low: float | None = None
    high: float | None = None
    refused: str = ""
    trust: str = ""
    group: str = ""  # rows of one series are averaged first
    source: str = ""
    framework: str = ""
    gpu: str = ""
    kind: str = ""

    @property
    def ape(self) -> float | None:
        """Absolute error over the measurement; None when refused or when the measurement is not positive."""
        if self.predicted is None or self.metric == "oom" or self.measured <= 0:
            return None
        return abs(self.predicted - self.measured) / self.measured

    @property
    def is_inside(self) -> bool | None:
        """Whether the measurement lies in the interval; None without one."""
        if self.low is None or self.high is None or self.predicted is None:
            return None
        return self.low <= self.measured <= self.high


class Domain(Protocol):
    """A kind of measurement rows: what it claims and how it predicts them."""

    name: str

    def claims(self, row: Row) -> bool:
        """Whether a row is of this kind."""
        ...

    def score(self, rows: Sequence[Row], leave_out: str | None) -> list[Scored]:
        """Predict each measured quantity of each row; with `leave_out` by constants fitted without its unit or source."""
        ...
