"""The proof to run: the numbers of a plan that the decision hangs on and that are least certain, and the shortest run.

A number's weight in the decision is the chance that its true value turns the answer: that memory does not suffice, a
limit is broken, or the next best plan is better. Intervals hold 80 %, and are taken as log-normal.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from tonnage.estimate.compose_training import estimate_training
from tonnage.estimate.cost.assumptions import with_given
from tonnage.estimate.types import Candidate, Estimate, Interval, Layout
from tonnage.estimate.weights import checkpoint_format
from tonnage.messages import say
from tonnage.model.types import Model
from tonnage.nouns import noun
from tonnage.plan.choose import pinned
from tonnage.plan.coin import Coin, both, coin_of
from tonnage.plan.request import command
from tonnage.plan.scene import dollars, objective, slowest_tpot_seconds
from tonnage.plan.types import Answer, Limits, Plan, Request
from tonnage.search import rank
from tonnage.units import GIB, format_bytes, format_seconds
from tonnage.workload.types import Serving, Training

MOST_DOUBTS: Final = 3
_FEWEST_DOUBTS: Final = 2
_SPREADS: Final = 2 * 1.2815515655446004  # standard deviations that an 80 % interval is wide
_SHARED: Final = 0.75  # of their errors two plans of one engine on one card have in common, as `calibrate.fit` counts
_LEAST_CHANCE: Final = 0.005
_NUM_WARM_UP: Final = 2  # first steps allocate and compile
_NUM_TIMED: Final = 10
_NUM_REQUESTS: Final = 3
_FEWEST_LAYERS: Final = 4
_DUMMY: Final = ("vllm", "sglang")  # engines that start with random weights: --load-format dummy


@noun
class Doubt:
    """One number that is not certain, and the chance that it turns the answer."""

    name: str  # device, host, speed, ttft, tpot, deadline, budget, rent, spend
    value: Interval
    unit: str  # B, token/s, s or USD
    chance: float
    text: str
    is_settled: bool = True  # by the run; a price is settled by an offer


@noun
class Trial:
    """The shortest run: what is started, on what, how long it takes and what it costs."""

    num_devices: int
    num_nodes: int
    num_layers: int
    num_steps: int | None  # of training
    num_requests: int | None  # of serving
    num_warm_up: int = _NUM_WARM_UP  # steps that are not timed
    seconds: Interval
    usd: Interval | None  # None: nobody on record rents these machines
    commands: tuple[str, ...]
    notes: tuple[str, ...] = ()
    expected: Estimate  # what the run should show


@noun
class Proof:
    """What is least certain of a plan, and how it is settled."""

    plan: Plan
    doubts: tuple[Doubt, ...]
    trial: Trial


def proof(answer: Answer, pick: int = 1) -> Proof:
    """Return the numbers that decide about a plan and are least certain, and the shortest run that settles them.

    Parameters
    ----------
    answer : Answer
        With `pick` plans or more.
    pick : int
        Rank of the plan. [1]

    Returns
    -------
    Proof
        Two or three numbers, the one that most likely turns the answer first.
    """
    plan = answer.plans[pick - 1]
    found = sorted(_doubts(answer, plan), key=lambda doubt: (-round(doubt.chance, 3), -_sigma(doubt.value)))
    likely = [doubt for doubt in found if doubt.chance >= _LEAST_CHANCE]
    doubts = tuple((likely if len(likely) >= _FEWEST_DOUBTS else found[:_FEWEST_DOUBTS])[:MOST_DOUBTS])
    is_serving = isinstance(plan.estimate.candidate.workload, Serving)
    return Proof(plan=plan, doubts=doubts, trial=_served(plan) if is_serving else _trained(plan, doubts))


# -- what is not certain -----------------------------------------------------------------------------------------


def _sigma(interval: Interval) -> float:
    """Return the standard deviation of a value's logarithm."""
    if interval.low <= 0 or interval.high <= interval.low:
        return 0.0
    return math.log(interval.high / interval.low) / _SPREADS


def chance_above(value: Interval, limit: float) -> float:
    """Return the chance that a value is more than a limit.

    >>> round(chance_above(Interval(best=10.0, low=8.0, high=12.5), 12.5), 2)
    0.1
    >>> chance_above(Interval.exact(3.0), 2.0)
    1.0
    """
    sigma = _sigma(value)
    if not sigma or limit <= 0:
        return float(value.best > limit)
    return _normal(math.log(value.best / limit) / sigma)


