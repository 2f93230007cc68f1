"""What an estimate costs: rented on demand, rented while others do not want it, and owned; and how sure that is.

Each price is the cheapest on record of machines that hold what is needed together. Its interval reaches up to the
middle of what providers ask; a price to buy is as sure as its source. What no fact tells is assumed, by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import mul, truediv
from typing import Final

from tonnage.estimate import cost, power
from tonnage.estimate.cost.assumptions import Assumptions, with_given
from tonnage.estimate.cost.machine import is_in_datacentre, machine_draw, machine_kind, machine_parts, value_kind
from tonnage.estimate.cost.propagate import propagated, summed
from tonnage.estimate.types import Candidate, Cost, CostPart, Estimate, Interval, JobCost, OwnCost, SpotCost
from tonnage.hardware.currency import in_usd, with_rates
from tonnage.hardware.names import resolve
from tonnage.hardware.prices import (
    PriceBook,
    Quote,
    age_days,
    cheapest_offers,
    dear_usd_per_hour,
    is_old,
    purchase_prices,
    shipped_book,
    with_own,
)
from tonnage.hardware.types import Cluster, Device, PurchasePrice
from tonnage.messages import say
from tonnage.plan.types import Limits, Money, Unpriced
from tonnage.units import YEAR_SECONDS
from tonnage.workload.types import Serving, Training

_HOUR: Final = 3600.0
_LEAST_ON_BASEBOARD: Final = 4
# A job that stops take so many times its length from is said not to finish.
_MOST_STRETCHED: Final = 10.0
# Of a cluster that nearly always has a machine missing; only the price of a token is told from it.
_LEAST_RATE: Final = 1e-9
# What a person gives, or has in a file of their own, is taken as it is.
_SURE_KINDS: Final = ("given", "own")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What prices are counted with: the book with the person's own prices and rates, and what is assumed."""

    book: PriceBook
    assumed: Assumptions
    is_spot: bool = False


def prices_for(limits: Limits, book: PriceBook | None = None) -> Prices:
    """Return what the prices of a request are counted with.

    Raises
    ------
    RequestError
        A currency without a rate, or an assumption that is none.
    """
    book = book or shipped_book()
    book = replace(book, rates=with_rates(book.rates, limits.rates))
    given = [
        PurchasePrice(
            device=resolve(name).slug,
            usd=in_usd(money.amount, money.currency, book.rates, "--price"),
            kind="given",
            day="",
            source="",
        )
        for name, money in limits.prices.items()
    ]
    return Prices(book=with_own(book, (), given), assumed=with_given(limits.assume), is_spot=limits.is_spot)


