"""`tonnage prices`: what devices cost to rent and to buy, with source and age; fetch today's, add your own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tonnage.cli.options import common, emit_json, note
from tonnage.cli.tables import style, table, wrap
from tonnage.messages import say

if TYPE_CHECKING:
    from tonnage.hardware.prices import PriceBook
    from tonnage.hardware.types import Device, Offer, PurchasePrice
    from tonnage.probe.price_sources import Fetched

_COLUMNS = 100


class _Prices(click.Group):
    """`tonnage prices` alone, or with names of devices, shows."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not {"-h", "--help"} & set(args[:1]) and not set(args[:1]) & set(self.commands):
            args = ["show", *args]
        return super().parse_args(ctx, args)


@click.group("prices", cls=_Prices)
def command() -> None:
    """Show what devices cost to rent and to buy, with source and age; fetch today's prices, add your own.

    \b
    tonnage prices 4090 h100              what is on record
    tonnage prices refresh                fetch today's from the public catalogues
    tonnage prices import my-prices.csv   add your own: a CSV with gpu and price
    tonnage prices show --csv > all.csv   a table to edit and import
    """


# -- show --------------------------------------------------------------------------------------------------------


@command.command("show")
@click.argument("names", nargs=-1, metavar="[GPU]...")
@click.option("--num", type=click.IntRange(1), default=1, metavar="N", help="Machines with at least N of them. [1]")
@click.option("--csv", "is_csv", is_flag=True, help="In the form that `import` reads.")
@click.option("--assumptions", "is_assumed", is_flag=True, help="What is assumed of money, with reasoning.")
@common
def show(names: tuple[str, ...], num: int, *, is_csv: bool, is_assumed: bool, is_json: bool, is_quiet: bool) -> None:
    """Show prices: the cheapest machine first, what is older than 60 days marked."""
    from tonnage.hardware.catalogue import devices, find_device
    from tonnage.hardware.price_tables import PriceTable, write_table
    from tonnage.hardware.prices import offers_of, purchase_prices
    from tonnage.probe.prices import own_path, price_book

    if is_assumed:
        _show_assumptions(is_json=is_json)
        return
    book = price_book()
    named = {device.slug: device for device in (find_device(name) for name in names)}
    wanted = tuple(named.values()) if names else devices()
    if is_csv:
        table = PriceTable(
            offers=tuple(offer for device in wanted for offer in offers_of(device, book)),
            purchases=tuple(price for device in wanted for price in purchase_prices(device, book)[:1]),
            rates={} if names else book.rates,
        )
        print(write_table(table), end="")
        return
    if is_json:
        emit_json(_as_json(book, wanted, num) | {"path": str(own_path()), "today": book.today})
        return
    print("\n".join(_lines(book, wanted, num, is_all=not names)))
    note(say("prices.file", path=own_path()), is_quiet=is_quiet)


def _lines(book: PriceBook, wanted: tuple[Device, ...], num: int, *, is_all: bool) -> list[str]:
    """Return purchase prices and offers as tables; of the whole catalogue only the cheapest offer of each device."""
    from tonnage.hardware.prices import cheapest_offers, is_old, purchase_prices

    bought: list[list[str]] = []
    rented: list[list[str]] = []
    for device in wanted:
        bought += [
            [device.slug, f"{p.usd:,.0f}", say(f"prices.kind_{p.kind.replace('-', '_')}"), _day(p.day, book)]
            for p in purchase_prices(device, book)[: 1 if is_all else None]
        ]
        quotes = cheapest_offers(device, num, is_spot=False, book=book)
        spot = {q.offer: q.usd_per_hour for q in cheapest_offers(device, num, is_spot=True, book=book)}
        only_spot = [
            q for q in cheapest_offers(device, num, is_spot=True, book=book) if not q.offer.usd_per_device_hour
        ]
        for quote in [q for q in (*quotes, *only_spot) if q.is_together][: 1 if is_all else None]:
            offer = quote.offer
            full = f"{offer.usd_per_device_hour * offer.num_devices:,.2f}" if offer.usd_per_device_hour else "-"
            each = f"{offer.usd_per_device_hour:,.2f}" if offer.usd_per_device_hour else "-"
            cheap = f"{spot[offer]:,.2f}" if offer in spot else "-"
            place = (offer.provider, offer.instance[:34], offer.region[:20], _day(offer.day, book))
            rented.append([device.slug, str(offer.num_devices), full, each, cheap, *place])
    lines: list[str] = []
    if bought:
        header = [say(f"prices.col_{name}") for name in ("gpu", "buy", "kind", "day")]
        lines += [say("prices.buy"), *table(header, bought, right=(1,), indent="  "), ""]
    if rented:
        names = ("gpu", "num", "hour", "each", "spot", "provider", "instance", "region", "day")
        header = [say(f"prices.col_{name}") for name in names]
        lines += [say("prices.rent"), *table(header, rented, right=(1, 2, 3, 4), indent="  "), ""]
    if not lines:
        return [say("prices.none")]
    rates = [r for r in book.rates.values() if r.currency in ("CNY", "EUR", "GBP", "JPY")]
    said = ", ".join(f"{rate.per_usd:.4g} {rate.currency}" for rate in rates)
    day = rates[0].day if rates else ""
    lines += wrap(say("prices.rates", list=said, day=_day(day, book)), columns=_COLUMNS)
    if any(is_old(row[-1].removesuffix(" !"), book.today) for row in (*bought, *rented)):
        lines += wrap(say("prices.old"), columns=_COLUMNS)
    return lines


