"""Watts a device draws, and the energy of a job."""

from __future__ import annotations

from typing import Any, cast

from tonnage.units import Joules, Ratio, TokensPerS, Watts


def capped_speed_ratio(cap_ratio: Ratio, caps: tuple[float, ...], ratios: tuple[float, ...]) -> Ratio:
    """Speed under a power limit over that without one, between measured points.

    Parameters
    ----------
    cap_ratio : numeric
        Limit over the device's own. [0-1]
    caps : tuple of float
        Measured limits over the device's own, ascending.
    ratios : tuple of float
        Speed measured at each.

    Returns
    -------
    numeric
        Speed. [0-1]

    Notes
    -----
    Derived: linear between neighbours; below the lowest measured limit the lowest figure, which is too high there.

    Examples
    --------
    >>> float(capped_speed_ratio(0.75, (0.5, 1.0), (0.6, 1.0)))
    0.8
    """
    import numpy as np  # noqa: PLC0415  only caps need it

    return cast("Any", np.interp(cap_ratio, caps, ratios))


def joules_per_token(draw: Watts, tokens_per_s: TokensPerS) -> Joules:
    """Energy of a token.

    Parameters
    ----------
    draw : numeric
        Mean draw of all machines at work. [W]
    tokens_per_s : numeric
        Tokens of the whole job. [token/s]

    Returns
    -------
    numeric
        Energy. [J]

    Notes
    -----
    Derived: power over rate. Leaves out cooling, see `cost.electricity_usd`.

    Examples
    --------
    >>> joules_per_token(500.0, 100.0)
    5.0
    """
    return draw / tokens_per_s
