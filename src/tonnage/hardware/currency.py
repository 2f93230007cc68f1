"""Amounts in other currencies as dollars: a dated table of reference rates, in whose place a person may set others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

from tonnage import datafiles
from tonnage.errors import RequestError
from tonnage.nouns import noun

_LARGEST = 1e7


@noun
class Rate:
    """Units of a currency for one US dollar; `day` is empty where a person gives it."""

    currency: str
    per_usd: float
    day: str = ""
    source: str = ""


def from_euro(per_eur: Mapping[str, float], day: str, source: str) -> dict[str, Rate]:
    """Return rates to the dollar from rates to the euro."""
    usd = per_eur["USD"]
    return {c: Rate(currency=c, per_usd=n / usd, day=day, source=source) for c, n in per_eur.items()}


@cache
def reference_rates() -> Mapping[str, Rate]:
    """Return the shipped rates, by currency.

    >>> reference_rates()["USD"].per_usd, round(reference_rates()["CNY"].per_usd, 3)
    (1.0, 6.801)
    """
    rows = datafiles.rows("prices/exchange_rates.csv")
    return from_euro({row["currency"]: float(row["per_eur"]) for row in rows}, rows[0]["day"], rows[0]["source"])


def parse_rates(texts: Iterable[str]) -> dict[str, float]:
    """Read rates that a person sets, in units for one US dollar.

    >>> parse_rates(["CNY=7.1"])
    {'CNY': 7.1}

    Raises
    ------
    RequestError
        A text that is no rate.
    """
    given: dict[str, float] = {}
    for text in texts:
        name, _, number = (part.strip() for part in text.partition("="))
        is_code = len(name) == 3 and name.isascii() and name.isalpha()
        is_number = number.isascii() and number.replace(".", "", 1).isdigit() and len(number) <= 20
        if not is_code or not is_number or not 0 < float(number) < _LARGEST or name.upper() == "USD":
            fix = "write how many units a US dollar is, like CNY=7.1"
            raise RequestError(f"'{text[:60]}' is no exchange rate", where="--rate", fix=fix)
        given[name.upper()] = float(number)
    return given


def with_rates(rates: Mapping[str, Rate], given: Mapping[str, float]) -> Mapping[str, Rate]:
    """Return rates with those that a person sets in their place."""
    return {**rates, **{c: Rate(currency=c, per_usd=n) for c, n in given.items()}}


def rate_of(currency: str, rates: Mapping[str, Rate], where: str) -> Rate:
    """Return the rate of a currency.

    Raises
    ------
    RequestError
        None is known.
    """
    if currency not in rates:
        fix = f"write it in one of {', '.join(rates)}, or add --rate {currency[:3]}=UNITS_FOR_A_DOLLAR"
        raise RequestError(f"no exchange rate of '{currency[:12]}' is known", where=where, fix=fix)
    return rates[currency]


def in_usd(amount: float, currency: str, rates: Mapping[str, Rate], where: str) -> float:
    """Return an amount in US dollars.

    >>> round(in_usd(7100, "CNY", with_rates(reference_rates(), {"CNY": 7.1}), "--budget"), 9)
    1000.0

    Raises
    ------
    RequestError
        The currency has no known rate.
    """
    return amount / rate_of(currency, rates, where).per_usd