def _day(day: str, book: PriceBook) -> str:
    """Write a day, old ones marked."""
    from tonnage.hardware.prices import is_old

    return f"{day or '?'} !" if is_old(day, book.today) else day or "?"


def _as_json(book: PriceBook, wanted: tuple[Device, ...], num: int) -> dict[str, Any]:
    from tonnage.hardware.prices import offers_of, purchase_prices

    return {
        "purchases": [_purchase(p, book) for d in wanted for p in purchase_prices(d, book)],
        "offers": [_offer(o, book) for d in wanted for o in offers_of(d, book) if o.num_devices >= num],
        "rates": [
            {"currency": r.currency, "per_usd": r.per_usd, "day": r.day or None, "source": r.source or None}
            for r in book.rates.values()
        ],
    }


def _purchase(price: PurchasePrice, book: PriceBook) -> dict[str, Any]:
    from tonnage.hardware.prices import age_days, is_old

    return {
        "gpu": price.device,
        "usd": price.usd,
        "kind": price.kind,
        "day": price.day or None,
        "age_days": age_days(price.day, book.today),
        "is_old": is_old(price.day, book.today),
        "source": price.source or None,
    }


def _offer(offer: Offer, book: PriceBook) -> dict[str, Any]:
    from tonnage.hardware.prices import age_days, is_old

    full, spot, number = offer.usd_per_device_hour, offer.spot_usd_per_device_hour, offer.num_devices
    return {
        "gpu": offer.device,
        "num_gpus": number,
        "usd_per_hour": None if full is None else full * number,
        "spot_usd_per_hour": None if spot is None else spot * number,
        "provider": offer.provider,
        "instance": offer.instance or None,
        "region": offer.region or None,
        "day": offer.day or None,
        "age_days": age_days(offer.day, book.today),
        "is_old": is_old(offer.day, book.today),
        "source": offer.source or None,
    }


def _show_assumptions(*, is_json: bool) -> None:
    from tonnage.estimate.cost.assumptions import stated
    from tonnage.plan.price import assumption_text

    assumed = stated()
    if is_json:
        found = [
            {"name": a.key, "best": a.best, "low": a.low, "high": a.high, "unit": a.unit, "why": a.why, "sources": list(a.sources)}
            for a in assumed.by_key.values()
        ]  # fmt: skip
        emit_json({"assumptions": found})
        return
    print("\n".join(line for key in assumed.by_key for line in wrap(assumption_text(key, assumed), columns=_COLUMNS)))


# -- refresh and import ------------------------------------------------------------------------------------------


@command.command("refresh")
@click.option(
    "--source",
    "sources",
    multiple=True,
    type=click.Choice(("gpuhunt", "skypilot", "ecb")),
    help="Only these catalogues; all by default.",
)
@common
def refresh(sources: tuple[str, ...], *, is_json: bool, is_quiet: bool) -> None:
    """Fetch today's prices from the public catalogues into your own price file.

    Exit code 4 says that nothing could be fetched; then your file is as it was.
    """
    from tonnage.probe import price_sources, prices

    def told(result: Fetched) -> None:
        note(_result(result), is_quiet=is_quiet)

    results = price_sources.refresh(sources or price_sources.SOURCES, told)
    if is_json:
        emit_json({"path": str(prices.own_path()), "catalogues": [_fetched(result) for result in results]})
        return
    num = sum(result.table.num_prices for result in results)
    print(style(say("prices.refreshed", num=num, path=prices.own_path()), "green"))


def _result(result: Fetched) -> str:
    if result.fault:
        return say("prices.failed", source=result.source, provider=result.provider, reason=result.fault)
    left = result.table.num_left_out
    return say(
        "prices.fetched", source=result.source, provider=result.provider, num=result.table.num_prices, left_out=left
    )


def _fetched(result: Fetched) -> dict[str, Any]:
    return {
        "source": result.source,
        "provider": result.provider,
        "address": result.address or None,
        "num_prices": result.table.num_prices,
        "num_left_out": result.table.num_left_out,
        "fault": result.fault or None,
    }


@command.command("import")
@click.argument("path", metavar="FILE")
@common
def import_(path: str, *, is_json: bool, is_quiet: bool) -> None:
    """Add prices of your own: a CSV with gpu and price, "-" for standard input.

    \b
    Columns: gpu, price (1800, or "14000 CNY"), and as needed currency, kind (buy, rent, spot, rate),
    num_gpus, provider, instance, region, day, source. A rent is that of the whole machine an hour;
    a rate has the currency's units for a US dollar as its price.
    """
    del is_quiet
    from tonnage.errors import BadFileError
    from tonnage.probe import prices

    try:
        if path == "-":
            data = sys.stdin.buffer.read(prices.LARGEST_FILE_BYTES + 1)
        else:
            with Path(path).open("rb") as file:
                data = file.read(prices.LARGEST_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no such path"
        raise BadFileError(f"cannot be read: {reason}", where=path[:200], fix="give the path of a CSV file") from None
    added = prices.import_table(prices.decode(data, path), path)
    if is_json:
        found = {"num_prices": added.num_prices, "num_left_out": added.num_left_out}
        emit_json({"path": str(prices.own_path()), **found})
        return
    print(style(say("prices.imported", num=added.num_prices, path=prices.own_path()), "green"))
