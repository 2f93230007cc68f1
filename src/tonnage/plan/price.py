"""What an estimate costs: rent from dated offers, purchase from the price that is on record or that the person gives."""

from __future__ import annotations

from collections.abc import Mapping

from tonnage.estimate.cost import rent_usd, usd_per_million_tokens
from tonnage.estimate.types import Candidate, Cost, Estimate, Interval
from tonnage.hardware.ecosystem import offers, purchase_price
from tonnage.hardware.names import resolve
from tonnage.hardware.types import Device, Offer
from tonnage.messages import say
from tonnage.plan.scene import in_usd
from tonnage.plan.types import Limits


def priced(estimate: Estimate, limits: Limits) -> Estimate:
    """Return the estimate with its cost; what has no price keeps None."""
    candidate = estimate.candidate
    rent = hourly_usd(candidate)
    rate, job = estimate.performance.tokens_per_s, estimate.performance.job_seconds
    bought = bought_usd(candidate, given_prices(limits))
    cost = Cost(
        usd_per_hour=None if rent is None else Interval.exact(rent),
        usd_per_million_tokens=None if rent is None or rate is None or rate.low <= 0 else _per_million(rent, rate),
        purchase_usd=None if bought is None else Interval.exact(bought),
        usd_total=None if rent is None or job is None else _total(rent, job),
    )
    return estimate.with_cost(cost)


def _per_million(rent: float, rate: Interval) -> Interval:
    best, low, high = (float(usd_per_million_tokens(rent, r)) for r in (rate.best, rate.high, rate.low))
    return Interval(best=best, low=low, high=high)


def _total(rent: float, job: Interval) -> Interval:
    best, low, high = (float(rent_usd(rent, seconds)) for seconds in (job.best, job.low, job.high))
    return Interval(best=best, low=low, high=high)


def cheapest_offer(device: Device) -> Offer | None:
    """Return the cheapest offer on demand, None where nobody on record rents the device."""
    if device.slug not in _CHEAPEST:
        known = (offer for offer in offers(device) if offer.usd_per_device_hour is not None)
        _CHEAPEST[device.slug] = next(known, None)
    return _CHEAPEST[device.slug]


_CHEAPEST: dict[str, Offer | None] = {}


def hourly_usd(candidate: Candidate) -> float | None:
    """Return the rent of all devices an hour, each at its cheapest offer."""
    prices = [cheapest_offer(device) for device in candidate.cluster.node.devices]
    rates = [offer.usd_per_device_hour for offer in prices if offer is not None]
    known = [rate for rate in rates if rate is not None]
    return sum(known) * candidate.cluster.num_nodes if len(known) == len(prices) else None


def given_prices(limits: Limits) -> dict[str, float]:
    """Return the prices that the person gives, in dollars by device."""
    return {resolve(name).slug: in_usd(m.amount, m.currency, "--price") for name, m in limits.prices.items()}


def bought_usd(candidate: Candidate, given: Mapping[str, float]) -> float | None:
    """Return the price of all devices, without the machine around them; None where one has none."""
    total = 0.0
    for device in candidate.cluster.node.devices:
        price = purchase_price(device)
        usd = given.get(device.slug) or (price.usd if price else None)
        if usd is None:
            return None
        total += usd
    return total * candidate.cluster.num_nodes


def assumptions(estimate: Estimate) -> tuple[str, ...]:
    """Say where the prices of an estimate come from."""
    said: list[str] = []
    for device in {one.slug: one for one in estimate.candidate.cluster.node.devices}.values():
        offer, price = cheapest_offer(device), purchase_price(device)
        if offer is not None and estimate.cost.usd_per_hour is not None:
            said.append(say("plan.price_rent", name=device.name, provider=offer.provider, day=offer.day))
        if price is not None and estimate.cost.purchase_usd is not None:
            said.append(say(f"plan.price_{price.kind.replace('-', '_')}", name=device.name, day=price.day or "?"))
    return tuple(said)
