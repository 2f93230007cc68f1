"""Walks the space: every way on every engine, moved to the host or made smaller until it fits, or known to be short.

Along an axis on which memory only falls (layers moved to the host, a smaller micro-batch) the first value that fits is
found by halving, so the answer is that of trying them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cache
from typing import Any, Final

from tonnage.engines.types import Engine
from tonnage.estimate.compose_serving import estimate_serving, serving_load
from tonnage.estimate.serving import ServingLoad
from tonnage.estimate.types import Candidate, Estimate, Layout
from tonnage.estimate.weights import checkpoint_format, weights_bytes
from tonnage.hardware.types import Cluster
from tonnage.messages import say
from tonnage.model.types import Model
from tonnage.nouns import noun
from tonnage.search.constraints import num_experts, why_not
from tonnage.search.space import (
    bits_class,
    bits_of,
    cache_formats,
    serving_layouts,
    weight_formats,
)
from tonnage.workload.precision import Precision
from tonnage.workload.types import Serving

Pinned = Callable[[Candidate], Candidate]


@noun
class RuledOut:
    """A way that cannot be, whatever the memory, with its reason."""

    engine: str
    weights: str
    reason: str
    num_candidates: int = 1


@noun
class Explored:
    """What was found: ways that fit, ways that are short, ways that cannot be; and how many candidates were looked at."""

    kept: tuple[Estimate, ...] = ()
    short: tuple[Estimate, ...] = ()
    ruled_out: tuple[RuledOut, ...] = ()
    num_candidates: int = 0

    def __add__(self, other: Explored) -> Explored:
        """Join what two walks found."""
        return Explored(
            kept=self.kept + other.kept,
            short=self.short + other.short,
            ruled_out=self.ruled_out + other.ruled_out,
            num_candidates=self.num_candidates + other.num_candidates,
        )


@noun
class Fixed:
    """What is fixed: the paths and how they are set; and to what the walk is narrowed."""

    paths: frozenset[str] = frozenset()
    apply: Pinned = lambda candidate: candidate
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    formats: tuple[str, ...] = ()  # weight formats to try; none named = all
    may_offload: bool = True
    wants_best_only: bool = False  # what is short is not estimated, and limits of what fits are not looked for

    def holds(self, *paths: str) -> bool:
        """Whether any of the paths is fixed."""
        return any(path in self.paths for path in paths)


def first_that_fits(fits: Callable[[int], bool], least: int, most: int, guess: int) -> int | None:
    """Return the least number that fits where a larger one never needs more; None when even the most does not.

    >>> first_that_fits(lambda n: n >= 7, 0, 40, 9)
    7
    """
    if not fits(most):
        return None
    low, high = least - 1, most
    probe = min(max(guess, least), most)
    for step in (0, 1, 2, 4):  # a good guess is met within a few steps; a bad one costs no more than these
        probe = probe - step if probe + step >= high else probe + step
        if not low < probe < high:
            break
        low, high = (low, probe) if fits(probe) else (probe, high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


class _Walk:
    """Collects what a walk finds; each candidate is looked at once."""

    def __init__(self, fixed: Fixed) -> None:
        self.fixed = fixed
        self.kept: list[Estimate] = []
        self.short: list[Estimate] = []
        self.ruled_out: list[RuledOut] = []
        self.num_candidates = 0
        self.least: dict[object, tuple[float, Candidate, Engine]] = {}  # what misses least, by size of weights
        self._seen: set[Any] = set()

    def is_new(self, candidate: Candidate) -> bool:
        key = (
            candidate.engine,
            candidate.layout,
            candidate.precision,
            candidate.recompute,
            candidate.recompute_every,
            candidate.offload,
            candidate.micro_batch_size,
            candidate.optimizer,
        )
        if key in self._seen:
            return False
        self._seen.add(key)
        return True

    def keep(self, candidate: Candidate, engine: Engine) -> None:
        has_largest = not self.fixed.wants_best_only
        self.kept.append(estimate_serving(candidate, engine.accounting, has_largest=has_largest))

    def miss(self, short: float, candidate: Candidate, engine: Engine) -> None:
        """Remember a way that is short, if it misses less than others with weights of its size."""
        step = bits_class(bits_of(candidate.precision.weights))
        known = self.least.get(step)
        if known is None or short < known[0]:
            self.least[step] = short, candidate, engine

    def rule_out(self, candidate: Candidate, reason: str) -> None:
        self.num_candidates += 1
        self.ruled_out.append(RuledOut(engine=candidate.engine, weights=candidate.precision.weights, reason=reason))

    def explored(self) -> Explored:
        return Explored(
            kept=tuple(self.kept),
            short=tuple(self.short),
            ruled_out=tuple(self.ruled_out),
            num_candidates=self.num_candidates,
        )


def compute_type(cluster: Cluster) -> str:
    """Return the type to compute in: bf16 where every device has it, else fp16."""
    has_bf16 = all(d.vendor != "NVIDIA" or "bf16" in d.flop_per_s for d in cluster.node.devices)
    return "bf16" if has_bf16 else "fp16"


def explore_serving(model: Model, load: Serving, cluster: Cluster, engines: Iterable[Engine], fixed: Fixed) -> Explored:
    """Walk every engine, weight format and layout for one serving load on one cluster."""
    walk = _Walk(fixed)
    compute = compute_type(cluster)
    for engine in engines:
        base = Candidate(model=model, workload=load, cluster=cluster, engine=engine.name)
        caches = cache_formats(engine.traits)
        per_node = len(cluster.node.devices)
        formats = ("",) if fixed.holds("precision.weights") else weight_formats(model, engine.traits)
        if not formats:
            walk.rule_out(base, say("search.no_gguf", name=engine.traits.title, own=checkpoint_format(model)))
        if fixed.formats:
            formats = [name for name in formats if name in (*fixed.formats, "")]
        traits = engine.traits
        layouts: Sequence[Layout] = serving_layouts(
            model, cluster.num_devices, per_node, traits.parallelisms, traits.expert_ways
        )
        if fixed.holds("layout.tp", "layout.pp", "layout.dp"):
            layouts = (*layouts, *_layouts_around(base, fixed, cluster.num_devices))
        for layout in layouts or (Layout(),):
            for weights in formats:
                precision = Precision(weights=weights or "bf16", compute=compute, kv=caches[0])
                candidate = fixed.apply(replace(base, layout=layout, precision=precision))
                _serve_one(walk, candidate, engine, caches)
    if fixed.wants_best_only:
        return walk.explored()
    missed = (estimate_serving(candidate, engine.accounting) for _, candidate, engine in walk.least.values())
    walk.short += (estimate for estimate in missed if not estimate.footprint.fits)
    return walk.explored()


def _layouts_around(base: Candidate, fixed: Fixed, num_devices: int) -> tuple[Layout, ...]:
    """Return the layout of the fixed ways alone, filled up with copies where that uses all devices."""
    layout = fixed.apply(base).layout
    used = layout.tp * layout.pp * layout.cp
    if not fixed.holds("layout.dp") and num_devices % used == 0:
        return (replace(layout, dp=num_devices // used),)
    return (layout,)


def _serve_one(walk: _Walk, candidate: Candidate, engine: Engine, caches: Sequence[str]) -> None:
    """Look at one way: as it is, with a smaller cache, with experts or layers on the host."""
    if not walk.is_new(candidate):
        return
    refusal = engine.refuses(candidate)
    reason = why_not(candidate) or (refusal.reason if refusal else None)
    if reason is not None:
        walk.rule_out(candidate, reason)
        return

    if _cannot_fit(walk.fixed, candidate):
        walk.num_candidates += 1
        return
    load = serving_load(candidate, engine.accounting)
    here, margin = _short(walk, engine, load)
    if here <= 0:
        walk.keep(candidate, engine)
        return
    if here <= margin:
        plain = estimate_serving(candidate, engine.accounting)
        if plain.footprint.fits:
            walk.kept.append(plain)
    walk.miss(here, candidate, engine)
    for smaller in (*_smaller_cache(walk, candidate, engine, caches), *_moved(walk, candidate, engine, load, here)):
        walk.keep(smaller, engine)


def _cannot_fit(fixed: Fixed, candidate: Candidate) -> bool:
    """Whether the weights alone are more than the devices of a copy have, where only what fits is asked for.

    Every matrix of the layers lies on some device of a copy at least once, whatever the engine: tensor, pipeline and
    expert parallelism divide it, and where nothing may move to the host none of it is elsewhere. The token embedding
    (host memory in llama.cpp) and the encoder are left out. So a fullest device holds no less than an equal share, and
    where that is more than its memory no candidate of this format and layout fits, with any cache.
    """
    if (
        not fixed.wants_best_only
        or fixed.may_offload
        or fixed.holds("offload.num_cpu_expert_layers", "offload.num_cpu_layers")
    ):
        return False
    layout, node = candidate.layout, candidate.cluster.node
    ways = layout.tp * layout.pp * max(1, layout.ep // layout.tp)
    largest = max(device.memory_bytes for device in node.devices)
    return _least_bytes(candidate.model, candidate.precision.weights) > ways * largest


_LEAST: dict[tuple[int, str], tuple[object, float]] = {}


def _least_bytes(model: Model, weights: str) -> float:
    """Return the bytes of the layers' matrices in a format, counted once a model and format."""
    key = id(model.layers), weights
    known = _LEAST.get(key)
    if known is None or known[0] is not model.layers:
        if len(_LEAST) >= _MOST_KNOWN:
            _LEAST.clear()
        parts = weights_bytes(model, weights)
        known = _LEAST[key] = model.layers, sum(parts.get(name, 0) for name in _IN_LAYERS)
    return known[1]


