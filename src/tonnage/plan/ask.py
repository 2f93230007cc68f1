"""The whole way from a request and its model to an answer: hardware, search, prices, what was assumed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from tonnage.engines import find_engine
from tonnage.errors import RequestError
from tonnage.estimate.serving_limits import serving_limits
from tonnage.messages import say
from tonnage.model.types import Model
from tonnage.plan import price
from tonnage.plan.choose import choose
from tonnage.plan.pins import as_stored
from tonnage.plan.scene import SLOWEST_TPOT_SECONDS, Scene, price_is_open, set_scene
from tonnage.plan.stored import with_read_rate
from tonnage.plan.types import Answer, Plan, Request
from tonnage.plan.where import Placed, place, place_here
from tonnage.units import format_seconds
from tonnage.workload.types import Serving

if TYPE_CHECKING:
    from tonnage.hardware.prices import PriceBook
    from tonnage.hardware.sample import MachineSample
    from tonnage.plan.adopt import Adopted
    from tonnage.plan.measured import Lesson, Run
    from tonnage.plan.profile import Profile
    from tonnage.plan.today import Stack


def answer(
    request: Request,
    model: Model,
    machine: MachineSample | None = None,
    book: PriceBook | None = None,
    profile: Profile | None = None,
    today: Stack | Adopted | None = None,
    run: Run | None = None,
) -> Answer:
    """Answer a request.

    Parameters
    ----------
    request : Request
        What is asked.
    model : Model
        The model that it names.
    machine : MachineSample
        A reading of this machine, where the request asks for it.
    book : PriceBook
        Prices, with the day to count their ages from; those of the package by default.
    profile : Profile
        What machines' own measurements taught; nothing by default.
    today : Stack or Adopted
        Today's stack or set-up, for the objective "change" and for what carries over.

    Returns
    -------
    Answer
        With everything that was assumed, each with the flag that sets it.

    Raises
    ------
    RequestError
        The model's layers are not known: there is nothing to place.
    """
    if not model.layers:
        fix = "give its config.json, or a GGUF file"
        raise RequestError("the model's layers are not known, only its size", where=request.model[:80], fix=fix)

    request = replace(request, pins=as_stored(request.pins, model))
    changes = None
    if today is not None:
        from tonnage.plan.carry import counter  # noqa: PLC0415  only where something runs today

        changes = counter(today)
    if request.limits.objective == "change" and changes is None:
        fix = "name a file with today's stack, or with a configuration or launch line"
        raise RequestError("nothing says what runs today", where="--today", fix=fix)
    prices = price.prices_for(request.limits, book)
    request = replace(request, limits=price.settled(request.limits, prices))
    priced, whole = price.pricer(prices, is_whole=False), price.pricer(prices)
    if request.where.is_open:
        from tonnage.plan.browse import browse  # noqa: PLC0415  only without hardware

        found, placed = browse(request, model, priced, changes), None
    else:
        placed = place_here(request.where, machine) if machine is not None else place(request.where)
        scene = set_scene(request, model, placed.cluster, profile, _lesson(request, run))
        found = _with_taught_limits(choose(scene, priced, changes), scene)
    plans = (replace(p, estimate=with_read_rate(whole(p.estimate), prices.assumed)) for p in found.plans)
    found = replace(found, plans=tuple(plans))
    if found.looked:
        from tonnage.plan.routes import routes, stages  # noqa: PLC0415  only without hardware

        looked = [whole(estimate) for estimate in found.looked]
        unpriced = tuple(price.unpriced(looked, request.limits, prices))
        ways = routes(looked, request.limits, unpriced)
        found = replace(found, routes=ways, stages=stages(ways, looked), unpriced=unpriced)
    if today is not None:
        from tonnage.plan.carry import held_against  # noqa: PLC0415

        found = held_against(found, today)
    return replace(
        found,
        assumptions=tuple(dict.fromkeys(_assumed(request, model, placed, found))),
        prices=tuple(dict.fromkeys(_priced(request, found, prices))),
        warnings=(
            *model.warnings,
            *_beyond(request, model),
            *_unpriced(request, found),
            *(placed.warnings if placed else ()),
            *_old(request, found, prices),
        ),
    )


def _lesson(request: Request, run: Run | None) -> Lesson | None:
    """Return what a measured run teaches, where the request is of training."""
    if run is None:
        return None
    if isinstance(request.workload, Serving):
        raise RequestError(
            "a training run says nothing for serving", where="--from", fix="add --finetune or --pretrain"
        )
    from tonnage.plan.measured import lesson_of  # noqa: PLC0415  few plan from a run

    return lesson_of(run)


def _with_taught_limits(found: Answer, scene: Scene) -> Answer:
    """Return an answer whose plans know how far they go on engines that the machine taught."""
    taught = {one.name: one.accounting for one in scene.engines if one is not find_engine(one.name)}

    def one(plan: Plan) -> Plan:
        accounting = taught.get(plan.estimate.candidate.engine)
        return plan if accounting is None else replace(plan, limits=serving_limits(plan.estimate.candidate, accounting))

    return replace(found, plans=tuple(map(one, found.plans))) if taught else found


def _counts_money(request: Request) -> bool:
    """Whether prices decide: the hardware is open, or money is limited."""
    limits = request.limits
    return request.where.is_open or limits.is_spot or any((limits.budget, limits.rent, limits.spend))


def _old(request: Request, found: Answer, prices: price.Prices) -> tuple[str, ...]:
    """Say which prices are old, where prices decide."""
    if not _counts_money(request):
        return ()
    return price.age_warnings((plan.estimate.candidate.cluster for plan in found.plans), prices)


def _priced(request: Request, found: Answer, prices: price.Prices) -> Iterator[str]:
    """Yield whose prices the plans are counted with, and what is assumed of money; nothing where prices do not matter."""
    if not _counts_money(request):
        return
    for plan in found.plans:
        yield from plan.estimate.cost.notes
    yield from price.rate_notes(request.limits, prices)
    keys = dict.fromkeys(key for plan in found.plans for key in price.counted(plan.estimate, request.limits))
    yield from (price.assumption_text(key, prices.assumed) for key in keys)


def _unpriced(request: Request, found: Answer) -> Iterator[str]:
    """Say where a limit of money could not be held, because nobody says what the hardware costs."""
    first = found.plans[0].estimate if found.plans else None
    if first is not None and price_is_open(first, request.limits):
        yield say("plan.price_open", name=first.candidate.cluster.node.devices[0].name)


def _beyond(request: Request, model: Model) -> Iterator[str]:
    """Warn of sequences longer than the model was made for: an engine refuses them, or its answers are worthless."""
    load, most = request.workload, model.max_position_tokens
    asked = load.context_tokens if isinstance(load, Serving) else load.seq_len
    if most is not None and asked > most:
        yield say("plan.beyond", asked=asked, most=most)


def _assumed(request: Request, model: Model, placed: Placed | None, found: Answer) -> Iterator[str]:
    """Yield what was left to a default: the load first, then the hardware, then the plans' own."""
    load = request.workload
    lengths = ("--input-tokens", "--output-tokens")
    has_both = isinstance(load, Serving) and all(flag in request.assumed for flag in lengths)
    for flag in request.assumed:
        if has_both and flag in lengths:
            continue
        name = flag.removeprefix("--").replace("-", "_")
        if name == "lora_targets" and model.is_moe:
            name = "lora_targets_moe"
        yield say(f"plan.assumed_{name}", value=_value(load, name))
    if has_both and isinstance(load, Serving):
        yield say("plan.assumed_lengths", input=f"{load.input_tokens:,}", output=f"{load.output_tokens:,}")
    if isinstance(load, Serving) and load.tpot_limit_seconds is None and request.limits.intent != "batch":
        yield say("plan.assumed_tpot", value=format_seconds(SLOWEST_TPOT_SECONDS))
    if placed is not None:
        yield from placed.assumptions
    for plan in found.plans:
        yield from plan.estimate.provenance.assumptions


def _value(load: object, name: str) -> object:
    field = {"context": "context_tokens", "global_batch": "global_batch_size"}.get(name, name)
    return getattr(load, field, "")
