"""A choice between two values, of scalars without the cost of arrays."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from tonnage.units import Numeric


def where(condition: Any, chosen: Numeric, otherwise: Numeric) -> Numeric:
    """Choose element by element; with a scalar condition return one of the two as it is.

    Parameters
    ----------
    condition : bool or array of bool
        What decides.
    chosen : numeric
        Value where it holds.
    otherwise : numeric
        Value where it does not.

    Returns
    -------
    numeric
        The values chosen.

    Examples
    --------
    >>> where(3 > 2, 1.0, 0.0)
    1.0
    """
    if isinstance(condition, (bool, np.bool_)):
        return chosen if condition else otherwise
    return cast("Any", np.where(condition, chosen, otherwise))


def softer_max(a: Any, b: Any) -> Any:
    """Join two amounts of which the larger shows: a fifth more than either where they are equal.

    Parameters
    ----------
    a, b : numeric
        Two numbers of one unit, not negative.

    Returns
    -------
    numeric
        The norm of their fourth powers.

    Examples
    --------
    >>> float(softer_max(1.0, 0.0)), round(float(softer_max(1.0, 1.0)), 3)
    (1.0, 1.189)
    """
    return np.sqrt(np.sqrt(a**4 + b**4))


def softer_min(a: Any, b: Any) -> Any:
    """Join two amounts of which the smaller shows: a sixth less than either where they are equal.

    Parameters
    ----------
    a, b : numeric
        Two numbers of one unit, not negative.

    Returns
    -------
    numeric
        Their product over the softer maximum.

    Examples
    --------
    >>> float(softer_min(1.0, 0.0)), round(float(softer_min(1.0, 1.0)), 3)
    (0.0, 0.841)
    """
    return a * b / np.maximum(softer_max(a, b), 1e-30)
