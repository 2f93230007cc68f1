"""Replicas that come and go with the load: policies that exist, replayed.

A policy is asked at every sync how many replicas there should be. One that is added answers after its start; one that
is removed takes no more requests and ends what it has. Where there is none, requests wait at the door.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from enum import StrEnum

import numpy as np

from tonnage.errors import RequestError
from tonnage.nouns import noun
from tonnage.simulate.arrivals import Requests
from tonnage.simulate.batching.replica import Job, Replica
from tonnage.simulate.replay import Replayed, summed
from tonnage.simulate.router import Router, shortest_queue
from tonnage.units import Bytes, BytesPerS, Ratio, Seconds

__all__ = ["Metric", "Policy", "SpotReplicas", "cheapest", "replay_scaled", "start_seconds"]


class Metric(StrEnum):
    """What a policy looks at, a replica."""

    WAITING = "waiting"  # requests that wait for a seat: vllm:num_requests_waiting and its like
    PRESENT = "present"  # requests that wait or run: target concurrency


@noun
class Policy:
    """How many replicas there should be."""

    name: str
    least: int = 1  # 0: scale to zero, as KEDA does
    most: int = 1
    metric: Metric | None = None  # None: the schedule alone, or as many as the least
    target: float = 1.0  # of the metric, a replica
    sync_seconds: Seconds = 15.0
    tolerance_ratio: Ratio = 0.1  # within which nothing is changed
    stabilization_seconds: Seconds = 300.0  # of the last counts wanted the highest is taken before any is removed
    cooldown_seconds: Seconds = 300.0  # without a request until the last one is removed
    schedule: tuple[tuple[Seconds, int], ...] = ()  # from which second of the replay on there are how many at least

    def __post_init__(self) -> None:
        """Hold what the replay relies on."""
        if not 0 <= self.least <= self.most or self.most < 1:
            raise RequestError(
                f"{self.least} to {self.most} replicas make no sense",
                where=self.name,
                fix="give least <= most, most >= 1",
            )
        if self.metric is not None and self.target <= 0:
            raise RequestError("the target must be above 0", where=self.name, fix="give one")


@noun
class SpotReplicas:
    """Replicas that may be taken away: each after a random time, exponentially long."""

    mean_seconds: Seconds
    seed: int = 0


@noun
class _Count:
    moment: Seconds
    wanted: int


def start_seconds(
    weights_bytes: Bytes, read_bytes_per_s: BytesPerS, provision_seconds: Seconds, engine_seconds: Seconds
) -> Seconds:
    """Time from asking for a replica to its first answer.

    Parameters
    ----------
    weights_bytes : numeric
        Weights that it loads. [B]
    read_bytes_per_s : numeric
        Rate of the disk or network that they come from. [B/s]
    provision_seconds : numeric
        Until a machine with its container is there. [s]
    engine_seconds : numeric
        That the engine takes besides loading: imports, compilation, graphs, profiling. [s]

    Returns
    -------
    numeric
        Time. [s]

    Notes
    -----
    Derived: one after the other.

    Examples
    --------
    >>> start_seconds(16e9, 2e9, 0.0, 40.0)
    48.0
    """
    return provision_seconds + weights_bytes / read_bytes_per_s + engine_seconds


def replay_scaled(
    requests: Requests,
    make: Callable[[Seconds], Replica],
    policy: Policy,
    *,
    start_seconds: Seconds,
    router: Router = shortest_queue,
    spot: SpotReplicas | None = None,
    hit_ratio: Ratio = 0.0,
    ttft_limit_seconds: Seconds | None = None,
    tpot_limit_seconds: Seconds | None = None,
    told: Callable[[int], None] | None = None,
) -> Replayed:
    """Replay a load against as many replicas as a policy asks for.

    Parameters
    ----------
    requests : Requests
        The load.
    make : callable
        From a moment [s] to a fresh replica.
    policy : Policy
        How many there should be.
    start_seconds : numeric
        Time from asking for a replica to its first answer. [s]
    router : Router
        Which of those that are ready a request goes to.
    spot : SpotReplicas
        Where replicas may be taken away; their requests begin anew on others.
    hit_ratio : numeric
        Share of each prompt whose cache is there already. [0-1]
    ttft_limit_seconds, tpot_limit_seconds : numeric
        Limits that goodput keeps. [s]
    told : callable
        Called with the number of requests sent, now and then.

    Returns
    -------
    Replayed
        What came of it, with the replicas over time; `replica_seconds` counts each from asking for it to its end.

    References
    ----------
    .. [1] Kubernetes, "Horizontal Pod Autoscaling", section Algorithm details: ceil(current * metric / target), no
       change within the tolerance (0.1), a stabilization window of 300 s for scaling down, a sync every 15 s, at most
       twice as many or four more a sync.
    .. [2] KEDA, "Scaling Deployments", cooldownPeriod (300 s) before the last replica is removed.
    """
    run = _Scaled(make, policy, start_seconds, router, spot)
    num_refused = 0
    for number, (arrival, prompt, answer) in enumerate(
        zip(requests.arrival_seconds, requests.input_tokens, requests.output_tokens, strict=True)
    ):
        run.until(arrival)
        if prompt + answer > run.most_request_tokens:
            num_refused += 1
            continue
        run.send(Job(arrival, prompt, answer, num_cached_tokens=int(prompt * hit_ratio)))
        if told and not number % 1024:
            told(number)
    run.finish()
    return summed(
        [job for replica in run.all for job in replica.finished],
        run.all,
        num_requests=len(requests),
        num_refused=num_refused,
        start_seconds=requests.arrival_seconds[0] if len(requests) else 0.0,
        replica_seconds=run.replica_seconds,
        limits=(ttft_limit_seconds, tpot_limit_seconds),
        series=tuple(run.series),
    )


class _Scaled:
    """A replay with a number of replicas that changes."""

    def __init__(
        self,
        make: Callable[[Seconds], Replica],
        policy: Policy,
        start_seconds: Seconds,
        router: Router,
        spot: SpotReplicas | None,
    ) -> None:
        self.make, self.policy, self.start_seconds, self.router = make, policy, start_seconds, router
        first = max(policy.least, self._scheduled(0.0))
        self.ready = [make(0.0) for _ in range(first)]
        self.starting: list[Seconds] = []
        self.leaving: list[Replica] = []
        self.all: list[Replica] = list(self.ready)
        self.door: deque[Job] = deque()
        self.most_request_tokens = make(0.0).most_request_tokens
        self.next_sync = 0.0
        self.number = 0
        self.last_busy = 0.0
        self.replica_seconds = 0.0
        self.counts: deque[_Count] = deque()
        self.asked: dict[int, Seconds] = {id(replica): 0.0 for replica in self.ready}
        self.series: list[tuple[float, int, int, int]] = []
        self.spot = spot
        self.draw = np.random.default_rng(spot.seed if spot else 0)
        self.taken: dict[int, Seconds] = {}
        for replica in self.ready:
            self._draw_end(replica, 0.0)

    def _draw_end(self, replica: Replica, moment: Seconds) -> None:
        if self.spot is not None:
            self.taken[id(replica)] = moment + float(self.draw.exponential(self.spot.mean_seconds))

    def _scheduled(self, moment: Seconds) -> int:
        return next((number for start, number in reversed(self.policy.schedule) if start <= moment), 0)

    def until(self, moment: Seconds) -> None:
        """Let time pass: what starts, is taken away, or is decided, in its order."""
        while True:
            start = min(self.starting, default=math.inf)
            end = min((self.taken[id(r)] for r in self.ready), default=math.inf) if self.spot else math.inf
            event = min(start, end, self.next_sync)
            if event > moment:
                break
            self._advance(event)
            if event == start:
                self._open(event)
            elif event == end:
                self._take_away(event)
            else:
                self._decide(event)
                self.next_sync = event + self.policy.sync_seconds
        self._advance(moment)

    def _advance(self, moment: Seconds) -> None:
        for replica in self.ready:
            replica.advance(moment)
        for replica in self.leaving[:]:
            replica.advance(moment)
            if not replica.num_present:
                self.leaving.remove(replica)
                self._count(replica, replica.finished[-1].finish_seconds or moment if replica.finished else moment)

    def _count(self, replica: Replica, moment: Seconds) -> None:
        self.replica_seconds += max(moment - self.asked.pop(id(replica)), 0.0)

    def _open(self, moment: Seconds) -> None:
        self.starting.remove(moment)
        replica = self.make(moment)
        self.ready.append(replica)
        self.all.append(replica)
        self.asked[id(replica)] = moment - self.start_seconds
        self._draw_end(replica, moment)
        while self.door:
            self._route(self.door.popleft(), moment)

    def _take_away(self, moment: Seconds) -> None:
        replica = min(self.ready, key=lambda one: self.taken[id(one)])
        self.ready.remove(replica)
        self._count(replica, moment)
        for job in replica.take_back():
            self._route(job, moment)
        self.starting.append(moment + self.start_seconds)  # another is asked for at once

    def send(self, job: Job) -> None:
        self._route(job, job.arrival_seconds)
        if self.policy.least == 0 and not self.ready and not self.starting:
            self.starting.append(job.arrival_seconds + self.start_seconds)

    def _route(self, job: Job, moment: Seconds) -> None:
        self.last_busy = moment
        if not self.ready:
            self.door.append(job)
            return
        replica = self.ready[self.router(self.ready, self.number)]
        self.number += 1
        replica.advance(moment)
        replica.submit(job)

    def _decide(self, moment: Seconds) -> None:
        policy = self.policy
        current = len(self.ready) + len(self.starting)
        waiting = sum(len(replica.waiting) for replica in self.ready) + len(self.door)
        running = sum(replica.num_running for replica in (*self.ready, *self.leaving))
        self.series.append((moment, len(self.ready), waiting, running))
        if waiting or running:
            self.last_busy = moment
        wanted = max(self._wanted(current, waiting, running), self._scheduled(moment))
        wanted = min(max(wanted, policy.least), policy.most)
        self.counts.append(_Count(moment=moment, wanted=wanted))
        while self.counts[0].moment < moment - policy.stabilization_seconds:
            self.counts.popleft()
        if wanted > current:
            wanted = min(wanted, max(2 * current, current + 4))
            self.starting.extend([moment + self.start_seconds] * (wanted - current))
        elif wanted < current:
            keeps = max(count.wanted for count in self.counts)
            if keeps == 0 and moment - self.last_busy < policy.cooldown_seconds:
                keeps = 1
            for _ in range(current - keeps):
                self._remove(moment)

    def _wanted(self, current: int, waiting: int, running: int) -> int:
        policy = self.policy
        if policy.metric is None:
            return policy.least
        amount = waiting if policy.metric is Metric.WAITING else waiting + running
        if not waiting and not running:
            return 0
        if not current:
            return 1
        ratio = amount / current / policy.target
        if abs(ratio - 1.0) <= policy.tolerance_ratio:
            return current
        return max(math.ceil(current * ratio), 1)

    def _remove(self, moment: Seconds) -> None:
        """Remove one: first of those that start, then the newest."""
        if self.starting:
            ready = max(self.starting)
            self.starting.remove(ready)
            self.replica_seconds += max(moment - (ready - self.start_seconds), 0.0)
            return
        replica = self.ready.pop()
        self.taken.pop(id(replica), None)
        if replica.num_present:
            self.leaving.append(replica)
        else:
            self._count(replica, moment)

    def finish(self) -> None:
        """Go on until nothing is left to do; nothing arrives any more."""
        while self.door or any(replica.num_present for replica in (*self.ready, *self.leaving)):
            if self.door and not self.ready and not self.starting:
                self.starting.append(self.last_busy + self.start_seconds)
            self.until(self.next_sync)
        last = max((job.finish_seconds or 0.0 for one in self.all for job in one.finished), default=self.last_busy)
        for replica in self.ready:
            self._count(replica, last)


def cheapest(runs: Sequence[tuple[Policy, Replayed]], least_kept_ratio: Ratio) -> int | None:
    """Return which policy costs least of those that keep the limits for enough requests; None where none does.

    Parameters
    ----------
    runs : sequence
        Policies with what came of them.
    least_kept_ratio : numeric
        Share of the requests that must keep the limits. [0-1]

    Returns
    -------
    int or None
        Its place.

    Notes
    -----
    Derived: fewest replica-seconds.
    """
    good = [at for at, (_, run) in enumerate(runs) if run.kept_ratio >= least_kept_ratio]
    return min(good, key=lambda at: runs[at][1].replica_seconds) if good else None
