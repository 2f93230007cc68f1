"""What would make a request fit that does not: one change at a time, each estimated anew, the nearest first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from tonnage.estimate.compose_serving import serving_load
from tonnage.estimate.serving_limits import largest_num_seqs, least_utilization_ratio
from tonnage.estimate.types import Estimate
from tonnage.hardware.catalogue import devices
from tonnage.hardware.types import Device
from tonnage.messages import say
from tonnage.plan.relax import batched, breaks_what_was_said, resorts, widened
from tonnage.plan.request import command
from tonnage.plan.scene import (
    Price,
    Scene,
    broken_limit,
    explore,
    objective,
    price_is_open,
    set_scene,
    where_it_lives,
)
from tonnage.plan.types import Change, Request, Scalar
from tonnage.plan.where import place, usual_host_of
from tonnage.search import rank
from tonnage.search.training_space import training_ways
from tonnage.units import GIB, format_seconds
from tonnage.workload.types import Serving, Training, TrainingKind

_COUNTS: Final = (2, 3, 4, 6, 8)
_NODES: Final = (2, 4, 8, 16, 32, 64)
_MOST_IN_A_NODE: Final = 8
_SHORTEST_CONTEXT: Final = 1024
_STEP_TOKENS: Final = 256
_STEP_LENGTH: Final = 128  # of a training sequence; what ranks that share one take is a multiple of their number
_LONGEST_TPOT_SECONDS: Final = 60.0
_FEWER_STATES: Final = ("adamw_8bit", "adafactor")
"""Optimizers that hold less than AdamW's two fp32 moments."""


def changes(scene: Scene, price: Price) -> tuple[Change, ...]:
    """Return the changes that make a request fit: the sure ones first, each in the order of how little they change.

    Settings come first, then formats and offload, then more or other hardware, then another method.
    """
    found: dict[str, Change] = {}
    for what, request in _trials(scene, price):
        best = _best(scene, request, price)
        if best is not None:
            text = what(best)
            if rank.placement(best) != "gpu" and where_it_lives(best) not in text:
                text = f"{text}, {where_it_lives(best)}"
            if not best.footprint.fits_surely:
                text = say("plan.change_perhaps", what=text)
            found.setdefault(text, Change(what=text, command=command(request), estimate=best))
    if not found:
        for text, request in resorts(scene.request):
            best = _best(scene, request, price)
            if best is not None:
                return (Change(what=text, command=command(request), estimate=best),)
    return tuple(sorted(found.values(), key=lambda change: not change.estimate.footprint.fits_surely))


def _best(scene: Scene, request: Request, price: Price) -> Estimate | None:
    """Return the first of what fits for a request, None when nothing does."""
    kept = _kept(scene, request, price)
    return rank.ranked(kept, objective(request))[0] if kept else None


def _kept(scene: Scene, request: Request, price: Price) -> list[Estimate]:
    cluster = scene.cluster if request.where == scene.request.where else place(request.where).cluster
    priced = (
        price(estimate)
        for estimate in explore(set_scene(request, scene.model, cluster, scene.profile, scene.lesson)).kept
    )
    return [estimate for estimate in priced if not broken_limit(estimate, request.limits)]


def _stays(scene: Scene, request: Request, price: Price) -> bool:
    """Whether more or larger cards hold everything: hardware that still leans on the host is no cure.

    Activations that wait on the host are the exception: they are made anew each step, and cost no speed to speak of.
    """
    return any(
        rank.placement(estimate) in ("gpu", "activations_cpu") and not price_is_open(estimate, request.limits)
        for estimate in _kept(scene, request, price)
    )


Trial = tuple[Callable[[Estimate], str], Request]


def _said(name: str, **values: object) -> Callable[[Estimate], str]:
    return lambda _: say(f"plan.change_{name}", **values)


