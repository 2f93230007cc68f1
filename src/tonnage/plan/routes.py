"""The ways to have a model side by side: four kinds of hardware to buy, renting, and an API instead of any.

From what a search found, the best of each way: a consumer card (unofficial boards flagged), a data-centre card in a
workstation (with what a board loses on an adapter), experts or layers in host memory, a professional card, a machine
with unified memory; then renting; and doing nothing but call an API, with the price below which that is cheaper.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from tonnage.estimate.cost.machine import machine_kind, on_adapter, value_kind
from tonnage.estimate.types import Estimate, Interval
from tonnage.hardware.ecosystem import driver_class
from tonnage.hardware.topology import host_link
from tonnage.messages import say
from tonnage.plan.coin import Coin, both, coin_of
from tonnage.plan.scene import broken_limit
from tonnage.plan.today import staged
from tonnage.plan.types import Limits, Route, Unpriced
from tonnage.search import rank

WAYS: Final = ("consumer", "datacentre", "hybrid", "professional", "unified", "rent", "api")
_TO_BUY: Final = WAYS[:5]
_OBJECTIVE: Final = "throughput"
_MOST_UNPRICED: Final = 2


def routes(estimates: Iterable[Estimate], limits: Limits, unpriced: Iterable[Unpriced] = ()) -> tuple[Route, ...]:
    """Return the best of each way, in the order of `WAYS`; a way that nothing was found for stays, without an estimate.

    Parameters
    ----------
    estimates : iterable of Estimate
        Priced ones on any hardware, those that break a limit too.
    limits : Limits
        What an answer must keep. To buy, the rent does not count, and the other way round.
    unpriced : iterable of Unpriced
        Hardware of unknown price: the fastest of each way is named beside the best of known price.

    Returns
    -------
    tuple of Route
        Each with what stands against it.
    """
    known = list(estimates)
    bought = replace(limits, rent=None, spend=None)
    rented = replace(limits, budget=None)
    coin, open_ones = coin_of(limits), list(unpriced)
    found = [_bought(way, known, bought, open_ones, coin) for way in _TO_BUY]
    found.append(_best("rent", [e for e in known if e.cost.usd_per_hour is not None], rented))
    return (*found, _api(found, coin))


def stages(ways: Iterable[Route], estimates: Iterable[Estimate]) -> tuple[str, ...]:
    """Return a plan in two stages: the consumer card now, later the cheapest data-centre hardware that is faster.

    What comes later need not keep to today's budget; of the same maker, where there is any, so that most carries over.
    """
    now = next((route.estimate for route in ways if route.way == "consumer"), None)
    if now is None:
        return ()
    faster = [e for e in estimates if way_of(e) == "datacentre" and e.cost.purchase_usd and _rate(e) > _rate(now)]
    if not faster:
        return ()
    maker = now.candidate.cluster.node.devices[0].vendor
    return staged(
        now,
        min(faster, key=lambda e: (e.candidate.cluster.node.devices[0].vendor != maker, _price(e, "datacentre"))),
    )


def _rate(estimate: Estimate) -> float:
    rate = estimate.performance.tokens_per_s
    return 0.0 if rate is None else rate.best


def way_of(estimate: Estimate) -> str:
    """Return which way to buy an estimate's hardware is: unified, hybrid, consumer, professional or datacentre."""
    device = estimate.candidate.cluster.node.devices[0]
    if device.is_unified_memory:
        return "unified"
    if estimate.candidate.offload.is_any:
        return "hybrid"
    kind = value_kind(device)
    if kind == "unofficial":
        return "consumer" if driver_class(device) == "geforce" else "datacentre"
    return kind


def _bought(way: str, known: list[Estimate], limits: Limits, unpriced: list[Unpriced], coin: Coin) -> Route:
    mine = [e for e in known if way_of(e) == way]
    if way == "datacentre":  # a rack of eight is another matter
        mine = [e for e in mine if not machine_kind(e.candidate.cluster.node.devices).startswith("server")] or mine
    best = _best(way, mine, limits)
    return replace(best, flags=(*best.flags, *_without_price(mine, unpriced, limits, coin)))


