"""A request with its names resolved, what can be found for it, and the words for what was found."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tonnage.engines import ENGINES
from tonnage.engines.types import Engine
from tonnage.errors import RequestError, UnknownNameError
from tonnage.estimate.types import Estimate
from tonnage.estimate.weights import find_format
from tonnage.hardware.currency import in_usd, reference_rates
from tonnage.hardware.types import Cluster
from tonnage.messages import knows, say
from tonnage.model.types import Model
from tonnage.nouns import noun
from tonnage.plan.pins import settle, with_pins
from tonnage.plan.types import Limits, Money, Request, Scalar
from tonnage.search.constraints import lacks, power_watts
from tonnage.search.explore import Explored, Fixed, RuledOut, explore_serving
from tonnage.search.training_space import TrainingWays, training_ways
from tonnage.units import format_seconds
from tonnage.workload.types import Serving

if TYPE_CHECKING:
    from tonnage.plan.measured import Lesson
    from tonnage.plan.profile import Profile

Price = Callable[[Estimate], Estimate]
# An assumption, said in the answer and set by --tpot: slower than this nobody reads along (about 240 words a minute,
# M. Brysbaert, "How many words do we read per minute?", J. Mem. Lang. 109, 2019, are some 5 tokens a second).
SLOWEST_TPOT_SECONDS: Final = 0.25


@noun
class Scene:
    """A request with its names resolved: the model, the cluster, and the engines that may be used."""

    request: Request
    model: Model
    cluster: Cluster
    engines: tuple[Engine, ...]
    software: tuple[TrainingWays, ...]
    fixed: Fixed
    profile: Profile | None = None
    lesson: Lesson | None = None  # of a measured training run
    barred: tuple[RuledOut, ...] = ()  # engines that the machines' driver does not start


def set_scene(
    request: Request,
    model: Model,
    cluster: Cluster,
    profile: Profile | None = None,
    lesson: Lesson | None = None,
) -> Scene:
    """Resolve the engines and pins of a request; engines that the machine taught take its own constants.

    Raises
    ------
    UnknownNameError
        An engine that is none, or none for this goal.
    """
    wanted = tuple(_plain(name) for name in request.limits.engines)
    is_serving = isinstance(request.workload, Serving)
    engines = tuple(e for e in ENGINES if not wanted or _plain(e.name) in wanted) if is_serving else ()
    software = () if is_serving else tuple(w for w in training_ways() if not wanted or _plain(w.name) in wanted)
    known = [e.name for e in ENGINES] if is_serving else [w.name for w in training_ways()]
    for name in request.limits.engines:
        if _plain(name) not in {_plain(one) for one in known}:
            fix = f"known for this goal: {', '.join(known)}"
            raise UnknownNameError(f"'{name[:40]}' is not an engine", where="--engine", fix=fix)
    pins = _with_known_formats(settle(request.pins, model.num_layers), is_serving=is_serving)
    fixed = Fixed(paths=frozenset(pins), apply=lambda candidate: with_pins(candidate, pins), values=pins)
    engines, software, barred = _started_by(cluster, engines, software)
    if profile is not None and profile.lessons:
        engines = _taught(engines, request, model, cluster, profile)
    return Scene(
        request=request,
        model=model,
        cluster=cluster,
        engines=engines,
        software=software,
        fixed=fixed,
        profile=profile,
        lesson=lesson,
        barred=barred,
    )


def _started_by(
    cluster: Cluster, engines: tuple[Engine, ...], software: tuple[TrainingWays, ...]
) -> tuple[tuple[Engine, ...], tuple[TrainingWays, ...], tuple[RuledOut, ...]]:
    """Return the engines and software that the machines' driver starts, and why not the others."""
    driver = cluster.node.driver
    if not driver:
        return engines, software, ()
    from tonnage.engines.drivers import why_card_cannot, why_engine_cannot  # noqa: PLC0415  few know their driver

    reasons = [why for device in cluster.node.devices if (why := why_card_cannot(device, driver))]
    if reasons:
        return (), (), (RuledOut(engine="", weights="", reason=reasons[0]),)
    first = cluster.node.devices[0]
    why = {e.name: why_engine_cannot(e.name, e.traits.title, e.traits.version, first, driver) for e in engines}
    barred = tuple(RuledOut(engine=name, weights="", reason=text) for name, text in why.items() if text)
    return tuple(e for e in engines if not why[e.name]), software, barred


