"""Watts a device draws, and the energy of a job."""

from __future__ import annotations

from tonnage.units import Count, Joules, Ratio, Seconds, Watts


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
