"""No hardware named: every card of the catalogue, in the smallest number that does, ranked by money or by speed.

A card without a price is not dropped: it comes after those with one, and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tonnage.engines import find_engine
from tonnage.estimate.compose_serving import estimate_serving
from tonnage.estimate.types import Estimate
from tonnage.estimate.weights import checkpoint_format, weights_bytes
from tonnage.hardware.catalogue import devices
from tonnage.hardware.ecosystem import driver_class
from tonnage.hardware.types import Device
from tonnage.messages import say
from tonnage.model.types import Model
from tonnage.plan.choose import MOST_REJECTIONS, number, pinned
from tonnage.plan.relax import resorts, widened
from tonnage.plan.request import command
from tonnage.plan.scene import Price, broken_limit, explore, objective, price_is_open, set_scene, where_it_lives
from tonnage.plan.types import Answer, Change, Limits, Rejection, Request
from tonnage.plan.where import place
from tonnage.search import rank
from tonnage.search.constraints import lacks
from tonnage.workload.types import Serving, Training

_COUNTS: Final = (1, 2, 4, 8)
# One engine of each family and one format of each size: the card is what is chosen here, `--gpu CARD` shows the rest.
_ENGINES: Final = ("vllm", "llama.cpp", "ktransformers")
_FORMATS: Final = ("bf16", "fp8", "q8_0", "awq", "q4_k_m")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """The best way on one kind of card, and the request that names the card."""

    request: Request
    device: Device
    estimate: Estimate


def browse(request: Request, model: Model, price: Price, changes: rank.Changes | None = None) -> Answer:
    """Answer a request that names no hardware.

    Parameters
    ----------
    request : Request
        With `where` open.
    model : Model
        The model.
    price : callable
        Adds the cost to an estimate.
    changes : callable
        Counts what of today's set-up an estimate changes.

    Returns
    -------
    Answer
        The best card of each class, by rank; then what costs more than the limits allow.
    """
    found: list[Offered] = []
    broken: list[Offered] = []
    num_candidates = 0
    walk = _serving_on_each if isinstance(request.workload, Serving) else _training_on_each
    for offered, looked in walk(request, model, price):
        num_candidates += looked
        if offered is not None:
            (broken if broken_limit(offered.estimate, request.limits) else found).append(offered)
    wish = wanted(request)
    offered = [one for one in found if not price_is_open(one.estimate, request.limits)]
    # A limit of money, or spot machines, are not kept by cards that nobody offers: those are listed apart.
    in_order = _in_order(offered or found, wish, request.limits, changes)
    chosen = short_list(in_order)
    shown, every = [one.estimate for one in chosen], [one.estimate for one in in_order]
    plans = [
        replace(plan, request=one.request)
        for plan, one in zip(number(request, shown, every, wish, changes), chosen, strict=True)
    ]
    nearest = command(pinned(chosen[0].request, chosen[0].estimate)) if chosen else None
    rejections = [
        _rejection(one, request, nearest) for one in short_list(_in_order(broken, wish, request.limits, changes))
    ]
    if not plans and not rejections:
        rejections = [_no_card(request, model, price)]
    num_lacking = sum(lacks(device, request.limits.require) is not None for device in devices())
    if num_lacking:
        reason = say("plan.lack", features=", ".join(request.limits.require))
        rejections = [
            *rejections[: MOST_REJECTIONS - 1],
            Rejection(what=say("plan.kinds", num=num_lacking), reason=reason),
        ]
    return Answer(
        request=request,
        plans=tuple(plans),
        rejections=tuple(rejections[:MOST_REJECTIONS]),
        num_candidates=num_candidates,
        front=tuple(rank.pareto_front(every)),
        looked=tuple(one.estimate for one in (*found, *broken)),
    )


def wanted(request: Request) -> str:
    """Return what cards are ranked by: what was asked for; speed within a budget, else cost."""
    limits = request.limits
    if limits.objective is not None:
        return limits.objective
    if limits.budget or limits.rent or limits.spend:
        return "throughput"
    return "cost" if limits.is_spot else objective(request)


def _serving_on_each(request: Request, model: Model, price: Price) -> Iterator[tuple[Offered | None, int]]:
    """Yield the best ways on each kind of card to serve."""
    least_bytes = min(sum(weights_bytes(model, name).values()) for name in (*_FORMATS, checkpoint_format(model)))
    if "precision.weights" in request.pins:
        least_bytes = 0
    for device in devices():
        if not lacks(device, request.limits.require):
            yield from _on(device, request, model, price, least_bytes)


def _training_on_each(request: Request, model: Model, price: Price) -> Iterator[tuple[Offered | None, int]]:
    """Yield the fastest way on the smallest number of each card that trains the model, and on one with a host's help."""
    from tonnage.estimate.compose_training import estimate_training  # noqa: PLC0415  serving does without
    from tonnage.search.training import fastest_on_each  # noqa: PLC0415

    load = request.workload
    assert isinstance(load, Training)
    waiting = [device for device in devices() if not lacks(device, request.limits.require)]
    alone: set[str] = set()

    def offers(some: Sequence[Device], count: int, *, may_offload: bool) -> Iterator[tuple[Offered | None, int]]:
        asked = [replace(request, where=replace(request.where, gpus=((device.slug, count),))) for device in some]
        if not asked:
            return
        scenes = [set_scene(one, model, place(one.where).cluster) for one in asked]
        fixed = replace(scenes[0].fixed, may_offload=may_offload)
        clusters = [scene.cluster for scene in scenes]
        found, looked = fastest_on_each(model, load, clusters, scenes[0].software, fixed)
        yield None, looked
        for one, device, fastest in zip(asked, some, found, strict=True):
            if fastest is not None:
                estimate = price(estimate_training(fastest.candidate))
                yield Offered(request=one, device=device, estimate=estimate), 0

    for count in _COUNTS:
        done: set[str] = set()
        for offered, looked in offers(waiting, count, may_offload=False):
            done |= {offered.device.slug} if offered else set()
            yield offered, looked
        alone |= done if count == 1 else set()
        waiting = [one for one in waiting if one.slug not in done and not one.is_unified_memory]
    others = [d for d in devices() if d.slug not in alone and not lacks(d, request.limits.require)]
    yield from offers(others, 1, may_offload=True)


