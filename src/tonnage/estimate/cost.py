"""Money from rates: rent an hour, a million tokens, a whole job."""

from __future__ import annotations

from tonnage.units import Seconds, TokensPerS, Usd, UsdPerHour


def usd_per_million_tokens(usd_per_hour: UsdPerHour, tokens_per_s: TokensPerS) -> Usd:
    """Price of a million tokens on hardware that is rented by the hour and never idle.

    Parameters
    ----------
    usd_per_hour : numeric
        Rent of all devices. [USD/h]
    tokens_per_s : numeric
        Tokens of the whole job. [token/s]

    Returns
    -------
    numeric
        Price of 10^6 tokens. [USD]

    Notes
    -----
    Derived. Leaves out idle time, storage, network and the time to load the model.

    Examples
    --------
    >>> round(usd_per_million_tokens(3.6, 1000.0), 6)
    1.0
    """
    return usd_per_hour / 3600.0 / tokens_per_s * 1e6


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
    Derived. Leaves out minimum times and interruptions.

    Examples
    --------
    >>> rent_usd(2.0, 7200.0)
    4.0
    """
    return usd_per_hour * duration / 3600.0