def _trials(scene: Scene, price: Price) -> Iterator[Trial]:
    yield from _newer_driver(scene)
    yield from _wider_limits(scene, price)
    yield from _exact_settings(scene)
    yield from _without_pins(scene, price)
    if (
        scene.request.where.reserve_bytes is None
        and scene.cluster.node.reserved_bytes
        and not scene.request.where.is_here
    ):
        bare = replace(scene.request.where, reserve_bytes=0)
        yield _said("reserve"), replace(scene.request, where=bare)
    load = scene.request.workload
    if isinstance(load, Serving):
        yield from _shorter_serving(scene, load, price)
        yield from _slower(scene, load, price)
    else:
        yield from _lighter_training(scene, load, price)
    if not _is_only_the_layout(scene, price):
        yield from _more_hardware(scene, price)
    if isinstance(load, Training):
        yield from _other_method(scene, load, price)


def _newer_driver(scene: Scene) -> Iterator[Trial]:
    """Yield the driver that starts what was asked for, where the one that was named does not."""
    request = scene.request
    if not scene.barred or not request.where.driver:
        return
    from tonnage.engines.drivers import floors  # noqa: PLC0415  few know their driver

    named = {one.engine for one in scene.barred}
    branches = {f"R{floors(name)[-1].branch}" for name in named if name}
    cards = scene.cluster.node.devices
    branches |= {card.min_driver_branch for card in cards if "" in named and card.min_driver_branch}
    for driver in sorted(branches):
        yield _said("driver", value=driver), replace(request, where=replace(request.where, driver=driver))


def _wider_limits(scene: Scene, price: Price) -> Iterator[Trial]:
    """Yield the limits that are in the way as wide as it takes: the fewest of them first."""
    request = scene.request
    priced = [price(estimate) for estimate in explore(scene).kept]
    broken = [estimate for estimate in priced if breaks_what_was_said(estimate, request.limits)]
    ways: dict[tuple[str, ...], Trial] = {}
    for estimate in rank.ranked(broken, objective(request)):
        wider, said = widened(request, estimate)
        ways.setdefault(said, ((lambda _, said=said: say("plan.comma").join(said)), wider))
    fewest = min((len(flags) for flags in ways), default=0)
    yield from [way for flags, way in ways.items() if len(flags) == fewest][:1]


_PIN_GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "kv": ("precision.kv",),
    "micro": ("micro_batch_size",),
    "recompute": ("recompute",),
    "optimizer": ("optimizer",),
    "zero": ("layout.zero_stage",),
    "layout": ("layout.tp", "layout.pp", "layout.cp", "layout.ep", "layout.dp"),
    "offload": (
        *("offload.optimizer", "offload.parameters", "offload.optimizer_nvme", "offload.parameters_nvme"),
        *("offload.num_cpu_layers", "offload.num_cpu_expert_layers"),
    ),
    "weights": ("precision.weights", "precision.gradients", "precision.has_fp32_master"),
    "step": ("settings.max_batched_tokens",),
}


def _exact_settings(scene: Scene) -> Iterator[Trial]:
    """Yield the pinned limits of an engine as far as they have to move: most sequences, least share of the device."""
    request, short = scene.request, explore(scene).short
    paths = {"settings.max_num_seqs": "num_seqs", "settings.utilization_ratio": "utilization"}
    if not short or not isinstance(request.workload, Serving) or not paths.keys() & request.pins.keys():
        return
    candidate = min(short, key=lambda one: one.footprint.total.best - one.footprint.capacity_bytes).candidate
    accounting = next(one for one in scene.engines if one.name == candidate.engine).accounting
    load = serving_load(candidate, accounting)
    found = {
        "settings.max_num_seqs": largest_num_seqs(load, accounting),
        "settings.utilization_ratio": least_utilization_ratio(load, accounting),
    }
    for path, value in found.items():
        if path in request.pins and value:
            pins: dict[str, Scalar] = {**request.pins, path: value}
            yield _said(paths[path], value=value), replace(request, pins=pins)


