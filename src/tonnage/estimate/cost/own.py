"""What owning costs: value lost, repairs, electricity, in sum; and the hours at which renting costs as much."""

from __future__ import annotations

import math

from tonnage.units import YEAR_SECONDS, Count, Numeric, Ratio, Seconds, Usd, UsdPerHour, UsdPerJoule, Watts


def residual_usd(price: Usd, kept_ratio: Ratio, age: Seconds) -> Usd:
    """Price at which hardware can be sold again.

    Parameters
    ----------
    price : numeric
        What it cost. [USD]
    kept_ratio : numeric
        Share of its value that it keeps in a year. [0-1]
    age : numeric
        How long it was used. [s]

    Returns
    -------
    numeric
        Second-hand price. [USD]

    Notes
    -----
    Derived: a constant share is lost each year (declining balance). Markets fall in steps, when a successor appears.

    Examples
    --------
    >>> residual_usd(10_000.0, 0.7, 2 * 31_557_600.0)
    4900.0
    """
    return price * kept_ratio ** (age / YEAR_SECONDS)


def depreciation_usd(price: Usd, kept_ratio: Ratio, age: Seconds) -> Usd:
    """Value that hardware loses.

    Parameters
    ----------
    price : numeric
        What it cost. [USD]
    kept_ratio : numeric
        Share of its value that it keeps in a year. [0-1]
    age : numeric
        How long it is used. [s]

    Returns
    -------
    numeric
        Price less second-hand price. [USD]

    Notes
    -----
    Derived from `residual_usd`.

    Examples
    --------
    >>> depreciation_usd(10_000.0, 0.7, 2 * 31_557_600.0)
    5100.0
    """
    return price - residual_usd(price, kept_ratio, age)


def repair_usd(price: Usd, failures_per_year: Count, repair_ratio: Ratio, duration: Seconds) -> Usd:
    """Cost of failures to expect.

    Parameters
    ----------
    price : numeric
        What the hardware cost. [USD]
    failures_per_year : numeric
        Failures of a piece in a year, by count of pieces. [1]
    repair_ratio : numeric
        Share of its price that a failure costs: what no warranty pays, shipping, standing still. [0-1]
    duration : numeric
        How long it is used. [s]

    Returns
    -------
    numeric
        Expected cost. [USD]

    Notes
    -----
    Derived: a constant rate; no early failures, no wear.

    Examples
    --------
    >>> round(repair_usd(10_000.0, 0.05, 0.5, 3 * 31_557_600.0), 6)
    750.0
    """
    return price * failures_per_year * repair_ratio * duration / YEAR_SECONDS


def electricity_usd(draw: Watts, usd_per_joule: UsdPerJoule, pue: Count, duration: Seconds) -> Usd:
    """Cost of electricity over a time.

    Parameters
    ----------
    draw : numeric
        Mean draw of the machines. [W]
    usd_per_joule : numeric
        Tariff. [USD/J]
    pue : numeric
        Power usage effectiveness: draw of the building over that of the machines, 1 or more. [1]
    duration : numeric
        Time. [s]

    Returns
    -------
    numeric
        Cost. [USD]

    Notes
    -----
    Derived: energy times tariff.

    Examples
    --------
    >>> round(electricity_usd(1000.0, 0.36 / 3.6e6, 1.5, 10 * 3600.0), 6)
    5.4
    """
    return draw * pue * usd_per_joule * duration


def electricity_usd_per_hour(draw: Watts, usd_per_joule: UsdPerJoule, pue: Count) -> UsdPerHour:
    """Cost of electricity an hour.

    Parameters
    ----------
    draw : numeric
        Mean draw of the machines. [W]
    usd_per_joule : numeric
        Tariff. [USD/J]
    pue : numeric
        Power usage effectiveness, 1 or more. [1]

    Returns
    -------
    numeric
        Cost. [USD/h]

    Notes
    -----
    Derived from `electricity_usd`.

    Examples
    --------
    >>> round(electricity_usd_per_hour(1000.0, 0.36 / 3.6e6, 1.5), 6)
    0.54
    """
    return electricity_usd(draw, usd_per_joule, pue, 3600.0)


def ownership_usd(
    price: Usd,
    kept_ratio: Ratio,
    failures_per_year: Count,
    repair_ratio: Ratio,
    horizon: Seconds,
    running: UsdPerHour,
    used: Seconds,
) -> Usd:
    """Total cost of ownership: value lost and repairs over a horizon, running cost over the time in use.

    Parameters
    ----------
    price : numeric
        What the machine cost. [USD]
    kept_ratio : numeric
        Share of its value that it keeps in a year. [0-1]
    failures_per_year : numeric
        Failures in a year. [1]
    repair_ratio : numeric
        Share of the price that a failure costs. [0-1]
    horizon : numeric
        From purchase to sale. [s]
    running : numeric
        Electricity and whatever else an hour of work costs. [USD/h]
    used : numeric
        Time in use, at most the horizon. [s]

    Returns
    -------
    numeric
        Cost from purchase to sale. [USD]

    Notes
    -----
    Derived. Leaves out people, room, network and the interest on the money.

    Examples
    --------
    >>> round(ownership_usd(10_000.0, 0.7, 0.05, 0.5, 2 * 31_557_600.0, 0.2, 1000 * 3600.0), 6)
    5800.0
    """
    fixed = depreciation_usd(price, kept_ratio, horizon) + repair_usd(price, failures_per_year, repair_ratio, horizon)
    return fixed + running * used / 3600.0


def owned_usd_per_hour(ownership: Usd, used: Seconds) -> UsdPerHour:
    """Cost of an hour in use.

    Parameters
    ----------
    ownership : numeric
        Total cost from purchase to sale, `ownership_usd`. [USD]
    used : numeric
        Time in use. [s]

    Returns
    -------
    numeric
        Cost. [USD/h]

    Notes
    -----
    Derived: the total over the hours.

    Examples
    --------
    >>> owned_usd_per_hour(5800.0, 1000 * 3600.0)
    5.8
    """
    return ownership / (used / 3600.0)


def break_even_hours(fixed: Usd, running: UsdPerHour, rent: UsdPerHour) -> Count:
    """Hours in use at which renting and owning cost the same; infinite where an hour of rent is never dearer.

    Parameters
    ----------
    fixed : numeric
        Value lost and repairs over the horizon. [USD]
    running : numeric
        What an hour of work costs the owner. [USD/h]
    rent : numeric
        What an hour costs who rents the same. [USD/h]

    Returns
    -------
    numeric
        Hours within the horizon. [1]

    Notes
    -----
    Derived: fixed + running h = rent h. More hours than the horizon has mean that renting is cheaper at any use.

    Examples
    --------
    >>> float(break_even_hours(5600.0, 0.2, 3.0)), float(break_even_hours(5600.0, 0.2, 0.1))
    (2000.0, inf)
    """
    from tonnage.estimate.branch import where  # noqa: PLC0415  brings numpy; a plan without prices does without

    saved: Numeric = rent - running
    return where(saved > 0, fixed / where(saved > 0, saved, 1.0), math.inf)