def _normal(z: float) -> float:
    return 0.5 * (1.0 + math.erf(z / math.sqrt(2.0)))


def _doubts(answer: Answer, plan: Plan) -> Iterator[Doubt]:
    """Yield every number of a plan that is not certain, with the chance that it turns the answer."""
    estimate, limits = plan.estimate, answer.request.limits
    held = estimate.footprint
    yield _limit("device", held.total, "B", held.capacity_bytes)
    if held.host_total.best > GIB:
        yield _limit("host", held.host_total, "B", held.host_capacity_bytes)
    yield from _of_speed(answer, plan)
    yield from _of_limits(estimate, limits)


def _limit(
    name: str, value: Interval, unit: str, limit: float, *, coin: Coin | None = None, is_settled: bool = True
) -> Doubt:
    chance = chance_above(value, limit)
    if coin is not None:
        best, low, high, most = (both(v, coin) for v in (value.best, value.low, value.high, limit))
        written = f"{best} [{low} – {high}]"
    else:
        written, most = spread(value, unit), amount(limit, unit)
    text = say(f"proof.over_{name}", value=written, limit=most, percent=_percent(chance))
    return Doubt(name=name, value=value, unit=unit, chance=chance, text=text, is_settled=is_settled)


def _of_limits(estimate: Estimate, limits: Limits) -> Iterator[Doubt]:
    load, performance, cost = estimate.candidate.workload, estimate.performance, estimate.cost
    pairs: list[tuple[str, Interval | None, float | None, str]] = []
    if isinstance(load, Serving):
        pairs.append(("ttft", performance.ttft_seconds, load.ttft_limit_seconds, "s"))
        pairs.append(("tpot", performance.tpot_seconds, slowest_tpot_seconds(load, limits), "s"))
    job = performance.job_seconds
    if limits.is_spot and cost.spot is not None:
        job = cost.spot.wall_seconds
    pairs.append(("deadline", job, limits.deadline_seconds, "s"))
    for name, figure, money in (
        ("budget", cost.purchase_usd, limits.budget),
        ("rent", cost.usd_per_hour, limits.rent),
        ("spend", cost.usd_total, limits.spend),
    ):
        pairs.append((name, figure, None if money is None else dollars(money, f"--{name}"), "USD"))
    for name, value, limit, unit in pairs:
        if value is not None and limit:
            coin = coin_of(limits) if unit == "USD" else None
            yield _limit(name, value, unit, limit, coin=coin, is_settled=name not in ("budget", "rent"))


def _of_speed(answer: Answer, plan: Plan) -> Iterator[Doubt]:
    """Yield the speed, with the chance that another plan of the same standing is better at what is wanted."""
    rate = plan.estimate.performance.tokens_per_s
    if rate is None:
        return
    wanted = _objective(answer.request)
    chances = [
        (_chance_better(other.estimate, plan.estimate, wanted), other)
        for other in answer.plans
        if other is not plan and _standing(other.estimate) == _standing(plan.estimate)
    ]
    chance, rival = max(chances, key=lambda pair: pair[0], default=(0.0, None))
    value = spread(rate, "token/s")
    text = (
        say("proof.speed", value=value)
        if rival is None
        else say("proof.speed_rival", value=value, rank=rival.rank, percent=_percent(chance))
    )
    yield Doubt(name="speed", value=rate, unit="token/s", chance=chance, text=text)


def _objective(request: Request) -> str:
    if request.where.is_open:
        from tonnage.plan.browse import wanted  # noqa: PLC0415  only without hardware

        return wanted(request)
    return objective(request)


def _standing(estimate: Estimate) -> tuple[bool, bool]:
    return estimate.footprint.fits_surely, rank.has_few_bits(estimate)


def _chance_better(other: Estimate, mine: Estimate, wanted: str) -> float:
    """Return the chance that another plan is better: both speeds are uncertain, partly for the same reasons."""
    figures = [rank.objective_of(one, wanted) for one in (other, mine)]
    if not all(0 < figure < math.inf for figure in figures):
        return 0.0
    variance = sum(_variance(one, wanted) for one in (other, mine))
    first = (mine.candidate, other.candidate)
    if len({(c.engine, c.cluster.node.devices[0].slug) for c in first}) == 1:
        variance *= 1 - _SHARED
    return _normal(math.log(figures[1] / figures[0]) / math.sqrt(variance)) if variance else 0.0


