"""Bounded, robust least squares for calibrated constants, and the same with parts of the data left out.

The model is evaluated for many sets of constants at once, because every formula takes arrays: one evaluation gives all
derivatives, another the residuals of all folds. Steps are Gauss–Newton with each constant drawn to its physical guess
by a prior as wide as its plausible range, and kept within that range.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
# Constants by name, each an array of P values, to the natural logarithm of P predictions for each of N rows: (N, P).
Evaluate = Callable[[Mapping[str, Floats]], Floats]

_PERTURBATION: Final = 1e-4
PRIOR_SHARE: Final = 0.25  # one standard deviation of the prior, in units of the plausible range, unless told
_HUBER: Final = 0.06  # residual, in natural logarithm, from which errors count linearly
_DAMPINGS: Final = (0.0, 3.0, 30.0, 300.0)  # of a step, in units of the prior
_FOLD_DAMPINGS: Final = (0.0, 10.0, 100.0)
_LENGTHS: Final = (1.0, 0.3, 0.1)
_SHARED: Final = 0.75  # how much of their errors configurations of one family have in common
_GROSS: Final = 0.5  # residual from which they hardly count any more: another cause than the constants


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A constant to fit: where the fit starts and is drawn to, and its plausible range."""

    name: str
    guess: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Fitted values by name, for all data and for each fold, and what they predict."""

    values: dict[str, float]
    fold_values: dict[str, dict[str, float]]
    residuals: Floats  # log(predicted / measured) of each row by the constants fitted to all rows
    left_out_residuals: Floats  # the same by the constants of the fold that leaves the row out


def _stack(constants: Sequence[Constant], values: Floats) -> dict[str, Floats]:
    """Return columns of constants from a matrix with a row a set."""
    return {constant.name: values[:, i] for i, constant in enumerate(constants)}


def _jacobian(evaluate: Evaluate, constants: Sequence[Constant], at: Floats) -> tuple[Floats, Floats]:
    """Return the logarithms of the predictions and their derivatives for each constant's range."""
    spans = np.array([c.high - c.low for c in constants])
    steps = np.where(at + _PERTURBATION * spans > [c.high for c in constants], -1, 1) * _PERTURBATION
    sets = np.vstack([at, at + np.diag(steps * spans)])
    logs = evaluate(_stack(constants, sets))
    return logs[:, 0], (logs[:, 1:] - logs[:, :1]) / steps


def _loss(residuals: Floats) -> Floats:
    """Return what an error costs: its square at first, then its size, and in the end hardly more."""
    distance = np.abs(residuals)
    huber = np.where(distance < _HUBER, distance**2, 2 * _HUBER * distance - _HUBER**2)
    gross = 2 * _HUBER * _GROSS
    return gross * np.log1p(huber / gross)


def _robust(residuals: Floats, weights: Floats) -> Floats:
    """Return the weights whose squares have the slope of the loss."""
    distance = np.maximum(np.abs(residuals), 1e-12)
    huber = np.where(distance < _HUBER, distance**2, 2 * _HUBER * distance - _HUBER**2)
    return weights * np.minimum(1.0, _HUBER / distance) / (1.0 + huber / (2 * _HUBER * _GROSS))


def _step(
    jacobian: Floats,
    residuals: Floats,
    weights: Floats,
    scaled: Floats,
    guess: Floats,
    strength: float,
    damping: float = 0.0,
) -> Floats:
    """Return new constants in units of their range, inside [0, 1], from one regularised, damped Gauss–Newton step."""
    free = np.ones(len(scaled), dtype=bool)
    target = scaled.copy()
    for _ in range(4):
        j = jacobian[:, free]
        normal = (j * weights[:, None]).T @ j + (strength + damping) * np.eye(j.shape[1])
        slope = (j * weights[:, None]).T @ (residuals + jacobian[:, ~free] @ (target - scaled)[~free])
        slope += strength * (scaled - guess)[free]
        target[free] = scaled[free] - np.linalg.solve(normal, slope)
        out = free & ((target < 0) | (target > 1))
        if not out.any():
            break
        target = np.clip(target, 0.0, 1.0)
        free &= ~out
    return np.clip(target, 0.0, 1.0)


def prior_strength(weights: Floats, prior_share: float = PRIOR_SHARE) -> float:
    """Return what the prior counts beside rows: the square of a constant's distance to its guess, in ranges, costs so much."""
    return float(np.mean(weights)) * (_HUBER / prior_share) ** 2


