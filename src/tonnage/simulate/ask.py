"""The answers of `tonnage simulate`: a plan under a load, and a plan on machines that come and go."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import field, replace

from tonnage.engines import find_engine
from tonnage.errors import RequestError
from tonnage.estimate.cost.spot import daly_interval_seconds
from tonnage.estimate.types import Cost, Estimate
from tonnage.nouns import noun
from tonnage.plan.types import Plan
from tonnage.simulate.arrivals import Requests, faster
from tonnage.simulate.autoscale import Metric, Policy, SpotReplicas, cheapest, replay_scaled, start_seconds
from tonnage.simulate.batching.replica import Replica
from tonnage.simulate.fleet import replica_maker
from tonnage.simulate.replay import Replayed, replay
from tonnage.simulate.router import ROUTERS
from tonnage.simulate.spot import (
    Fallback,
    JobReplayed,
    Spell,
    SpotJob,
    best_interval,
    mean_spell_seconds,
    replay_job,
    starts_of,
)
from tonnage.units import BytesPerS, Ratio, RequestsPerS, Seconds
from tonnage.workload.types import Serving

__all__ = [
    "JobAnswer",
    "JobQuestion",
    "JobTry",
    "LoadAnswer",
    "LoadQuestion",
    "RateTry",
    "Scaled",
    "ask_job",
    "ask_load",
]

# Assumed: a machine with its container is there in a minute, and an engine takes 40 s besides loading weights.
PROVISION_SECONDS = 60.0
ENGINE_SECONDS = 40.0
READ_BYTES_PER_S = 2e9  # assumed: an NVMe drive that is not idle, or a fast network store
_RATE_STEPS = 12  # halvings of the rate's range
_INTERVALS = (0.1, 0.25, 0.5, 0.7, 1.0, 1.4, 2.0, 4.0, 10.0)  # of the interval by Daly


@noun
class LoadQuestion:
    """How a plan is put under load."""

    requests: Requests
    num_replicas: int = 1  # of the plan
    router: str = "shortest-queue"
    hit_ratio: Ratio = 0.0
    most_waiting: int | None = None  # at a replica; more are turned away
    ttft_limit_seconds: Seconds | None = None
    tpot_limit_seconds: Seconds | None = None
    least_kept_ratio: Ratio = 0.99  # of the requests that must keep the limits
    finds_rate: bool = False
    scale: tuple[int, int] | None = None  # fewest and most replicas: policies are compared
    start_seconds: Seconds | None = None  # of a replica; None: from the weights, as assumed
    read_bytes_per_s: BytesPerS = READ_BYTES_PER_S
    spot_mean_seconds: Seconds | None = None  # until a replica is taken away
    seed: int = 0


@noun
class RateTry:
    """A rate that was tried."""

    rate_ratio: Ratio  # of the load's own
    requests_per_s: RequestsPerS
    run: Replayed
    is_kept: bool


@noun
class Scaled:
    """A policy and what came of it."""

    policy: Policy
    run: Replayed
    usd_per_million_tokens: float | None


@noun
class LoadAnswer:
    """What a plan does under a load."""

    question: LoadQuestion
    num_copies: int  # replicas of the plan times its data-parallel copies
    run: Replayed
    usd_per_million_tokens: float | None  # of tokens generated, while all replicas are there
    rates: tuple[RateTry, ...] = ()  # by rate
    best_rate: RateTry | None = None  # the highest that keeps the limits
    scaled: tuple[Scaled, ...] = ()
    winner: int | None = None  # of these, the cheapest that keeps the limits
    start_seconds: Seconds | None = None


def ask_load(plan: Plan, question: LoadQuestion, told: Callable[[str], None] | None = None) -> LoadAnswer:
    """Replay a load against a plan, at other rates, and with replicas that follow it.

    Parameters
    ----------
    plan : Plan
        A serving plan.
    question : LoadQuestion
        The load, and what is to be found.
    told : callable
        Called with what is done next.

    Returns
    -------
    LoadAnswer
        What came of it.

    Raises
    ------
    RequestError
        The plan is one of training, a router is unknown, or the rate is asked for without limits.

    Notes
    -----
    Derived.
    """
    estimate, asked = plan.estimate, question
    workload = estimate.candidate.workload
    if not isinstance(workload, Serving):
        raise RequestError("the plan trains", where="simulate", fix="give --preemptions, or a plan made with --serve")
    if asked.router not in ROUTERS:
        raise RequestError(f"'{asked.router}' is no router", where="--router", fix=f"one of {', '.join(ROUTERS)}")
    if not len(asked.requests):
        raise RequestError("there is no request", where="--requests", fix="give some")
    accounting = find_engine(estimate.candidate.engine).accounting
    make, copies = replica_maker(estimate.candidate, accounting), asked.num_replicas * estimate.candidate.layout.dp
    tell = told or _silent

    def once(requests: Requests) -> Replayed:
        return replay(
            requests,
            [make(0.0) for _ in range(copies)],
            router=ROUTERS[asked.router],
            hit_ratio=asked.hit_ratio,
            most_waiting=asked.most_waiting,
            ttft_limit_seconds=asked.ttft_limit_seconds,
            tpot_limit_seconds=asked.tpot_limit_seconds,
        )

    tell("load")
    run = once(asked.requests)
    hourly = _usd_per_hour_of_copy(estimate.cost, estimate)
    rates = _rates(asked, once, tell) if asked.finds_rate else ()
    start = asked.start_seconds
    if start is None:
        start = start_seconds(estimate.storage.weights_bytes, asked.read_bytes_per_s, PROVISION_SECONDS, ENGINE_SECONDS)
    scaled = _scaled(asked, make, start, hourly, tell) if asked.scale else ()
    kept = [one for one in rates if one.is_kept]
    return LoadAnswer(
        question=asked,
        num_copies=copies,
        run=run,
        usd_per_million_tokens=_usd_per_million(run, hourly),
        rates=tuple(sorted(rates, key=lambda one: one.rate_ratio)),
        best_rate=max(kept, key=lambda one: one.rate_ratio, default=None),
        scaled=scaled,
        winner=cheapest([(one.policy, one.run) for one in scaled], asked.least_kept_ratio),
        start_seconds=start if scaled else None,
    )


def _silent(what: str) -> None:
    del what


def _usd_per_hour_of_copy(cost: Cost, estimate: Estimate) -> float | None:
    return None if cost.usd_per_hour is None else cost.usd_per_hour.best / estimate.candidate.layout.dp


def _usd_per_million(run: Replayed, hourly: float | None) -> float | None:
    if hourly is None or not run.output_tokens:
        return None
    return hourly * run.replica_seconds / 3600.0 / run.output_tokens * 1e6


def _rates(
    asked: LoadQuestion, once: Callable[[Requests], Replayed], tell: Callable[[str], None]
) -> tuple[RateTry, ...]:
    """Find the highest rate at which enough requests keep the limits, by bisection of its logarithm."""
    own = asked.requests.requests_per_s
    if asked.ttft_limit_seconds is None and asked.tpot_limit_seconds is None:
        raise RequestError("no limit is to be kept", where="--find-rate", fix="give --ttft or --tpot")
    if own is None:
        raise RequestError("all requests come at once", where="--find-rate", fix="give requests that come one by one")
    tries: list[RateTry] = []

    def keeps(ratio: float) -> bool:
        tell("rate")
        run = once(faster(asked.requests, ratio))
        is_kept = run.kept_ratio >= asked.least_kept_ratio
        tries.append(RateTry(rate_ratio=ratio, requests_per_s=own * ratio, run=run, is_kept=is_kept))
        return is_kept

    low = high = 1.0
    if keeps(1.0):
        while high < 1e4 and keeps(high * 2.0):
            high *= 2.0
        low, high = high, high * 2.0
    else:
        while low > 1e-4 and not keeps(low / 2.0):
            low /= 2.0
        low, high = low / 2.0, low
    for _ in range(_RATE_STEPS):
        if high / low < 1.01:
            break
        middle = math.sqrt(low * high)
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return tuple(tries)


def _scaled(
    asked: LoadQuestion,
    make: Callable[[Seconds], Replica],
    start: Seconds,
    hourly: float | None,
    tell: Callable[[str], None],
) -> tuple[Scaled, ...]:
    assert asked.scale is not None
    spot = (
        None if asked.spot_mean_seconds is None else SpotReplicas(mean_seconds=asked.spot_mean_seconds, seed=asked.seed)
    )
    found = []
    for policy in policies(*asked.scale, seats=make(0.0).num_seats):
        tell(policy.name)
        run = replay_scaled(
            asked.requests,
            make,
            policy,
            start_seconds=start,
            router=ROUTERS[asked.router],
            spot=spot,
            hit_ratio=asked.hit_ratio,
            ttft_limit_seconds=asked.ttft_limit_seconds,
            tpot_limit_seconds=asked.tpot_limit_seconds,
        )
        found.append(Scaled(policy=policy, run=run, usd_per_million_tokens=_usd_per_million(run, hourly)))
    return tuple(found)


def policies(least: int, most: int, seats: int) -> tuple[Policy, ...]:
    """Return policies that people run, from the fewest replicas to the most.

    Parameters
    ----------
    least, most : int
        Replicas. [1]
    seats : int
        Requests that one replica runs at once. [1]

    Returns
    -------
    tuple of Policy
        Fixed numbers, and targets of waiting and of present requests.

    Notes
    -----
    Derived.
    """
    fixed = sorted({max(least, 1), (max(least, 1) + most + 1) // 2, most})
    found = [Policy(name=f"fixed {number}", least=number, most=number) for number in fixed]
    if most > least:
        found += [
            Policy(name=f"waiting {target}", least=least, most=most, metric=Metric.WAITING, target=float(target))
            for target in (1, 4, 16)
        ]
        found += [
            Policy(name=f"present {target}", least=least, most=most, metric=Metric.PRESENT, target=float(target))
            for target in sorted({max(1, round(seats * share)) for share in (0.3, 0.6, 0.9)})
        ]
    return tuple(found)


@noun
class JobQuestion:
    """How a training plan is put on machines that come and go."""

    spells: tuple[Spell, ...]
    work_seconds: Seconds
    checkpoint_seconds: Seconds
    restart_seconds: Seconds
    interval_seconds: Seconds | None = None  # None: by Daly
    deadline_seconds: Seconds | None = None
    least_nodes: int | None = None
    num_starts: int = 20
    seed: int = 0


@noun
class JobTry:
    """A way to run the job, over all starts."""

    fallback: Fallback
    least_nodes: int | None
    runs: tuple[JobReplayed, ...]
    usd: tuple[float, ...]  # of each run; empty where a price is not known

    @property
    def finished_ratio(self) -> Ratio:
        """Share of the runs that ended; derived."""
        return sum(run.is_finished for run in self.runs) / len(self.runs)


@noun
class JobAnswer:
    """What a job does on a trace."""

    question: JobQuestion
    num_nodes: int
    mean_seconds: Seconds | None  # until a stop, as the trace has it
    daly_seconds: Seconds | None
    interval_seconds: Seconds
    tries: tuple[JobTry, ...]
    intervals: tuple[tuple[Seconds, Seconds, Ratio], ...] = ()  # interval, mean time held, share that ended
    best_interval_seconds: Seconds | None = None
    prices: tuple[float | None, float | None] = field(default=(None, None))  # of a node-hour: spot, on demand


def ask_job(plan: Plan, question: JobQuestion, told: Callable[[str], None] | None = None) -> JobAnswer:
    """Replay a training plan on a trace of machines, from many moments of it.

    Parameters
    ----------
    plan : Plan
        A training plan: its machines and prices.
    question : JobQuestion
        The trace and the job's times.
    told : callable
        Called with what is done next.

    Returns
    -------
    JobAnswer
        Each way to run it, and the interval between checkpoints that loses least.

    Raises
    ------
    RequestError
        The plan is one of serving.

    References
    ----------
    .. [1] J. T. Daly, Future Generation Computer Systems 22(3), 2006, eq. 37, doi:10.1016/j.future.2004.11.016.
    """
    estimate, asked = plan.estimate, question
    if isinstance(estimate.candidate.workload, Serving):
        raise RequestError("the plan serves", where="simulate", fix="give --requests, or a plan that trains")
    tell = told or _silent
    nodes = estimate.candidate.cluster.num_nodes
    mean = mean_spell_seconds(asked.spells, nodes)
    daly = None if mean is None else float(daly_interval_seconds(asked.checkpoint_seconds, mean))
    interval = asked.interval_seconds or daly or 3600.0
    job = SpotJob(
        work_seconds=asked.work_seconds,
        num_nodes=nodes,
        interval_seconds=max(interval, 1.0),
        checkpoint_seconds=asked.checkpoint_seconds,
        restart_seconds=asked.restart_seconds,
        deadline_seconds=asked.deadline_seconds,
    )
    starts = starts_of(asked.spells, asked.num_starts, asked.seed)
    prices = _node_prices(estimate.cost, nodes)
    ways: list[tuple[Fallback, int | None]] = [(Fallback.WAIT, None)]
    is_short = any(spell.num_nodes < nodes for spell in asked.spells)
    if is_short:
        ways.append((Fallback.ON_DEMAND, None))
    if is_short and asked.deadline_seconds is not None:
        ways.append((Fallback.DEADLINE, None))
    if is_short and asked.least_nodes is not None and asked.least_nodes < nodes:
        ways += [(fallback, asked.least_nodes) for fallback, _ in ways]
    tries = []
    for fallback, least in ways:
        tell(str(fallback))
        one = replace(job, least_nodes=least)
        runs = tuple(replay_job(one, asked.spells, fallback=fallback, start_seconds=start) for start in starts)
        spot, rent = prices
        usd = () if spot is None or rent is None else tuple(run.usd(spot, rent) for run in runs)
        tries.append(JobTry(fallback=fallback, least_nodes=least, runs=runs, usd=usd))
    intervals: tuple[tuple[Seconds, Seconds, Ratio], ...] = ()
    if daly is not None:
        tell("intervals")
        intervals = best_interval(job, asked.spells, starts, _tried(max(daly, 1.0), asked.work_seconds))
    ended = [one for one in intervals if one[2] > 0 and one[2] == max(share for _, _, share in intervals)]
    return JobAnswer(
        question=asked,
        num_nodes=nodes,
        mean_seconds=mean,
        daly_seconds=daly,
        interval_seconds=job.interval_seconds,
        tries=tuple(tries),
        intervals=intervals,
        best_interval_seconds=min(ended, key=lambda one: one[1])[0] if ended else None,
        prices=prices,
    )


def _tried(daly: Seconds, work: Seconds) -> Sequence[Seconds]:
    return sorted({min(daly * ratio, work) for ratio in _INTERVALS})


def _node_prices(cost: Cost, num_nodes: int) -> tuple[float | None, float | None]:
    """Return what an hour of one machine costs: taken away now and then, and not."""
    spot = None if cost.spot is None else cost.spot.usd_per_hour.best / num_nodes
    whole = None if cost.usd_per_hour is None else cost.usd_per_hour.best / num_nodes
    return (spot or whole, None) if cost.is_spot else (spot, whole)