def _variance(estimate: Estimate, wanted: str) -> float:
    rate, price = estimate.performance.tokens_per_s, estimate.cost.purchase_usd
    of_rate = 0.0 if rate is None else _sigma(rate) ** 2
    return of_rate + (_sigma(price) ** 2 if wanted in ("value", "cost", "price") and price is not None else 0.0)


# -- the run -----------------------------------------------------------------------------------------------------


def _start(plan: Plan) -> Interval:
    return with_given(plan.request.limits.assume).value("restart")


def _usd(plan: Plan, num_devices: int, seconds: Interval) -> Interval | None:
    """Return what renting a part of a plan's devices costs for a time."""
    hour = plan.estimate.cost.usd_per_hour
    if hour is None:
        return None
    part = num_devices / plan.estimate.candidate.cluster.num_devices / 3600.0
    best, low, high = (getattr(hour, name) * getattr(seconds, name) * part for name in ("best", "low", "high"))
    return Interval(best=best, low=low, high=high)


def _served(plan: Plan) -> Trial:
    """Return a start of the engine and a few requests: memory shows at the start, speed with the requests."""
    from tonnage.plan.report import launch_words  # noqa: PLC0415  which takes engines in

    estimate, candidate = plan.estimate, plan.estimate.candidate
    load, performance = candidate.workload, estimate.performance
    assert isinstance(load, Serving)
    words = launch_words(estimate) or []
    notes: list[str] = []
    if candidate.engine in _DUMMY and candidate.precision.weights == checkpoint_format(candidate.model):
        words = [*words, "--load-format", "dummy"]
        notes.append(say("proof.dummy"))
    each = [
        0.0 if first is None or token is None else getattr(first, name) + load.output_tokens * getattr(token, name)
        for first, token in [(performance.ttft_seconds, performance.tpot_seconds)]
        for name in ("best", "low", "high")
    ]
    start = _start(plan)
    best, low, high = (s + _NUM_REQUESTS * e for s, e in zip((start.best, start.low, start.high), each, strict=True))
    seconds = Interval(best=best, low=low, high=high)
    cluster = candidate.cluster
    return Trial(
        num_devices=cluster.num_devices,
        num_nodes=cluster.num_nodes,
        num_layers=candidate.model.num_layers,
        num_steps=None,
        num_requests=_NUM_REQUESTS * load.concurrency,
        seconds=seconds,
        usd=_usd(plan, cluster.num_devices, seconds),
        commands=(_join(words), "tonnage calibrate engine.log --plan plan.toml"),
        notes=tuple(notes),
        expected=estimate,
    )


def _join(words: Sequence[str]) -> str:
    import shlex  # noqa: PLC0415

    return f"{shlex.join(words)} 2>&1 | tee engine.log"


def _trained(plan: Plan, doubts: Sequence[Doubt]) -> Trial:
    """Return a few steps of as few micro-batches as hold what the whole step holds, of a part of the model where nodes are many."""
    candidate = plan.estimate.candidate
    wants_speed = any(doubt.name != "device" for doubt in doubts)
    num_steps = _NUM_WARM_UP + (_NUM_TIMED if wants_speed else 0)
    small = _of_one_stage(candidate) if candidate.cluster.num_nodes > 1 else None
    notes: list[str] = []
    if small is not None:
        notes.append(say("proof.one_stage", nodes=small.cluster.num_nodes, layers=small.model.num_layers,
                         all=candidate.model.num_layers))  # fmt: skip
        notes.append(say("proof.left"))
    small = small or _with_fewest_micro_batches(candidate)
    load = small.workload
    assert isinstance(load, Training)
    if load != replace(candidate.workload, num_tokens=None):
        notes.append(say("proof.short_step", batch=load.global_batch_size))
    expected = estimate_training(small)
    step, start = expected.performance.step_seconds or Interval.exact(0.0), _start(plan)
    seconds = Interval(
        best=start.best + num_steps * step.best,
        low=start.low + num_steps * step.low,
        high=start.high + num_steps * step.high,
    )
    num_devices = small.layout.num_devices
    request = replace(
        pinned(plan.request, expected),
        workload=load,
        model=plan.request.model if small.model is candidate.model else "./config.json",
        where=replace(
            plan.request.where,
            gpus=((small.cluster.node.devices[0].slug, len(small.cluster.node.devices)),),
            num_nodes=small.cluster.num_nodes,
        ),
        assumed=(),
    )
    return Trial(
        num_devices=num_devices,
        num_nodes=small.cluster.num_nodes,
        num_layers=small.model.num_layers,
        num_steps=num_steps,
        num_requests=None,
        seconds=seconds,
        usd=_usd(plan, num_devices, seconds),
        commands=(f"{command(request)} -o poc.toml", "tonnage deploy poc.toml --to poc"),
        notes=tuple(notes),
        expected=expected,
    )