def _on(
    device: Device, request: Request, model: Model, price: Price, least_bytes: int
) -> Iterator[tuple[Offered | None, int]]:
    """Yield the best way on the smallest number of a card that holds the model, and on one card with a host's help.

    Numbers whose memory together is less than the smallest weights need no look; a machine whose processor shares its
    memory with the accelerator holds one.
    """
    is_alone = False
    for count in _COUNTS:
        if count * device.memory_bytes < least_bytes or (count > 1 and device.is_unified_memory):
            continue
        offered, looked = _best(device, count, request, model, price, may_offload=False)
        yield offered, looked
        if offered is not None:
            is_alone = count == 1
            break
    if not is_alone:
        yield _best(device, 1, request, model, price, may_offload=True)


def _best(
    device: Device, count: int, request: Request, model: Model, price: Price, *, may_offload: bool
) -> tuple[Offered | None, int]:
    here = replace(request, where=replace(request.where, gpus=((device.slug, count),)))
    scene = set_scene(here, model, place(here.where).cluster)
    if not request.limits.engines:
        scene = replace(scene, engines=tuple(e for e in scene.engines if e.name in _ENGINES))
    formats = (*_FORMATS, checkpoint_format(model))
    explored = explore(
        replace(scene, fixed=replace(scene.fixed, formats=formats, may_offload=may_offload, wants_best_only=True))
    )
    if not explored.kept:
        return None, explored.num_candidates
    keeps = [price(e) for e in explored.kept]
    first = rank.ranked(keeps, "throughput", lambda e: not broken_limit(e, request.limits))[0]
    accounting = find_engine(first.candidate.engine).accounting
    best = price(estimate_serving(first.candidate, accounting))
    return Offered(request=here, device=device, estimate=best), explored.num_candidates


def _in_order(
    offered: Iterable[Offered], wish: str, limits: Limits, changes: rank.Changes | None = None
) -> list[Offered]:
    """Rank cards; where money is limited, a card whose price is not known comes after those that surely keep to it."""
    by_estimate = {id(one.estimate): one for one in offered}
    in_order = rank.ranked([one.estimate for one in by_estimate.values()], wish, changes=changes)
    return [by_estimate[id(e)] for e in sorted(in_order, key=lambda e: price_is_open(e, limits))]


def short_list(in_order: list[Offered], most: int = rank.MOST_SHOWN) -> list[Offered]:
    """Return the first of each class of card: game cards, workstation, data centre, unofficial, other makers."""
    chosen: list[Offered] = []
    seen: set[tuple[object, ...]] = set()
    for one in in_order:
        key = (driver_class(one.device), one.device.is_unofficial, rank.placement(one.estimate) == "gpu")
        if key not in seen and len(chosen) < most:
            seen.add(key)
            chosen.append(one)
    return chosen


def _rejection(one: Offered, request: Request, nearest: str | None) -> Rejection:
    """Say which limit a card breaks; where none keeps them, the command gives this one the room that it needs."""
    candidate = one.estimate.candidate
    wider, _ = widened(pinned(one.request, one.estimate), one.estimate)
    return Rejection(
        what=f"{candidate.cluster.num_devices} x {one.device.name}, {candidate.engine}, {where_it_lives(one.estimate)}",
        reason=broken_limit(one.estimate, request.limits) or "",
        command=nearest or command(wider),
        estimate=one.estimate,
    )


def _no_card(request: Request, model: Model, price: Price) -> Rejection:
    """Say that no card does, and how many machines of the largest would."""
    found: tuple[Change, ...] = ()
    for what, other in resorts(request):
        kept = [price(e) for e in explore(set_scene(other, model, place(other.where).cluster)).kept]
        keeps = [estimate for estimate in kept if not broken_limit(estimate, other.limits)]
        if keeps:
            best = rank.ranked(keeps, objective(other))[0]
            found = (Change(what=what, command=command(other), estimate=best),)
            break
    return Rejection(
        what=say("plan.where_open"),
        reason=say("plan.no_card", num=_COUNTS[-1]),
        command=found[0].command if found else None,
        changes=found,
    )
