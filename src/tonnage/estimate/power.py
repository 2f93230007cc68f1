"""Watts a device draws, and the energy of a job."""

from __future__ import annotations

from typing import Any, cast

from tonnage.units import Count, Joules, Ratio, Seconds, TokensPerS, Watts


def draw_watts(limit: Watts, idle_ratio: Ratio, busy_ratio: Ratio) -> Watts:
    """Mean draw of a device by the share of the time it works.

    Parameters
    ----------
    limit : numeric
        Power limit. [W]
    idle_ratio : numeric
        Share of the limit drawn when waiting with a context open. [0-1]
    busy_ratio : numeric
        Share of the time in kernels that load it fully. [0-1]

    Returns
    -------
    numeric
        Draw. [W]

    References
    ----------
    .. [1] Derived: linear between idle and the limit; nodes of 8 H100 in training draw about 0.8 of their rating
       (arXiv:2412.08602).

    Examples
    --------
    >>> draw_watts(700, 0.15, 0.8)
    581.0
    """
    return limit * (idle_ratio + (1 - idle_ratio) * busy_ratio)


def energy_joules(draw: Watts, num_devices: Count, duration: Seconds) -> Joules:
    """Energy of devices over a time.

    Parameters
    ----------
    draw : numeric
        Mean draw of one device. [W]
    num_devices : numeric
        Devices. [1]
    duration : numeric
        Time. [s]

    Returns
    -------
    numeric
        Energy. [J]

    References
    ----------
    .. [1] Derived: power times time.

    Examples
    --------
    >>> energy_joules(700, 8, 3600)
    20160000
    """
    return draw * num_devices * duration


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
