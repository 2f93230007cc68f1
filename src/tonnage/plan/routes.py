"""The ways to have a model side by side: four kinds of hardware to buy, renting, and an API instead of any.

From what a search found, the best of each way: a consumer card (unofficial boards flagged), a data-centre card in a
workstation (with what a board loses on an adapter), experts or layers in host memory, a professional card; then renting;
and doing nothing but call an API, with the price below which that is cheaper.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from tonnage.estimate.cost.machine import machine_kind, on_adapter, value_kind
from tonnage.estimate.types import Estimate, Interval
from tonnage.hardware.topology import host_link
from tonnage.messages import say
from tonnage.plan.scene import broken_limit
from tonnage.plan.today import staged
from tonnage.plan.types import Limits, Route
from tonnage.search import rank

WAYS: Final = ("consumer", "datacentre", "hybrid", "professional", "rent", "api")
_OBJECTIVE: Final = "throughput"


def routes(estimates: Iterable[Estimate], limits: Limits) -> tuple[Route, ...]:
    """Return the best of each way, in the order of `WAYS`; a way that nothing was found for stays, without an estimate.

    Parameters
    ----------
    estimates : iterable of Estimate
        Priced ones on any hardware, those that break a limit too.
    limits : Limits
        What an answer must keep. To buy, the rent does not count, and the other way round.

    Returns
    -------
    tuple of Route
        Each with what stands against it.
    """
    known = list(estimates)
    bought = replace(limits, rent=None, spend=None)
    rented = replace(limits, budget=None)
    found = [_bought(way, known, bought) for way in WAYS[:4]]
    found.append(_best("rent", [e for e in known if e.cost.usd_per_hour is not None], rented))
    return (*found, _api(found))


def stages(ways: Iterable[Route], estimates: Iterable[Estimate]) -> tuple[str, ...]:
    """Return a plan in two stages: the consumer card now, later the cheapest data-centre hardware that is faster.

    What comes later need not keep to today's budget.
    """
    now = next((route.estimate for route in ways if route.way == "consumer"), None)
    if now is None:
        return ()
    faster = [e for e in estimates if way_of(e) == "datacentre" and e.cost.purchase_usd and _rate(e) > _rate(now)]
    return staged(now, min(faster, key=lambda e: _price(e, "datacentre"))) if faster else ()


def _rate(estimate: Estimate) -> float:
    rate = estimate.performance.tokens_per_s
    return 0.0 if rate is None else rate.best


def way_of(estimate: Estimate) -> str:
    """Return which way to buy an estimate's hardware is: hybrid, consumer, professional or datacentre."""
    if estimate.candidate.offload.is_any:
        return "hybrid"
    kind = value_kind(estimate.candidate.cluster.node.devices[0])
    return "consumer" if kind == "unofficial" else kind


def _bought(way: str, known: list[Estimate], limits: Limits) -> Route:
    mine = [e for e in known if way_of(e) == way]
    if way == "datacentre":  # in a workstation: a rack of eight is another matter
        mine = [e for e in mine if machine_kind(e.candidate.cluster.node.devices) == "workstation"] or mine
    return _best(way, mine, limits)


def _best(way: str, mine: list[Estimate], limits: Limits) -> Route:
    """Return the fastest that keeps the limits; where none does, the cheapest, with the limit that it breaks."""
    if not mine:
        return Route(way=way, flags=(say("money.route_none"),))
    keeps = [e for e in mine if not broken_limit(e, limits) and (way == "rent" or e.cost.purchase_usd is not None)]
    if keeps:
        is_free = way == "rent" and limits.rent is None  # no limit on the hour: not the fastest, the cheapest token
        best = min(keeps, key=_million) if is_free else rank.ranked(keeps, _OBJECTIVE)[0]
        return Route(way=way, estimate=best, flags=_flags(best))
    best = min(mine, key=lambda e: (_price(e, way), rank.objective_of(e, _OBJECTIVE)))
    return Route(
        way=way, estimate=best, flags=(broken_limit(best, limits) or say("money.route_unpriced"), *_flags(best))
    )


def _million(estimate: Estimate) -> tuple[bool, float]:
    """Return what to sort rented hardware by: sure fits first, then the price of a token."""
    price = estimate.cost.usd_per_million_tokens
    return not estimate.footprint.fits_surely, float("inf") if price is None else price.best


def _price(estimate: Estimate, way: str) -> float:
    price = estimate.cost.usd_per_hour if way == "rent" else estimate.cost.purchase_usd
    return float("inf") if price is None else price.best


def _flags(estimate: Estimate) -> tuple[str, ...]:
    """Return what stands against the hardware of an estimate."""
    devices = estimate.candidate.cluster.node.devices
    first = devices[0]
    said: list[str] = []
    if first.is_unofficial:
        said.append(say("money.route_unofficial"))
    if on_adapter(devices):
        said.append(adapter_loss(estimate))
    if not estimate.footprint.fits_surely:
        said.append(say("plan.unsure"))
    return tuple(said)


def adapter_loss(estimate: Estimate) -> str:
    """Say what SXM boards lose on adapters: the link between them; their memory is as fast as ever."""
    device = estimate.candidate.cluster.node.devices[0]
    slot = host_link(device)
    fabric = device.nvlink_bytes_per_s
    if not fabric or slot is None:
        return say("money.route_adapter_plain")
    lost = 1 - slot.bytes_per_s / fabric
    return say(
        "money.route_adapter",
        fabric=f"{fabric / 1e9:.0f}",
        slot=f"{slot.bytes_per_s / 1e9:.0f}",
        lost=f"{100 * lost:.0f}",
        memory=f"{device.bandwidth_bytes_per_s / 1e9:.0f}",
    )


def _api(found: Iterable[Route]) -> Route:
    """Return the baseline of doing nothing: an API is cheaper below what the cheapest way costs a million tokens."""
    prices = [p.best for r in found if r.estimate is not None and (p := million_usd(r.estimate, r.way)) is not None]
    text = say("money.route_api", usd=f"{min(prices):.3g}") if prices else say("money.route_api_unknown")
    return Route(way="api", flags=(text,))


def million_usd(estimate: Estimate, way: str) -> Interval | None:
    """Return what a million tokens cost by a way: rented, or owned."""
    if way == "rent":
        return estimate.cost.usd_per_million_tokens
    return None if estimate.cost.own is None else estimate.cost.own.usd_per_million_tokens
