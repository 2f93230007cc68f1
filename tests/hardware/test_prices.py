"""Prices: the cheapest that does, none where there is none, whose word counts first, and how old it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tonnage.errors import RequestError
from tonnage.hardware.catalogue import devices, find_device
from tonnage.hardware.currency import in_usd, parse_rates, reference_rates, with_rates
from tonnage.hardware.prices import (
    PriceBook,
    age_days,
    cheapest_offers,
    dear_usd_per_hour,
    is_old,
    purchase_prices,
    shipped_book,
    with_own,
)
from tonnage.hardware.types import Offer, PurchasePrice

H100 = find_device("h100-sxm5")


def offer(provider: str, num: int, full: float | None, spot: float | None = None, day: str = "2026-11-01") -> Offer:
    """Return an offer by its price for the whole machine."""
    return Offer(
        device="h100-sxm5",
        provider=provider,
        region="r",
        num_devices=num,
        usd_per_device_hour=None if full is None else full / num,
        spot_usd_per_device_hour=None if spot is None else spot / num,
        day=day,
        source="own",
    )


def book(*offers: Offer) -> PriceBook:
    return with_own(PriceBook(), offers)


def rents(num: int, *offers: Offer, is_spot: bool = False, num_nodes: int = 1) -> list[float]:
    found = cheapest_offers(H100, num, is_spot=is_spot, book=book(*offers), num_nodes=num_nodes)
    return [quote.usd_per_hour for quote in found]


def test_a_machine_is_rented_whole():
    """Two devices on an offer of eight cost the eight; two offers of one device cost two, but are two machines."""
    quotes = cheapest_offers(H100, 2, is_spot=False, book=book(offer("a", 8, 16.0), offer("b", 1, 3.0)))
    assert [(q.usd_per_hour, q.is_together, q.num_instances) for q in quotes] == [(16.0, True, 1), (6.0, False, 2)]


def test_nodes_multiply():
    assert rents(8, offer("a", 8, 16.0), num_nodes=3) == [48.0]
    assert rents(8, offer("a", 4, 9.0), num_nodes=3) == [54.0]


def test_a_spot_price_of_zero_is_none_not_free():
    assert rents(1, offer("a", 1, 2.0, 0.0), is_spot=True) == []
    assert rents(1, offer("a", 1, 2.0, 0.0), offer("b", 1, 2.0, 0.5), is_spot=True) == [0.5]


def test_a_spot_price_as_high_as_on_demand_is_none():
    assert rents(1, offer("a", 1, 1.39, 1.39), is_spot=True) == []
    assert rents(1, offer("a", 1, None, 1.39), is_spot=True) == [1.39]


def test_an_offer_without_a_price_on_demand_is_not_free():
    assert rents(1, offer("a", 1, None, 1.0)) == []
    assert rents(1, offer("a", 1, 0.0)) == []


def test_what_is_paid_where_the_cheapest_is_sold_out():
    quotes = cheapest_offers(
        H100,
        1,
        is_spot=False,
        book=book(offer("a", 1, 2.0), offer("a", 1, 9.0), offer("b", 1, 3.0), offer("c", 1, 4.0)),
    )
    assert dear_usd_per_hour(quotes) == 3.0
    assert dear_usd_per_hour(()) is None


def test_a_cheaper_offer_never_raises_the_price():
    first = rents(8, offer("a", 8, 20.0))[0]
    assert rents(8, offer("a", 8, 20.0), offer("b", 8, 19.0))[0] <= first


def test_shipped_offers_hold_no_free_spot():
    quotes = [q for d in devices() for q in cheapest_offers(d, 1, is_spot=True, book=shipped_book())]
    assert quotes
    assert min(q.usd_per_hour for q in quotes) > 0.05


def test_a_persons_price_comes_first():
    card = find_device("rtx-4090")
    assert purchase_prices(card, shipped_book())[0].kind == "launch"
    own = PurchasePrice(device="rtx-4090", usd=1500.0, kind="own", day="2026-11-01", source="own")
    given = replace(own, usd=1400.0, kind="given", day="")
    mine = with_own(shipped_book(), (), (own,))
    assert [p.usd for p in purchase_prices(card, mine)][:1] == [1500.0]
    assert [p.usd for p in purchase_prices(card, with_own(mine, (), (given,)))][:2] == [1400.0, 1500.0]


def test_a_device_without_a_price_has_none():
    bare = replace(find_device("rtx-4090-48gb-mod"), launch_price_usd=None)
    assert purchase_prices(bare, shipped_book()) == ()
    assert purchase_prices(replace(find_device("rtx-4090"), launch_day=None), shipped_book()) == ()


@pytest.mark.parametrize(
    ("day", "age", "old"),
    [("2026-11-30", 0, False), ("2026-10-01", 60, False), ("2026-09-30", 61, True), ("2026-10", 60, False),
     ("2026-09", 90, True), ("2022", 1794, True), ("", None, True), ("soon", None, True)],
)  # fmt: skip
def test_ages(day, age, old):
    assert age_days(day, "2026-11-30") == age
    assert is_old(day, "2026-11-30") is old


def test_without_a_day_to_count_from_nothing_is_old():
    assert not is_old("2020-01", "")


def test_euro_rates_become_dollar_rates():
    """On 8 May 2026 a euro was 1.1761 dollars and 7.9989 yuan."""
    assert reference_rates()["CNY"].per_usd == pytest.approx(7.9989 / 1.1761)
    assert reference_rates()["EUR"].per_usd == pytest.approx(1 / 1.1761)
    assert in_usd(25_000, "CNY", reference_rates(), "--budget") == pytest.approx(29_402.5 / 7.9989)


def test_a_persons_rate_counts():
    rates = with_rates(reference_rates(), parse_rates(["CNY=7.0", "rub=80"]))
    assert in_usd(70, "CNY", rates, "--budget") == pytest.approx(10)
    assert in_usd(80, "RUB", rates, "--budget") == pytest.approx(1)
    assert rates["CNY"].day == ""


@pytest.mark.parametrize(
    "text", ["CNY", "CNY=", "CNY=0", "CNY=-7", "CNY=nan", "CNY=1e3", "YUAN=7", "C1Y=7", "USD=2", ""]
)
def test_what_is_no_rate_is_refused(text):
    with pytest.raises(RequestError, match=r"CNY=7\.1"):
        parse_rates([text])


def test_a_currency_without_a_rate_is_refused_with_the_cure():
    with pytest.raises(RequestError, match="--rate XAU="):
        in_usd(1, "XAU", reference_rates(), "--budget")
