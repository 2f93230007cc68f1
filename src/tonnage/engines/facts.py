"""Reads an engine's data file: abilities, refusals, and constants by version and kind of device."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, Final

from tonnage import datafiles
from tonnage.engines.traits import holds, refusals_of, traits_of_candidate
from tonnage.engines.types import EngineTraits, Launch, Refusal
from tonnage.estimate.serving import ServingLoad, ServingRates
from tonnage.estimate.types import Candidate, EngineAccounting
from tonnage.nouns import noun
from tonnage.units import Count

__all__ = [
    "RATE_NAMES",
    "Constant",
    "Constants",
    "DescribedEngine",
    "constants_of",
    "factors_of",
    "rates_of",
    "refusal_of",
    "scope_of",
    "traits_of",
    "version_key",
]


@cache
def traits_of(name: str) -> EngineTraits:
    """Return an engine's abilities from its data file."""
    table = datafiles.table(f"engines/{name}.toml")
    found = table["abilities"]
    return EngineTraits(
        title=table["title"],
        version=table["version"],
        source=table["source"],
        vendors=tuple(found["vendors"]),
        min_compute_capability=found.get("min_compute_capability", 0.0),
        weight_formats=tuple(found["weight_formats"]),
        cache_formats=tuple(found["cache_formats"]),
        parallelisms=tuple(found["parallelisms"]),
        placements=tuple(found["placements"]),
        expert_ways=found.get("expert_ways", ""),
        min_capability_of_format=found.get("min_capability_of_format", {}),
        refusals=refusals_of(table.get("refusal", ())),
    )


def refusal_of(name: str, candidate: Candidate) -> Refusal | None:
    """Return why an engine cannot run a candidate, or None: first what its own source says, then what it has no way for."""
    traits = traits_of(name)
    devices = candidate.cluster.node.devices
    vendor = devices[0].vendor.lower() if devices else "cpu"
    weights, kv = candidate.precision.weights, candidate.precision.kv

    def no(reason: str) -> Refusal:
        return Refusal(reason=reason, source=traits.source)

    has = traits_of_candidate(candidate) if traits.refusals else frozenset[str]()
    told = next((one for one in traits.refusals if holds(one, candidate, has)), None)
    if told is not None:
        return told
    if vendor not in traits.vendors:
        return no(f"{traits.title} does not run on {vendor}")
    capability = float(devices[0].compute_capability or 0) if devices and vendor == "nvidia" else 0.0
    if vendor == "nvidia" and 0 < capability < traits.min_compute_capability:
        return no(
            f"{traits.title} needs compute capability {traits.min_compute_capability}, this card has {capability}"
        )
    if not any(fnmatchcase(weights, pattern) for pattern in traits.weight_formats):
        return no(f"{traits.title} does not load {weights} weights")
    needed = next((c for p, c in traits.min_capability_of_format.items() if fnmatchcase(weights, p)), 0.0)
    if vendor == "nvidia" and 0 < capability < needed:
        return no(f"{weights} weights in {traits.title} need compute capability {needed}, this card has {capability}")
    if kv not in traits.cache_formats:
        return no(f"{traits.title} has no {kv} cache")
    layout, offload = candidate.layout, candidate.offload
    for way in ("tp", "pp", "dp", "ep"):
        if getattr(layout, way) > 1 and way not in traits.parallelisms:
            return no(f"{traits.title} has no {way}")
    wide = layout.ep > 1 and traits.expert_ways
    if wide == "copies" and layout.ep != layout.tp * layout.dp:
        return no(f"{traits.title} spreads experts over all {layout.tp * layout.dp} ranks of a stage, or over none")
    if wide == "tensor" and layout.tp % layout.ep:
        return no(f"{traits.title} spreads experts over the {layout.tp} tensor-parallel ranks")
    if offload.num_cpu_expert_layers and "experts_cpu" not in traits.placements:
        return no(f"{traits.title} does not keep experts in host memory")
    if offload.experts_nvme and "experts_nvme" not in traits.placements:
        return no(f"{traits.title} does not read experts from a drive as they are chosen")
    if offload.num_cpu_layers and "layers_cpu" not in traits.placements:
        return no(f"{traits.title} does not run layers on the host")
    return None


