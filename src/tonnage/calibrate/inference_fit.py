"""Fits engines' rates to measured speeds: a robust maximum-a-posteriori fit in logarithms, numpy only.

Each rate is a product of constants (`engines.facts.factors_of`); each constant has a prior and a spread that says how
far measurements may move it. Rows of one series count together as one; rows far off lose weight (Cauchy), so that no
single row or source decides a constant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

from tonnage.engines.facts import RATE_NAMES, Constant, Constants, factors_of, scope_of, version_key
from tonnage.estimate.serving import DecodeWork, PrefillWork, ServingLoad
from tonnage.estimate.serving_speed import busy_step_seconds, decode_seconds, prefill_seconds, tokens_per_step

__all__ = ["NOISE", "Observation", "fitted", "predicted"]

# Spread of repeats and of what rows leave unsaid, in logarithms; from repeats of printed configurations.
NOISE: Final = {"decode": 0.06, "prefill": 0.12, "throughput": 0.15, "ttft": 0.15, "tpot": 0.15}
_NUM_ITERATIONS: Final = 14
_STEP: Final = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Observation:
    """One measured speed: what was done, on what, and how it is told from the works."""

    kind: str  # decode, prefill, throughput, ttft, tpot
    measured: float
    group: str
    load: ServingLoad
    decode: DecodeWork
    prefill: PrefillWork
    num_running: float
    num_prompt_tokens: float
    num_output_tokens: float
    num_replicas: float
    constants: Constants
    num_waves: float = 1.0  # how often as many requests as run together are served one after the other
    rest: DecodeWork | None = None  # a step of those that remain when a run ends
    num_rest: float = 0.0


_WORKS: Final = ("decode", "prefill", "rest")
_COLUMNS: Final = ("num_running", "num_prompt_tokens", "num_output_tokens", "num_replicas", "num_waves", "num_rest")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Rows:
    """Observations of one kind as columns."""

    kind: str
    works: Mapping[str, Any]
    columns: Mapping[str, np.ndarray[Any, Any]]
    drafted: np.ndarray[Any, Any]

    def taken(self, rows: np.ndarray[Any, Any]) -> _Rows:
        """Return some of the rows, in any order and as often as wanted."""
        return _Rows(
            kind=self.kind,
            works={name: _taken(work, rows) for name, work in self.works.items()},
            columns={name: column[rows] for name, column in self.columns.items()},
            drafted=self.drafted[rows],
        )

    def speeds(self, rates: Any) -> np.ndarray[Any, Any]:
        """Return what rates give: tokens a second, or seconds of a first and of a later token."""
        with np.errstate(divide="ignore", invalid="ignore"):
            drafted = np.where(self.drafted > 0, tokens_per_step(self.drafted, rates), 1.0)
            drafting = (1.0 + self.drafted * rates.draft_cost_ratio) / drafted
            if self.kind == "prefill":
                return self.columns["num_prompt_tokens"] / prefill_seconds(self.works["prefill"], rates)
            if self.kind == "throughput":
                return self._throughput(rates, drafting)
            step = decode_seconds(self.works["decode"], rates) * drafting
            if self.kind == "ttft":
                return prefill_seconds(self.works["prefill"], rates) + step
            return step if self.kind == "tpot" else 1.0 / step

    def _throughput(self, rates: Any, drafting: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return the rate of a run: as many waves as there are requests for, the last with those that remain."""
        column = self.columns
        busy, ending = (
            busy_step_seconds(
                work, self.works["prefill"], rates, work.num_sequences / column["num_output_tokens"], drafting
            )
            for work in (self.works["decode"], self.works["rest"])
        )
        served = column["num_waves"] * column["num_running"] + column["num_rest"]
        seconds = column["num_waves"] * busy + np.where(column["num_rest"] > 0, ending, 0.0)
        return column["num_replicas"] * served / seconds


