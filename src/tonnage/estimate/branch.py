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
