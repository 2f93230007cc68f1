"""What a machine's own measurements taught: a small file of evidence, and what later plans on that machine believe.

One quantity is believed as follows. The fitted constant is where belief starts: a normal law of the spread that
`data/calibration/teaching.toml` states. Each observation adds a law with heavy tails (Cauchy's loss) of its own noise.
What is believed is the value at which both together cost least, so that many observations outvote the constant, few
that agree move it almost wholly, and one that is far beyond what is plausible is left aside until another agrees.
Of what one model taught, another model on the same machine takes the share that the shipped measurements show.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Final

from tonnage import __version__, datafiles
from tonnage.engines.taught import Teaching
from tonnage.errors import BadFileError, UnknownNameError
from tonnage.estimate.types import Estimate, Interval
from tonnage.hardware.types import Cluster
from tonnage.messages import say
from tonnage.nouns import noun
from tonnage.plan.codec import Decoder, encode, to_toml
from tonnage.plan.types import Where

__all__ = [
    "HERE",
    "NONE",
    "Lesson",
    "Observation",
    "Profile",
    "Quantity",
    "belief_of",
    "believed",
    "forget",
    "is_believed",
    "learn",
    "lessons_on",
    "quantity",
    "read_profile",
    "teaching_of",
    "unknown_machine",
    "write_profile",
]

FORMAT: Final = 1
LARGEST_BYTES: Final = 4 << 20
HERE: Final = "here"  # the label of the machine that the command runs on
NONE: Final = "none"  # --no-profile
SPEED: Final = "training_speed_ratio"
_TAIL: Final = 2.0  # of its noise, where an observation's cost begins to flatten
_MOST_OBSERVATIONS: Final = 50  # of one quantity; older ones go
_ROUNDS: Final = 60
_MOST_BYTES: Final = 1e15  # no machine has more
_LARGEST_RATIO: Final = 1e9  # of a rate; of training, tokens per second


@noun
class Quantity:
    """A quantity that can be taught, from `data/calibration/teaching.toml`."""

    name: str
    kind: str  # bytes or ratio
    noise: float
    spread: float
    share: float
    narrowed: float
    meaning: str
    evidence: str


@noun
class Observation:
    """One measurement: what was expected by the fitted constants alone, and what was achieved."""

    file: str  # its name without folders
    day: str
    kind: str  # start-up log, llama-bench, …
    model: str
    expected: float
    achieved: float
    noise: float  # of one measurement, in bytes or as a logarithm
    digest: str = ""

    def moved(self, kind: str) -> float:
        """Return how far it lies from what was expected: bytes, or a logarithm."""
        return self.achieved - self.expected if kind == "bytes" else math.log(self.achieved / self.expected)


@noun
class Lesson:
    """The evidence for one quantity of one engine on one machine."""

    machine: str
    gpu: str  # slug of the catalogue
    engine: str
    quantity: str
    num_gpus: int = 1
    host: str = ""  # as it was written after --host
    weights: str = ""  # format, for what depends on a model's weights
    tp: int = 1
    pp: int = 1
    observations: tuple[Observation, ...] = ()

    @property
    def key(self) -> tuple[Any, ...]:
        """Return what tells it from all other lessons."""
        return (self.machine, self.gpu, self.num_gpus, self.engine, self.quantity, self.weights, self.tp, self.pp)


@noun
class Profile:
    """All that was taught."""

    lessons: tuple[Lesson, ...] = ()


@cache
def _quantities() -> Mapping[str, Quantity]:
    table = datafiles.table("calibration/teaching.toml")
    return {name: Quantity(name=name, **values) for name, values in table.items()}


def quantity(name: str) -> Quantity:
    """Return a quantity that can be taught."""
    return _quantities()[name]


def believed(moves: Sequence[float], noises: Sequence[float], spread: float) -> tuple[float, float]:
    """Return what is believed of observations, and its spread; 0 is the constant that was fitted before.

    Parameters
    ----------
    moves : sequence of float
        How far each observation lies from what was expected, in bytes or as a logarithm.
    noises : sequence of float
        What each scatters by, in the same unit.
    spread : float
        How far the machine may plausibly lie from the fitted constant.

    Returns
    -------
    tuple of float
        The value at which (x / spread)² + Σ c² log(1 + ((x - move) / noise)² / c²) is least, and the standard
        deviation there.

    References
    ----------
    .. [1] Maximum a posteriori with Cauchy's loss, by iteratively reweighted means: P. W. Holland, R. E. Welsch,
       "Robust regression using iteratively reweighted least squares", 1977.

    Examples
    --------
    >>> round(believed([0.1], [0.01], 0.15)[0], 3)
    0.1
    >>> round(believed([9.0], [0.01], 0.15)[0], 3)
    0.0
    """
    seen = sorted(zip(moves, noises, strict=True))

    def cost(x: float) -> float:
        return (x / spread) ** 2 + sum(_TAIL**2 * math.log1p(((x - move) / noise / _TAIL) ** 2) for move, noise in seen)

    def weights(x: float) -> list[float]:
        return [1 / (1 + ((x - move) / noise / _TAIL) ** 2) / noise**2 for move, noise in seen]

    def settle(x: float) -> float:
        for _ in range(_ROUNDS):
            given = weights(x)
            x = sum(w * move for w, (move, _) in zip(given, seen, strict=True)) / (1 / spread**2 + sum(given))
        return x

    best = min((settle(start) for start in (0.0, *(move for move, _ in seen))), key=cost)
    return best, (1 / spread**2 + sum(weights(best))) ** -0.5


def _belief(lesson: Lesson, model: str) -> tuple[float, float]:
    """Return what is believed of a quantity for a model: bytes or a logarithm, and which part of its width is gone."""
    about = quantity(lesson.quantity)
    counted = _counted(lesson)
    own = [one for one in counted if one.model == model]
    used = own or [one for one in counted if about.share]
    if not used:
        return 0.0, 0.0
    share = 1.0 if own else about.share
    value, rest = believed([one.moved(about.kind) for one in used], [one.noise for one in used], about.spread)
    return share * value, share * (1 - (rest / about.spread) ** 2)


def belief_of(lesson: Lesson, model: str) -> float:
    """Return what is believed of a quantity for a model: bytes to add, or a factor."""
    value, _ = _belief(lesson, model)
    return value if quantity(lesson.quantity).kind == "bytes" else math.exp(value)


def is_believed(lesson: Lesson, one: Observation) -> bool:
    """Whether an observation counts among the others: one that is far off alone does not."""
    return one in _counted(lesson)


def _counted(lesson: Lesson) -> tuple[Observation, ...]:
    """Return the observations that agree with what is believed of their model; the others have no weight."""
    about = quantity(lesson.quantity)
    counted: list[Observation] = []
    for model in dict.fromkeys(one.model for one in lesson.observations):
        peers = [one for one in lesson.observations if one.model == model]
        value, _ = believed([one.moved(about.kind) for one in peers], [one.noise for one in peers], about.spread)
        counted += (one for one in peers if abs(value - one.moved(about.kind)) < 5 * one.noise + 0.05 * about.spread)
    return tuple(counted)


def lessons_on(profile: Profile, where: Where, cluster: Cluster, *, of_training: bool = False) -> tuple[Lesson, ...]:
    """Return the lessons of the machine that is asked for: this one, the one named, or the same card in the same host.

    Those on training are apart from those on serving, as some software does both.
    """
    if where.profile == NONE or not cluster.node.devices or cluster.num_nodes > 1:
        return ()
    slug, number = cluster.node.devices[0].slug, len(cluster.node.devices)

    def is_there(lesson: Lesson) -> bool:
        if lesson.gpu != slug or lesson.num_gpus != number or (lesson.quantity == SPEED) != of_training:
            return False
        if where.profile:
            return lesson.machine == where.profile
        is_same_host = where.host is not None and bool(lesson.host) and _plain(where.host) == _plain(lesson.host)
        return (where.is_here and lesson.machine == HERE) or is_same_host

    return tuple(lesson for lesson in profile.lessons if is_there(lesson))


def _plain(text: str) -> str:
    return "".join(text.lower().split())


def teaching_of(lessons: Iterable[Lesson], engine: str, model: str) -> Teaching:
    """Return what lessons of one machine make of an engine for a model."""
    amounts: dict[str, float] = {}
    by_format: dict[tuple[str, str, int, int], float] = {}
    widths: dict[str, float] = {}
    counted: list[Lesson] = []
    for lesson in lessons:
        if lesson.engine != engine or lesson.quantity not in _quantities():
            continue
        about = quantity(lesson.quantity)
        value, gone = _belief(lesson, model)
        if not gone:
            continue
        counted.append(replace(lesson, observations=_counted(lesson)))
        if lesson.weights:
            by_format[lesson.quantity, lesson.weights, lesson.tp, lesson.pp] = value
            continue
        amounts[lesson.quantity] = value if about.kind == "bytes" else math.exp(value)
        widths[lesson.quantity] = 1 - (1 - about.narrowed) * gone
    return Teaching(amounts=amounts, by_format=by_format, widths=widths, said=_said(counted))


def trained_as_taught(estimate: Estimate, teaching: Teaching) -> Estimate:
    """Return an estimate of training at the speed that this machine's own runs reached, its intervals narrowed."""
    factor = teaching.amounts.get(SPEED, 1.0)
    width = teaching.widths.get(SPEED, 1.0)
    found, about = estimate.performance, estimate.provenance
    rates = {
        name: _scaled(getattr(found, name), width, factor)
        for name in ("tokens_per_s", "tokens_per_s_per_gpu", "mfu_ratio", "hfu_ratio")
    }
    times = {name: _scaled(getattr(found, name), width, 1 / factor) for name in ("step_seconds", "job_seconds")}
    step = estimate.step_time
    parts = tuple(replace(part, seconds=part.seconds / factor) for part in step.parts)
    total = _scaled(step.total, width, 1 / factor)
    return replace(
        estimate,
        step_time=replace(step, parts=parts, total=total),
        performance=replace(found, **rates, **times),
        provenance=replace(about, assumptions=(*about.assumptions, *teaching.said)),
    )


