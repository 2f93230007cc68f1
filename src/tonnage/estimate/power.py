"""Watts a device draws, and the energy of a job."""

from __future__ import annotations

from typing import Any, cast

from tonnage.units import Count, Joules, Ratio, Seconds, TokensPerS, Watts


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


def job_joules(draw: Watts, duration: Seconds, pue: Count) -> Joules:
    """Energy of a job, that of the building's cooling and losses with it.

    Parameters
    ----------
    draw : numeric
        Mean draw of all machines at work: the devices' limits by the share of them that is drawn, and the hosts. [W]
    duration : numeric
        How long the job holds them. [s]
    pue : numeric
        Power usage effectiveness: draw of the building over that of the machines, 1 or more. [1]

    Returns
    -------
    numeric
        Energy. [J]

    Notes
    -----
    Leaves out storage and switches beside the machines.

    References
    ----------
    .. [1] ISO/IEC 30134-2, power usage effectiveness; measured draw over limit: arXiv:2412.08602.

    Examples
    --------
    >>> job_joules(6000.0, 3600.0, 1.5) / 3.6e6
    9.0
    """
    return draw * duration * pue
