"""Money from rates: rent over a time, and the price of a million tokens."""

from __future__ import annotations

from tonnage.units import Ratio, Seconds, TokensPerS, Usd, UsdPerHour


def usd_per_million_tokens(usd_per_hour: UsdPerHour, tokens_per_s: TokensPerS, idle_ratio: Ratio = 0.0) -> Usd:
    """Price of a million tokens on hardware that costs so much an hour, idle or not.

    Parameters
    ----------
    usd_per_hour : numeric
        Cost of all devices. [USD/h]
    tokens_per_s : numeric
        Tokens of the whole job while it works. [token/s]
    idle_ratio : numeric
        Share of the paid time in which nothing is asked for, below 1. [0-1]

    Returns
    -------
    numeric
        Price of 10^6 tokens. [USD]

    Notes
    -----
    Derived. Leaves out storage, network and the time to load the model.

    Examples
    --------
    >>> round(usd_per_million_tokens(3.6, 1000.0), 6), round(usd_per_million_tokens(3.6, 1000.0, 0.75), 6)
    (1.0, 4.0)
    """
    return usd_per_hour / 3600.0 / (tokens_per_s * (1.0 - idle_ratio)) * 1e6


def rent_usd(usd_per_hour: UsdPerHour, duration: Seconds) -> Usd:
    """Rent over a time.

    Parameters
    ----------
    usd_per_hour : numeric
        Rent of all devices. [USD/h]
    duration : numeric
        How long they are held. [s]

    Returns
    -------
    numeric
        Rent. [USD]

    Notes
    -----
    Derived. Leaves out minimum times; interruptions lengthen the time, see `cost.expected_seconds`.

    Examples
    --------
    >>> rent_usd(2.0, 7200.0)
    4.0
    """
    return usd_per_hour * duration / 3600.0
