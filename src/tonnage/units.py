"""Base units as annotated types, and the only place where a prefix becomes a number.

Inside the package every quantity is in base units: bytes, flop, seconds, bytes_per_s, flop_per_s, watts, joules,
celsius, usd, ratios in 0–1 and plain counts. Text with a prefix is read and written here and nowhere else.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from tonnage.errors import RequestError

# A formula takes one number or a numpy array of them; both broadcast.
Numeric = Any

Bytes = Annotated[Numeric, "B"]
BytesPerS = Annotated[Numeric, "B/s"]
Celsius = Annotated[Numeric, "°C"]
Count = Annotated[Numeric, "1"]
Flop = Annotated[Numeric, "flop"]
FlopPerS = Annotated[Numeric, "flop/s"]
Joules = Annotated[Numeric, "J"]
Ratio = Annotated[Numeric, "0-1"]
RequestsPerS = Annotated[Numeric, "1/s"]
Seconds = Annotated[Numeric, "s"]
TokensPerS = Annotated[Numeric, "token/s"]
Usd = Annotated[Numeric, "USD"]
UsdPerHour = Annotated[Numeric, "USD/h"]
UsdPerJoule = Annotated[Numeric, "USD/J"]
Watts = Annotated[Numeric, "W"]

KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30
TIB: Final = 1 << 40
GB: Final = 10**9
DAY_SECONDS: Final = 86400.0
YEAR_SECONDS: Final = 365.25 * DAY_SECONDS
JOULES_PER_KWH: Final = 3.6e6

_BYTE_UNITS: Final = {
    "B": 1,
    "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "PB": 10**15,
    "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40, "PIB": 1 << 50,
}  # fmt: skip
_SECOND_UNITS: Final = {
    "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0,
}  # fmt: skip
_QUANTITY: Final = re.compile(r"\s*([0-9][0-9_,]*(?:\.[0-9]+)?(?:e[+-]?[0-9]{1,3})?)\s*([A-Za-zµ%/]*)\s*", re.ASCII)
_RATE: Final = re.compile(r"([MGTmgt])(b/s|B/s|bit/s|bps)")
_LONGEST_QUANTITY: Final = 40
_LARGEST_NUMBER: Final = 1e24


def _split(text: str, where: str, example: str) -> tuple[float, str]:
    """Split "16 GiB" into 16.0 and "GiB"."""
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST_QUANTITY else None
    if match is None:
        raise RequestError(f"'{text[:60]}' is not a quantity", where=where, fix=f"write it like {example}")
    number = float(match[1].replace("_", "").replace(",", ""))
    if number > _LARGEST_NUMBER:
        raise RequestError(f"'{text}' is larger than anything", where=where, fix=f"write it like {example}")
    return number, match[2]


def parse_bytes(text: str, where: str = "size") -> int:
    """Read a size with its unit, strictly: GB is 10^9 bytes, GiB is 2^30, a bare number is refused.

    >>> parse_bytes("16 GiB"), parse_bytes("24GB")
    (17179869184, 24000000000)
    """
    number, unit = _split(text, where, '"16 GiB" or "24GB"')
    scale = _BYTE_UNITS.get(unit.upper())
    if scale is None:
        what = f"'{text}' has no unit" if not unit else f"'{unit}' is not a unit of size"
        raise RequestError(what, where=where, fix='write "16 GiB" (2^30 bytes each) or "16 GB" (10^9 bytes each)')
    if number * scale < 1:
        raise RequestError(f"'{text}' is not more than zero", where=where, fix='write a size like "16 GiB"')
    return round(number * scale)


def parse_bits_per_s(text: str, where: str = "rate") -> float:
    """Read the rate of a network in bits a second, with its unit; bytes a second (GB/s) are eight times as many.

    >>> parse_bits_per_s("400Gb/s"), parse_bits_per_s("50 GB/s"), parse_bits_per_s("25gbps")
    (400000000000.0, 400000000000.0, 25000000000.0)
    """
    number, unit = _split(text, where, '"400Gb/s"')
    known = _RATE.fullmatch(unit)
    rate = 0.0 if known is None else number * {"M": 1e6, "G": 1e9, "T": 1e12}[known[1].upper()]
    if known is None or rate <= 0:
        raise RequestError(
            f"'{text}' is not a rate of a network", where=where, fix='write it like "400Gb/s" or "50GB/s"'
        )
    return rate * (8 if known[2][0] == "B" else 1)


def parse_seconds(text: str, where: str = "duration") -> float:
    """Read a duration with its unit.

    >>> parse_seconds("3d"), parse_seconds("200ms")
    (259200.0, 0.2)
    """
    number, unit = _split(text, where, '"3d" or "200ms"')
    scale = _SECOND_UNITS.get(unit)
    if scale is None or number * scale <= 0:
        raise RequestError(
            f"'{text}' is not a duration", where=where, fix='write it like "3d", "2h", "1.5s" or "200ms"'
        )
    return number * scale


def parse_watts(text: str, where: str = "power") -> float:
    """Read a power.

    >>> parse_watts("1.2kW"), parse_watts("800W")
    (1200.0, 800.0)
    """
    number, unit = _split(text, where, '"800W"')
    scale = {"w": 1.0, "kw": 1e3, "mw": 1e6}.get(unit.lower())
    if scale is None or number * scale <= 0:
        raise RequestError(f"'{text}' is not a power", where=where, fix='write it like "800W" or "1.2kW"')
    return number * scale


def parse_count(text: str, where: str = "count") -> int:
    """Read a count; k, M, B (10^9) and T may follow.

    >>> parse_count("32k"), parse_count("15T"), parse_count("4096")
    (32000, 15000000000000, 4096)
    """
    number, unit = _split(text, where, '"4096", "32k" or "15T"')
    scale = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "B": 10**9, "G": 10**9, "T": 10**12}.get(unit)
    if scale is None or number * scale < 1 or number * scale != int(number * scale):
        raise RequestError(
            f"'{text}' is not a whole number above zero", where=where, fix='write it like "4096", "32k" or "15T"'
        )
    return int(number * scale)


def _scaled(value: float, steps: tuple[tuple[float, str], ...], digits: int) -> str:
    for scale, name in steps:
        if abs(value) >= scale:
            return f"{value / scale:.{digits}f} {name}"
    scale, name = steps[-1]
    return f"{value / scale:.{digits}f} {name}"


def format_bytes(value: float, digits: int = 1) -> str:
    """Write a size with a binary prefix.

    >>> format_bytes(17179869184), format_bytes(131072)
    ('16.0 GiB', '128.0 KiB')
    """
    if abs(value) < KIB:
        return f"{value:.0f} B"
    return _scaled(value, ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")), digits)


def format_seconds(value: float) -> str:
    """Write a duration in the unit a person would use.

    >>> format_seconds(0.0023), format_seconds(0.0213), format_seconds(7200)
    ('2.3 ms', '21 ms', '2.0 h')
    """
    if value < 1e-3:
        return f"{value * 1e6:.0f} µs"
    if value < 1:
        return f"{value * 1e3:.{1 if value < 1e-2 else 0}f} ms"
    return _scaled(value, ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s")), 1)


def format_kwh(joules: float) -> str:
    """Write an energy in kilowatt-hours, without the unit.

    >>> format_kwh(1.81e6), format_kwh(1.2e14)
    ('0.503', '33,333,333')
    """
    value = joules / JOULES_PER_KWH
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def format_count(value: float, digits: int = 1) -> str:
    """Write a large count: 27.8 B parameters, 1.2 M tokens.

    >>> format_count(27_781_427_952), format_count(512)
    ('27.8 B', '512')
    """
    if abs(value) < 10**4:
        return f"{value:.0f}"
    return _scaled(value, ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")), digits)
