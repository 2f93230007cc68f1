"""What devices cost to rent and to buy: dated offers, the shipped ones and a person's own, and the cheapest of them.

A `PriceBook` is a value: whoever reads the person's file and the clock makes one and hands it on. A spot price of
nothing, or one that is no lower than on demand, is no spot offer. An offer of eight devices is rented whole.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from functools import cache
from typing import Final

from tonnage import datafiles
from tonnage.hardware.catalogue import slugs
from tonnage.hardware.currency import Rate, reference_rates
from tonnage.hardware.types import Device, Offer, PurchasePrice
from tonnage.nouns import noun

# Older prices are used, and said to be old.
OLD_DAYS: Final = 60
# Sources that list all that a provider offers.
FETCHED: Final = ("gpuhunt", "skypilot")
# Whose word counts first: the person's on this command, then their file, then the maker's, then a third party's.
_KINDS: Final = ("given", "own", "launch", "third-party")


@noun
class PriceBook:
    """Every price that is known, by device, with the rates of other currencies and the day to count ages from."""

    offers: Mapping[str, tuple[Offer, ...]] = field(default_factory=dict[str, tuple[Offer, ...]])
    purchases: Mapping[str, tuple[PurchasePrice, ...]] = field(default_factory=dict[str, tuple[PurchasePrice, ...]])
    rates: Mapping[str, Rate] = field(default_factory=reference_rates)
    today: str = ""  # 2026-11-30; empty: ages are not known


@noun
class Quote:
    """What an offer comes to for the machines that are needed."""

    offer: Offer
    num_instances: int
    usd_per_hour: float
    is_spot: bool
    is_together: bool  # all devices of a node in one machine


def base_slug(device: Device) -> str:
    """Return the catalogue's slug of a device that may carry a memory size in its own."""
    return device.slug if device.slug in slugs() else device.slug.rpartition("-")[0]


def _per_device(row: Mapping[str, str], column: str) -> float | None:
    """Return a price for each device; nothing or 0 is no price."""
    return float(row[column]) / int(row["num_devices"]) if row[column] and float(row[column]) > 0 else None


@cache
def shipped_book() -> PriceBook:
    """Return the prices that come with the package."""
    offers = (
        Offer(
            device=row["device"],
            provider=row["provider"],
            region=row["region"],
            instance=row["instance"],
            num_devices=int(row["num_devices"]),
            usd_per_device_hour=_per_device(row, "usd_per_hour"),
            spot_usd_per_device_hour=_per_device(row, "spot_usd_per_hour"),
            day=row["month"],
            source=row["source"],
        )
        for row in datafiles.rows("prices/rent.csv")
    )
    purchases = (
        PurchasePrice(
            device=row["device"], usd=float(row["usd"]), kind="third-party", day=row["month"], source=row["source"]
        )
        for row in datafiles.rows("prices/buy.csv")
    )
    return with_own(PriceBook(), offers, purchases)


def with_own(book: PriceBook, offers: Iterable[Offer], purchases: Iterable[PurchasePrice] = ()) -> PriceBook:
    """Return a book with a person's own prices: they replace the older ones of the same provider and device.

    What a catalogue was fetched for is replaced whole: a provider's boards that it no longer lists are gone.

    >>> own = [Offer(device="rtx-4090", provider="vast", region="here", num_devices=1, usd_per_device_hour=0.5,
    ...              spot_usd_per_device_hour=None, day="2026-11-30", source="own")]
    >>> book = with_own(shipped_book(), own)
    >>> [offer.usd_per_device_hour for offer in book.offers["rtx-4090"] if offer.provider == "vast"]
    [0.5]
    """
    added = tuple(offers)
    whole = {offer.provider for offer in added if offer.source in FETCHED}
    single = {(offer.provider, offer.device) for offer in added}
    kept = [
        offer
        for known in book.offers.values()
        for offer in known
        if offer.provider not in whole and (offer.provider, offer.device) not in single
    ]
    by_device: dict[str, list[Offer]] = {}
    for offer in (*kept, *added):
        by_device.setdefault(offer.device, []).append(offer)
    bought: dict[str, list[PurchasePrice]] = {name: list(known) for name, known in book.purchases.items()}
    for price in purchases:
        bought.setdefault(price.device, []).append(price)
    return replace(
        book,
        offers={name: tuple(known) for name, known in by_device.items()},
        purchases={name: tuple(known) for name, known in bought.items()},
    )


