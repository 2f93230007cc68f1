"""Series of a training run, smoothed and compared: the exact definitions behind the words of an acceptance list."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from tonnage.units import Ratio

__all__ = ["change_of", "finite", "fluctuation", "spikes", "straggling", "windows"]

FEWEST_WINDOWS = 3
FEWEST_STEPS = 10  # of a window


def finite(values: Sequence[float | None]) -> list[float]:
    """Return the values that are numbers.

    Parameters
    ----------
    values : sequence
        With None and NaN.

    Returns
    -------
    list of float
        The rest.

    Notes
    -----
    Derived.
    """
    return [value for value in values if value is not None and math.isfinite(value)]


def windows(values: Sequence[float], num_windows: int = 10) -> list[float]:
    """Return medians of equal, whole windows of a series: the smoothed series.

    Parameters
    ----------
    values : sequence of float
        The series.
    num_windows : int
        At most so many; fewer where a window would hold less than ten values. [1]

    Returns
    -------
    list of float
        The medians.

    Notes
    -----
    Derived. What is left over at the start is left out.

    Examples
    --------
    >>> windows([1.0] * 10 + [2.0] * 10, 2)
    [1.0, 2.0]
    """
    number = min(num_windows, len(values) // FEWEST_STEPS)
    if number < 1:
        return []
    length = len(values) // number
    tail = values[len(values) - number * length :]
    return [median(tail[at * length : (at + 1) * length]) for at in range(number)]


def fluctuation(values: Sequence[float], warmup_ratio: Ratio = 0.2) -> Ratio | None:
    """How much a smoothed series goes up and down after warm-up, beside its trend.

    Parameters
    ----------
    values : sequence of float
        The series, as of gradient norms.
    warmup_ratio : numeric
        Share of the steps at the start that is left out. [0-1]

    Returns
    -------
    numeric or None
        Largest distance of a window's median from the straight line through all of them, over their mean; None of too
        few steps. [0-1]

    Notes
    -----
    Derived. The raw series fluctuates by far more than a tenth in every healthy run, and its level falls as training
    goes on: neither is what "fluctuates by less than 10 %" can mean. The line takes the trend out.

    Examples
    --------
    >>> fluctuation([2.0 - 0.001 * step for step in range(1000)]) < 1e-9
    True
    """
    smooth = windows(values[int(len(values) * warmup_ratio) :])
    if len(smooth) < FEWEST_WINDOWS:
        return None
    number, mean = len(smooth), math.fsum(smooth) / len(smooth)
    if mean <= 0:
        return None
    middle = (number - 1) / 2.0
    slope = math.fsum((at - middle) * value for at, value in enumerate(smooth)) / math.fsum(
        (at - middle) ** 2 for at in range(number)
    )
    return max(abs(value - mean - slope * (at - middle)) for at, value in enumerate(smooth)) / mean


def spikes(values: Sequence[float], times: float = 10.0, most: float = 1e3, behind: int = 50) -> int:
    """Count values that jump: above a multiple of the median of those before, or above a fixed most.

    Parameters
    ----------
    values : sequence of float
        The series.
    times : numeric
        Multiple of the median. [1]
    most : numeric
        Above it any value counts.
    behind : int
        Values before that the median is of; none is judged before there are ten. [1]

    Returns
    -------
    int
        Jumps. [1]

    Notes
    -----
    Derived.

    Examples
    --------
    >>> spikes([1.0] * 20 + [11.0] + [1.0] * 5)
    1
    """
    found = 0
    for at, value in enumerate(values):
        before = values[max(0, at - behind) : at]
        found += value > most or (len(before) >= FEWEST_STEPS and value > times * median(before))
    return found


def change_of(values: Sequence[float]) -> Ratio | None:
    """Change of a series from its first tenth to its last, over the first.

    Parameters
    ----------
    values : sequence of float
        The series, as of losses.

    Returns
    -------
    numeric or None
        Below zero where it fell; None of fewer than ten values. [1]

    Notes
    -----
    Derived: medians of the two tenths.

    Examples
    --------
    >>> change_of([4.0] * 10 + [3.0] * 80 + [2.0] * 10)
    -0.5
    """
    if len(values) < FEWEST_STEPS:
        return None
    tenth = max(1, len(values) // 10)
    first, last = median(values[:tenth]), median(values[-tenth:])
    return (last - first) / first if first > 0 else None


def straggling(seconds_by_rank: Sequence[float]) -> Ratio | None:
    """How the slowest rank compares with the median one: 1 where all are alike, less where one is slow.

    Parameters
    ----------
    seconds_by_rank : sequence of float
        Time of a step's own work, a rank. [s]

    Returns
    -------
    numeric or None
        Median time over the slowest; None of fewer than two ranks. [0-1]

    Notes
    -----
    Derived; below 0.75 public practice calls a rank a straggler.

    Examples
    --------
    >>> straggling([1.0, 1.0, 2.0])
    0.5
    """
    if len(seconds_by_rank) < 2 or max(seconds_by_rank) <= 0:
        return None
    return median(seconds_by_rank) / max(seconds_by_rank)