def _scaled(interval: Interval | None, width: float, factor: float) -> Interval | None:
    if interval is None:
        return None
    best = interval.best
    low, high = (best + (end - best) * width for end in (interval.low, interval.high))
    return Interval(best=best * factor, low=low * factor, high=high * factor)


def _said(lessons: Sequence[Lesson]) -> tuple[str, ...]:
    if not lessons:
        return ()
    days = sorted({one.day for lesson in lessons for one in lesson.observations})
    files = {(one.file, one.digest) for lesson in lessons for one in lesson.observations}
    names = " + ".join(dict.fromkeys(say(f"profile.{lesson.quantity}") for lesson in lessons))
    machine = lessons[0].machine
    return (say("profile.used", machine=machine, quantities=names, num=len(files), day=days[-1]),)


def unknown_machine(profile: Profile, name: str) -> UnknownNameError:
    """Return the error for a machine that was never measured, to be raised."""
    known = sorted({lesson.machine for lesson in profile.lessons})
    fix = f"known: {', '.join(known)}" if known else "teach one with tonnage calibrate LOG… --profile NAME"
    return UnknownNameError(f"no machine '{name[:40]}' was measured", where="--profile", fix=fix)


def learn(profile: Profile, lessons: Iterable[Lesson]) -> Profile:
    """Return a profile with more evidence; the same file again takes the place of its earlier reading."""
    held = {lesson.key: lesson for lesson in profile.lessons}
    for new in lessons:
        before = held[new.key].observations if new.key in held else ()
        fresh = {(one.file, one.digest, one.model) for one in new.observations}
        kept = tuple(one for one in before if (one.file, one.digest, one.model) not in fresh)
        held[new.key] = replace(new, observations=(*kept, *new.observations)[-_MOST_OBSERVATIONS:])
    return Profile(lessons=tuple(held[key] for key in sorted(held, key=str)))