def _taught(
    engines: tuple[Engine, ...], request: Request, model: Model, cluster: Cluster, profile: Profile
) -> tuple[Engine, ...]:
    from tonnage.engines.taught import taught  # noqa: PLC0415  few have a profile
    from tonnage.plan.profile import lessons_on, teaching_of  # noqa: PLC0415

    lessons = lessons_on(profile, request.where, cluster)
    return tuple(taught(e, teaching_of(lessons, e.name, model.name)) for e in engines) if lessons else engines


_NOT_WORD: Final = re.compile(r"\W", re.ASCII)
_TRAINED_FORMATS: Final = ("bf16", "fp16", "fp32", "nf4", "nf4_dq", "int8", "awq", "gptq_int4", "gptq_int8")
_TRAINED_NAMES: Final = {"nf4_double": "nf4_dq", **{name: name for name in _TRAINED_FORMATS}}


def _with_known_formats(pins: dict[str, Scalar], *, is_serving: bool) -> dict[str, Scalar]:
    """Return the pins with the format of the weights by its own name; one that nothing trains is refused."""
    weights = pins.get("precision.weights")
    if weights is None or str(weights) in _TRAINED_FORMATS:
        return pins
    name = find_format(str(weights)).name if is_serving else _TRAINED_NAMES.get(find_format(str(weights)).name, "")
    if not name:
        fix = f"one of {', '.join(_TRAINED_FORMATS)}"
        raise RequestError(f"{weights} weights are not trained", where="--quant", fix=fix)
    return {**pins, "precision.weights": name}


def _plain(name: str) -> str:
    return name.strip().lower().replace("_", "-").replace(".", "-")


def explore(scene: Scene) -> Explored:
    """Walk the space of a scene."""
    found = _walk(scene)
    return found + Explored(ruled_out=scene.barred, num_candidates=len(scene.barred)) if scene.barred else found


def _walk(scene: Scene) -> Explored:
    load = scene.request.workload
    missing = [r for d in scene.cluster.node.devices if (r := lacks(d, scene.request.limits.require))]
    if missing:
        return Explored(ruled_out=(RuledOut(engine="", weights="", reason=missing[0]),), num_candidates=1)
    if isinstance(load, Serving):
        return explore_serving(scene.model, load, scene.cluster, scene.engines, scene.fixed)
    from tonnage.search.training import explore_training  # noqa: PLC0415  serving does without its columns

    if scene.lesson is not None:  # a run that is named counts before what the machine was taught
        from tonnage.plan.measured import explore_from  # noqa: PLC0415  few plan from a run

        return explore_from(scene.lesson, scene.model, load, scene.cluster, scene.software, scene.fixed)
    explored = explore_training(scene.model, load, scene.cluster, scene.software, scene.fixed)
    return explored if scene.profile is None else _as_taught(scene, scene.profile, explored)


def _as_taught(scene: Scene, profile: Profile, explored: Explored) -> Explored:
    """Return ways to train, each at the speed that this machine's own runs reached with its software."""
    from tonnage.plan.profile import lessons_on, teaching_of, trained_as_taught  # noqa: PLC0415  few have a profile

    lessons = lessons_on(profile, scene.request.where, scene.cluster, of_training=True)
    taught = {ways.name: teaching_of(lessons, ways.name, scene.model.name) for ways in scene.software}

    def one(estimate: Estimate) -> Estimate:
        teaching = taught.get(estimate.candidate.engine)
        return estimate if teaching is None or teaching.is_empty else trained_as_taught(estimate, teaching)

    return replace(explored, kept=tuple(map(one, explored.kept)), short=tuple(map(one, explored.short)))


def objective(request: Request) -> str:
    """Return what a request is ranked by: what it says, else what its intent, its load and its hardware ask for.

    An experiment wants the least money for the hardware; a long training to be done early, on hardware that is to be
    found the least money for the job; a batch many tokens, on hardware that is to be found cheap ones; serving the
    speed of one request, or the rate of many. Where hardware is to be found, a rate has its price.
    """
    limits, is_open = request.limits, request.where.is_open
    if limits.objective is not None:
        return limits.objective
    if limits.intent in ("train", "batch"):
        return "cost" if is_open else "time" if limits.intent == "train" else "throughput"
    if is_open or limits.intent == "experiment":
        return "value"
    is_one = isinstance(request.workload, Serving) and request.workload.concurrency == 1
    return "speed" if is_one else "throughput"


