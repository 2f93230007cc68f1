"""A load replayed against replicas of a server: what each request sees, and how busy the replicas are."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import field

from tonnage.nouns import noun
from tonnage.simulate.arrivals import Requests
from tonnage.simulate.batching.replica import Job, Replica
from tonnage.simulate.router import Router, shortest_queue
from tonnage.units import Ratio, RequestsPerS, Seconds, TokensPerS

__all__ = ["Replayed", "Tail", "replay", "replay_clients", "tail_of"]


@noun
class Tail:
    """Percentiles of a time over requests; None where there are none."""

    mean: Seconds | None
    p50: Seconds | None
    p90: Seconds | None
    p95: Seconds | None
    p99: Seconds | None
    worst: Seconds | None
    num_samples: int


@noun
class Replayed:
    """What came of a replay. Times are of requests that ended."""

    num_requests: int
    num_finished: int
    num_refused: int  # longer than any replica can hold
    num_turned_away: int  # came to a full queue
    num_preemptions: int
    input_tokens: int  # of those that ended
    output_tokens: int
    span_seconds: Seconds  # from the first arrival to the last token
    ttft: Tail
    tpot: Tail
    e2e: Tail
    goodput_requests_per_s: RequestsPerS  # that kept the limits; all that ended where there are none
    kept_ratio: Ratio  # of all requests, those that ended within the limits
    busy_ratio: Ratio  # of the replicas' time
    mean_used_ratio: Ratio | None  # of the caches, over the time that replicas worked
    most_used_ratio: Ratio | None
    mean_running: float  # requests that ran, over the span, of all replicas
    num_steps: int
    replica_seconds: Seconds  # that replicas were there, all together
    series: tuple[tuple[float, int, int, int], ...] = field(default=())  # second, replicas, waiting, running

    @property
    def requests_per_s(self) -> RequestsPerS:
        """Requests that ended over the span; derived."""
        return self.num_finished / self.span_seconds if self.span_seconds > 0 else 0.0

    @property
    def output_tokens_per_s(self) -> TokensPerS:
        """Tokens generated over the span; derived."""
        return self.output_tokens / self.span_seconds if self.span_seconds > 0 else 0.0


def tail_of(samples: Sequence[float]) -> Tail:
    """Return the percentiles of samples, with a line between neighbours as numpy's default has it.

    Parameters
    ----------
    samples : sequence of numeric
        In any order. [s]

    Returns
    -------
    Tail
        The percentiles.

    Notes
    -----
    Derived: the quantile q of n samples lies at place (n - 1) q of the sorted ones.
    """
    ordered = sorted(samples)
    if not ordered:
        return Tail(mean=None, p50=None, p90=None, p95=None, p99=None, worst=None, num_samples=0)

    def at(quantile: float) -> float:
        place = (len(ordered) - 1) * quantile
        low = int(place)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (ordered[high] - ordered[low]) * (place - low)

    return Tail(
        mean=math.fsum(ordered) / len(ordered),
        p50=at(0.5),
        p90=at(0.9),
        p95=at(0.95),
        p99=at(0.99),
        worst=ordered[-1],
        num_samples=len(ordered),
    )


def replay(
    requests: Requests,
    replicas: Sequence[Replica],
    *,
    router: Router = shortest_queue,
    hit_ratio: Ratio = 0.0,
    most_waiting: int | None = None,
    ttft_limit_seconds: Seconds | None = None,
    tpot_limit_seconds: Seconds | None = None,
    told: Callable[[int], None] | None = None,
) -> Replayed:
    """Replay requests that come when they come, whatever the server does (an open loop).

    Parameters
    ----------
    requests : Requests
        The load.
    replicas : sequence of Replica
        Fresh copies of the server, their clocks at 0.
    router : Router
        Which of them a request goes to.
    hit_ratio : numeric
        Share of each prompt whose cache is there already. [0-1]
    most_waiting : int
        Requests that may wait at a replica; one that comes to as many is turned away. None is no limit. [1]
    ttft_limit_seconds, tpot_limit_seconds : numeric
        Limits that goodput keeps; None is no limit. [s]
    told : callable
        Called with the number of requests sent, now and then.

    Returns
    -------
    Replayed
        What came of it.

    Notes
    -----
    Derived: a discrete-event replay; steps are those of the replicas' schedulers.
    """
    most = max(replica.most_request_tokens for replica in replicas)
    num_refused = num_turned_away = 0
    for number, (arrival, prompt, answer) in enumerate(
        zip(requests.arrival_seconds, requests.input_tokens, requests.output_tokens, strict=True)
    ):
        if prompt + answer > most:
            num_refused += 1
            continue
        for replica in replicas:
            replica.advance(arrival)
        chosen = replicas[router(replicas, number)]
        if most_waiting is not None and len(chosen.waiting) >= most_waiting:
            num_turned_away += 1
            continue
        chosen.submit(Job(arrival, prompt, answer, num_cached_tokens=int(prompt * hit_ratio)))
        if told and not number % 1024:
            told(number)
    for replica in replicas:
        replica.advance(float("inf"))
    jobs = [job for replica in replicas for job in replica.finished]
    end = max((job.finish_seconds or 0.0 for job in jobs), default=0.0)
    return summed(
        jobs,
        replicas,
        num_requests=len(requests),
        num_refused=num_refused,
        num_turned_away=num_turned_away,
        start_seconds=requests.arrival_seconds[0] if len(requests) else 0.0,
        replica_seconds=len(replicas) * end,
        limits=(ttft_limit_seconds, tpot_limit_seconds),
    )


def replay_clients(
    replica: Replica, *, num_clients: int, num_requests: int, input_tokens: int, output_tokens: int
) -> Replayed:
    """Replay clients that each ask again as soon as they are answered (a closed loop), against one replica.

    Parameters
    ----------
    replica : Replica
        A fresh copy of the server.
    num_clients : int
        Requests in flight at any time. [1]
    num_requests : int
        Requests in all. [1]
    input_tokens, output_tokens : int
        Tokens of each prompt and of each answer. [1]

    Returns
    -------
    Replayed
        What came of it.

    Notes
    -----
    Derived: the next request arrives at the moment at which the one before it ended.
    """
    sent = min(num_clients, num_requests)
    for _ in range(sent):
        replica.submit(Job(0.0, input_tokens, output_tokens))
    answered = 0
    while replica.num_present:
        replica.advance(float("inf"), stops_on_finish=True)
        for _ in range(len(replica.finished) - answered):
            if sent < num_requests:
                replica.submit(Job(replica.clock_seconds, input_tokens, output_tokens))
                sent += 1
        answered = len(replica.finished)
    return summed(
        replica.finished,
        [replica],
        num_requests=num_requests,
        num_refused=0,
        start_seconds=0.0,
        replica_seconds=replica.clock_seconds,
        limits=(None, None),
    )


def summed(
    jobs: Sequence[Job],
    replicas: Sequence[Replica],
    *,
    num_requests: int,
    num_refused: int,
    num_turned_away: int = 0,
    start_seconds: Seconds,
    replica_seconds: Seconds,
    limits: tuple[Seconds | None, Seconds | None],
    series: tuple[tuple[float, int, int, int], ...] = (),
) -> Replayed:
    """Sum up what requests saw and what replicas did.

    Parameters
    ----------
    jobs : sequence of Job
        Requests that ended.
    replicas : sequence of Replica
        All that ever were there.
    num_requests, num_refused, num_turned_away : int
        Requests sent, those longer than any replica holds, and those that came to a full queue. [1]
    start_seconds, replica_seconds : numeric
        The first arrival; time that replicas were there, all together. [s]
    limits : tuple
        On the first token and on each token after it; None is no limit. [s]
    series : tuple
        What an autoscaler saw.

    Returns
    -------
    Replayed
        The sums.

    Notes
    -----
    Derived. A request of one token has no time per token after the first.
    """
    ttft, tpot, e2e, num_kept, end = [], [], [], 0, start_seconds
    ttft_limit, tpot_limit = limits
    for job in jobs:
        assert job.first_token_seconds is not None
        assert job.finish_seconds is not None
        first = job.first_token_seconds - job.arrival_seconds
        ttft.append(first)
        e2e.append(job.finish_seconds - job.arrival_seconds)
        end = max(end, job.finish_seconds)
        each = None
        if job.output_tokens > 1:
            each = (job.finish_seconds - job.first_token_seconds) / (job.output_tokens - 1)
            tpot.append(each)
        num_kept += (ttft_limit is None or first <= ttft_limit) and (
            tpot_limit is None or each is None or each <= tpot_limit
        )
    span = end - start_seconds
    capacity = sum(replica.busy_seconds * replica.cache_tokens for replica in replicas)
    return Replayed(
        num_requests=num_requests,
        num_finished=len(jobs),
        num_refused=num_refused,
        num_turned_away=num_turned_away,
        num_preemptions=sum(replica.num_preemptions for replica in replicas),
        input_tokens=sum(job.input_tokens for job in jobs),
        output_tokens=sum(job.output_tokens for job in jobs),
        span_seconds=span,
        ttft=tail_of(ttft),
        tpot=tail_of(tpot),
        e2e=tail_of(e2e),
        goodput_requests_per_s=num_kept / span if span > 0 else 0.0,
        kept_ratio=num_kept / num_requests if num_requests else 0.0,
        busy_ratio=sum(replica.busy_seconds for replica in replicas) / replica_seconds if replica_seconds > 0 else 0.0,
        mean_used_ratio=sum(r.used_token_seconds for r in replicas) / capacity if capacity > 0 else None,
        most_used_ratio=max((r.most_used_tokens / r.cache_tokens for r in replicas if r.cache_tokens), default=None),
        mean_running=sum(replica.running_seconds for replica in replicas) / span if span > 0 else 0.0,
        num_steps=sum(replica.num_steps for replica in replicas),
        replica_seconds=replica_seconds,
        series=series,
    )