def forget(profile: Profile, numbers: Sequence[int] = (), machine: str = "") -> Profile:
    """Return a profile without some lessons, counted from 1 as `profile show` lists them, or without a machine.

    Raises
    ------
    UnknownNameError
        No lesson of that number, no machine of that name.
    """
    if machine:
        if all(lesson.machine != machine for lesson in profile.lessons):
            raise unknown_machine(profile, machine)
        return Profile(lessons=tuple(lesson for lesson in profile.lessons if lesson.machine != machine))
    for number in numbers:
        if not 0 < number <= len(profile.lessons):
            fix = f"there are {len(profile.lessons)}: see tonnage calibrate profile show"
            raise UnknownNameError(f"no lesson has the number {number}", where="forget", fix=fix)
    return Profile(lessons=tuple(one for i, one in enumerate(profile.lessons, 1) if numbers and i not in numbers))


def write_profile(profile: Profile) -> str:
    """Return a profile as the text of its file."""
    head = "# What this machine's own measurements taught tonnage: `tonnage calibrate profile show` reads it, `… forget` undoes it."
    lines = [head, to_toml({"format": FORMAT, "written_by": f"tonnage {__version__}"})]
    for lesson in profile.lessons:
        table = encode(lesson)
        observations = table.pop("observations", [])
        lines += ["", "[[lessons]]", to_toml(table)]
        for one in observations:
            lines += ["", "[[lessons.observations]]", to_toml(one)]
    return "\n".join(line.rstrip("\n") for line in lines) + "\n"


def read_profile(text: str, where: str) -> Profile:
    """Return the profile that a file holds.

    Raises
    ------
    BadFileError
        Not TOML, no profile, one of a later format, or a value that none can hold.
    """
    fix = "mend it, remove it, or plan with --no-profile"
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise BadFileError(f"not a TOML file: {error}", where=where, fix=fix) from None
    version = table.pop("format", None)
    if type(version) is not int or table.pop("written_by", None) is None:
        raise BadFileError("not a profile of a machine", where=where, fix=fix)
    if version > FORMAT:
        raise BadFileError(f"format {version} is newer than this tonnage knows ({FORMAT})", where=where, fix=fix)
    try:
        profile = Decoder(where).read(Profile, table, "profile")
    except BadFileError as error:
        raise BadFileError(error.what, where=error.where, fix=fix) from None
    for number, lesson in enumerate(profile.lessons, 1):
        _check(lesson, f"{where}: lesson {number}", fix)
    return profile


def _check(lesson: Lesson, where: str, fix: str) -> None:
    about = _quantities().get(lesson.quantity)
    if about is None:
        raise BadFileError(f"'{lesson.quantity[:40]}' is no quantity", where=where, fix=fix)
    for one in lesson.observations:
        most, least_noise = (_MOST_BYTES, 1.0) if about.kind == "bytes" else (_LARGEST_RATIO, 1 / _LARGEST_RATIO)
        is_sound = all(abs(x) <= most for x in (one.expected, one.achieved)) and least_noise <= one.noise <= most
        if not is_sound or (about.kind == "ratio" and min(one.expected, one.achieved) < 1 / _LARGEST_RATIO):
            raise BadFileError("holds a figure that nobody can measure", where=where, fix=fix)
