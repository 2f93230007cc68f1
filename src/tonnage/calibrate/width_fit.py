"""Half-widths of 80 % intervals fitted to errors of predictions that the rows predicted had no part in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
COVERED: Final = 0.8
_FIRST_STEP: Final = 0.1
_LAST_STEP: Final = 0.002


def pinball(errors: Floats, widths: Floats) -> float:
    """Return the loss that is least when four fifths of the errors are smaller than their widths."""
    over = errors - widths
    return float(np.sum(np.where(over > 0, COVERED * over, (COVERED - 1) * over)))


def fit_widths(
    causes: Sequence[Mapping[str, float]], errors: Floats, ranges: Mapping[str, tuple[float, float]]
) -> dict[str, float]:
    """Fit what each cause adds to a half-width, within its range.

    Parameters
    ----------
    causes : sequence of mapping
        Amounts of the causes of each prediction, by name.
    errors : array of shape (N,)
        Absolute errors, in natural logarithm.
    ranges : mapping of str to (float, float)
        Least and most that each cause may add.

    Returns
    -------
    dict of str to float
        What each adds.

    Examples
    --------
    >>> errors = np.array([0.1] * 50 + [0.5] * 50)
    >>> causes = [{"base": 1.0, "odd": float(i >= 50)} for i in range(100)]
    >>> {k: round(v, 2) for k, v in fit_widths(causes, errors, {"base": (0.0, 1.0), "odd": (0.0, 1.0)}).items()}
    {'base': 0.1, 'odd': 0.4}
    """
    names = list(ranges)
    amounts = np.array([[row.get(name, 0.0) for name in names] for row in causes])
    low, high = np.array([ranges[n][0] for n in names]), np.array([ranges[n][1] for n in names])
    values = low.copy()
    best = pinball(errors, amounts @ values)
    moves = [*np.eye(len(names)), *-np.eye(len(names))]
    moves += [one - other for one in np.eye(len(names)) for other in np.eye(len(names)) if one @ other == 0]
    step = _FIRST_STEP
    while step >= _LAST_STEP:
        moved = False
        for move in moves:
            tried = np.clip(values + step * move, low, high)
            if (loss := pinball(errors, amounts @ tried)) < best - 1e-9:
                best, values, moved = loss, tried, True
        step = step if moved else step / 2
    return dict(zip(names, values.tolist(), strict=True))
