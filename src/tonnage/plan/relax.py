"""The last resorts, so that no "no" is without a way: limits set as wide as it takes, nothing pinned, other machines."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from tonnage.estimate.types import Estimate
from tonnage.hardware.catalogue import device
from tonnage.messages import say
from tonnage.plan.scene import broken_limit, dollars, slowest_tpot_seconds
from tonnage.plan.types import Limits, Money, Request
from tonnage.search.constraints import power_watts
from tonnage.units import DAY_SECONDS, format_seconds
from tonnage.workload.types import Serving, Training

_LARGEST_CARD: Final = "h200-sxm5"
_MACHINES: Final = ((1, 1), (8, 1), (8, 2), (8, 4), (8, 8), (8, 16), (8, 32), (8, 64))
_LONGEST_TPOT_SECONDS: Final = 60.0


def breaks_what_was_said(estimate: Estimate, limits: Limits) -> bool:
    """Whether an estimate breaks a limit that a person gave; the speed at which one reads is only assumed."""
    return broken_limit(estimate, replace(limits, intent="batch")) is not None


def widened(request: Request, estimate: Estimate) -> tuple[Request, tuple[str, ...]]:
    """Return the request with the limits that an estimate breaks as wide as it needs, and what was widened."""
    said: list[str] = []
    load, performance = request.workload, estimate.performance
    if isinstance(load, Serving):
        for name, figure, limit in (
            ("ttft", performance.ttft_seconds, load.ttft_limit_seconds),
            ("tpot", performance.tpot_seconds, slowest_tpot_seconds(load, request.limits)),
        ):
            if figure is not None and limit is not None and figure.best > limit:
                wide: dict[str, Any] = {f"{name}_limit_seconds": _up(figure.best)}
                load = replace(load, **wide)
                said.append(say("plan.change_limit", flag=f"--{name}", value=format_seconds(_up(figure.best))))
    limits, more = _wider(request.limits, estimate)
    return replace(request, workload=load, limits=limits), (*said, *more)


def _wider(limits: Limits, estimate: Estimate) -> tuple[Limits, list[str]]:
    said: list[str] = []
    changed: dict[str, Any] = {}
    cost, performance = estimate.cost, estimate.performance
    job = cost.spot.wall_seconds if limits.is_spot and cost.spot is not None else performance.job_seconds
    if job is not None and limits.deadline_seconds is not None and job.best > limits.deadline_seconds:
        longer = _up_tenth(job.best)
        changed["deadline_seconds"] = longer
        said.append(say("plan.change_limit", flag="--deadline", value=format_seconds(longer)))
    watts = power_watts(estimate.candidate.cluster)
    if watts is not None and limits.max_power_watts is not None and watts > limits.max_power_watts:
        changed["max_power_watts"] = watts
        said.append(say("plan.change_limit", flag="--max-power", value=f"{watts:.0f} W"))
    figures = {"budget": cost.purchase_usd, "rent": cost.usd_per_hour, "spend": cost.usd_total}
    for name, figure in figures.items():
        limit: Money | None = getattr(limits, name)
        if figure is not None and limit is not None and figure.best > dollars(limit, f"--{name}"):
            amount = _up(figure.best)
            changed[name] = Money(amount=amount, currency="USD")
            said.append(say("plan.change_limit", flag=f"--{name}", value=f"{amount:,.15g} USD"))
    return replace(limits, **changed), said


def _up(number: float) -> float:
    """Round up to two digits, so that what is printed still holds.

    >>> _up(1.021), _up(0.1)
    (1.1, 0.11)
    """
    step = math.floor(math.log10(number)) - 1
    return float(f"{math.ceil(number / 10.0**step * 1.001) * 10.0**step:.2g}")


def _up_tenth(seconds: float) -> float:
    """Round a duration up to a tenth of the unit that it is written in.

    >>> _up_tenth(22.53 * 86400) / 86400, _up_tenth(100.0)
    (22.6, 102.0)
    """
    unit = next((s for s in (DAY_SECONDS, 3600.0, 60.0) if seconds >= s), 1.0)
    return math.ceil(seconds / unit * 10 * 1.001) / 10 * unit


def resorts(request: Request) -> Iterator[tuple[str, Request]]:
    """Yield requests that ask for less and less of what was asked, each with what it leaves out."""
    free = replace(request, pins={})
    if request.pins and not request.where.is_open:
        yield say("plan.change_free"), free
    load = free.workload
    if isinstance(load, Serving):
        load = replace(load, ttft_limit_seconds=None, tpot_limit_seconds=_LONGEST_TPOT_SECONDS)
    kept = Limits(prices=request.limits.prices, rates=request.limits.rates, assume=request.limits.assume)
    bare = replace(free, workload=load, limits=kept)
    if not request.where.is_open:
        yield say("plan.change_bare"), bare
    name = device(_LARGEST_CARD).name
    for number, nodes in _MACHINES:
        where = replace(bare.where, gpus=((_LARGEST_CARD, number),), num_nodes=nodes, is_here=False, reserve_bytes=None)
        text = say("plan.change_machines" if nodes > 1 else "plan.change_machine", num=nodes, value=number, name=name)
        yield text, batched(replace(bare, where=where), number * nodes)


def batched(request: Request, num_devices: int) -> Request:
    """Return the request with a global batch that every device of a training takes an equal part of."""
    load = request.workload
    if not isinstance(load, Training) or load.global_batch_size % num_devices == 0:
        return request
    batch = num_devices * -(-load.global_batch_size // num_devices)
    told = tuple(flag for flag in request.assumed if flag != "--global-batch")
    return replace(request, workload=replace(load, global_batch_size=batch), assumed=told)
