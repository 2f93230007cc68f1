"""The ways side by side: the best of each, what breaks the limit, what boards on adapters lose, devices without a price."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.plan.test_price import TODAY, estimate, priced

from tonnage.estimate.types import Offload
from tonnage.plan import price
from tonnage.plan.routes import WAYS, million_usd, routes, stages, way_of
from tonnage.plan.types import Limits, Money


def way(name: str, num: int = 1, rate: float = 100.0, *, is_hybrid: bool = False):
    one = estimate(name, num, rate=rate)
    if is_hybrid:
        one = replace(one, candidate=replace(one.candidate, offload=Offload(num_cpu_expert_layers=4)))
    return one.with_cost(priced(one))


ALL = [
    way("rtx-4090", rate=150), way("rtx-3090", rate=90), way("rtx-4080", rate=60, is_hybrid=True),
    way("a100-sxm4-80gb", rate=200), way("rtx-6000-ada", rate=140), way("h100-sxm5", 8, rate=900),
]  # fmt: skip


def by_way(estimates=tuple(ALL), limits: Limits | None = None):
    return {route.way: route for route in routes(estimates, limits or Limits())}


def slug(route) -> str:
    return route.estimate.candidate.cluster.node.devices[0].slug


def test_the_best_of_each_way():
    found = by_way()
    assert tuple(found) == WAYS
    ways = ("consumer", "datacentre", "hybrid", "professional", "rent")
    names = ["rtx-4090", "a100-sxm4-80gb", "rtx-4080", "rtx-6000-ada", "rtx-4090"]
    assert [slug(found[w]) for w in ways] == names


def test_a_board_on_an_adapter_loses_its_link_not_its_memory():
    """NVLink 3 carries 300 GB/s each way, PCIe 4 x16 31.5: 90 % less."""
    (text,) = by_way()["datacentre"].flags
    assert "90 %" in text
    assert "2039 GB/s" in text


def test_several_boards_on_adapters_meet_over_pcie():
    (text,) = by_way((*ALL[:3], way("a100-sxm4-80gb", 2, rate=300)))["datacentre"].flags
    assert "32 GB/s between boards instead of 300" in text


def test_whoever_rents_has_no_adapter():
    found = by_way((way("v100-sxm2-16gb", rate=55),))
    assert found["rent"].flags == ()
    assert "adapter" in found["datacentre"].flags[0]


def test_what_has_no_price_is_named_beside_the_best_that_has():
    bare = way("rtx-4090-48gb-mod", rate=500)
    limits = Limits(budget=Money(amount=25_000.0, currency="CNY", usd=3676.0))
    prices = price.prices_for(limits, TODAY)
    open_ones = price.unpriced([bare, ALL[0]], limits, prices)
    found = {route.way: route for route in routes((*ALL, bare), limits, open_ones)}["consumer"]
    assert slug(found) == "rtx-4090"
    text = found.flags[-1]
    assert "1 x rtx-4090-48gb-mod" in text
    assert "no warranty" in text
    assert "CNY (" in text  # in the currency asked for, dollars beside


def test_unified_memory_is_a_way_of_its_own():
    assert slug(by_way((*ALL, way("m3-ultra", rate=80)))["unified"]) == "m3-ultra"


def test_a_drive_board_is_a_data_centre_card():
    assert way_of(estimate("a100-drive-32gb")) == "datacentre"
    assert way_of(estimate("rtx-4080-32gb-mod")) == "consumer"


def test_what_breaks_the_budget_says_so_and_the_next_is_taken():
    limits = Limits(budget=Money(amount=3300.0, usd=3300.0))
    found = by_way(limits=limits)
    assert slug(found["consumer"]) == "rtx-3090"
    assert "--budget" in found["datacentre"].flags[0]
    cheapest = min((e for e in ALL if e.cost.usd_per_hour), key=lambda e: e.cost.usd_per_million_tokens.best)
    assert found["rent"].estimate is cheapest  # to rent, the budget to buy does not count


def test_renting_keeps_the_rent():
    found = by_way(limits=Limits(rent=Money(amount=1.0, usd=1.0)))
    assert found["rent"].estimate.cost.usd_per_hour.best <= 1.0
    assert slug(found["consumer"]) == "rtx-4090"


def test_unofficial_boards_are_flagged():
    mod = estimate("rtx-4090-48gb-mod", rate=400)
    limits = Limits(prices={"rtx-4090-48gb-mod": Money(amount=3000.0)})
    mod = mod.with_cost(price.priced(mod, limits, TODAY).cost)
    found = by_way((*ALL, mod))
    assert slug(found["consumer"]) == "rtx-4090-48gb-mod"
    assert "no warranty" in found["consumer"].flags[0]


def test_an_api_is_held_against_the_cheapest_way():
    found = by_way()
    least = min(million_usd(r.estimate, w).best for w, r in found.items() if r.estimate is not None)
    assert f"{least:.3g} USD" in found["api"].flags[0]


def test_a_way_with_nothing_stays():
    found = by_way((ALL[0],))
    assert found["professional"].estimate is None
    assert found["professional"].flags == ("nothing found",)


def test_a_device_without_a_price_is_listed_with_what_it_may_cost():
    bare = estimate("rtx-4090-48gb-mod")
    limits = Limits(budget=Money(amount=3500.0, usd=3500.0))
    prices = price.prices_for(limits, TODAY)
    (one,) = price.unpriced([bare, ALL[0]], limits, prices)
    assert one.gpu == "rtx-4090-48gb-mod"
    assert one.fits_below_usd == pytest.approx(3500 - (900 + 768 + 1.25 * 550 * 0.15))
    assert list(price.unpriced([bare], Limits(), prices)) == []


def test_the_command_line_shows_them(tonnage):
    found = tonnage("plan", "Qwen/Qwen3-8B", "--serve", "--budget", "4000 USD", "--json").json
    assert [route["way"] for route in found["routes"]] == list(WAYS)
    assert all(set(r["usd_per_million_tokens"]) == {"best", "low", "high"} for r in found["routes"] if r["gpu"])
    assert all(one["fits_below_usd"] > 0 for one in found["unpriced"])


def test_a_consumer_card_now_and_a_data_centre_card_later():
    said = stages(routes(ALL, Limits()), ALL)
    assert said[0] == "in two stages: GeForce RTX 4090 now, A100 SXM4 80GB later"
    assert any(text.startswith("carries over") for text in said[1:])
    assert stages(routes(ALL[:2], Limits()), ALL[:2]) == ()
    slow = (*ALL[:2], way("a2", rate=20))
    assert stages(routes(slow, Limits()), slow) == ()  # nobody moves to something slower
