"""How a plan stands: the limit that it comes nearest to, its next best rival, and what speaks against relying on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tonnage import datafiles
from tonnage.estimate.types import Estimate, Interval
from tonnage.hardware.ecosystem import engines
from tonnage.messages import say
from tonnage.plan.scene import dollars, slowest_tpot_seconds, where_it_lives
from tonnage.plan.types import Limits
from tonnage.search import rank
from tonnage.search.constraints import power_watts
from tonnage.search.rank import Changes
from tonnage.workload.types import Serving

_SMALL_CACHES: Final = ("q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl")


def binding(estimate: Estimate, limits: Limits) -> str:
    """Say which limit an estimate comes nearest to, and how much of it it takes: at the upper end, for memory."""
    name, ratio = max(_used(estimate, limits), key=lambda pair: pair[1])
    word = "choice.binds_upper" if name in ("device", "host") else "choice.binds"
    return say(word, what=say(f"choice.limit_{name}"), percent=round(100 * ratio))


def _used(estimate: Estimate, limits: Limits) -> Iterator[tuple[str, float]]:
    """Yield each limit with the part of it that is taken; what is not limited, or not known, takes nothing."""
    held, performance, cost = estimate.footprint, estimate.performance, estimate.cost
    load = estimate.candidate.workload
    yield "device", held.taken.high / held.capacity_bytes
    if held.host_total.best > 0 and not held.is_shared:
        yield "host", held.host_total.high / held.host_capacity_bytes
    spot = cost.spot
    job = spot.wall_seconds if limits.is_spot and spot is not None else performance.job_seconds
    pairs: list[tuple[str, Interval | None, float | None]] = [("deadline", job, limits.deadline_seconds)]
    if isinstance(load, Serving):
        pairs.append(("ttft", performance.ttft_seconds, load.ttft_limit_seconds))
        pairs.append(("tpot", performance.tpot_seconds, slowest_tpot_seconds(load, limits)))
    for flag, figure, limit in (
        ("budget", cost.purchase_usd, limits.budget),
        ("rent", cost.usd_per_hour, limits.rent),
        ("spend", cost.usd_total, limits.spend),
    ):
        pairs.append((flag, figure, None if limit is None else dollars(limit, f"--{flag}")))
    for name, figure, limit in pairs:
        if figure is not None and limit:
            yield name, figure.best / limit
    watts = power_watts(estimate.candidate.cluster)
    if watts is not None and limits.max_power_watts:
        yield "power", watts / limits.max_power_watts


def rival(
    estimate: Estimate,
    in_order: Sequence[Estimate],
    shown: Sequence[Estimate],
    objective: str,
    changes: Changes | None = None,
) -> str:
    """Say which way is next best after an estimate: the first behind it on other hardware, engine, format or split."""
    place = next(i for i, one in enumerate(in_order) if one is estimate)
    other = next((one for one in in_order[place + 1 :] if _differs(one, estimate)), None)
    if other is None:
        return say("choice.no_rival")
    number = next((i for i, one in enumerate(shown, 1) if one is other), None)
    name = f"#{number}" if number is not None else _label(other, estimate)
    percent = _behind(estimate, other, objective, changes)
    return say("choice.rival_behind", name=name, percent=percent) if percent else say("choice.rival", name=name)


def _behind(estimate: Estimate, other: Estimate, objective: str, changes: Changes | None) -> int:
    """Return by how many percent another is worse, as "slower" says it: of rates, those that are printed."""
    rates = [one.performance.tokens_per_s for one in (estimate, other)]
    if objective in ("speed", "throughput") and rates[0] is not None and rates[1] is not None:
        mine, theirs = rates[1].best, rates[0].best
    else:
        mine, theirs = (rank.objective_of(one, objective, changes) for one in (estimate, other))
    return round(100 * (1 - mine / theirs)) if 0 < mine < theirs < float("inf") else 0


def _differs(one: Estimate, other: Estimate) -> bool:
    kinds = (
        (e.candidate.engine, rank.sub_kind(e), tuple(d.slug for d in e.candidate.cluster.node.devices))
        for e in (one, other)
    )
    return next(kinds) != next(kinds)


def _label(one: Estimate, beside: Estimate) -> str:
    """Name an estimate by what it does otherwise: hardware, then engine and weights, then where it lives."""
    candidate, cluster = one.candidate, one.candidate.cluster
    words = [candidate.engine, candidate.precision.weights]
    if cluster != beside.candidate.cluster:
        words.insert(0, f"{cluster.num_devices} x {cluster.node.devices[0].slug}")
    if where_it_lives(one) != where_it_lives(beside):
        words.append(where_it_lives(one))
    return ", ".join(words)


def against(estimate: Estimate, limits: Limits) -> tuple[str, ...]:
    """Return what speaks against relying on an estimate, beside what its warnings say."""
    return tuple(dict.fromkeys(_against(estimate, limits)))


def _against(estimate: Estimate, limits: Limits) -> Iterator[str]:
    candidate = estimate.candidate
    for device in candidate.cluster.node.devices[:1]:
        if device.is_unofficial:
            yield say("gpus.unofficial")
        if device.last_driver_branch:
            yield say("gpus.last_driver", branch=device.last_driver_branch, cuda=device.max_cuda or "-")
        listed = {row["engine"] for row in datafiles.rows("hardware/engine_support.csv")}
        if candidate.engine in listed and candidate.engine not in {one.engine for one in engines(device)}:
            yield say("choice.not_listed", engine=candidate.engine, name=device.name)
    is_serving = isinstance(candidate.workload, Serving)
    for way in rank.beyond(candidate):
        if way == "offload":
            yield say("choice.beyond_offload", most=rank.MOST_DEVICES_MEASURED[way])
        else:
            yield say("choice.beyond", way=way, value=getattr(candidate.layout, way), most=rank.MOST_MEASURED[way])
    number, most = candidate.layout.num_devices, rank.MOST_DEVICES_MEASURED["all"]
    if not is_serving and number > most:
        yield say("choice.beyond_devices", num=f"{number:,}", most=f"{most:,}")
    if is_serving and candidate.precision.kv in _SMALL_CACHES:
        yield say("choice.small_cache", kv=candidate.precision.kv)
    if rank.loses_updates(candidate):
        yield say("choice.loses_updates", weights=candidate.precision.weights)
    if not is_serving and candidate.precision.compute in rank.NARROW:
        yield say("choice.narrow", compute=candidate.precision.compute)
    if candidate.model.is_moe:
        yield say("choice.moe_serve" if is_serving else "choice.moe_train")
    if limits.is_spot:
        yield say("choice.spot")