def _without_pins(scene: Scene, price: Price) -> Iterator[Trial]:
    """Free one pinned field, or the engine; of what then fits take the mildest: most bits, least on the host."""
    request = scene.request
    for name, paths in _PIN_GROUPS.items():
        held = [path for path in paths if path in request.pins]
        if not held:
            continue
        freed = replace(request, pins={p: v for p, v in request.pins.items() if p not in held})
        for mild in _mildest(_kept(scene, freed, price)):
            pins: dict[str, Scalar] = {**freed.pins, **_fields(mild, held)}
            yield (lambda best, name=name: _describe(name, best)), replace(freed, pins=pins)
    if request.limits.engines:
        freed = replace(request, limits=replace(request.limits, engines=()))
        for mild in _mildest(_kept(scene, freed, price)):
            limits = replace(request.limits, engines=(mild.candidate.engine,))
            said = f"{mild.candidate.engine}, {where_it_lives(mild)}"
            yield _said("engine", value=said), replace(freed, limits=limits)


def _fields(estimate: Estimate, paths: list[str]) -> dict[str, Scalar]:
    from tonnage.plan.pins import get  # noqa: PLC0415  only a "no" comes here

    values = {path: get(estimate.candidate, path) for path in paths}
    return {path: getattr(value, "value", value) for path, value in values.items() if value is not None}


def _mildest(kept: list[Estimate]) -> list[Estimate]:
    """Return the estimate with the most bits that stays on the devices, and the one with the most bits at all."""

    def key(estimate: Estimate) -> tuple[bool, float, float]:
        rate = estimate.performance.tokens_per_s
        return not estimate.footprint.fits_surely, -rank.weights_bits(estimate), -(rate.best if rate else 0.0)

    on_device = [estimate for estimate in kept if rank.placement(estimate) == "gpu"]
    firsts = [min(group, key=key) for group in (on_device, kept) if group]
    return list({id(estimate): estimate for estimate in firsts}.values())


def _describe(name: str, estimate: Estimate) -> str:
    candidate = estimate.candidate
    values = {
        "kv": candidate.precision.kv,
        "weights": candidate.precision.weights,
        "micro": candidate.micro_batch_size,
        "recompute": candidate.recompute.value,
        "optimizer": candidate.optimizer,
        "zero": candidate.layout.zero_stage,
        "step": "",
        "layout": " ".join(f"{way}{n}" for way in ("dp", "tp", "pp") if (n := getattr(candidate.layout, way)) > 1)
        or "1",
    }
    text = say(f"plan.change_{name}", value=values[name]) if name in values else ""
    lives = where_it_lives(estimate)
    return f"{text}, {lives}" if text and rank.placement(estimate) != "gpu" else text or lives


def _largest(fits: Callable[[int], bool], most: int) -> int | None:
    """Return the largest number below `most` that fits, None when not even 1 does."""
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low or None


