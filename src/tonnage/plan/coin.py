"""Amounts in the currency that was asked for, with US dollars beside: what is reckoned with is always dollars."""

from __future__ import annotations

from typing import Final

from tonnage.nouns import noun
from tonnage.plan.types import Limits

_WHOLE: Final = 100.0  # from here on without decimals


@noun
class Coin:
    """A currency, and how many of it a dollar is."""

    code: str = "USD"
    per_usd: float = 1.0

    @property
    def is_dollar(self) -> bool:
        """Whether amounts need no dollars beside them."""
        return self.code == "USD"


def coin_of(limits: Limits) -> Coin:
    """Return the currency of the limits, or of a price that was given, at the rate they were settled at; else dollars."""
    amounts = (limits.budget, limits.rent, limits.spend, *limits.prices.values())
    foreign = (money for money in amounts if money is not None and money.currency != "USD")
    first = next((money for money in foreign if money.usd), None)
    return Coin() if first is None or not first.usd else Coin(code=first.currency, per_usd=first.amount / first.usd)


def number(usd: float, coin: Coin) -> str:
    """Write dollars in a currency, three digits below a hundred, whole above, without its name.

    >>> number(3370.1, Coin(code="CNY", per_usd=6.8)), number(0.4, Coin())
    ('22,917', '0.400')
    """
    value = usd * coin.per_usd
    return f"{value:,.0f}" if value >= _WHOLE else f"{value:#.3g}"


def both(usd: float, coin: Coin, per: str = "") -> str:
    """Write dollars in a currency, with dollars beside it.

    >>> both(3370.1, Coin(code="CNY", per_usd=6.8)), both(0.4, Coin(), "/h")
    ('22,917 CNY (3,370 USD)', '0.400 USD/h')
    """
    text = f"{number(usd, coin)} {coin.code}{per}"
    return text if coin.is_dollar else f"{text} ({number(usd, Coin())} USD)"
