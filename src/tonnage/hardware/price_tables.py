"""A person's own prices: the one form of their file, of import and of export.

Columns: kind (buy, rent, spot, rate), gpu, price, currency, num_gpus, provider, instance, region, day, source. A rent or
spot price is that of the whole machine an hour; a rate is the units of a currency for one US dollar.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from tonnage.errors import BadFileError, RequestError, UnknownNameError
from tonnage.hardware.catalogue import device
from tonnage.hardware.currency import Rate, rate_of
from tonnage.hardware.names import resolve
from tonnage.hardware.prices import base_slug
from tonnage.hardware.types import Offer, PurchasePrice

COLUMNS: Final = (
    "kind", "gpu", "price", "currency", "num_gpus", "provider", "instance", "region", "day", "source",
)  # fmt: skip
KINDS: Final = ("buy", "rent", "spot", "rate")
MOST_ROWS: Final = 200_000
LONGEST_FIELD: Final = 200
MOST_DEVICES: Final = 64
DEAREST: Final = 1e9
_DAY: Final = re.compile(r"20\d\d(-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?)?", re.ASCII)
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "|", "%")
# Names under which one provider goes.
_ALIASES: Final = {"lambdalabs": "lambda", "datacrunch": "verda", "vastai": "vast", "do": "digitalocean"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceTable:
    """What a table holds, and how many of its rows could not be used."""

    offers: tuple[Offer, ...] = ()
    purchases: tuple[PurchasePrice, ...] = ()
    rates: Mapping[str, Rate] = field(default_factory=dict[str, Rate])
    num_left_out: int = 0

    @property
    def num_prices(self) -> int:
        """Number of prices and rates."""
        return len(self.offers) + len(self.purchases) + len(self.rates)


# -- our own form ------------------------------------------------------------------------------------------------


def safe_cell(text: str) -> str:
    """Return a cell that no spreadsheet takes for a formula: one that begins like it gets an apostrophe.

    >>> safe_cell("=1+1"), safe_cell("a100")
    ("'=1+1", 'a100')
    """
    return f"'{text}" if text.startswith(_FORMULA) else text


def _plain_cell(text: str) -> str:
    return text[1:] if text.startswith("'") and text[1:].startswith(_FORMULA) else text


def write_table(table: PriceTable) -> str:
    """Return prices in our own form, sorted; no cell is a formula to a spreadsheet."""
    rows = sorted(_rows(table))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([safe_cell(cell) for cell in row] for row in rows)
    return out.getvalue()


def _rows(table: PriceTable) -> Iterator[tuple[str, ...]]:
    for price in table.purchases:
        yield "buy", price.device, _number(price.usd), "USD", "1", "", "", "", price.day, price.source
    for offer in table.offers:
        place = offer.provider, offer.instance, offer.region, offer.day, offer.source
        for kind, usd in (("rent", offer.usd_per_device_hour), ("spot", offer.spot_usd_per_device_hour)):
            if usd is not None:
                whole = _number(usd * offer.num_devices)
                yield kind, offer.device, whole, "USD", str(offer.num_devices), *place
    for rate in table.rates.values():
        if rate.currency != "USD":
            yield "rate", "", _number(rate.per_usd), rate.currency, "", "", "", "", rate.day, rate.source


def _number(value: float) -> str:
    return f"{value:.10g}"


def read_table(text: str, where: str, rates: Mapping[str, Rate], today: str = "") -> PriceTable:
    """Read prices in our own form: `gpu` and `price` are needed, the rest has defaults.

    Parameters
    ----------
    text : str
        CSV with a header row.
    where : str
        What to call it in messages.
    rates : mapping
        Exchange rates for prices in other currencies.
    today : str
        Day of prices that carry none.

    Returns
    -------
    PriceTable
        The prices, in dollars.

    Raises
    ------
    BadFileError
        No such table, or a row with a fault; the line is named.
    """
    found: dict[tuple[str, ...], Offer] = {}
    purchases: list[PurchasePrice] = []
    own_rates: dict[str, Rate] = {}
    num_left_out = 0
    known = dict(rates)
    for line, row in _dictionaries(text, where):
        try:
            kind, price = _kind(row), _price(row)
            if kind == "rate":
                currency = _currency(row)
                rate = Rate(currency=currency, per_usd=price, day=_day(row, today), source=row.get("source") or "own")
                own_rates[currency] = known[currency] = rate
            elif price == 0:
                num_left_out += _nothing(kind)
            elif kind == "buy":
                purchases.append(_purchase(row, price, known, today))
            else:
                add_offer(found, _offer(row, kind, price, known, today))
        except UnknownNameError as error:
            raise BadFileError(f"line {line}: {error.what}", where=where, fix=error.fix) from None
        except RequestError as error:
            raise BadFileError(f"line {line}: {error.what}", where=where, fix=error.fix) from None
    return PriceTable(
        offers=tuple(found.values()), purchases=tuple(purchases), rates=own_rates, num_left_out=num_left_out
    )


def _dictionaries(text: str, where: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the rows of a table of ours with their line numbers."""
    example = f"give a header row with gpu and price, and any of {', '.join(COLUMNS)}"
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff")), strict=True)
    try:
        header = [name.strip().lower() for name in next(reader, [])]
        unknown = [name for name in header if name not in COLUMNS]
        if "price" not in header or unknown or len(set(header)) < len(header):
            what = f"no column is called '{unknown[0][:40]}'" if unknown else "is no table of prices"
            raise BadFileError(what, where=where, fix=example)
        for number, cells in enumerate(reader):
            if not any(cells):
                continue
            if number >= MOST_ROWS or len(cells) != len(header) or max(map(len, cells)) > LONGEST_FIELD:
                what = f"line {reader.line_num}: {len(cells)} cells of {len(header)}, or too long a one"
                raise BadFileError(what, where=where, fix=example)
            values = [_plain_cell(cell.strip()) for cell in cells]
            yield reader.line_num, dict(zip(header, values, strict=True))
    except csv.Error as error:
        raise BadFileError(f"line {reader.line_num}: {error}", where=where, fix="give a CSV file") from None