_MOST_KNOWN: Final = 64
_IN_LAYERS: Final = ("attention", "linear_attn_ssm", "mlp", "experts", "shared_experts")


def _short(walk: _Walk, engine: Engine, load: ServingLoad) -> tuple[float, float]:
    """Return what is missing at the upper end of the interval, on the device or the host, and that end's margin."""
    over_device, over_host, margin = _over(walk, engine, load)
    return max(over_device, over_host, 0.0), margin


def _over(walk: _Walk, engine: Engine, load: ServingLoad) -> tuple[float, float, float]:
    """Return what is missing on the device and on the host at the upper end of the interval, and that end's margin."""
    walk.num_candidates += 1
    needed = engine.accounting.memory(load)
    device, host = float(needed.device_bytes()), float(needed.host_bytes())
    part = needed.relative_error
    taken = device + host * load.is_unified_memory
    over_device = taken * (1 + part) - float(needed.capacity_bytes)
    over_host = host * (1 + part) - float(load.host_memory_bytes)
    return over_device, over_host, part * max(taken, host)


def _smaller_cache(walk: _Walk, candidate: Candidate, engine: Engine, caches: Sequence[str]) -> Iterator[Candidate]:
    if walk.fixed.holds("precision.kv"):
        return
    for kv in caches[1:]:
        smaller = replace(candidate, precision=replace(candidate.precision, kv=kv))
        if _short(walk, engine, serving_load(smaller, engine.accounting))[0] <= 0:
            yield smaller
            return


