"""From a request to an answer: the ways that fit, ranked and few; the others with what is missing and what would do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from tonnage.estimate.types import Candidate, Estimate, Recompute
from tonnage.estimate.weights import checkpoint_format, is_gguf_file
from tonnage.messages import say
from tonnage.model.types import Model
from tonnage.plan.request import command
from tonnage.plan.room import room_of
from tonnage.plan.scene import Price, Scene, broken_limit, explore, objective, share_label, where_it_lives
from tonnage.plan.stand import against, binding, rival
from tonnage.plan.types import Answer, Limits, Plan, Rejection, Request, Scalar, WhyNot
from tonnage.search import rank
from tonnage.search.constraints import num_experts, power_watts
from tonnage.search.explore import Explored
from tonnage.units import DAY_SECONDS, format_bytes
from tonnage.workload.types import Serving

MOST_REJECTIONS: Final = 8
_FEWEST_MORE_BITS: Final = 0.5  # less is not worth a word


def choose(scene: Scene, price: Price = lambda estimate: estimate, changes: rank.Changes | None = None) -> Answer:
    """Answer a request on given hardware.

    Parameters
    ----------
    scene : Scene
        The request with model, cluster and engines.
    price : callable
        Adds the cost to an estimate.
    changes : callable
        Counts what of today's set-up an estimate changes.

    Returns
    -------
    Answer
        Plans by rank; where there is none, the nearest rejection first, with the changes that make it fit.
    """
    explored = explore(scene)
    priced = [price(estimate) for estimate in explored.kept]
    kept = [estimate for estimate in priced if not broken_limit(estimate, scene.request.limits)]
    in_order = as_stored_first(scene.model, rank.ranked(kept, objective(scene.request), changes=changes))
    shown = rank.short_list(in_order)
    plans = number(scene.request, shown, in_order, objective(scene.request), changes)
    rejections = [*_broken(scene, priced, in_order), *_short(scene, explored, in_order), *_ruled_out(scene, explored)]
    if not plans:
        rejections += _kept_off_the_host(scene, explored)
        rejections = _with_changes(scene, rejections, price)
    else:
        first = command(pinned(scene.request, in_order[0]))
        rejections = [one if one.command else replace(one, command=first) for one in rejections]
    return Answer(
        request=scene.request,
        plans=tuple(plans),
        rejections=tuple(rejections[:MOST_REJECTIONS]),
        num_candidates=explored.num_candidates,
        front=tuple(rank.pareto_front(in_order)),
        why_not=_why_not(explored),
    )


def _why_not(explored: Explored) -> tuple[WhyNot, ...]:
    """Add up what each rule took out on each engine; the most first."""
    counts: dict[tuple[str, str], int] = {}
    for one in explored.ruled_out:
        key = one.engine, one.reason
        counts[key] = counts.get(key, 0) + one.num_candidates
    in_order = sorted(counts.items(), key=lambda pair: -pair[1])
    return tuple(WhyNot(engine=key[0], reason=key[1], num_candidates=number) for key, number in in_order)


def as_stored_first(model: Model, in_order: list[Estimate]) -> list[Estimate]:
    """Put the ways that take a GGUF file as it is before those that need another file."""
    if not is_gguf_file(model):
        return in_order
    own = checkpoint_format(model)
    return sorted(in_order, key=lambda one: (not one.footprint.fits_surely, one.candidate.precision.weights != own))


def number(
    request: Request,
    estimates: Sequence[Estimate],
    in_order: Sequence[Estimate],
    wish: str,
    changes: rank.Changes | None = None,
) -> list[Plan]:
    """Turn the estimates that are shown, of all in their order, into plans, each with how it stands."""
    return [
        Plan(
            rank=place,
            request=request,
            estimate=estimate,
            kind=where_it_lives(estimate),
            reasons=tuple(_reasons(estimate, estimates[0] if place > 1 else None)),
            warnings=tuple(_warnings(estimate)),
            binding=binding(estimate, request.limits),
            rival=rival(estimate, in_order, estimates, wish, changes),
            risks=against(estimate, request.limits),
            room=room_of(estimate),
        )
        for place, estimate in enumerate(estimates, 1)
    ]


def _reasons(estimate: Estimate, first: Estimate | None) -> Iterator[str]:
    parts = sorted(estimate.step_time.parts, key=lambda part: part.seconds, reverse=True)
    if parts:
        yield say("plan.binds", what=share_label("time", parts[0].name))
    rate, best = estimate.performance.tokens_per_s, first.performance.tokens_per_s if first else None
    percent = round(100 * (1 - rate.best / best.best)) if rate and best and best.best else 0
    if percent > 0:
        yield say("plan.slower", percent=percent, rank=1)
    if first is not None and rank.weights_bits(estimate) > rank.weights_bits(first) + _FEWEST_MORE_BITS:
        bits, least = (f"{rank.weights_bits(one):.1f}" for one in (estimate, first))
        yield say("plan.more_bits", bits=bits, least=least)


def _warnings(estimate: Estimate) -> Iterator[str]:
    if not estimate.footprint.fits_surely:
        yield say("plan.unsure")
    if rank.weights_bits(estimate) < rank.LEAST_GOOD_BITS:
        yield say("plan.few_bits")
    precision = estimate.candidate.precision
    if precision.experts and precision.experts != precision.weights:
        yield say("plan.experts_kept", weights=precision.weights, experts=precision.experts)
    if estimate.candidate.offload.experts_nvme:
        yield say("plan.drive_experts")
    if estimate.storage.offload_bytes:
        yield say("plan.drive_ready", size=format_bytes(estimate.storage.offload_bytes))
    held, step = estimate.storage.offload_bytes, estimate.performance.step_seconds
    if held and step and estimate.candidate.offload.optimizer_nvme:  # all that lies there is written once a step
        daily = format_bytes(held * DAY_SECONDS / step.best)
        yield say("plan.drive_wear", step=format_bytes(held), day=daily)
    yield from _torch_of(estimate)
    yield from estimate.provenance.warnings
    if not isinstance(estimate.candidate.workload, Serving):
        yield from _not_started(estimate)


def _torch_of(estimate: Estimate) -> Iterator[str]:
    """Say which torch the machines start, where training software would bring one that driver or card is too old for."""
    node = estimate.candidate.cluster.node
    card = node.devices[0]
    if isinstance(estimate.candidate.workload, Serving) or not (node.driver or card.max_cuda):
        return
    from tonnage.engines.drivers import branch_of, newest_torch  # noqa: PLC0415  few know their driver

    branch, found = branch_of(node.driver), newest_torch(card, node.driver)
    if found is None:
        return
    version, needed = found
    if branch is not None and branch < needed:
        yield say("today.driver_torch", version=version, driver=node.driver, branch=needed)
    else:
        yield say("today.card_torch", version=version, name=card.name)


def _not_started(estimate: Estimate) -> Iterator[str]:
    """Say why the software that a plan of training names has no launch for it: the estimate holds all the same."""
    from tonnage.engines import find_trainer  # noqa: PLC0415  serving does without

    trainer = find_trainer(estimate.candidate.engine)
    refusal = trainer.refuses(estimate.candidate) if trainer else None
    if refusal is not None:
        yield say("plan.not_started", reason=refusal.reason)


def _label(estimate: Estimate) -> str:
    candidate = estimate.candidate
    return say("plan.comma").join((candidate.engine, candidate.precision.weights, where_it_lives(estimate)))


def why_short(estimate: Estimate) -> str:
    """Say what is missing: on the device, or in host memory, whichever is more."""
    held = estimate.footprint
    device, host = held.taken.best - held.capacity_bytes, held.host_total.best - held.host_capacity_bytes
    short, used, capacity, name = (
        (device, held.taken.best, held.capacity_bytes, "plan.short_device")
        if device >= host
        else (host, held.host_total.best, held.host_capacity_bytes, "plan.short_host")
    )
    return say(name, short=format_bytes(short), used=format_bytes(used), capacity=format_bytes(capacity))


def _broken(scene: Scene, priced: Iterable[Estimate], in_order: Sequence[Estimate]) -> Iterator[Rejection]:
    """Yield what fits but breaks a limit: the best of each kind."""
    limits = scene.request.limits
    broken = [estimate for estimate in priced if broken_limit(estimate, limits)]
    for estimate in rank.short_list(rank.ranked(broken, objective(scene.request))):
        yield Rejection(
            what=_label(estimate),
            reason=say("plan.comma").join(filter(None, (broken_limit(estimate, limits), _capped(estimate, limits)))),
            command=_nearest(scene, estimate, in_order),
            estimate=estimate,
        )


def _capped(estimate: Estimate, limits: Limits) -> str | None:
    """Say at which power limit of each device an estimate would keep the limit on power, and what that costs."""
    cluster, most = estimate.candidate.cluster, limits.max_power_watts
    watts = power_watts(cluster)
    if most is None or watts is None or watts <= most:
        return None
    from tonnage.estimate.cost.assumptions import with_given  # noqa: PLC0415  few have a limit on power
    from tonnage.plan.caps import caps_of  # noqa: PLC0415

    found = caps_of(estimate, with_given(limits.assume))
    low = [cap for cap in found.caps if cap.cap_watts * cluster.num_devices <= most] if found else []
    if not low:
        return None
    best = max(low, key=lambda cap: cap.cap_watts)
    percent, least = (round(100 * ratio) for ratio in (best.speed_ratio.best, best.speed_ratio.low))
    return say("plan.capped", watts=f"{best.cap_watts:.0f}", percent=percent, least=least)


def _short(scene: Scene, explored: Explored, in_order: Sequence[Estimate]) -> Iterator[Rejection]:
    """Yield what is short of memory: of each step of weight size the way that misses least."""
    least: dict[tuple[object, ...], Estimate] = {}
    for estimate in explored.short:
        candidate = estimate.candidate
        group = (
            (rank.bits_class(rank.weights_bits(estimate)),)
            if isinstance(candidate.workload, Serving)
            else (candidate.engine, candidate.precision.weights, candidate.optimizer)
        )
        known = least.get(group)
        if known is None or estimate.footprint.short_by_bytes < known.footprint.short_by_bytes:
            least[group] = estimate
    for estimate in least.values():
        yield Rejection(
            what=_label(estimate),
            reason=why_short(estimate),
            short_by_bytes=estimate.footprint.short_by_bytes,
            command=_nearest(scene, estimate, in_order),
            estimate=estimate,
        )


def _ruled_out(scene: Scene, explored: Explored) -> Iterator[Rejection]:
    """Yield why an engine cannot be used, what rules most of it out: where it was asked for, or nothing else was found."""
    for one in scene.barred:  # always told: another driver is a cure
        yield Rejection(what=one.engine or say("plan.col_gpu"), reason=one.reason)
    if (explored.kept or explored.short) and not scene.request.limits.engines:
        return
    heard = {estimate.candidate.engine for estimate in (*explored.kept, *explored.short)}
    heard |= {one.engine for one in scene.barred}
    for engine in dict.fromkeys(one.engine for one in explored.ruled_out if one.engine not in heard):
        one = max((one for one in explored.ruled_out if one.engine == engine), key=lambda it: it.num_candidates)
        what = ", ".join(part for part in (one.engine, one.weights) if part) or say("plan.col_gpu")
        yield Rejection(what=what, reason=one.reason)


def _kept_off_the_host(scene: Scene, explored: Explored) -> Iterator[Rejection]:
    """Yield why a software keeps on the card what would fit from host memory."""
    for ways in scene.software:
        least = ways.min_devices_for_quantized_offload
        reason = say("search.offload_devices", name=ways.name, num=least)
        refused = next((one for one in explored.ruled_out if one.reason == reason), None)
        if refused is not None:
            what = ", ".join((refused.engine, refused.weights, say("plan.place_weights")))
            yield Rejection(what=what, reason=reason)


def _nearest(scene: Scene, estimate: Estimate, in_order: Sequence[Estimate]) -> str | None:
    """Return the command of the plan that fits and differs least from one that does not."""
    if not in_order:
        return None

    def distance(place: int) -> tuple[bool, float, int]:
        other = in_order[place].candidate
        bits = abs(rank.weights_bits(in_order[place]) - rank.weights_bits(estimate))
        return other.engine != estimate.candidate.engine, bits, place

    return command(pinned(scene.request, in_order[min(range(len(in_order)), key=distance)]))


def pinned(request: Request, estimate: Estimate) -> Request:
    """Return the request that asks for exactly the candidate of an estimate."""
    candidate = estimate.candidate
    pins: dict[str, Scalar] = dict(request.pins)
    pins["precision.weights"] = candidate.precision.weights
    if isinstance(candidate.workload, Serving):
        pins["precision.kv"] = candidate.precision.kv
    else:
        pins |= _training_pins(candidate)
    if candidate.cluster.num_devices > 1:
        pins |= {f"layout.{way}": getattr(candidate.layout, way) for way in ("tp", "pp", "dp")}
        if candidate.layout.ep > 1 or num_experts(candidate.model):
            pins["layout.ep"] = candidate.layout.ep
    for name in ("num_cpu_expert_layers", "num_cpu_layers", "experts_nvme"):
        if number := getattr(candidate.offload, name):
            pins[f"offload.{name}"] = number
    limits = replace(request.limits, engines=(candidate.engine,))
    return replace(request, limits=limits, pins=pins)


def _training_pins(candidate: Candidate) -> dict[str, Scalar]:
    precision, offload, layout = candidate.precision, candidate.offload, candidate.layout
    pins: dict[str, Scalar] = {
        "precision.compute": precision.compute,
        "precision.gradients": precision.gradients,
        "precision.has_fp32_master": precision.has_fp32_master,
        "layout.zero_stage": layout.zero_stage,
        "micro_batch_size": candidate.micro_batch_size,
        "recompute": candidate.recompute.value,
        "optimizer": candidate.optimizer,
        "offload.optimizer": offload.optimizer,
        "offload.parameters": offload.parameters,
    }
    if candidate.cluster.num_devices > 1:
        pins |= {"layout.cp": layout.cp, "layout.num_virtual_stages": layout.num_virtual_stages}
    if layout.first_stage_layers:
        pins["layout.first_stage_layers"] = layout.first_stage_layers
        pins["layout.last_stage_layers"] = layout.last_stage_layers or layout.first_stage_layers
    if candidate.recompute is Recompute.FULL and candidate.recompute_every > 1:
        pins["recompute_every"] = candidate.recompute_every
    for name in ("activations", "optimizer_nvme", "parameters_nvme"):
        if getattr(offload, name):
            pins[f"offload.{name}"] = True
    return pins


def _with_changes(scene: Scene, rejections: Sequence[Rejection], price: Price) -> list[Rejection]:
    """Put the rejection that misses least first, and to it the changes that make the request fit."""
    from tonnage.plan.change import changes  # noqa: PLC0415  only a "no" needs it
    from tonnage.plan.relax import breaks_what_was_said  # noqa: PLC0415

    found = changes(scene, price)
    nearest = found[0].command if found else None
    limits = scene.request.limits

    def nearness(one: Rejection) -> tuple[bool, bool, int]:
        """Put what fits and breaks only a limit that was asked for before what lacks memory."""
        is_limit = one.short_by_bytes is None and one.estimate is not None
        is_nearest = is_limit and one.estimate is not None and breaks_what_was_said(one.estimate, limits)
        return not is_nearest, one.short_by_bytes is None, one.short_by_bytes or 0

    in_order = sorted(rejections, key=nearness)
    first, rest = in_order[:1], in_order[1:]
    return [replace(one, command=nearest, changes=found) for one in first] + [
        replace(one, command=nearest) for one in rest
    ]