def offers_of(device: Device, book: PriceBook) -> tuple[Offer, ...]:
    """Return the offers of a device, the cheapest on demand first."""
    found = book.offers.get(base_slug(device), ())
    return tuple(sorted(found, key=lambda offer: offer.usd_per_device_hour or float("inf")))


def _spot(offer: Offer) -> float | None:
    """Return the spot price for a device; one that is no lower than on demand is none."""
    spot, full = offer.spot_usd_per_device_hour, offer.usd_per_device_hour
    return None if not spot or (full is not None and spot >= full) else spot


def cheapest_offers(
    device: Device, num: int, *, is_spot: bool, book: PriceBook, num_nodes: int = 1
) -> tuple[Quote, ...]:
    """Return what machines with so many of a device cost an hour, the cheapest first.

    Offers of too few devices for a node come after those that hold it, several of them counted together: what needs its
    devices in one machine cannot use them.
    """
    found: list[Quote] = []
    for offer in book.offers.get(base_slug(device), ()):
        price = _spot(offer) if is_spot else offer.usd_per_device_hour
        if not price:
            continue
        a_node = -(-num // offer.num_devices)
        found.append(
            Quote(
                offer=offer,
                num_instances=a_node * num_nodes,
                usd_per_hour=price * offer.num_devices * a_node * num_nodes,
                is_spot=is_spot,
                is_together=a_node == 1,
            )
        )
    return tuple(sorted(found, key=lambda quote: (not quote.is_together, quote.usd_per_hour)))


def dear_usd_per_hour(quotes: Iterable[Quote]) -> float | None:
    """Return the middle of what the providers ask, each with its cheapest: what is paid where the cheapest is sold out."""
    cheapest: dict[str, float] = {}
    quotes = tuple(quotes)
    for quote in [q for q in quotes if q.is_together] or quotes:
        cheapest.setdefault(quote.offer.provider, quote.usd_per_hour)
    in_order = sorted(cheapest.values())
    return in_order[len(in_order) // 2] if in_order else None


def purchase_prices(device: Device, book: PriceBook) -> tuple[PurchasePrice, ...]:
    """Return every price to buy a device at, the one that counts first; a launch price without its day is none."""
    known = list(book.purchases.get(device.slug, ()))
    if device.slug != base_slug(device):
        known += book.purchases.get(base_slug(device), ())
    if device.launch_price_usd is not None and device.launch_day:
        known.append(
            PurchasePrice(
                device=device.slug,
                usd=device.launch_price_usd,
                kind="launch",
                day=device.launch_day,
                source=device.source,
            )
        )
    return tuple(sorted(known, key=lambda price: _KINDS.index(price.kind)))


def age_days(day: str, today: str) -> int | None:
    """Return how old a price is; of a month or year, counted from its first day; None where a day is not known.

    >>> age_days("2026-10-31", "2026-11-30"), age_days("2026-10", "2026-11-30"), age_days("", "2026-11-30")
    (30, 60, None)
    """
    try:
        first = dt.date.fromisoformat((day + "-01-01")[:10] if len(day) == 4 else (day + "-01")[:10])
        return (dt.date.fromisoformat(today) - first).days
    except ValueError:
        return None


def is_old(day: str, today: str) -> bool:
    """Whether a price is older than 60 days, or its day is not known."""
    age = age_days(day, today)
    return bool(today) and (age is None or age > OLD_DAYS)
