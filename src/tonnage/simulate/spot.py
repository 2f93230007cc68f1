"""A training job on machines that come and go: when it ends, what it costs, what it loses.

A trace says how many machines there are at each moment. A job works on them, saves now and then, and starts again from
the last checkpoint that was complete. Legend: tau is the work between two checkpoints, delta the time to write one, R
the time to start again.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from itertools import pairwise

import numpy as np

from tonnage.errors import BadFileError, RequestError
from tonnage.nouns import noun
from tonnage.units import Count, Ratio, Seconds

__all__ = [
    "Fallback",
    "JobReplayed",
    "Spell",
    "SpotJob",
    "best_interval",
    "failures",
    "mean_spell_seconds",
    "read_availability",
    "replay_job",
    "starts_of",
]

_MOST_TICKS = 5_000_000
_MOST_CYCLES = 200  # of a trace that is too short for a job
_FORM = 'give {"metadata": {"gap_seconds": 300}, "data": [4, 4, 0]} or lines under the header seconds,instances'


@noun
class Spell:
    """A time in which the number of machines stays as it is."""

    seconds: Seconds
    num_nodes: int
    is_broken: bool = False  # whatever ran is stopped at its start, though there are as many machines as before


class Fallback(StrEnum):
    """What a job does where there are too few spot machines."""

    WAIT = "wait"  # for as long as it takes
    ON_DEMAND = "on-demand"  # rent until there are enough again
    DEADLINE = "deadline"  # wait as long as the deadline allows, then rent to the end


@noun
class SpotJob:
    """A job as a replay sees it."""

    work_seconds: Seconds  # on all its machines, without checkpoints
    num_nodes: int
    interval_seconds: Seconds  # of work between two checkpoints, tau
    checkpoint_seconds: Seconds  # that the job waits for one, delta
    restart_seconds: Seconds  # from having machines to working, R
    least_nodes: int | None = None  # that it can go on with, at less speed; None: it needs all
    deadline_seconds: Seconds | None = None  # after its start


@noun
class JobReplayed:
    """What became of a job."""

    is_finished: bool
    wall_seconds: Seconds
    spot_node_seconds: Seconds
    on_demand_node_seconds: Seconds
    waited_seconds: Seconds  # without machines
    lost_seconds: Seconds  # of work that was done and had to be done again
    restarting_seconds: Seconds
    saving_seconds: Seconds
    num_interruptions: int
    num_checkpoints: int
    progress: tuple[tuple[float, float], ...]  # second, work that is done

    def usd(self, spot_usd_per_node_hour: float, on_demand_usd_per_node_hour: float) -> float:
        """Return what the machines cost while they were held; derived: time by price."""
        spot = self.spot_node_seconds * spot_usd_per_node_hour
        return (spot + self.on_demand_node_seconds * on_demand_usd_per_node_hour) / 3600.0


def read_availability(text: str, name: str = "trace.json") -> tuple[Spell, ...]:
    """Read how many machines there were, tick by tick.

    Parameters
    ----------
    text : str
        JSON with `metadata.gap_seconds` and `data`, the number at each tick; or lines `seconds,instances`, from when on
        there are so many, the last line giving the end.
    name : str
        The file's name, for messages.

    Returns
    -------
    tuple of Spell
        Times of the same number, one after another.

    Raises
    ------
    BadFileError
        The text is neither.

    References
    ----------
    .. [1] Z. Wu et al., "Can't Be Late", NSDI 2024: traces of spot availability in this form.

    Examples
    --------
    >>> [(spell.seconds, spell.num_nodes)
    ...  for spell in read_availability('{"metadata": {"gap_seconds": 60}, "data": [1, 1, 0]}')]
    [(120.0, 1), (60.0, 0)]
    """
    try:
        ticks = list(_ticks_of_json(text) if text.lstrip()[:1] == "{" else _ticks_of_lines(text))
    except (ValueError, KeyError, TypeError, AttributeError, csv.Error) as error:
        raise BadFileError(f"is no trace of machines: {error}"[:200], where=name, fix=_FORM) from None
    if not ticks:
        raise BadFileError("holds no tick", where=name, fix=_FORM)
    spells: list[Spell] = []
    for seconds, number in ticks:
        before = spells.pop().seconds if spells and spells[-1].num_nodes == number else 0.0
        spells.append(Spell(seconds=before + seconds, num_nodes=number))
    return tuple(spells)


def _ticks_of_json(text: str) -> Iterator[tuple[float, int]]:
    table = json.loads(text)
    gap, data = float(table["metadata"]["gap_seconds"]), table["data"]
    if not (math.isfinite(gap) and gap > 0):
        raise ValueError("gap_seconds must be above 0")
    if len(data) > _MOST_TICKS:
        raise ValueError(f"more than {_MOST_TICKS} ticks")
    for number in data:
        yield gap, _machines(number)


def _ticks_of_lines(text: str) -> Iterator[tuple[float, int]]:
    lines = list(csv.DictReader(text.splitlines()))
    moments = [float(line["seconds"]) for line in lines]
    if any(not math.isfinite(one) for one in moments) or any(later <= one for one, later in pairwise(moments)):
        raise ValueError("seconds must rise from line to line")
    for line, start, end in zip(lines, moments, moments[1:], strict=False):
        yield end - start, _machines(line["instances"])


def _machines(number: object) -> int:
    value = float(str(number))
    if value != int(value) or not 0 <= value <= 1_000_000:
        raise ValueError(f"'{str(number)[:40]}' is no number of machines")
    return int(value)


def failures(mean_seconds: Seconds, num_nodes: int, horizon_seconds: Seconds, seed: int = 0) -> tuple[Spell, ...]:
    """Return a trace in which machines are always there, but something stops the job at random.

    Parameters
    ----------
    mean_seconds : numeric
        Mean time between stops of the whole job: that of one device over their number. [s]
    num_nodes : int
        Machines. [1]
    horizon_seconds : numeric
        Length of the trace. [s]
    seed : int
        The same seed gives the same trace.

    Returns
    -------
    tuple of Spell
        The trace.

    Notes
    -----
    Derived: a Poisson process.
    """
    number = int(horizon_seconds / mean_seconds * 1.2) + 16
    gaps = np.random.default_rng(seed).exponential(float(mean_seconds), number).tolist()
    return tuple(Spell(seconds=gap, num_nodes=num_nodes, is_broken=at > 0) for at, gap in enumerate(gaps))


def mean_spell_seconds(spells: Sequence[Spell], num_nodes: int) -> Seconds | None:
    """Mean time that a job holds so many machines until it is stopped; None where it never is.

    Parameters
    ----------
    spells : sequence of Spell
        A trace.
    num_nodes : int
        Machines that the job needs. [1]

    Returns
    -------
    numeric or None
        Time held over the number of stops. [s]

    Notes
    -----
    Derived.
    """
    held, stops, had = 0.0, 0, False
    for spell in spells:
        has = spell.num_nodes >= num_nodes
        stops += had and (not has or spell.is_broken)
        held += spell.seconds if has else 0.0
        had = has
    return held / stops if stops else None


def starts_of(spells: Sequence[Spell], num_starts: int, seed: int = 0) -> tuple[float, ...]:
    """Return moments of a trace to start a job at, drawn at random but evenly: one in each equal part.

    Parameters
    ----------
    spells : sequence of Spell
        A trace.
    num_starts : int
        How many. [1]
    seed : int
        The same seed gives the same moments.

    Returns
    -------
    tuple of float
        Moments. [s]

    Notes
    -----
    Derived: stratified sampling.
    """
    whole = math.fsum(spell.seconds for spell in spells)
    places = (np.arange(num_starts) + np.random.default_rng(seed).random(num_starts)) / num_starts
    return tuple((places * whole).tolist())


def replay_job(
    job: SpotJob,
    spells: Sequence[Spell],
    *,
    fallback: Fallback = Fallback.WAIT,
    start_seconds: Seconds = 0.0,
) -> JobReplayed:
    """Replay a job from a moment of a trace on; a trace that ends begins anew.

    Parameters
    ----------
    job : SpotJob
        The job.
    spells : sequence of Spell
        The trace.
    fallback : Fallback
        What is done where there are too few machines.
    start_seconds : numeric
        The moment of the trace. [s]

    Returns
    -------
    JobReplayed
        What became of it; not finished where the trace never gives it enough machines.

    Raises
    ------
    RequestError
        A deadline is to be kept and there is none, or a number makes no sense.

    Notes
    -----
    Derived: an event replay. Work since the last complete checkpoint is lost whenever a machine that is used goes away;
    taking more machines in, or changing over to spot machines again, is done after a save. Rented machines stay.
    With a deadline the job changes over for good once what is left, saved work alone counted, could else be late: a
    job that could be in time on rented machines from its start is always in time.
    """
    if fallback is Fallback.DEADLINE and job.deadline_seconds is None:
        raise RequestError("the fallback waits for a deadline, and there is none", where="--deadline", fix="give one")
    if min(job.work_seconds, job.interval_seconds) <= 0 or min(job.checkpoint_seconds, job.restart_seconds) < 0:
        raise RequestError(
            "work and interval must be above 0, checkpoint and restart at least 0", where="job", fix="give such times"
        )
    run = _Run(job, fallback)
    for spell in _from(spells, start_seconds):
        run.spell(spell)
        if run.is_finished:
            break
    return run.result()


def _from(spells: Sequence[Spell], start_seconds: Seconds) -> Iterator[Spell]:
    """Yield the spells from a moment on, over and over."""
    whole = math.fsum(spell.seconds for spell in spells)
    skipped = start_seconds % whole
    for cycle in range(_MOST_CYCLES):
        for at, spell in enumerate(spells):
            if skipped >= spell.seconds:
                skipped -= spell.seconds
                continue
            # The trace's end meets its start: what follows is other machines.
            is_broken = spell.is_broken or (cycle > 0 and at == 0)
            yield Spell(seconds=spell.seconds - skipped, num_nodes=spell.num_nodes, is_broken=is_broken and not skipped)
            skipped = 0.0


class _Run:
    """A job on its way."""

    def __init__(self, job: SpotJob, fallback: Fallback) -> None:
        self.job, self.fallback = job, fallback
        self.now = self.spot = self.rented = self.waited = self.lost = self.restarting = self.saving = 0.0
        self.saved = self.done = 0.0
        self.restart_left = job.restart_seconds
        self.save_left = 0.0
        self.num_interruptions = self.num_checkpoints = 0
        self.num_nodes = 0  # in use
        self.is_rented = False
        self.stays_rented = False
        self.is_finished = False
        self.progress = [(0.0, 0.0)]

    def result(self) -> JobReplayed:
        return JobReplayed(
            is_finished=self.is_finished,
            wall_seconds=self.now,
            spot_node_seconds=self.spot,
            on_demand_node_seconds=self.rented,
            waited_seconds=self.waited,
            lost_seconds=self.lost,
            restarting_seconds=self.restarting,
            saving_seconds=self.saving,
            num_interruptions=self.num_interruptions,
            num_checkpoints=self.num_checkpoints,
            progress=tuple(self.progress),
        )

    def spell(self, spell: Spell) -> None:
        """Live through a time with so many spot machines."""
        job = self.job
        usable = min(spell.num_nodes, job.num_nodes)
        enough = usable >= (job.least_nodes or job.num_nodes)
        left = spell.seconds
        if self.stays_rented:
            self._work(left)
            return
        if not enough:
            if self.num_nodes and not self.is_rented:
                self._interrupt()
            if self.fallback is Fallback.ON_DEMAND:
                self._change(job.num_nodes, is_rented=True)
            elif self.fallback is Fallback.DEADLINE:
                waits = min(max(self._latest_change() - self.now, 0.0), left)
                self._wait(waits)
                left -= waits
                if left > 0:
                    self._change(job.num_nodes, is_rented=True)
                    self.stays_rented = True
            else:
                self._wait(left)
                return
        elif self.num_nodes and not self.is_rented and (spell.is_broken or usable < self.num_nodes):
            self._interrupt()
            if not self._change_if_late():
                self._change(usable, is_rented=False)
        elif usable != self.num_nodes or self.is_rented:
            left -= self._plan_change(left)
            if left > 0 and not self.is_finished and not self.stays_rented:
                self._change(usable, is_rented=False)
        if left > 0:
            self._work(left)

    def _latest_change(self) -> float:
        """Return when to change over to rented machines at the latest: one more start and interval may be lost."""
        job = self.job
        assert job.deadline_seconds is not None
        left = (job.work_seconds - self.saved) * (1.0 + job.checkpoint_seconds / job.interval_seconds)
        slowest = (job.least_nodes or job.num_nodes) / job.num_nodes
        margin = job.restart_seconds + job.interval_seconds / slowest + 2.0 * job.checkpoint_seconds
        return job.deadline_seconds - job.restart_seconds - left - margin

    def _change_if_late(self) -> bool:
        """Change over to rented machines for good, where the deadline asks for it."""
        if self.fallback is not Fallback.DEADLINE or self.stays_rented or self.now < self._latest_change():
            return False
        self._change(self.job.num_nodes, is_rented=True)
        self.stays_rented = True
        return True

    def _interrupt(self) -> None:
        self.num_interruptions += 1
        self.lost += self.done - self.saved
        self.done = self.saved
        self.num_nodes, self.is_rented = 0, False
        self.progress.append((self.now, self.done))

    def _change(self, num_nodes: int, *, is_rented: bool) -> None:
        if num_nodes != self.num_nodes or is_rented != self.is_rented or not self.num_nodes:
            self.num_nodes, self.is_rented = num_nodes, is_rented
            self.restart_left, self.save_left = self.job.restart_seconds, 0.0

    def _plan_change(self, most_seconds: float) -> float:
        """Save before machines are changed over in order; return the time that it takes."""
        if not self.num_nodes or self.done == self.saved or self.restart_left > 0:
            return 0.0
        self.save_left = self.save_left or self.job.checkpoint_seconds
        before = self.now
        self._save(most_seconds)
        return self.now - before

    def _wait(self, seconds: float) -> None:
        self.now += seconds
        self.waited += seconds

    def _hold(self, seconds: float) -> None:
        self.now += seconds
        if self.is_rented:
            self.rented += seconds * self.num_nodes
        else:
            self.spot += seconds * self.num_nodes

    def _save(self, most_seconds: float) -> float:
        seconds = min(self.save_left, most_seconds)
        self._hold(seconds)
        self.saving += seconds
        self.save_left -= seconds
        if self.save_left <= 0:
            self.saved = self.done
            self.num_checkpoints += 1
            self.progress.append((self.now, self.done))
            self.is_finished = self.done >= self.job.work_seconds
            if not self.is_finished:
                self._change_if_late()
        return seconds

    def _work(self, left: float) -> None:
        """Use so much time with the machines there are."""
        job = self.job
        while left > 0 and not self.is_finished:
            speed = self.num_nodes / job.num_nodes
            if self.restart_left > 0:
                seconds = min(self.restart_left, left)
                self._hold(seconds)
                self.restarting += seconds
                self.restart_left -= seconds
            elif self.save_left > 0:
                seconds = self._save(left)
            else:
                until = min(self.saved + job.interval_seconds, job.work_seconds) - self.done
                seconds = min(until / speed, left)
                self._hold(seconds)
                self.done += seconds * speed
                if seconds * speed >= until * (1.0 - 1e-12):
                    self.done += until - seconds * speed
                    self.save_left = job.checkpoint_seconds
                    if not self.save_left:
                        self._save(0.0)
            left -= seconds


def best_interval(
    job: SpotJob, spells: Sequence[Spell], starts: Sequence[float], intervals: Sequence[Seconds]
) -> tuple[tuple[Seconds, Seconds, Ratio], ...]:
    """Replay a job with other intervals between checkpoints.

    Parameters
    ----------
    job : SpotJob
        The job, its own interval left alone.
    spells : sequence of Spell
        The trace.
    starts : sequence of numeric
        Moments of the trace to start at. [s]
    intervals : sequence of numeric
        Intervals to try. [s]

    Returns
    -------
    tuple
        For each: the interval [s], the mean time that machines are held [s], and the share of starts that ended.

    Notes
    -----
    Derived.
    """
    found = []
    for interval in intervals:
        one = replace(job, interval_seconds=interval)
        runs = [replay_job(one, spells, start_seconds=start) for start in starts]
        held = [run.spot_node_seconds / job.num_nodes for run in runs if run.is_finished]
        mean: Count = math.fsum(held) / len(held) if held else math.inf
        found.append((interval, mean, len(held) / len(runs)))
    return tuple(found)
