"""An engine as one machine's own measurements taught it: the same rules, with that machine's constants."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import field, replace
from typing import Any, Final

from tonnage.engines.facts import Constants
from tonnage.engines.types import Engine, EngineTraits, Launch, Refusal
from tonnage.estimate.serving import ServingLoad, ServingMemory, ServingPool, ServingRates, ServingShape
from tonnage.estimate.serving_memory import at_least
from tonnage.estimate.types import Candidate, EngineAccounting, EngineSettings
from tonnage.nouns import noun
from tonnage.units import Count

__all__ = ["ENGINE_QUANTITIES", "TaughtAccounting", "TaughtEngine", "Teaching", "taught"]

# Which constants of an engine a quantity moves; the others are no constants of it.
_ADDED: Final = {
    "non_torch_bytes": ("non_torch_bytes", "context_bytes"),
    "context_bytes": ("context_bytes", "non_torch_bytes"),
    "pool_bytes": ("non_torch_bytes", "context_bytes"),
}
_MULTIPLIED: Final = {
    "bandwidth_ratio": ("bandwidth_ratio", "cache_bandwidth_ratio"),
    "compute_ratio": ("compute_ratio", "expert_compute_ratio", "attention_compute_ratio"),
    "host_bandwidth_ratio": ("host_bandwidth_ratio",),
    "pcie_ratio": ("pcie_ratio",),
    "batch_ratio": ("batch_ratio",),
}
_WIDTHS: Final = {
    "bandwidth_ratio": ("relative_error",),
    "host_bandwidth_ratio": ("relative_error",),
    "compute_ratio": ("prefill_relative_error",),
    "pcie_ratio": ("prefill_relative_error",),
    "batch_ratio": ("batch_relative_error",),
    "non_torch_bytes": ("memory_relative_error",),
    "context_bytes": ("memory_relative_error",),
    "pool_bytes": ("memory_relative_error",),
}
_OF_STEPS: Final = frozenset({"bandwidth_ratio", "host_bandwidth_ratio"})
ENGINE_QUANTITIES: Final = (*_ADDED, *_MULTIPLIED, "weights_bytes", "compute_buffer_bytes")


@noun
class Teaching:
    """What is believed of one engine on one machine for one model: bytes to add, factors, and how widths shrink."""

    amounts: Mapping[str, float] = field(default_factory=dict[str, float])  # by quantity: bytes, or a factor
    by_format: Mapping[tuple[str, str, int, int], float] = field(
        default_factory=dict[tuple[str, str, int, int], float]
    )  # bytes by quantity, format of the weights, tensor- and pipeline-parallel ways
    widths: Mapping[str, float] = field(default_factory=dict[str, float])  # by quantity: factor on interval widths
    said: tuple[str, ...] = ()  # what an estimate tells of it

    @property
    def is_empty(self) -> bool:
        """Whether nothing was taught."""
        return not self.amounts and not self.by_format


def _constants(base: Constants, teaching: Teaching) -> Constants:
    """Return an engine's constants with the machine's own in their place."""
    names = {entry.name for entry in base.entries}
    added: dict[str, float] = {}
    factors: dict[str, float] = {}
    for quantity, amount in teaching.amounts.items():
        if quantity in _ADDED:
            first = next((name for name in _ADDED[quantity] if name in names), None)
            if first is not None:
                added[first] = added.get(first, 0.0) + amount
        for name in _MULTIPLIED.get(quantity, ()):
            factors[name] = factors.get(name, 1.0) * amount
    for quantity, width in teaching.widths.items():
        for name in _WIDTHS.get(quantity, ()):
            factors[name] = factors.get(name, 1.0) * width
    entries = tuple(
        replace(entry, value=entry.value * factors.get(entry.name, 1.0) + added.get(entry.name, 0.0))
        if entry.name in factors or entry.name in added
        else entry
        for entry in base.entries
    )
    return replace(base, entries=entries, found={})


class TaughtAccounting:
    """An engine's rules with one machine's constants; weights and buffers of known models as they were measured."""

    def __init__(self, base: EngineAccounting, teaching: Teaching) -> None:
        inner: Any = copy(base)
        inner.constants = _constants(base.constants, teaching)
        self.name = base.name
        self.constants = inner.constants
        self._base: EngineAccounting = inner
        self._teaching = teaching
        self._shapes: dict[tuple[int, float], tuple[ServingShape, ServingShape]] = {}

    def with_defaults(self, load: ServingLoad, settings: EngineSettings) -> ServingLoad:
        """Fill in the engine's defaults, and the weights as loading them was measured."""
        return self._base.with_defaults(replace(load, shape=self._shape(load)), settings)

    def _shape(self, load: ServingLoad) -> ServingShape:
        more = self._measured("weights_bytes", load)
        if not more:
            return load.shape
        key = id(load.shape), more
        if key not in self._shapes:
            changed = replace(load.shape, other_bytes=load.shape.other_bytes + more, cache={})
            self._shapes[key] = load.shape, changed  # the first is kept so that its id stays its own
        return self._shapes[key][1]

    def _measured(self, quantity: str, load: ServingLoad) -> float:
        if not self._teaching.by_format or not isinstance(load.tp, int) or not isinstance(load.pp, int):
            return 0.0
        return self._teaching.by_format.get((quantity, load.weights_format, load.tp, load.pp), 0.0)

    def with_concurrency(self, load: ServingLoad, concurrency: Count) -> ServingLoad:
        """Change the requests in flight."""
        return self._base.with_concurrency(load, concurrency)

    def memory(self, load: ServingLoad) -> ServingMemory:
        """Return the pools, with what was measured in place of what is told; say so."""
        needs = self._base.memory(load)
        return replace(
            needs,
            pools=_settled(needs.pools, self._measured("compute_buffer_bytes", load)),
            assumptions=(*needs.assumptions, *self._teaching.said),
        )

    def rates(self, load: ServingLoad) -> ServingRates:
        """Return the fractions that this machine achieves.

        One request alone waits for nobody: its rate is of a prompt and of steps, and so no less certain than the less
        certain of both where the machine taught them.
        """
        rates = self._base.rates(load)
        if (
            not isinstance(load.concurrency, int)
            or load.concurrency != 1
            or not _OF_STEPS & self._teaching.widths.keys()
        ):
            return rates
        alone = max(rates.relative_error, rates.prefill_relative_error)
        return replace(rates, batch_relative_error=min(rates.batch_relative_error, alone))