def _moved(walk: _Walk, candidate: Candidate, engine: Engine, load: ServingLoad, here: float) -> Iterator[Candidate]:
    """Move as few layers' experts to the host as make it fit; for a dense model, whole layers."""
    fixed, placements, layers = walk.fixed, engine.traits.placements, candidate.model.num_layers
    if not fixed.may_offload or fixed.holds("offload.num_cpu_expert_layers", "offload.num_cpu_layers"):
        return
    if load.is_unified_memory:
        return
    has_experts = num_experts(candidate.model) > 0
    if has_experts and "experts_cpu" in placements:
        name = "num_cpu_expert_layers"
    elif "layers_cpu" in placements:
        name = "num_cpu_layers"
    else:
        return

    @cache
    def over(number: int) -> tuple[float, float]:
        return _over(walk, engine, replace(load, **{name: number}))[:2]

    # Each layer moved frees the device and fills the host: the least number that suits the device suits the host, or none.
    least = max(over(layers)[0], 0.0)
    guess = round(layers * here / max(here - least, here * 0.05, 1.0)) if here > least else layers
    number = first_that_fits(lambda n: over(n)[0] <= 0, 1, layers, guess)
    if number is None:
        return
    moved = replace(candidate, offload=replace(candidate.offload, **{name: number}))
    if over(number)[1] <= 0:
        yield moved
    elif name == "num_cpu_expert_layers":
        yield from _on_drive(walk, moved, engine, load)


def _on_drive(walk: _Walk, candidate: Candidate, engine: Engine, load: ServingLoad) -> Iterator[Candidate]:
    """Leave what host memory does not hold of the experts on the drive: slower than any way that holds them.

    Each layer more on the host is read from the drive as well, so the fewest that suit the device are the best.
    """
    drive = candidate.cluster.node.host.drive
    if "experts_nvme" not in engine.traits.placements or drive is None or load.shape.weights_bytes > drive.free_bytes:
        return
    mapped = replace(candidate, offload=replace(candidate.offload, experts_nvme=True))
    if _short(walk, engine, serving_load(mapped, engine.accounting))[0] <= 0:
        yield mapped
