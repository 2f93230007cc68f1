"""A measured training run as a teacher: what it corrects in the estimates of candidates near it, and how far.

Two things are corrected, each for a physical reason. Bytes of weights, gradients, master copies and optimizer states are
counts and stay; what the software keeps, caches and gathers beside them is modelled, and that share is scaled until the
run's own memory comes out. A step's time is work over achieved rates, and the rates of a machine and its software are
what a run measures: the whole time is scaled. The farther a candidate is from the run, the less of the correction it
takes, and the less its interval narrows: as much as errors of measured runs at that distance have in common.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from math import exp, log, sqrt
from typing import TYPE_CHECKING, Final

from tonnage import datafiles
from tonnage.errors import BadFileError
from tonnage.estimate.types import Candidate, Estimate, Interval, Pool
from tonnage.messages import say
from tonnage.nouns import noun
from tonnage.plan.distance import steps_apart
from tonnage.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from tonnage.hardware.types import Cluster
    from tonnage.model.types import Model
    from tonnage.search.explore import Explored, Fixed
    from tonnage.search.training_space import TrainingWays
    from tonnage.workload.types import Training

TABLE: Final = "calibration/from_run.toml"
QUANTITIES: Final = ("allocated", "reserved", "driver")
_FARTHEST: Final = 3.0  # a ratio beyond it, or below its inverse, is another configuration, not another machine


@noun
class Run:
    """A measured run: what ran, and what was measured of it."""

    where: str  # the file it was read from
    candidate: Candidate
    memory_bytes: float | None = None  # peak of the fullest device
    quantity: str = "reserved"  # allocated, reserved, or driver
    rank: str = "max"  # pipeline rank that was measured: first, last or max
    step_seconds: float | None = None  # of an optimizer step


@noun
class Lesson:
    """What a run says: measured over predicted, of what is modelled and of the rates."""

    run: Run
    memory_ratio: float | None  # of the modelled share of memory
    speed_ratio: float | None  # measured over predicted tokens per second
    predicted_bytes: float | None
    predicted_seconds: float | None


@cache
def _law(part: str) -> tuple[float, float]:
    row = datafiles.table(TABLE)[part]
    return row["nearness"], row["steps"]


def correlation(part: str, steps: float) -> float:
    """Return how much the errors of two runs so many steps apart have in common.

    >>> correlation("memory", 0.0) > correlation("memory", 2.0) > correlation("memory", 20.0)
    True
    """
    nearness, length = _law(part)
    return nearness * exp(-steps / length)


def lesson_of(run: Run) -> Lesson:
    """Return what a run teaches.

    Raises
    ------
    BadFileError
        Nothing is measured, or what is measured cannot be of this configuration.
    """
    from tonnage.estimate.compose_training import (  # noqa: PLC0415  serving does without
        case_of,
        columns_of,
        memory_of,
        step_timing,
        training_constants,
    )
    from tonnage.estimate.compose_training.case import filled  # noqa: PLC0415
    from tonnage.estimate.compose_training.solve import COUNTED  # noqa: PLC0415

    case, x, c = case_of(run.candidate), filled(columns_of(run.candidate)), training_constants()
    memory_ratio = speed_ratio = predicted = seconds = None
    if run.memory_bytes is not None:
        held = memory_of(case, x, c, run.quantity, run.rank)
        predicted = float(held.total)
        counted = sum(float(held.pools[name]) for name in COUNTED)
        _hold(run, run.memory_bytes > counted, say("plan.from_less", counted=format_bytes(counted)))
        memory_ratio = (run.memory_bytes - counted) / (predicted - counted)
    if run.step_seconds is not None:
        seconds = float(step_timing(case, c, x).total)
        speed_ratio = seconds / run.step_seconds
    _hold(run, memory_ratio is not None or speed_ratio is not None, say("plan.from_nothing"))
    for ratio, name in ((memory_ratio, "memory"), (speed_ratio, "speed")):
        if ratio is not None:
            _hold(run, 1 / _FARTHEST <= ratio <= _FARTHEST, say(f"plan.from_far_{name}", ratio=f"{ratio:.2g}"))
    return Lesson(
        run=run,
        memory_ratio=memory_ratio,
        speed_ratio=speed_ratio,
        predicted_bytes=predicted,
        predicted_seconds=seconds,
    )


def _hold(run: Run, is_right: bool, what: str) -> None:
    if not is_right:
        raise BadFileError(what, where=run.where[:200], fix=say("plan.from_fix"))


def corrected(estimate: Estimate, lesson: Lesson) -> Estimate:
    """Return an estimate as a measured run near it lets one expect."""
    steps = steps_apart(estimate.candidate, lesson.run.candidate)
    told: list[str] = []
    changed, modelled = estimate, 1.0
    if lesson.memory_ratio is not None:
        shared = correlation("memory", steps)
        modelled = lesson.memory_ratio**shared
        changed = _memory(changed, modelled, sqrt(1 - shared**2))
        told.append(_told("memory", lesson, lesson.memory_ratio, shared, steps))
    if lesson.speed_ratio is not None:
        shared = correlation("time", steps)
        changed = _speed(changed, lesson.speed_ratio**shared, sqrt(1 - shared**2))
        told.append(_told("speed", lesson, lesson.speed_ratio, shared, steps))
    used = changed.provenance
    return replace(changed, provenance=replace(used, measured=tuple(told), modelled_ratio=modelled))


def explore_from(
    lesson: Lesson, model: Model, load: Training, cluster: Cluster, software: Iterable[TrainingWays], fixed: Fixed
) -> Explored:
    """Walk the training space as a measured run lets one expect it.

    The search looks at devices so much larger that nothing is missed which fits once it is corrected; then each way is
    estimated on the real ones, corrected, and kept where it fits.
    """
    from tonnage.estimate.compose_training import estimate_training  # noqa: PLC0415  serving does without
    from tonnage.search.training import explore_training  # noqa: PLC0415

    larger = max(1.0, 1.0 / (lesson.memory_ratio or 1.0))
    devices = tuple(replace(d, memory_bytes=int(d.memory_bytes * larger)) for d in cluster.node.devices)
    wide = replace(cluster, node=replace(cluster.node, devices=devices))
    found = explore_training(model, load, wide, software, fixed)
    looked = [
        corrected(estimate_training(replace(one.candidate, cluster=cluster)), lesson)
        for one in (*found.kept, *found.short)
    ]
    kept = tuple(one for one in looked if one.footprint.fits)
    short = tuple(one for one in looked if not one.footprint.fits)
    return replace(found, kept=kept, short=short)


def _told(name: str, lesson: Lesson, ratio: float, shared: float, steps: float) -> str:
    run = lesson.run
    is_memory = name == "memory"
    measured, predicted = (
        (format_bytes(run.memory_bytes or 0.0), format_bytes(lesson.predicted_bytes or 0.0))
        if is_memory
        else (format_seconds(run.step_seconds or 0.0), format_seconds(lesson.predicted_seconds or 0.0))
    )
    return say(
        f"plan.from_{name}",
        path=run.where,
        measured=measured,
        predicted=predicted,
        ratio=f"{ratio:.2f}",
        taken=f"{ratio**shared:.2f}",
        steps=f"{steps:.1f}",
    )


def _memory(estimate: Estimate, ratio: float, narrowed: float) -> Estimate:
    from tonnage.estimate.compose_training.solve import COUNTED  # noqa: PLC0415  serving does without

    held = estimate.footprint

    def scaled(pool: Pool) -> Pool:
        is_modelled = not pool.is_on_host and pool.name not in COUNTED
        return replace(
            pool,
            bytes=pool.bytes * (ratio if is_modelled else 1.0),
            relative_error=pool.relative_error * (1.0 if pool.is_on_host else narrowed),
        )

    pools = tuple(scaled(pool) for pool in held.pools)
    total = sum(pool.bytes for pool in pools if not pool.is_on_host)
    over = max(0.0, total - held.capacity_bytes)  # of what is cached: given back before a device runs out
    back = min(over, sum(pool.bytes for pool in pools if pool.name == "fragmentation"))
    pools = tuple(replace(p, bytes=p.bytes - back) if p.name == "fragmentation" else p for p in pools)
    total -= back
    total_bytes = _around(held.total, total, narrowed)
    return replace(estimate, footprint=replace(held, pools=pools, total=total_bytes, least_bytes=None))


def _around(interval: Interval, best: float, narrowed: float) -> Interval:
    """Return the interval moved to another best value, its width in logarithm narrowed."""
    low, high = (log(value / interval.best) * narrowed for value in (interval.low, interval.high))
    return Interval(best=best, low=best * exp(low), high=best * exp(high))


def _speed(estimate: Estimate, ratio: float, narrowed: float) -> Estimate:
    done, step = estimate.performance, estimate.step_time
    rates = ("tokens_per_s", "tokens_per_s_per_gpu", "mfu_ratio", "hfu_ratio")
    times = ("step_seconds", "job_seconds")
    moved = {
        name: _around(interval, interval.best * (ratio if name in rates else 1 / ratio), narrowed)
        for name in (*rates, *times)
        if (interval := getattr(done, name)) is not None
    }
    parts = tuple(replace(part, seconds=part.seconds / ratio) for part in step.parts)
    total = _around(step.total, step.total.best / ratio, narrowed)
    return replace(estimate, performance=replace(done, **moved), step_time=replace(step, parts=parts, total=total))
