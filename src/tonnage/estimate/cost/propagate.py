"""An interval for what is computed from intervals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tonnage.estimate.types import Interval


def propagated(formula: Callable[..., Any], *inputs: Interval | float) -> Interval:
    """Return a formula's value at the best inputs, with the interval that theirs bring.

    Parameters
    ----------
    formula : callable
        Takes the inputs in their order, as numbers.
    inputs : Interval or float
        Uncertain ones and plain numbers.

    Returns
    -------
    Interval
        Best, low and high.

    Notes
    -----
    Derived: each uncertain input is set to its two ends while the others stay at their best; the shifts of one direction
    add in squares, as those of independent inputs do (first order). Infinite shifts stay infinite.

    Examples
    --------
    >>> propagated(lambda a, b: a + b, Interval(best=10, low=7, high=13), Interval(best=5, low=1, high=9))
    Interval(best=15.0, low=10.0, high=20.0)
    """
    best = [one.best if isinstance(one, Interval) else one for one in inputs]
    middle = float(formula(*best))
    up = down = 0.0
    for place, one in enumerate(inputs):
        if not isinstance(one, Interval) or one.low == one.high:
            continue
        ends = [float(formula(*best[:place], end, *best[place + 1 :])) - middle for end in (one.low, one.high)]
        up += max(0.0, *ends) ** 2
        down += min(0.0, *ends) ** 2
    return Interval(best=middle, low=max(0.0, middle - down**0.5), high=middle + up**0.5)


def summed(*parts: Interval) -> Interval:
    """Return the interval of a sum of independent parts.

    >>> summed(Interval.exact(1.0), Interval(best=2.0, low=1.0, high=4.0))
    Interval(best=3.0, low=2.0, high=5.0)
    """
    return propagated(_sum, *parts)


def _sum(*values: float) -> float:
    return sum(values)