def _with_fewest_micro_batches(candidate: Candidate) -> Candidate:
    """Return a candidate whose step takes two micro-batches, or as many as fill its pipeline twice.

    From the second on the gradients of the first are held, as they are in the whole step.
    """
    load, layout = candidate.workload, candidate.layout
    assert isinstance(load, Training)
    least = 2 * layout.pp * layout.num_virtual_stages if layout.pp > 1 else 2
    total = min(load.global_batch_size, candidate.micro_batch_size * layout.dp * least)
    return replace(candidate, workload=replace(load, global_batch_size=total, num_tokens=None))


def _of_one_stage(candidate: Candidate) -> Candidate | None:
    """Return one pipeline stage's layers on as few nodes as one copy of it takes; None where that is no less."""
    layout, per_node = candidate.layout, len(candidate.cluster.node.devices)
    group = max(layout.tp * layout.cp, layout.ep)
    num_nodes = math.ceil(group / per_node)
    num_devices = num_nodes * per_node
    if num_nodes >= candidate.cluster.num_nodes or num_devices % (layout.tp * layout.cp) or num_devices % group:
        return None
    inside = replace(
        layout,
        pp=1,
        dp=num_devices // (layout.tp * layout.cp),
        num_virtual_stages=1,
        first_stage_layers=None,
        last_stage_layers=None,
    )
    num_layers = min(max(_FEWEST_LAYERS, math.ceil(candidate.model.num_layers / layout.pp)), candidate.model.num_layers)
    while num_layers >= 1:
        small = _cut(candidate, inside, num_nodes, num_layers)
        if estimate_training(small).footprint.fits_surely:
            return small
        num_layers //= 2
    return None


def _cut(candidate: Candidate, layout: Layout, num_nodes: int, num_layers: int) -> Candidate:
    """Return a candidate with fewer layers, of each kind its share, on fewer nodes."""
    small = replace(
        candidate,
        model=_shallow(candidate.model, num_layers),
        layout=layout,
        cluster=replace(candidate.cluster, num_nodes=num_nodes),
    )
    return _with_fewest_micro_batches(small)


def _shallow(model: Model, num_layers: int) -> Model:
    all_layers = model.num_layers
    if num_layers >= all_layers:
        return model
    return replace(model, layers=tuple(model.layers[i * all_layers // num_layers] for i in range(num_layers)))


# -- words -------------------------------------------------------------------------------------------------------


def _percent(chance: float) -> str:
    """Write a chance.

    >>> _percent(0.274), _percent(0.0001), _percent(0.9999)
    ('27 %', '< 1 %', '> 99 %')
    """
    if chance < 0.01:
        return "< 1 %"
    return "> 99 %" if chance > 0.99 else f"{100 * chance:.0f} %"


def amount(value: float, unit: str) -> str:
    """Write a number with its unit.

    >>> amount(36.4, "token/s"), amount(0.25, "s"), amount(12345.6, "USD")
    ('36 token/s', '250 ms', '12,346 USD')
    """
    if unit == "B":
        return format_bytes(value)
    if unit == "s":
        return format_seconds(value)
    digits = 0 if value >= 10 else 2
    return f"{value:,.{digits}f} {unit}"


def spread(value: Interval, unit: str) -> str:
    """Write a number with its interval."""
    best, low, high = (amount(getattr(value, name), unit) for name in ("best", "low", "high"))
    return f"{best} ({low} – {high})"