def fit(
    evaluate: Evaluate,
    constants: Sequence[Constant],
    measured: Floats,
    weights: Floats,
    folds: Sequence[str] | None = None,
    *,
    num_iterations: int = 30,
    num_fold_iterations: int = 3,
    start: Mapping[str, float] | None = None,
    prior_share: float = PRIOR_SHARE,
) -> Fit:
    """Fit constants to logarithms of measurements, once on all rows and once without each fold.

    Parameters
    ----------
    evaluate : callable
        The model, for many sets of constants at once.
    constants : sequence of Constant
        What to fit.
    measured : array of shape (N,)
        Measurements.
    weights : array of shape (N,)
        Weight of each row.
    folds : sequence of str, optional
        Key of each row; rows of one key are left out together.
    num_iterations, num_fold_iterations : int
        Gauss–Newton steps on all rows, and from there for each fold with the derivatives kept.
    start : mapping of str to float, optional
        Where to start instead of at the guesses.
    prior_share : float
        One standard deviation of the guesses, in units of the plausible ranges. [1]

    Returns
    -------
    Fit
        Values and residuals.
    """
    low = np.array([c.low for c in constants])
    span = np.array([c.high for c in constants]) - low
    guess = (np.array([c.guess for c in constants]) - low) / span
    scaled = guess if start is None else (np.array([start.get(c.name, c.guess) for c in constants]) - low) / span
    scaled = np.clip(scaled, 0.0, 1.0)
    target = np.log(measured)
    strength = prior_strength(weights, prior_share)

    def cost(residuals: Floats, at: Floats) -> float:
        return float(weights @ _loss(residuals) + strength * np.sum((at - guess) ** 2))

    logs, jacobian = _jacobian(evaluate, constants, low + span * scaled)
    best = cost(logs - target, scaled)
    for _ in range(num_iterations):
        robust = _robust(logs - target, weights)
        moves = [
            _step(jacobian, logs - target, robust, scaled, guess, strength, factor * strength) - scaled
            for factor in _DAMPINGS
        ]
        tried = scaled + np.vstack([length * move for move in moves for length in _LENGTHS])
        trials = evaluate(_stack(constants, low + span * tried))
        costs = [cost(trials[:, i] - target, tried[i]) for i in range(len(tried))]
        chosen = int(np.argmin(costs))
        if costs[chosen] >= best * (1 - 1e-5):
            break
        best, scaled = costs[chosen], tried[chosen]
        logs, jacobian = _jacobian(evaluate, constants, low + span * scaled)
    residuals = logs - target
    values = dict(zip((c.name for c in constants), (low + span * scaled).tolist(), strict=True))
    if folds is None:
        return Fit(values=values, fold_values={}, residuals=residuals, left_out_residuals=residuals)

    keys = sorted(set(folds))
    which = np.array([keys.index(key) for key in folds])
    sets = np.tile(scaled, (len(keys), 1))
    fold_logs = np.repeat(logs[:, None], len(keys), axis=1)
    kept_weights = [np.where(which == k, 0.0, weights) for k in range(len(keys))]

    def fold_cost(k: int, logs_of: Floats, at: Floats) -> float:
        return float(kept_weights[k] @ _loss(logs_of - target) + strength * np.sum((at - guess) ** 2))

    costs_now = [fold_cost(k, fold_logs[:, k], sets[k]) for k in range(len(keys))]
    for _ in range(num_fold_iterations):
        tries: list[Floats] = []
        for k in range(len(keys)):
            r = fold_logs[:, k] - target
            robust = _robust(r, kept_weights[k])
            tries += [_step(jacobian, r, robust, sets[k], guess, strength, f * strength) for f in _FOLD_DAMPINGS]
        trials = evaluate(_stack(constants, low + span * np.vstack(tries)))
        for i, tried_set in enumerate(tries):
            k = i // len(_FOLD_DAMPINGS)
            cost_there = fold_cost(k, trials[:, i], tried_set)
            if cost_there < costs_now[k]:
                costs_now[k], sets[k], fold_logs[:, k] = cost_there, tried_set, trials[:, i]
    left_out = fold_logs[np.arange(len(which)), which] - target
    names = [c.name for c in constants]
    by_fold = {key: dict(zip(names, (low + span * sets[k]).tolist(), strict=True)) for k, key in enumerate(keys)}
    return Fit(values=values, fold_values=by_fold, residuals=residuals, left_out_residuals=left_out)


def weights_of(configurations: Sequence[str], families: Sequence[str]) -> Floats:
    """Return row weights: repeats of one configuration share one, large families count with the root of their size."""
    config_counts: dict[str, int] = {}
    members: dict[str, set[str]] = {}
    for configuration, family in zip(configurations, families, strict=True):
        config_counts[configuration] = config_counts.get(configuration, 0) + 1
        members.setdefault(family, set()).add(configuration)
    return np.array(
        [
            1.0 / config_counts[configuration] / len(members[family]) ** _SHARED
            for configuration, family in zip(configurations, families, strict=True)
        ]
    )
