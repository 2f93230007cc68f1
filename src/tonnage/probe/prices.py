"""The person's own price file, and today's date to count the age of prices from.

It is written aside and renamed: whatever fails on the way, the old file is still there.
"""

from __future__ import annotations

import datetime as dt
import os
from dataclasses import replace
from pathlib import Path
from typing import Final

from tonnage.errors import BadFileError, RequestError
from tonnage.hardware.currency import reference_rates
from tonnage.hardware.price_tables import PriceTable, joined, read_table, write_table
from tonnage.hardware.prices import PriceBook, shipped_book, with_own
from tonnage.probe.plain_file import replace_text

LARGEST_FILE_BYTES: Final = 16 << 20


def today() -> str:
    """Return today's date; `TONNAGE_TODAY` sets another, for documents and tests that must not change with the day."""
    said = os.environ.get("TONNAGE_TODAY", "")
    if not said:
        return dt.datetime.now(tz=dt.UTC).date().isoformat()
    try:
        return dt.date.fromisoformat(said).isoformat()
    except ValueError:
        raise RequestError(f"'{said[:20]}' is no day", where="TONNAGE_TODAY", fix="write it like 2026-11-30") from None


def own_path() -> Path:
    """Return where the person's prices lie: `TONNAGE_PRICES`, else the XDG data folder."""
    said = os.environ.get("TONNAGE_PRICES")
    base = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")  # noqa: PTH111  pathlib raises without a home
    return Path(said) if said else Path(base) / "tonnage" / "prices.csv"


def read_own(path: Path | None = None) -> PriceTable:
    """Return the person's prices; none where there is no file.

    Raises
    ------
    BadFileError
        The file cannot be read, or is no table of prices.
    """
    path = path or own_path()
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return PriceTable()
    except OSError as error:
        raise BadFileError(f"cannot be read: {error.strerror}", where=str(path), fix="mend or remove it") from None
    return read_table(decode(data, str(path)), str(path), reference_rates())


def decode(data: bytes, where: str) -> str:
    """Return a table's bytes as text.

    Raises
    ------
    BadFileError
        Too large, or not text.
    """
    if len(data) > LARGEST_FILE_BYTES:
        raise BadFileError("is larger than 16 MiB", where=where, fix="give a table of prices, a row a price")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadFileError("is not UTF-8 text", where=where, fix="save it as CSV in UTF-8") from None
    if "\0" in text:
        raise BadFileError("holds NUL bytes", where=where, fix="save it as CSV in UTF-8")
    return text


def price_book() -> PriceBook:
    """Return the shipped prices with the person's own in their place, to be counted from today.

    Raises
    ------
    BadFileError
        The person's file is broken.
    """
    own = read_own()
    book = with_own(shipped_book(), own.offers, own.purchases)
    return replace(book, rates={**book.rates, **own.rates}, today=today())


def write_own(table: PriceTable, path: Path | None = None) -> Path:
    """Write the person's prices: aside first, then in one step in place of the old file.

    Raises
    ------
    OutsideError
        The folder or file cannot be written; the old file is as it was.
    """
    path = path or own_path()
    fix = "free space or mend its permissions, or set TONNAGE_PRICES to another file"
    replace_text(path, write_table(table), fix=fix)
    return path


def import_table(text: str, where: str) -> PriceTable:
    """Add the prices of a table to the person's own, and return what was added.

    Raises
    ------
    BadFileError
        The table has a fault; nothing is written.
    """
    old = read_own()
    new = read_table(text, where, {**reference_rates(), **old.rates}, today())
    if not new.num_prices:
        raise BadFileError("holds no prices", where=where, fix="give a row a price, with gpu and price")
    write_own(joined(old, new))
    return new