def _settled(pools: tuple[ServingPool, ...], more_buffer: float) -> tuple[ServingPool, ...]:
    """Return pools with what was measured of buffers; a context below nothing is taken from the activations instead."""
    context = sum((pool.bytes for pool in pools if pool.name == "context"), start=0.0)
    moved = {
        "context": at_least(0.0, -context),
        "activations": -at_least(0.0, -context),
        "compute_buffer": more_buffer,
    }
    return tuple(
        replace(pool, bytes=at_least(pool.bytes + moved[pool.name], 0.0)) if pool.name in moved else pool
        for pool in pools
    )


@noun
class TaughtEngine:
    """An engine that one machine taught."""

    engine: Engine
    teaching: Teaching
    accounting: EngineAccounting

    @property
    def name(self) -> str:
        """Name as people write it."""
        return self.engine.name

    @property
    def traits(self) -> EngineTraits:
        """Abilities and refusals."""
        return self.engine.traits

    def launch(self, candidate: Candidate) -> Launch:
        """Return the command with the flags that the prediction assumed."""
        return self.engine.launch(candidate)

    def refuses(self, candidate: Candidate) -> Refusal | None:
        """Return why the engine cannot run a candidate, or None."""
        return self.engine.refuses(candidate)


def taught(engine: Engine, teaching: Teaching) -> Engine:
    """Return an engine with a machine's constants; the engine itself where nothing was taught."""
    if teaching.is_empty:
        return engine
    return TaughtEngine(engine=engine, teaching=teaching, accounting=TaughtAccounting(engine.accounting, teaching))
