"""What money depends on and no fact tells: each with a range, its sources or reasoning, and the flag that sets it.

Rows of `data/assumptions/money.csv`. A name may stand for several kinds of thing ("kept_per_year" of consumer,
professional and data-centre cards); `--assume NAME=VALUE` sets all of them, `--assume NAME.KIND=VALUE` one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from tonnage import datafiles
from tonnage.errors import RequestError, UnknownNameError
from tonnage.estimate.types import Interval
from tonnage.messages import say
from tonnage.units import GB, GIB, JOULES_PER_KWH, YEAR_SECONDS

_TABLE: Final = "assumptions/money.csv"
# From the table's units to base units; what is not named here is a base unit already.
_SCALES: Final = {
    "USD/kWh": 1 / JOULES_PER_KWH,
    "USD/GiB": 1 / GIB,
    "GB/s": GB,
    "min": 60.0,
    "year": YEAR_SECONDS,
    "h/day": 1 / 24,
    "1/day": 1 / 86_400,
    "1/year": 1.0,
}
# Shares that cannot pass 1, and what may not be 0 because time or money is divided by it.
_NEVER_ZERO: Final = frozenset(("kept_per_year", "use_per_day", "spot_available_ratio", "save_rate", "horizon", "pue"))
_LARGEST: Final = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """One assumed value with its range, in its own unit."""

    name: str
    kind: str  # "" = of everything
    best: float
    low: float
    high: float
    unit: str
    sources: tuple[str, ...]
    is_given: bool = False  # by the person

    @property
    def key(self) -> str:
        """Return what `--assume` calls it."""
        return f"{self.name}.{self.kind}" if self.kind else self.name

    @property
    def value(self) -> Interval:
        """Return it in base units."""
        scale = _SCALES.get(self.unit, 1.0)
        return Interval(best=self.best * scale, low=self.low * scale, high=self.high * scale)

    @property
    def why(self) -> str:
        """Return the reasoning, in the language in use."""
        return (
            say("money.why_given")
            if self.is_given
            else say(f"money.why_{self.key.replace('.', '_').replace('-', '_')}")
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """All of them, by key."""

    by_key: Mapping[str, Assumption]

    def of(self, name: str, kind: str = "") -> Assumption:
        """Return the assumption of a name and kind."""
        return self.by_key[f"{name}.{kind}" if kind else name]

    def value(self, name: str, kind: str = "") -> Interval:
        """Return what is assumed, in base units."""
        return self.of(name, kind).value

    def best(self, name: str, kind: str = "") -> float:
        """Return the value that is used, in base units."""
        return self.of(name, kind).value.best


@cache
def stated() -> Assumptions:
    """Return the assumptions as they are shipped."""
    rows = (
        Assumption(
            name=row["name"],
            kind=row["kind"],
            best=float(row["best"]),
            low=float(row["low"]),
            high=float(row["high"]),
            unit=row["unit"],
            sources=tuple(row["source"].split()),
        )
        for row in datafiles.rows(_TABLE)
    )
    return Assumptions(by_key={row.key: row for row in rows})


def with_given(given: Mapping[str, float]) -> Assumptions:
    """Return the assumptions with those that a person gives in place of ours, in the table's units.

    Raises
    ------
    UnknownNameError
        A name that is none.
    RequestError
        A value that the quantity cannot have.
    """
    if not given:
        return stated()
    by_key = dict(stated().by_key)
    for name, value in sorted(given.items(), key=lambda pair: "." in pair[0]):
        keys = [key for key, one in stated().by_key.items() if name in (key, one.name)]
        if not keys:
            names = tuple(dict.fromkeys(one.name for one in stated().by_key.values()))
            raise UnknownNameError(
                f"nothing is assumed of '{name[:40]}'", where="--assume", fix=f"one of {', '.join(names)}"
            )
        for key in keys:
            _check(by_key[key], value)
            by_key[key] = replace(by_key[key], best=value, low=value, high=value, is_given=True, sources=())
    return Assumptions(by_key=by_key)


def _check(one: Assumption, value: float) -> None:
    most = {"0-1": 1.0, "h/day": 24.0}.get(one.unit, _LARGEST)
    least = 1.0 if one.name == "pue" else 0.0
    is_right = least <= value <= most and (value > 0 or one.name not in _NEVER_ZERO)
    if one.name == "idle_ratio":
        is_right = 0 <= value < 1
    if not is_right:
        fix = f"write a number in {one.unit}, like --assume {one.key}={one.best:g}"
        raise RequestError(f"{one.key} cannot be {value:g}", where="--assume", fix=fix)


def parse_given(texts: Iterable[str]) -> dict[str, float]:
    """Read what a person assumes: "tariff=0.30", "kept_per_year.consumer=0.6", in the table's units.

    >>> parse_given(["tariff=0.30", "restart=5"])
    {'tariff': 0.3, 'restart': 5.0}

    Raises
    ------
    RequestError
        A text that is none, or a name or value that cannot be.
    """
    given: dict[str, float] = {}
    for text in texts:
        name, equals, number = (part.strip() for part in text.partition("="))
        try:
            value = float(number) if equals and number.isascii() and len(number) <= 24 else float("nan")
        except ValueError:
            value = float("nan")
        if not name or math.isnan(value):
            raise RequestError(
                f"'{text[:60]}' assumes nothing", where="--assume", fix="write NAME=NUMBER, like tariff=0.30"
            )
        given[name] = value
    with_given(given)
    return given