def settled(limits: Limits, prices: Prices) -> Limits:
    """Return limits whose amounts are known in dollars.

    Raises
    ------
    RequestError
        A currency without a rate.
    """

    def in_dollars(money: Money | None, flag: str) -> Money | None:
        return money and replace(money, usd=in_usd(money.amount, money.currency, prices.book.rates, flag))

    return replace(
        limits,
        budget=in_dollars(limits.budget, "--budget"),
        rent=in_dollars(limits.rent, "--rent"),
        spend=in_dollars(limits.spend, "--spend"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Market:
    """What the machines of an estimate cost, whatever runs on them."""

    rent: Interval | None
    spot: Interval | None
    parts: tuple[CostPart, ...] | None  # None: a device has no price to buy
    lost: Interval | None
    draw: Interval | None
    electricity: Interval | None
    num_rented: int | None
    notes: tuple[str, ...]


def pricer(prices: Prices, *, is_whole: bool = True) -> Callable[[Estimate], Estimate]:
    """Return what adds the cost to an estimate; machines that come again are looked up once.

    A search needs what it ranks by and holds against limits: without `is_whole`, owning is left out, and spot unless
    that is what is rented.
    """
    known: dict[tuple[object, ...], _Market] = {}

    def priced(estimate: Estimate) -> Estimate:
        cluster, work = estimate.candidate.cluster, work_of(estimate.candidate)
        key = tuple(d.slug for d in cluster.node.devices), cluster.num_nodes, cluster.node.host.memory_bytes, work
        if key not in known:
            known[key] = _market(cluster, work, prices)
        return estimate.with_cost(_cost(estimate, known[key], prices, is_whole=is_whole))

    return priced


def priced(estimate: Estimate, limits: Limits, book: PriceBook | None = None) -> Estimate:
    """Return one estimate with its cost; what has no price keeps None."""
    return pricer(prices_for(limits, book))(estimate)


def work_of(candidate: Candidate) -> str:
    """Return the kind of work that a device spends its time on: training or decode."""
    return "decode" if isinstance(candidate.workload, Serving) else "training"


# -- machines ----------------------------------------------------------------------------------------------------


def _market(cluster: Cluster, work: str, prices: Prices) -> _Market:
    devices = cluster.node.devices
    rent, spot = (_rent(cluster, prices.book, is_spot=is_spot) for is_spot in (False, True))
    bought = [(device, number, _bought(device, prices)) for device, number in _counted(devices).values()]
    rest = machine_parts(cluster.node, prices.assumed)
    draw = machine_draw(cluster.node, work, prices.assumed)
    draw = draw and _times(draw, cluster.num_nodes)
    place = "datacentre" if is_in_datacentre(devices) else "home"
    electricity = draw and propagated(
        cost.electricity_usd_per_hour, draw, prices.assumed.value("tariff", place), prices.assumed.value("pue", place)
    )
    parts = lost = None
    if all(price is not None for _, _, price in bought):
        each = [_times(price, number * cluster.num_nodes) for _, number, price in bought if price is not None]
        around = [CostPart(name=part.name, usd=_times(part.usd, cluster.num_nodes)) for part in rest]
        parts = (CostPart(name="devices", usd=summed(*each)), *around)
        lost = _lost(bought, around, cluster.num_nodes, prices.assumed)
    return _Market(
        rent=rent[0],
        spot=spot[0],
        parts=parts,
        lost=lost,
        draw=draw,
        electricity=electricity,
        num_rented=(spot if prices.is_spot else rent)[2],
        notes=(*rent[1], *(spot[1] if prices.is_spot else ()), *_bought_notes(devices, prices.book)),
    )


def _times(interval: Interval, number: float) -> Interval:
    return Interval(best=interval.best * number, low=interval.low * number, high=interval.high * number)


def _counted(devices: tuple[Device, ...]) -> dict[str, tuple[Device, int]]:
    numbers = Counter(device.slug for device in devices)
    return {device.slug: (device, numbers[device.slug]) for device in devices}


def _rent(cluster: Cluster, book: PriceBook, *, is_spot: bool) -> tuple[Interval | None, tuple[str, ...], int | None]:
    """Return the rent of all machines an hour, whose prices it is made of, and how many devices they hold where more than needed."""
    total: list[Interval] = []
    notes: list[str] = []
    num_rented = 0
    kinds = _counted(cluster.node.devices)
    for device, number in kinds.values():
        quotes = cheapest_offers(device, number, is_spot=is_spot, book=book, num_nodes=cluster.num_nodes)
        if not quotes:
            return None, (), None
        best = quotes[0]
        num_rented += best.num_instances * best.offer.num_devices
        dear = max(best.usd_per_hour, dear_usd_per_hour(quotes) or 0.0)
        total.append(Interval(best=best.usd_per_hour, low=best.usd_per_hour, high=dear))
        notes.append(_rent_note(device, best))
        if not best.is_together:
            notes.append(say("money.rent_apart", name=device.name, num=number, most=best.offer.num_devices))
    if len(kinds) > 1:
        notes.append(say("money.rent_mixed"))
    return summed(*total), tuple(notes), num_rented if num_rented > cluster.num_devices else None


def _rent_note(device: Device, quote: Quote) -> str:
    offer = quote.offer
    return say(
        "money.rent_spot" if quote.is_spot else "money.rent",
        name=device.name,
        provider=offer.provider,
        instance=offer.instance or f"{offer.num_devices} x",
        num=quote.num_instances,
        day=offer.day or "?",
    )


def device_usd(device: Device, prices: Prices) -> Interval | None:
    """Return what a device costs to buy, None where no price is known.

    A price at launch may have fallen to what such a card is worth second hand by now, or have risen.
    """
    return _bought(device, prices)


def _bought(device: Device, prices: Prices) -> Interval | None:
    price = next(iter(purchase_prices(device, prices.book)), None)
    if price is None:
        return None
    if price.kind in _SURE_KINDS:
        return Interval.exact(price.usd)
    spread = _times(prices.assumed.value("price_ratio", price.kind), price.usd)
    age = age_days(price.day, prices.book.today)
    if price.kind == "launch" and age is not None and age > 0:
        kept = prices.assumed.best("kept_per_year", value_kind(device))
        worn = float(cost.residual_usd(price.usd, kept, age * 86_400.0))
        return Interval(best=spread.best, low=min(spread.low, worn), high=spread.high)
    return spread


def _bought_notes(devices: tuple[Device, ...], book: PriceBook) -> tuple[str, ...]:
    notes: list[str] = []
    for device, number in _counted(devices).values():
        price = next(iter(purchase_prices(device, book)), None)
        if price is None:
            notes.append(say("money.buy_unknown", name=device.name, slug=device.slug))
        else:
            notes.append(say(f"money.buy_{price.kind.replace('-', '_')}", name=device.name, day=price.day or "?"))
        if machine_kind(devices) == "server_sxm" and number < _LEAST_ON_BASEBOARD:
            notes.append(say("money.sxm_board", name=device.name))
    return tuple(notes)


def _lost(
    bought: list[tuple[Device, int, Interval | None]], around: list[CostPart], num_nodes: int, assumed: Assumptions
) -> Interval:
    """Return the value that machines lose over the horizon, with their repairs."""
    horizon = assumed.value("horizon")
    losses: list[Interval] = []
    for device, number, price in bought:
        kind = value_kind(device)
        official = "unofficial" if device.is_unofficial else "official"
        assert price is not None
        one = propagated(
            _lost_usd,
            price,
            assumed.value("kept_per_year", kind),
            assumed.value("failures_per_year", kind),
            assumed.value("repair_ratio", official),
            horizon,
        )
        losses.append(_times(one, number * num_nodes))
    kept = assumed.value("kept_per_year", "host")
    losses += [propagated(cost.depreciation_usd, part.usd, kept, horizon) for part in around]
    return summed(*losses)


def _lost_usd(price: float, kept: float, failures: float, repair: float, horizon: float) -> float:
    return cost.ownership_usd(price, kept, failures, repair, horizon, 0.0, 0.0)


# -- an estimate -------------------------------------------------------------------------------------------------


def _cost(estimate: Estimate, market: _Market, prices: Prices, *, is_whole: bool) -> Cost:
    rate = estimate.performance.tokens_per_s
    held = _held(estimate, prices.assumed) if market.rent is not None else None
    spot = None
    if market.spot is not None and (is_whole or prices.is_spot):
        spot = _spot(estimate, market.spot, market.rent, held, prices.assumed)
    if prices.is_spot:
        hour, million, total = (spot.usd_per_hour, spot.usd_per_million_tokens, spot.usd_total) if spot else (None,) * 3
    else:
        hour = market.rent
        million = hour and _per_million(hour, rate, prices.assumed)
        total = hour and held and propagated(cost.rent_usd, hour, held)
    own = _own(market, rate, prices.assumed) if is_whole else None
    return Cost(
        usd_per_hour=hour,
        usd_per_million_tokens=million,
        purchase_usd=None if market.parts is None else summed(*(part.usd for part in market.parts)),
        usd_total=total,
        is_spot=prices.is_spot,
        spot=spot,
        own=own,
        job=_job(estimate, market, own, prices.assumed) if is_whole else None,
        num_rented=market.num_rented,
        notes=market.notes,
    )


def _job(estimate: Estimate, market: _Market, own: OwnCost | None, assumed: Assumptions) -> JobCost | None:
    """Return what a training job to a number of tokens takes; None where no number is asked for."""
    load, work = estimate.candidate.workload, estimate.performance.job_seconds
    held = _held(estimate, assumed)
    if not isinstance(load, Training) or load.num_tokens is None or work is None or held is None:
        return None
    place = "datacentre" if is_in_datacentre(estimate.candidate.cluster.node.devices) else "home"
    hours = _times(held, 1 / _HOUR)
    return JobCost(
        num_tokens=load.num_tokens,
        work_seconds=work,
        held_seconds=held,
        joules=market.draw and propagated(power.job_joules, market.draw, held, assumed.value("pue", place)),
        electricity_usd=market.electricity and propagated(mul, market.electricity, hours),
        own_usd=own and propagated(mul, own.usd_per_hour, hours),
    )


def _per_million(hour: Interval, rate: Interval | None, assumed: Assumptions) -> Interval | None:
    if rate is None or rate.low <= 0:
        return None
    return propagated(cost.usd_per_million_tokens, hour, rate, assumed.best("idle_ratio"))


def _save_seconds(estimate: Estimate, assumed: Assumptions) -> Interval:
    """Return the time to write a checkpoint: every machine writes its share."""
    saved = estimate.storage.checkpoints_bytes or 0.0
    return propagated(truediv, saved / estimate.candidate.cluster.num_nodes, assumed.value("save_rate"))


def _held(estimate: Estimate, assumed: Assumptions) -> Interval | None:
    """Return how long a job holds machines of its own, with the stops that hardware brings."""
    work = estimate.performance.job_seconds
    if work is None:
        return None
    num_devices = estimate.candidate.cluster.num_devices
    held = propagated(
        lambda *values: _held_seconds(*values)[1],
        work,
        _save_seconds(estimate, assumed),
        assumed.value("restart"),
        _times(assumed.value("stops_per_year"), num_devices / YEAR_SECONDS),
    )
    return replace(held, low=max(held.low, work.low))


def _held_seconds(work: float, save: float, restart: float, stops_per_s: float) -> tuple[float, float]:
    """Return after how much work it is best to save, and how long the job holds its machines."""
    if stops_per_s <= 0:
        return work, work + save
    mean = 1 / stops_per_s
    save = max(save, 1e-3)
    every = min(float(cost.daly_interval_seconds(save, mean)), work)
    most = _MOST_STRETCHED * work
    if restart > _MOST_STRETCHED * mean or save > _MOST_STRETCHED * mean:  # e^10 starts before one succeeds
        return every, most
    return every, min(most, float(cost.expected_seconds(work, every, save, restart, mean)))


def _spot(
    estimate: Estimate, spot: Interval, rent: Interval | None, held_on_demand: Interval | None, assumed: Assumptions
) -> SpotCost:
    """Return what it costs on machines that are taken away: a job saves and starts again, a server is away meanwhile."""
    restart = assumed.value("restart")
    stops = _times(assumed.value("spot_stops_per_day"), estimate.candidate.cluster.num_nodes)
    work, rate = estimate.performance.job_seconds, estimate.performance.tokens_per_s
    every = held = wall = total = million = saved = None
    if work is not None:
        save = _save_seconds(estimate, assumed)
        every, held = (
            propagated(lambda *values, place=place: _held_seconds(*values)[place], work, save, restart, stops)
            for place in (0, 1)
        )
        held = replace(held, low=max(held.low, work.low))
        if held.best >= _MOST_STRETCHED * work.best:
            return SpotCost(usd_per_hour=spot, stops_per_hour=_times(stops, _HOUR))
        wall = propagated(cost.waiting_seconds, held, assumed.value("spot_available_ratio"))
        total = propagated(cost.rent_usd, spot, held)
        if rent is not None and held_on_demand is not None:
            saved = _saved(total, propagated(cost.rent_usd, rent, held_on_demand))
    if rate is not None and rate.low > 0:
        up = propagated(lambda r, s: float(cost.steady_ratio(r, 1 / s)) if s > 0 else 1.0, restart, stops)
        if work is None:
            million = propagated(
                lambda hour, tokens, share: cost.usd_per_million_tokens(
                    hour, max(tokens * share, _LEAST_RATE), assumed.best("idle_ratio")
                ),
                spot,
                rate,
                up,
            )
            full = rent and _per_million(rent, rate, assumed)
            saved = full and _saved(million, full)
        elif total is not None and held is not None:
            million = propagated(
                lambda hour, tokens, longer: cost.usd_per_million_tokens(hour, tokens / longer),
                spot,
                rate,
                _times(held, 1 / work.best),
            )
    return SpotCost(
        usd_per_hour=spot,
        stops_per_hour=_times(stops, _HOUR),
        save_every_seconds=every,
        held_seconds=held,
        wall_seconds=wall,
        usd_per_million_tokens=million,
        usd_total=total,
        saved_ratio=saved,
    )


def _saved(spot: Interval, full: Interval) -> Interval:
    """Return the share of the full price that is saved: negative where interruptions eat more than the discount."""
    best, low, high = (1 - part / full.best for part in (spot.best, spot.high, spot.low))
    return Interval(best=best, low=low, high=high)


def _own(market: _Market, rate: Interval | None, assumed: Assumptions) -> OwnCost | None:
    if market.parts is None or market.lost is None or market.draw is None or market.electricity is None:
        return None
    horizon = assumed.value("horizon").best
    used = propagated(mul, horizon, assumed.value("use_per_day"))
    hour = propagated(_used_hour, market.lost, market.electricity, used)
    return OwnCost(
        parts=market.parts,
        lost_usd=market.lost,
        draw_watts=market.draw,
        electricity_usd_per_hour=market.electricity,
        usd_per_hour=hour,
        horizon_seconds=horizon,
        used_seconds=used.best,
        usd_per_million_tokens=_per_million(hour, rate, assumed),
        break_even_hours=market.rent and _break_even(market.lost, market.electricity, market.rent, horizon / _HOUR),
    )


def _used_hour(lost: float, electricity: float, used: float) -> float:
    return lost / (used / _HOUR) + electricity


def _break_even(lost: Interval, electricity: Interval, rent: Interval, most: float) -> Interval | None:
    """Return the hours at which owning comes cheaper; None where they are more than the horizon has."""

    def hours(*values: float) -> float:
        return min(float(cost.break_even_hours(*values)), most)

    found = propagated(hours, lost, electricity, rent)
    return None if found.best >= most else Interval(best=found.best, low=found.low, high=min(found.high, most))


# -- what is said ------------------------------------------------------------------------------------------------


def fits_below_usd(candidate: Candidate, budget_usd: float, prices: Prices) -> float:
    """Return the price of one device up to which whole machines keep to a budget; 0 or less: at no price."""
    cluster = candidate.cluster
    around = sum(part.usd.best for part in machine_parts(cluster.node, prices.assumed)) * cluster.num_nodes
    return (budget_usd - around) / cluster.num_devices


def unpriced(estimates: Iterable[Estimate], limits: Limits, prices: Prices) -> Iterator[Unpriced]:
    """Yield the hardware that does, of unknown price, the fastest first, with what one device may cost in the budget."""
    if limits.budget is None or limits.budget.usd is None:
        return

    def slowness(estimate: Estimate) -> float:
        rate = estimate.performance.tokens_per_s
        return 0.0 if rate is None else -rate.best

    for estimate in sorted(estimates, key=slowness):
        cluster = estimate.candidate.cluster
        most = fits_below_usd(estimate.candidate, limits.budget.usd, prices)
        if estimate.cost.purchase_usd is None and most > 0:
            yield Unpriced(gpu=cluster.node.devices[0].slug, num_gpus=cluster.num_devices, fits_below_usd=most)


def assumed_of(estimate: Estimate) -> tuple[str, ...]:
    """Return the keys of the assumptions that an estimate's cost rests on."""
    cluster, priced = estimate.candidate.cluster, estimate.cost
    devices = cluster.node.devices
    kind, place = machine_kind(devices), "datacentre" if is_in_datacentre(devices) else "home"
    keys: list[str] = []
    if priced.own is not None:
        around = {"host": f"host_usd.{kind}", "memory": "memory_usd", "supply": "supply_usd", "adapter": "adapter_usd"}
        keys += [around[part.name] for part in priced.own.parts if part.name in around]
        keys += [f"kept_per_year.{k}" for k in dict.fromkeys(value_kind(d) for d in devices)]
        keys += [f"failures_per_year.{k}" for k in dict.fromkeys(value_kind(d) for d in devices)]
        keys += ["repair_ratio." + ("unofficial" if any(d.is_unofficial for d in devices) else "official")]
        keys += [
            f"tariff.{place}",
            f"pue.{place}",
            f"draw_ratio.{work_of(estimate.candidate)}",
            "horizon",
            "use_per_day",
        ]
        keys += ["kept_per_year.host", f"host_power.{kind}"] if kind != "none" else []
    if priced.spot is not None:
        keys += ["spot_stops_per_day", "restart"]
        keys += ["save_rate", "spot_available_ratio"] if priced.spot.held_seconds is not None else []
    elif priced.usd_total is not None:
        keys += ["stops_per_year", "restart", "save_rate"]
    if priced.usd_per_million_tokens is not None or priced.own is not None:
        keys.append("idle_ratio")
    return tuple(dict.fromkeys(keys))


def counted(estimate: Estimate, limits: Limits) -> tuple[str, ...]:
    """Return the keys of the assumptions that the limits of a request are held against."""
    keys = assumed_of(estimate)
    wanted: set[str] = set()
    if limits.budget is not None or not (limits.rent or limits.spend or limits.is_spot):
        wanted |= {"host_usd", "memory_usd", "supply_usd", "adapter_usd"}
    if limits.is_spot:
        wanted |= {"spot_stops_per_day", "spot_available_ratio", "save_rate", "restart"}
    return tuple(key for key in keys if key.partition(".")[0] in wanted or key in limits.assume)


def assumption_text(key: str, assumed: Assumptions) -> str:
    """Say one assumption: value, range, reasoning and the flag that sets it."""
    one = assumed.by_key[key]
    unit = (
        "" if one.unit in ("1", "0-1") else one.unit.removeprefix("1") if one.unit.startswith("1/") else f" {one.unit}"
    )
    value = f"{one.best:g}{unit}"
    name = say(f"money.name_{one.name}")
    if one.is_given:
        return say("money.given", name=name, value=value)
    return say("money.assumed", name=name, value=value, low=f"{one.low:g}", high=f"{one.high:g}", why=one.why, key=key)


def age_warnings(clusters: Iterable[Cluster], prices: Prices) -> tuple[str, ...]:
    """Say which of the prices that clusters are counted with are older than 60 days."""
    book = prices.book
    rents: dict[str, str] = {}
    bought: dict[str, str] = {}
    for cluster in clusters:
        for device, number in _counted(cluster.node.devices).values():
            quotes = cheapest_offers(device, number, is_spot=prices.is_spot, book=book, num_nodes=cluster.num_nodes)
            if quotes and is_old(quotes[0].offer.day, book.today):
                rents[quotes[0].offer.provider] = quotes[0].offer.day
            price = next(iter(purchase_prices(device, book)), None)
            if price is not None and price.kind != "given" and is_old(price.day, book.today):
                bought[device.name] = price.day
    said: list[str] = []
    if rents:
        said.append(say("money.old_rents", list=_dated(rents)))
    if bought:
        said.append(say("money.old_purchases", list=_dated(bought)))
    return tuple(said)


def _dated(days: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {day or '?'}" for name, day in sorted(days.items()))


def rate_notes(limits: Limits, prices: Prices) -> tuple[str, ...]:
    """Say at which rates amounts in other currencies were counted."""
    amounts = (limits.budget, limits.rent, limits.spend, *limits.prices.values())
    used = dict.fromkeys(money.currency for money in amounts if money is not None and money.currency != "USD")
    rates = [prices.book.rates[currency] for currency in used]
    return tuple(
        say("money.rate_given", currency=r.currency, value=f"{r.per_usd:.4g}")
        if not r.day
        else say("money.rate", currency=r.currency, value=f"{r.per_usd:.4g}", day=r.day)
        for r in rates
    )