@cache
def version_key(text: str) -> tuple[int, ...]:
    """Return a version as numbers to compare: "0.19.0" gives (0, 19, 0), "b6111" gives (6111,)."""
    match = re.search(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


@noun
class Constant:
    """One number of an engine: what it means, where it may lie, where it comes from, and what it holds for."""

    engine: str  # whose data file states it
    name: str
    value: float
    low: float
    high: float
    meaning: str
    evidence: str
    scope: tuple[tuple[str, str], ...] = ()
    prior: float | None = None  # where a fit starts from, and what it falls back to without evidence
    spread: float = 0.0  # how far, in natural logarithms, a fit may leave the prior; 0: not fitted
    since: str = ""  # first version it holds for
    before: str = ""  # first version it no longer holds for

    @property
    def key(self) -> str:
        """Return what tells it from all other constants."""
        parts = [self.engine, self.name, *(f"{key}={value}" for key, value in self.scope), self.since, self.before]
        return ":".join(part for part in parts if part)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Constants:
    """An engine's constants, found by name, version and scope."""

    engine: str
    version: str  # meant where none is asked for
    entries: tuple[Constant, ...]
    measured: frozenset[str] = frozenset()  # kinds of device whose speeds decided constants
    found: dict[Any, Any] = field(default_factory=dict[Any, Any])

    def value(self, name: str, version: str = "", **scope: str) -> float:
        """Return a constant; of the entries whose version and scope are met, the one that says most wins."""
        key = name, version, tuple(scope.items())
        if key not in self.found:
            self.found[key] = self._find(name, version_key(version or self.version), scope)
        return self.found[key]

    def _find(self, name: str, at: tuple[int, ...], scope: Mapping[str, str]) -> float:
        return self.entry(name, at, scope).value

    def entry(self, name: str, at: tuple[int, ...], scope: Mapping[str, str]) -> Constant:
        """Return the entry that `value` takes."""
        best: tuple[int, Constant] | None = None
        for one in self.entries:
            if (
                one.name != name
                or (one.since and at < version_key(one.since))
                or (one.before and at >= version_key(one.before))
                or any(scope.get(key) != value for key, value in one.scope)
            ):
                continue
            weight = 2 * len(one.scope) + bool(one.since or one.before)
            if best is None or weight >= best[0]:  # of equal ones the last: an engine's own over what it stands on
                best = weight, one
        assert best is not None, f"data/engines/{self.engine}.toml has no constant {name} for {at} {dict(scope)}"
        return best[1]


@cache
def constants_of(engine: str) -> Constants:
    """Return an engine's constants from its data file; what it does not state itself comes from the one it stands on."""
    table = datafiles.table(f"engines/{engine}.toml")
    beneath = constants_of(table["stands_on"]) if "stands_on" in table else None
    measured = frozenset(table.get("measured", {}).get("architectures", ()))
    return Constants(
        engine=engine,
        version=table["version"],
        measured=measured | (beneath.measured if beneath else frozenset()),
        entries=(beneath.entries if beneath else ())
        + tuple(
            Constant(
                engine=engine,
                name=one["name"],
                value=float(one["value"]),
                low=float(one["low"]),
                high=float(one["high"]),
                meaning=one["meaning"],
                evidence=one["evidence"],
                scope=tuple(sorted(one.get("scope", {}).items())),
                prior=one.get("prior"),
                spread=float(one.get("spread", 0.0)),
                since=one.get("from", ""),
                before=one.get("before", ""),
            )
            for one in table.get("constant", ())
        ),
    )


# Rates that are products: a base by backend, and what the kind of memory, weights or library makes of it.
_FACTORS: Final = {
    "bandwidth_ratio": ("bandwidth_ratio", "memory_factor", "weights_factor"),
    "expert_bandwidth_ratio": ("bandwidth_ratio", "memory_factor", "weights_factor", "expert_factor"),
    "compute_ratio": (
        "compute_ratio",
        "library_factor",
        "weights_compute_factor",
        "memory_compute_factor",
        "number_compute_factor",
    ),
    "expert_compute_ratio": (
        "expert_compute_ratio",
        "weights_compute_factor",
        "memory_compute_factor",
        "number_compute_factor",
    ),
}
_FLAGS: Final = frozenset({"copies_host_weights", "copies_once", "is_pipelined", "mixes_prompts", "is_calibrated"})
_ERRORS: Final = ("relative_error", "prefill_relative_error", "batch_relative_error")
# What 80 % of the errors stay under without any row of a source, over the same without a row's unit (SCORES.md): 1.3 for
# decode, 1.6 for prefill and for many requests.
_UNMEASURED: Final = 1.5
_WIDEST: Final = 1.0
RATE_NAMES: Final = tuple(one.name for one in fields(ServingRates))


def scope_of(load: ServingLoad) -> dict[str, str]:
    """Return what an engine's rates differ by: backend, memory, weights, attention, library, and the kind of host."""
    weights = load.weights_format
    return {
        "backend": load.backend,
        "memory": "hbm" if "hbm" in load.memory_type else "unified" if load.is_unified_memory else "gddr",
        "weights": "plain"
        if weights in ("f16", "fp16", "bf16", "gguf_bf16", "f32", "fp32")
        else "codebook"
        if weights.startswith(("iq", "tq"))
        else "quantized",
        "compute": load.multiplied_in,
        "attention": _attention(load),
        "library": load.library.partition("+")[0],
        "cache": "grouped" if _shares_heads(load) else "own",
        "draft": "head" if load.has_draft_head else "model",
        "placement": _placement(load),
    }


# rocWMMA's kernels for flash attention came to RDNA 3.5 and 4 between builds 5922 and 6077 of llama.cpp.
_FIRST_ROCWMMA_BUILD: Final = 6000


def _attention(load: ServingLoad) -> str:
    """Return how attention is computed: HIP builds of llama.cpp without rocWMMA have no matrix kernels for flash attention."""
    if not load.has_flash_attention:
        return "plain"
    is_early = load.version.startswith("b") and version_key(load.version) < (_FIRST_ROCWMMA_BUILD,)
    lacks_kernels = bool(load.library) and ("rocwmma" not in load.library or is_early)
    return "vector" if load.backend == "hip" and lacks_kernels else "flash"


def _shares_heads(load: ServingLoad) -> bool:
    """Whether several query heads read one head of the cache."""
    return any(0 < group.num_kv_heads < load.shape.num_heads for group in load.shape.cache_groups)


def _placement(load: ServingLoad) -> str:
    """Return where the work is done: on the device, partly on the host, or by drafts."""
    is_hosted = load.backend == "cpu" or _any(load.num_cpu_layers) or _any(load.num_cpu_expert_layers)
    return "host" if is_hosted else "drafted" if _any(load.num_draft_tokens) else "device"


def _any(amount: Count) -> bool:
    """Whether a number, or any of a column, is more than nothing."""
    if isinstance(amount, int | float):
        return bool(amount)
    import numpy as np  # noqa: PLC0415  only columns need it

    return bool(np.any(amount))


def factors_of(name: str) -> tuple[str, ...]:
    """Return the constants whose product a rate is."""
    return _FACTORS.get(name, (name,))


def rates_of(constants: Constants, load: ServingLoad) -> ServingRates:
    """Return an engine's rates on the load's kind of device."""
    scope = scope_of(load)
    key = "rates", load.version, *scope.values()
    known: Any = constants.found.get(key)
    if known is not None:
        return known
    values: dict[str, Any] = {}
    for name in RATE_NAMES:
        product = 1.0
        for factor in factors_of(name):
            product *= constants.value(factor, load.version, **scope)
        values[name] = bool(product) if name in _FLAGS else product
    rates = ServingRates(**values)
    constants.found[key] = rates
    return rates


@noun
class DescribedEngine:
    """An engine whose abilities and refusals stand in `data/engines/<data>.toml`."""

    name: str
    data: str
    rules: Callable[[], EngineAccounting]
    launcher: Callable[[Candidate], Launch]

    @property
    def accounting(self) -> EngineAccounting:
        """Memory rules and rates; a verb that asks no engine reads no constants."""
        return self.rules()

    @property
    def traits(self) -> EngineTraits:
        """Abilities and refusals."""
        return traits_of(self.data)

    def launch(self, candidate: Candidate) -> Launch:
        """Return the command with the flags that the prediction assumed."""
        return self.launcher(candidate)

    def refuses(self, candidate: Candidate) -> Refusal | None:
        """Return why the engine cannot run a candidate, or None."""
        return refusal_of(self.data, candidate)