def where_it_lives(estimate: Estimate) -> str:
    """Say where the model of an estimate lives."""
    offload, layers = estimate.candidate.offload, estimate.candidate.model.num_layers
    if offload.parameters_nvme:
        return say("plan.place_parameters_nvme" if offload.optimizer_nvme else "plan.place_weights_nvme")
    if offload.optimizer_nvme:
        return say("plan.place_optimizer_nvme_weights" if offload.parameters else "plan.place_optimizer_nvme")
    if offload.parameters:
        return say("plan.place_parameters" if offload.optimizer else "plan.place_weights")
    if offload.optimizer:
        return say("plan.place_optimizer")
    if offload.num_cpu_layers:
        return say("plan.place_layers", num=offload.num_cpu_layers, all=layers)
    if offload.experts_nvme:
        return say("plan.place_experts_nvme", num=offload.num_cpu_expert_layers, all=layers)
    if offload.num_cpu_expert_layers:
        return say("plan.place_experts", num=offload.num_cpu_expert_layers, all=layers)
    if offload.activations:
        return say("plan.place_activations")
    return say("plan.place_gpus" if estimate.candidate.layout.num_devices > 1 else "plan.place_gpu")


def price_is_open(estimate: Estimate, limits: Limits) -> bool:
    """Whether a limit of money is set and what it bounds is not known, or spot machines are asked for and none offered."""
    cost = estimate.cost
    if limits.is_spot and cost.usd_per_hour is None:
        return True
    asked = ((limits.budget, cost.purchase_usd), (limits.rent, cost.usd_per_hour), (limits.spend, cost.usd_total))
    return any(limit is not None and figure is None for limit, figure in asked)


def broken_limit(estimate: Estimate, limits: Limits) -> str | None:
    """Return which limit an estimate breaks at its best figure, or None. What is not known breaks nothing."""
    load, performance = estimate.candidate.workload, estimate.performance
    if isinstance(load, Serving):
        for name, figure, limit in (
            ("ttft", performance.ttft_seconds, load.ttft_limit_seconds),
            ("tpot", performance.tpot_seconds, slowest_tpot_seconds(load, limits)),
        ):
            if figure is not None and limit is not None and figure.best > limit:
                return say(f"plan.too_slow_{name}", value=format_seconds(figure.best), limit=format_seconds(limit))
    spot, deadline = estimate.cost.spot, limits.deadline_seconds
    job = spot.wall_seconds if limits.is_spot and spot is not None else performance.job_seconds
    if job is not None and deadline is not None and job.best > deadline:
        return say("plan.too_late", value=format_seconds(job.best), limit=format_seconds(deadline))
    watts, most = power_watts(estimate.candidate.cluster), limits.max_power_watts
    if most is not None and watts is not None and watts > most:
        return say("plan.too_hot", value=f"{watts:.0f} W", limit=f"{most:.0f} W")
    return _too_dear(estimate, limits)


def slowest_tpot_seconds(load: Serving, limits: Limits) -> float | None:
    """Return the limit on a token's time: the person's, else reading speed; none for offline batches."""
    if load.tpot_limit_seconds is None and limits.intent != "batch":
        return SLOWEST_TPOT_SECONDS
    return load.tpot_limit_seconds


def _too_dear(estimate: Estimate, limits: Limits) -> str | None:
    cost = estimate.cost
    for flag, figure, limit in (
        ("--budget", cost.purchase_usd, limits.budget),
        ("--rent", cost.usd_per_hour, limits.rent),
        ("--spend", cost.usd_total, limits.spend),
    ):
        if figure is not None and limit is not None and figure.best > dollars(limit, flag):
            amount = figure.best * limit.amount / dollars(limit, flag)
            hour = "/h" if flag == "--rent" else ""
            value = f"{amount:,.{0 if amount >= 1000 else 2}f} {limit.currency}{hour}"
            if flag == "--rent" and cost.num_rented is not None:
                value = say("plan.of_larger", value=value, num=cost.num_rented)
            asked = f"{limit.amount:,.15g} {limit.currency}{hour}"
            return say("plan.too_dear", value=value, limit=asked, flag=flag)
    return None


def dollars(money: Money, flag: str) -> float:
    """Return an amount in dollars: at the rate it was settled at, else at the reference rate."""
    return money.usd if money.usd is not None else in_usd(money.amount, money.currency, reference_rates(), flag)


def share_label(kind: str, name: str) -> str:
    """Return what a share is called in the language in use; a plan from elsewhere may have shares without a word."""
    known = f"share.{kind}_{_NOT_WORD.sub('_', name)}"
    return say(known) if knows(known) else name.replace("_", " ")
