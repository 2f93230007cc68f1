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


class _Table:
    """Observations as columns, and which constants make each of their rates."""

    def __init__(self, observations: Sequence[Observation]) -> None:
        self.decode = _stacked(DecodeWork, [one.decode for one in observations])
        self.prefill = _stacked(PrefillWork, [one.prefill for one in observations])
        self.kind = np.array([one.kind for one in observations])
        self.running = np.array([one.num_running for one in observations], dtype=float)
        self.prompt = np.array([one.num_prompt_tokens for one in observations], dtype=float)
        self.output = np.array([one.num_output_tokens for one in observations], dtype=float)
        self.replicas = np.array([one.num_replicas for one in observations], dtype=float)
        self.drafted = np.array([float(one.load.num_draft_tokens) for one in observations])
        self.entries: list[Constant] = []
        index: dict[str, int] = {}
        self.factors: dict[str, list[np.ndarray[Any, Any]]] = {}
        scopes = [scope_of(one.load) for one in observations]
        versions = [version_key(one.load.version or one.constants.version) for one in observations]
        for name in RATE_NAMES:
            self.factors[name] = []
            for factor in factors_of(name):
                rows: list[int] = []
                for one, scope, version in zip(observations, scopes, versions, strict=True):
                    entry = one.constants.entry(factor, version, scope)
                    if entry.key not in index:
                        index[entry.key] = len(self.entries)
                        self.entries.append(entry)
                    rows.append(index[entry.key])
                self.factors[name].append(np.array(rows, dtype=int))

    def rates(self, values: np.ndarray[Any, Any]) -> Any:
        """Return rates as columns for values of the constants."""
        found: dict[str, Any] = {}
        for name, columns in self.factors.items():
            product = values[columns[0]]
            for column in columns[1:]:
                product = product * values[column]
            found[name] = product
        return SimpleNamespace(**found)

    def predict(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return the predicted speeds or times."""
        rates = self.rates(values)
        copies, rates.copies_host_weights = rates.copies_host_weights, True
        with np.errstate(divide="ignore", invalid="ignore"):
            copied = prefill_seconds(self.prefill, rates)
            rates.copies_host_weights = False
            reading = np.where(copies > 0, copied, prefill_seconds(self.prefill, rates))
            drafted = np.where(self.drafted > 0, tokens_per_step(self.drafted, rates), 1.0)
            drafting = (1.0 + self.drafted * rates.draft_cost_ratio) / drafted
            step = decode_seconds(self.decode, rates) * drafting
            prompts = self.decode.num_sequences / self.output
            busy = busy_step_seconds(self.decode, self.prefill, rates, prompts, drafting)
            speeds = {
                "decode": 1.0 / step,
                "prefill": self.prompt / reading,
                "throughput": self.replicas * self.running / busy,
                "ttft": reading + step,
                "tpot": step,
            }
        result = np.zeros(len(self.kind))
        for kind, speed in speeds.items():
            result = np.where(self.kind == kind, speed, result)
        return result


def _stacked(noun: type, works: Sequence[Any]) -> Any:
    return noun(**{one.name: np.array([float(getattr(work, one.name)) for work in works]) for one in fields(noun)})


def predicted(observations: Sequence[Observation], values: Mapping[str, float]) -> np.ndarray[Any, Any]:
    """Return what constants predict, those named in `values` by key, the others as their files say."""
    table = _Table(observations)
    return table.predict(np.array([values.get(entry.key, entry.value) for entry in table.entries]))


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
    table = _Table(observations)
    entries = table.entries
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

    def residual(logs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        values[free] = np.exp(logs)
        return weight * (np.log(table.predict(values)) - target)

    for iteration in range(num_iterations):
        errors = residual(now)
        scale = 4.0 if iteration < num_iterations // 2 else 2.0
        robust = 1.0 / np.sqrt(1.0 + (errors / scale) ** 2)
        jacobian = np.empty((len(errors), len(free)))
        for j in range(len(free)):
            moved = now.copy()
            moved[j] += _STEP
            jacobian[:, j] = (residual(moved) - errors) / _STEP
        rows = np.vstack([jacobian * robust[:, None], np.diag(1.0 / spread)])
        wanted = np.concatenate([-errors * robust, (prior - now) / spread])
        step = np.linalg.lstsq(rows, wanted, rcond=None)[0]
        now = np.clip(now + np.clip(step, -0.7, 0.7), low, high)
        if np.max(np.abs(step)) < 1e-3:
            break
    return {entries[i].key: float(np.exp(value)) for i, value in zip(free, now, strict=True)}