class _Asked(SimpleNamespace):
    """Rates that remember which of them were asked for."""

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_"):
            object.__getattribute__(self, "_names").add(name)
        return object.__getattribute__(self, name)


class _Table:
    """Observations of one kind, which constants make each of their rates, and how each constant moves them."""

    def __init__(self, observations: Sequence[Observation], index: dict[str, int], entries: list[Constant]) -> None:
        self.rows = _stacked_rows(observations)
        self.factors: dict[str, list[np.ndarray[Any, Any]]] = {}
        cases: dict[Any, int] = {}  # rows that stand under the same constants are looked up once
        numbers = np.array([cases.setdefault(_standing(one), len(cases)) for one in observations], dtype=int)
        for name in RATE_NAMES:
            self.factors[name] = []
            for factor in factors_of(name):
                places: list[int] = []
                for constants, version, scope in cases:
                    entry = constants.entry(factor, version, dict(scope))
                    key = entry.key
                    if key not in index:
                        index[key] = len(entries)
                        entries.append(entry)
                    places.append(index[key])
                self.factors[name].append(np.array(places, dtype=int)[numbers])
        self.values = np.array([entry.value for entry in entries])
        self.used = self._used()

    def _used(self) -> frozenset[str]:
        rates = _Asked(**self._rates(self.values), _names=set())
        self.rows.speeds(rates)
        return frozenset(rates._names)  # noqa: SLF001  its own class

    def _rates(self, values: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        return {name: np.prod([values[column] for column in columns], axis=0) for name, columns in self.factors.items()}

    def predict(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return the speeds or times for values of the constants."""
        return self.rows.speeds(SimpleNamespace(**self._rates(values)))

    def pairs(self, free: np.ndarray[Any, Any]) -> _Pairs:
        """Return each row with each constant that moves it."""
        touched = np.zeros((len(self.rows.drafted), int(max(free, default=-1)) + 1), dtype=bool)
        for name in self.used:
            for column in self.factors[name]:
                known = column < touched.shape[1]
                touched[np.flatnonzero(known), column[known]] = True
        rows, places = np.nonzero(touched[:, free])
        columns = {
            name: (
                [column[rows] for column in self.factors[name]],
                sum(column[rows] == free[places] for column in self.factors[name]),
            )
            for name in self.used
        }
        return _Pairs(rows=rows, places=places, taken=self.rows.taken(rows), columns=columns)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Pairs:
    """Rows with the constants that move them, as one long column."""

    rows: np.ndarray[Any, Any]
    places: np.ndarray[Any, Any]
    taken: _Rows
    columns: Mapping[str, tuple[list[np.ndarray[Any, Any]], Any]]

    def moved(self, values: np.ndarray[Any, Any], step: float) -> np.ndarray[Any, Any]:
        """Return the speeds when the constant of each pair is larger by `step` in logarithms."""
        rates = {
            name: np.prod([values[column] for column in columns], axis=0) * np.exp(step * times)
            for name, (columns, times) in self.columns.items()
        }
        return self.taken.speeds(SimpleNamespace(**rates))


def _standing(one: Observation) -> tuple[Constants, tuple[int, ...], tuple[tuple[str, str], ...]]:
    """Return what decides which constants hold for an observation."""
    return one.constants, version_key(one.load.version or one.constants.version), tuple(scope_of(one.load).items())


def _taken(work: Any, rows: np.ndarray[Any, Any]) -> Any:
    return type(work)(**{one.name: getattr(work, one.name)[rows] for one in fields(type(work))})


def _stacked(noun: type, works: Sequence[Any]) -> Any:
    return noun(**{one.name: np.array([float(getattr(work, one.name)) for work in works]) for one in fields(noun)})


def _stacked_rows(observations: Sequence[Observation]) -> _Rows:
    return _Rows(
        kind=observations[0].kind,
        works={
            "decode": _stacked(DecodeWork, [one.decode for one in observations]),
            "prefill": _stacked(PrefillWork, [one.prefill for one in observations]),
            "rest": _stacked(DecodeWork, [one.rest or one.decode for one in observations]),
        },
        columns={name: np.array([float(getattr(one, name)) for one in observations]) for name in _COLUMNS},
        drafted=np.array([float(one.load.num_draft_tokens) for one in observations]),
    )


class _Tables:
    """Observations of all kinds."""

    def __init__(self, observations: Sequence[Observation]) -> None:
        self.entries: list[Constant] = []
        index: dict[str, int] = {}
        kinds = np.array([one.kind for one in observations])
        self.places = [np.flatnonzero(kinds == kind) for kind in sorted(set(kinds))]
        self.tables = [_Table([observations[int(i)] for i in places], index, self.entries) for places in self.places]
        self.num_rows = len(observations)

    def predict(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return the predicted speeds or times."""
        result = np.zeros(self.num_rows)
        for places, table in zip(self.places, self.tables, strict=True):
            result[places] = table.predict(values)
        return result


def predicted(observations: Sequence[Observation], values: Mapping[str, float]) -> np.ndarray[Any, Any]:
    """Return what constants predict, those named in `values` by key, the others as their files say."""
    tables = _Tables(observations)
    return tables.predict(np.array([values.get(entry.key, entry.value) for entry in tables.entries]))


def fitted(
    observations: Sequence[Observation], start: Mapping[str, float] | None = None, num_iterations: int = _NUM_ITERATIONS
) -> dict[str, float]:
    """Fit every constant with a spread to the observations.

    Parameters
    ----------
    observations : sequence of Observation
        Measured speeds.
    start : mapping, optional
        Values to start from, by key; the priors where empty.
    num_iterations : int
        Steps of reweighted Gauss-Newton.

    Returns
    -------
    dict
        Values by key of the constants that can move; each within its plausible range.
    """
    tables = _Tables(observations)
    entries = tables.entries
    free = np.array([i for i, entry in enumerate(entries) if entry.spread > 0 and entry.prior], dtype=int)
    values = np.array([entry.value for entry in entries])
    prior = np.log(np.array([entries[i].prior for i in free], dtype=float))
    spread = np.array([entries[i].spread for i in free])
    low = np.log(np.maximum([entries[i].low for i in free], 1e-12))
    high = np.log(np.array([entries[i].high for i in free]))
    counts = Counter(one.group for one in observations)
    weight = np.array([counts[one.group] ** -0.5 / NOISE[one.kind] for one in observations])
    target = np.log(np.array([one.measured for one in observations]))
    now = np.clip(
        np.array([np.log((start or {}).get(entries[i].key, entries[i].prior or 1.0)) for i in free]), low, high
    )
    pairs = [table.pairs(free) for table in tables.tables]

    for iteration in range(num_iterations):
        values[free] = np.exp(now)
        logs = np.log(tables.predict(values))
        errors = weight * (logs - target)
        jacobian = np.zeros((len(errors), len(free)))
        for places, one in zip(tables.places, pairs, strict=True):
            moved = np.log(one.moved(values, _STEP)) - logs[places][one.rows]
            jacobian[places[one.rows], one.places] = weight[places][one.rows] * moved / _STEP
        scale = 4.0 if iteration < num_iterations // 2 else 2.0
        robust = 1.0 / np.sqrt(1.0 + (errors / scale) ** 2)
        slopes = jacobian * robust[:, None]
        step = np.linalg.solve(
            slopes.T @ slopes + np.diag(spread**-2), (prior - now) / spread**2 - slopes.T @ (errors * robust)
        )
        now = np.clip(now + np.clip(step, -0.7, 0.7), low, high)
        if np.max(np.abs(step)) < 1e-3:
            break
    return {entries[i].key: float(np.exp(value)) for i, value in zip(free, now, strict=True)}