def _kind(row: Mapping[str, str]) -> str:
    kind = row.get("kind", "").lower() or "buy"
    if kind not in KINDS:
        raise RequestError(f"'{kind[:40]}' is no kind of price", fix=f"one of {', '.join(KINDS)}")
    return kind


def _price(row: Mapping[str, str]) -> float:
    text = row["price"].replace(",", "").replace("_", "").partition(" ")[0]
    value = float(text) if re.fullmatch(r"\d{1,12}(\.\d{1,12})?", text, re.ASCII) else math.nan
    if not value <= DEAREST:
        raise RequestError(f"'{row['price'][:40]}' is no price", fix='write it like 1800 or "1800 USD"')
    return value


def _currency(row: Mapping[str, str]) -> str:
    said = [text.strip().upper() for text in (row["price"].partition(" ")[2], row.get("currency", "")) if text.strip()]
    if len(set(said)) > 1:
        raise RequestError(f"two currencies: {said[0][:12]} and {said[1][:12]}", fix="leave one out")
    if said and not re.fullmatch(r"[A-Z]{3}", said[0], re.ASCII):
        raise RequestError(f"'{said[0][:12]}' is no currency", fix="write a code of three letters, like CNY")
    return said[0] if said else "USD"


def _nothing(kind: str) -> int:
    """Return that a row without a price is left out; only a spot price may be nothing."""
    if kind != "spot":
        raise RequestError("a price of 0", fix="leave the row out where there is no price")
    return 1


def _day(row: Mapping[str, str], today: str) -> str:
    day = row.get("day", "") or today
    if day and not _DAY.fullmatch(day):
        raise RequestError(f"'{day[:20]}' is no day", fix="write it like 2026-11-30, or 2026-11")
    return day


def _usd(row: Mapping[str, str], price: float, rates: Mapping[str, Rate]) -> float:
    return price / rate_of(_currency(row), rates, "").per_usd


def _slug(row: Mapping[str, str]) -> str:
    match = resolve(row.get("gpu", ""))
    return base_slug(device(match.slug, match.sold_bytes))


def _purchase(row: Mapping[str, str], price: float, rates: Mapping[str, Rate], today: str) -> PurchasePrice:
    return PurchasePrice(
        device=_slug(row),
        usd=_usd(row, price, rates),
        kind="own",
        day=_day(row, today),
        source=row.get("source") or "own",
    )


def _offer(row: Mapping[str, str], kind: str, price: float, rates: Mapping[str, Rate], today: str) -> Offer:
    number = row.get("num_gpus", "") or "1"
    if not number.isascii() or not number.isdigit() or not 0 < int(number) <= MOST_DEVICES:
        raise RequestError(f"'{number[:20]}' is no number of devices", fix=f"write 1 to {MOST_DEVICES}")
    each = _usd(row, price, rates) / int(number)
    return Offer(
        device=_slug(row),
        provider=provider_name(row.get("provider", "") or "own"),
        region=row.get("region", ""),
        instance=row.get("instance", ""),
        num_devices=int(number),
        usd_per_device_hour=each if kind == "rent" else None,
        spot_usd_per_device_hour=each if kind == "spot" else None,
        day=_day(row, today),
        source=row.get("source") or "own",
    )


def add_offer(found: dict[tuple[str, ...], Offer], offer: Offer) -> None:
    """Join the price on demand and the spot price of one machine; of two of a kind the cheaper counts."""
    key = offer.provider, offer.instance, offer.region, offer.device, str(offer.num_devices)
    known = found.get(key)
    if known is not None:
        offer = replace(
            offer,
            usd_per_device_hour=_less(known.usd_per_device_hour, offer.usd_per_device_hour),
            spot_usd_per_device_hour=_less(known.spot_usd_per_device_hour, offer.spot_usd_per_device_hour),
        )
    found[key] = offer


def _less(one: float | None, other: float | None) -> float | None:
    known = [value for value in (one, other) if value is not None]
    return min(known) if known else None


def provider_name(text: str) -> str:
    """Return the name that a provider goes by: in lower case, one of several spellings."""
    name = re.sub(r"[^a-z0-9.-]+", "-", text.strip().lower()).strip("-") or "own"
    return _ALIASES.get(name, name)


def joined(old: PriceTable, new: PriceTable) -> PriceTable:
    """Return a table with newer prices in place of those of the same machine, device or currency."""
    machines = {(o.provider, o.instance, o.region, o.device, o.num_devices) for o in new.offers}
    bought = {price.device for price in new.purchases}
    kept = (o for o in old.offers if (o.provider, o.instance, o.region, o.device, o.num_devices) not in machines)
    return PriceTable(
        offers=(*kept, *new.offers),
        purchases=(*(p for p in old.purchases if p.device not in bought), *new.purchases),
        rates={**old.rates, **new.rates},
    )


def without_providers(table: PriceTable, providers: Iterable[str]) -> PriceTable:
    """Return a table without what a refresh fetches whole."""
    gone = set(providers)
    return replace(table, offers=tuple(offer for offer in table.offers if offer.provider not in gone))