def _without_price(mine: list[Estimate], unpriced: list[Unpriced], limits: Limits, coin: Coin) -> Iterator[str]:
    """Yield the fastest hardware of a way whose price is not known, with what one device may cost in the budget."""
    below = {(one.gpu, one.num_gpus): one.fits_below_usd for one in unpriced}
    keeps = {
        id(e): below[key]
        for e in mine
        if (key := (e.candidate.cluster.node.devices[0].slug, e.candidate.cluster.num_devices)) in below
        and e.cost.purchase_usd is None
        and not broken_limit(e, limits)
    }
    for estimate in rank.ranked([e for e in mine if id(e) in keeps], _OBJECTIVE)[:_MOST_UNPRICED]:
        cluster = estimate.candidate.cluster
        text = say(
            "money.route_below",
            num=cluster.num_devices,
            gpu=cluster.node.devices[0].slug,
            rate=f"{_rate(estimate):,.0f}",
            most=both(keeps[id(estimate)], coin),
        )
        yield say("plan.comma").join((text, *_flags(estimate)))


def _best(way: str, mine: list[Estimate], limits: Limits) -> Route:
    """Return the fastest that keeps the limits; where none does, the cheapest, with the limit that it breaks."""
    if not mine:
        return Route(way=way, flags=(say("money.route_none"),))
    keeps = [e for e in mine if not broken_limit(e, limits) and (way == "rent" or e.cost.purchase_usd is not None)]
    if keeps:
        is_free = way == "rent" and limits.rent is None  # no limit on the hour: not the fastest, the cheapest token
        best = min(keeps, key=_million) if is_free else rank.ranked(keeps, _OBJECTIVE)[0]
        return Route(way=way, estimate=best, flags=_flags(best, is_bought=way != "rent"))
    best = min(mine, key=lambda e: (_price(e, way), rank.objective_of(e, _OBJECTIVE)))
    return Route(
        way=way,
        estimate=best,
        flags=(
            broken_limit(best, limits) or say("money.route_unpriced"),
            *_flags(best, is_bought=way != "rent"),
        ),
    )


def _million(estimate: Estimate) -> tuple[bool, float]:
    """Return what to sort rented hardware by: sure fits first, then the price of a token."""
    price = estimate.cost.usd_per_million_tokens
    return not estimate.footprint.fits_surely, float("inf") if price is None else price.best


def _price(estimate: Estimate, way: str) -> float:
    price = estimate.cost.usd_per_hour if way == "rent" else estimate.cost.purchase_usd
    return float("inf") if price is None else price.best


def _flags(estimate: Estimate, *, is_bought: bool = True) -> tuple[str, ...]:
    """Return what stands against the hardware of an estimate; whoever rents has no adapter and no warranty to think of."""
    devices = estimate.candidate.cluster.node.devices
    first = devices[0]
    said: list[str] = []
    if first.is_unofficial and is_bought:
        said.append(say("money.route_unofficial"))
    if on_adapter(devices) and is_bought:
        said.append(adapter_loss(estimate))
    if not estimate.footprint.fits_surely:
        said.append(say("plan.unsure"))
    return tuple(said)


def adapter_loss(estimate: Estimate) -> str:
    """Say what SXM boards lose on adapters: the link between them; their memory is as fast as ever."""
    devices = estimate.candidate.cluster.node.devices
    device = devices[0]
    slot = host_link(device)
    fabric = device.nvlink_bytes_per_s
    if not fabric or slot is None:
        return say("money.route_adapter_plain")
    lost = 1 - slot.bytes_per_s / fabric
    return say(
        "money.route_adapter" if len(devices) > 1 else "money.route_adapter_one",
        fabric=f"{fabric / 1e9:.0f}",
        slot=f"{slot.bytes_per_s / 1e9:.0f}",
        lost=f"{100 * lost:.0f}",
        memory=f"{device.bandwidth_bytes_per_s / 1e9:.0f}",
    )


def _api(found: Iterable[Route], coin: Coin) -> Route:
    """Return the baseline of doing nothing: an API is cheaper below what the cheapest way costs a million tokens."""
    prices = [p.best for r in found if r.estimate is not None and (p := million_usd(r.estimate, r.way)) is not None]
    text = say("money.route_api", usd=both(min(prices), coin)) if prices else say("money.route_api_unknown")
    return Route(way="api", flags=(text,))


def million_usd(estimate: Estimate, way: str) -> Interval | None:
    """Return what a million tokens cost by a way: rented, or owned."""
    if way == "rent":
        return estimate.cost.usd_per_million_tokens
    return None if estimate.cost.own is None else estimate.cost.own.usd_per_million_tokens