def _slower(scene: Scene, load: Serving, price: Price) -> Iterator[Trial]:
    """Yield a longer time for a token, where only the time stands against it."""
    patient = replace(scene.request, workload=replace(load, tpot_limit_seconds=_LONGEST_TPOT_SECONDS))
    kept = _kept(scene, patient, price)
    if kept:
        tpot = rank.ranked(kept, objective(patient))[0].performance.tpot_seconds
        seconds = _LONGEST_TPOT_SECONDS if tpot is None else -(-tpot.best * 1.1 // 0.1) / 10
        allowed = replace(scene.request, workload=replace(load, tpot_limit_seconds=seconds))
        yield (
            (lambda best: f"{say('plan.change_tpot', value=format_seconds(seconds))}, {where_it_lives(best)}"),
            allowed,
        )


def _shorter_serving(scene: Scene, load: Serving, price: Price) -> Iterator[Trial]:
    request = scene.request

    def with_context(steps: int) -> Request:
        context = steps * _STEP_TOKENS
        output = min(load.output_tokens, context // 4)
        prompt = min(load.input_tokens, context - output)
        shorter = replace(load, context_tokens=context, input_tokens=prompt, output_tokens=output)
        return replace(request, workload=shorter, assumed=_told(request, "--context"))

    steps = load.context_tokens // _STEP_TOKENS
    if load.context_tokens > _SHORTEST_CONTEXT and _kept(scene, with_context(_SHORTEST_CONTEXT // _STEP_TOKENS), price):
        most = _largest(lambda n: bool(_kept(scene, with_context(n), price)), steps)
        if most:
            yield _said("context", value=most * _STEP_TOKENS), with_context(most)

    def with_requests(number: int) -> Request:
        fewer = replace(load, concurrency=number)
        return replace(request, workload=fewer, assumed=_told(request, "--concurrency"))

    if load.concurrency > 1 and _kept(scene, with_requests(1), price):
        most = _largest(lambda n: bool(_kept(scene, with_requests(n), price)), load.concurrency)
        if most:
            yield _said("concurrency", value=most), with_requests(most)


def _told(request: Request, flag: str) -> tuple[str, ...]:
    return tuple(name for name in request.assumed if name != flag)


def _lighter_training(scene: Scene, load: Training, price: Price) -> Iterator[Trial]:
    request = scene.request
    if "optimizer" not in request.pins:
        trains_all = load.kind in (TrainingKind.FULL, TrainingKind.PRETRAIN)
        for name in _FEWER_STATES if trains_all else _FEWER_STATES[:1]:
            yield _said("optimizer", value=name), replace(request, pins={**request.pins, "optimizer": name})

    step = max(_STEP_LENGTH, 1 << (2 * scene.cluster.num_devices - 1).bit_length())

    def with_length(steps: int) -> Request:
        shorter = replace(load, seq_len=steps * step)
        return replace(request, workload=shorter, assumed=_told(request, "--seq-len"))

    steps = -(-load.seq_len // step)
    if steps > 1 and _kept(scene, with_length(1), price):
        most = _largest(lambda n: bool(_kept(scene, with_length(n), price)), steps)
        if most:
            yield _said("seq_len", value=most * step), with_length(most)


def _is_only_the_layout(scene: Scene, price: Price) -> bool:
    """Whether nothing lacks memory and only the pinned split cannot be: the same cards do with another."""
    pins = {p: v for p, v in scene.request.pins.items() if not p.startswith("layout.")}
    if len(pins) == len(scene.request.pins):
        return False
    found = explore(scene)
    return not found.kept and not found.short and bool(_kept(scene, replace(scene.request, pins=pins), price))


def _more_hardware(scene: Scene, price: Price) -> Iterator[Trial]:
    request = scene.request
    if len(request.where.gpus) != 1:
        return
    name, number = request.where.gpus[0]
    if isinstance(request.workload, Training):
        yield from _more_for_training(scene, price)
        return
    bare = replace(request, pins={p: v for p, v in request.pins.items() if not p.startswith("layout.")})
    split = [request] if bare.pins != request.pins else []
    for count, base in [(count, base) for base in (*split, bare) for count in _COUNTS]:
        larger = replace(base, where=replace(request.where, gpus=((name, count),)))
        if count > number and _stays(scene, larger, price):
            yield _said("gpus", value=count), larger
            break
    else:
        yield from _more_nodes(scene, bare, name, price)
    yield from _larger_card(scene, bare, number, price)
    yield from _larger_host(scene, price)
    if scene.model.is_moe:
        yield from _a_drive(scene, price)


def _more_for_training(scene: Scene, price: Price) -> Iterator[Trial]:
    """Yield the fewest of the same card in a machine, and the smallest card in the same number, that hold a training job.

    More machines are offered only where several were asked for.
    """
    request = scene.request
    name, number = request.where.gpus[0]
    bare = replace(request, pins={p: v for p, v in request.pins.items() if not p.startswith("layout.")})
    bases = [request, bare] if bare.pins != request.pins else [bare]
    yield from _fewest(scene, price, bases, range(number + 1, _MOST_IN_A_NODE + 1))
    if request.where.num_nodes > 1:
        yield from _more_nodes(scene, bare, name, price)
    here = scene.cluster.node.devices[0]
    unsure: Trial | None = None
    for device in _official(here):
        larger = replace(bare, where=replace(bare.where, gpus=((device.slug, number),)))
        if device.memory_bytes > here.memory_bytes and _may_hold(scene, larger) and _stays(scene, larger, price):
            kind, values = ("gpu", {}) if number == 1 else ("gpu_many", {"num": number})
            trial = _said(kind, value=device.name, **values), larger
            if _is_sure(scene, larger, price):
                yield trial
                break
            unsure = unsure or trial
    else:
        if unsure is not None:
            yield unsure
    yield from _larger_host(scene, price)
    yield from _a_drive(scene, price)


def _fewest(scene: Scene, price: Price, bases: Sequence[Request], counts: Sequence[int]) -> Iterator[Trial]:
    """Yield the least number of the same card in a machine that any way takes, and the least that is sure."""
    name = scene.request.where.gpus[0][0]
    has_unsure = False
    for count in counts:
        where = replace(scene.request.where, gpus=((name, count),))
        tried = [replace(batched(base, n), where=where) for base in bases for n in (1, count * where.num_nodes)]
        found = [(one, best) for one in tried if (best := _best(scene, one, price)) is not None]
        if not found:
            continue
        fitting, best = next((pair for pair in found if pair[1].footprint.fits_surely), found[0])
        is_sure = best.footprint.fits_surely
        if is_sure or not has_unsure:
            yield _said("gpus", value=count), fitting
        has_unsure = True
        if is_sure:
            return


def _is_sure(scene: Scene, request: Request, price: Price) -> bool:
    best = _best(scene, request, price)
    return best is not None and best.footprint.fits_surely


def _may_hold(scene: Scene, request: Request) -> bool:
    """Whether the memory of a request's devices is enough for the way that needs least, whatever its speed."""
    from tonnage.search.least import least_device_bytes  # noqa: PLC0415  only training needs it

    load = request.workload
    assert isinstance(load, Training)
    if scene.lesson is not None:  # it moves what is needed: ask the search itself
        return True
    cluster = place(request.where).cluster
    one = set_scene(request, scene.model, cluster)
    need = least_device_bytes(scene.model, load, cluster, one.software, one.fixed)
    return need <= min(device.memory_bytes for device in cluster.node.devices) - cluster.node.reserved_bytes


def _official(like: Device) -> list[Device]:
    """Return the official cards of a maker, the smallest first and of equals the fastest."""
    cards = (d for d in devices() if d.vendor == like.vendor and not d.is_unofficial)
    return sorted(cards, key=lambda d: (d.memory_bytes, -d.bandwidth_bytes_per_s))


def _more_nodes(scene: Scene, bare: Request, name: str, price: Price) -> Iterator[Trial]:
    """Yield the smallest number of full machines of the same card that does."""
    for nodes in _NODES:
        where = replace(bare.where, gpus=((name, _MOST_IN_A_NODE),), num_nodes=nodes)
        larger = replace(bare, where=where)
        if nodes > bare.where.num_nodes and _stays(scene, larger, price):
            yield _said("nodes", num=nodes, value=_MOST_IN_A_NODE), larger
            return


def _larger_card(scene: Scene, bare: Request, number: int, price: Price) -> Iterator[Trial]:
    """Yield the smallest official card of the same maker that does, in the same number."""
    here = scene.cluster.node.devices[0]
    larger = [device for device in _official(here) if device.memory_bytes > here.memory_bytes]
    tried: set[int] = set()
    for device in larger:
        if device.memory_bytes >> 30 in tried:
            continue
        tried.add(device.memory_bytes >> 30)
        request = replace(bare, where=replace(bare.where, gpus=((device.slug, number),)))
        if _stays(scene, request, price):
            name, values = ("gpu", {}) if number == 1 else ("gpu_many", {"num": number})
            yield _said(name, value=device.name, **values), request
            return


def _larger_host(scene: Scene, price: Price) -> Iterator[Trial]:
    """Yield the host memory that offloading needs, where the host is what is too small."""
    request, host = scene.request, scene.cluster.node.host
    if request.where.host is not None and "ddr" not in request.where.host.lower():
        return
    words = (request.where.host or usual_host_of(scene.cluster.node.devices)).partition("ddr")
    for gibibytes in (128, 256, 512, 1024, 2048):
        if gibibytes * GIB <= host.memory_bytes:
            continue
        text = f"{gibibytes} GiB {words[1]}{words[2]}"
        larger = replace(request, where=replace(request.where, host=text))
        if _kept(scene, larger, price):
            yield (lambda best, text=text: say("plan.change_host", value=text, place=where_it_lives(best))), larger
            return


def _a_drive(scene: Scene, price: Price) -> Iterator[Trial]:
    """Yield the smallest drive that training swaps with, or experts are read from, where the machine has none."""
    request, limits = scene.request, scene.request.limits
    if isinstance(request.workload, Serving):
        able = tuple(engine.name for engine in scene.engines if "experts_nvme" in engine.traits.placements)
    else:
        able = tuple(ways.name for ways in training_ways() if "nvme" in ways.offload)
    engines = tuple(name for name in able if name in limits.engines) if limits.engines else able
    if scene.cluster.node.host.drive is not None or not engines:
        return
    host = request.where.host or usual_host_of(scene.cluster.node.devices)
    for terabytes in _DRIVES:
        text = f"{host}, nvme {terabytes} TB"
        larger = replace(request, where=replace(request.where, host=text))
        if _kept(scene, replace(larger, limits=replace(limits, engines=engines)), price):
            yield (
                (
                    lambda best, terabytes=terabytes: say(
                        "plan.change_drive", value=f"{terabytes} TB", place=where_it_lives(best)
                    )
                ),
                larger,
            )
            return


_DRIVES: Final = (2, 8, 32)


def _other_method(scene: Scene, load: Training, price: Price) -> Iterator[Trial]:
    """Yield lighter methods: adapters, adapters on quantised weights; where it takes that, with 8-bit states."""
    lighter = {TrainingKind.FULL: (TrainingKind.LORA, TrainingKind.QLORA), TrainingKind.LORA: (TrainingKind.QLORA,)}
    free = {p: v for p, v in scene.request.pins.items() if not p.startswith(("precision.", "optimizer", "offload."))}
    is_new = load.kind is TrainingKind.FULL  # of adapters nothing was said
    assumed = (*scene.request.assumed, *(("--lora-rank", "--lora-targets") if is_new else ()))
    for kind in lighter.get(load.kind, ()):
        plain = replace(scene.request, workload=replace(load, kind=kind), pins=free, assumed=assumed)
        for request in (plain, replace(plain, pins={**free, "optimizer": _FEWER_STATES[0]})):
            if _kept(scene, request, price):
                said = f"{kind.value}, {request.pins['optimizer']}" if "optimizer" in request.pins else kind.value
                yield _said("method", value=said, old=load.kind.value), request
                break
        else:
            yield from _method_on_more(scene, load, plain, price)


def _method_on_more(scene: Scene, load: Training, lighter: Request, price: Price) -> Iterator[Trial]:
    """Yield a lighter method on the fewest of the same card in a machine, where it takes more than there are."""
    where = scene.request.where
    if len(where.gpus) != 1:
        return
    bare = replace(lighter, pins={p: v for p, v in lighter.pins.items() if not p.startswith("layout.")})
    assert isinstance(bare.workload, Training)
    method = say("plan.change_method", value=bare.workload.kind.value, old=load.kind.value)
    for what, request in _fewest(scene, price, [bare], range(where.gpus[0][1] + 1, _MOST_IN_A_NODE + 1)):
        yield (lambda best, what=what: say("plan.comma").join((method, what(best)))), request
