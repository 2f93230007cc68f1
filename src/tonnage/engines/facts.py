"""Reads an engine's data file: abilities, refusals, and constants by version and kind of device."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from tonnage import datafiles
from tonnage.engines.types import EngineTraits, Refusal
from tonnage.estimate.serving import ServingLoad, ServingRates
from tonnage.estimate.types import Candidate

__all__ = ["Constant", "Constants", "constants_of", "device_kind", "rates_of", "refusal_of", "traits_of", "version_key"]


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
        min_capability_of_format=found.get("min_capability_of_format", {}),
        refusals=tuple(
            Refusal(
                reason=one["reason"],
                source=one["source"],
                formats=tuple(one.get("formats", ())),
                architectures=tuple(one.get("architectures", ())),
                vendors=tuple(one.get("vendors", ())),
                families=tuple(one.get("families", ())),
            )
            for one in table.get("refusal", ())
        ),
    )


def _matches(patterns: tuple[str, ...], value: str) -> bool:
    return not patterns or any(fnmatchcase(value.lower(), pattern.lower()) for pattern in patterns)


def refusal_of(name: str, candidate: Candidate) -> Refusal | None:
    """Return why an engine cannot run a candidate, or None; the first reason in the order a person would mend it."""
    traits = traits_of(name)
    devices = candidate.cluster.node.devices
    vendor = devices[0].vendor.lower() if devices else "cpu"
    architecture = devices[0].architecture if devices else "cpu"
    weights, kv = candidate.precision.weights, candidate.precision.kv

    def no(reason: str) -> Refusal:
        return Refusal(reason=reason, source=traits.source)

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
    if offload.num_cpu_expert_layers and "experts_cpu" not in traits.placements:
        return no(f"{traits.title} does not keep experts in host memory")
    if offload.num_cpu_layers and "layers_cpu" not in traits.placements:
        return no(f"{traits.title} does not run layers on the host")
    for one in traits.refusals:
        if (
            _matches(one.formats, weights)
            and _matches(one.architectures, architecture)
            and _matches(one.vendors, vendor)
            and _matches(one.families, candidate.model.family)
        ):
            return one
    return None


def version_key(text: str) -> tuple[int, ...]:
    """Return a version as numbers to compare: "0.19.0" gives (0, 19, 0), "b6111" gives (6111,)."""
    match = re.search(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """One number of an engine: what it means, where it may lie, where it comes from, and what it holds for."""

    name: str
    value: float
    low: float
    high: float
    meaning: str
    evidence: str
    scope: tuple[tuple[str, str], ...] = ()
    since: str = ""  # first version it holds for
    before: str = ""  # first version it no longer holds for

    @property
    def key(self) -> str:
        """Return what tells it from the engine's other constants."""
        parts = [self.name, *(f"{key}={value}" for key, value in self.scope), self.since, self.before]
        return ":".join(part for part in parts if part)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Constants:
    """An engine's constants, found by name, version and scope."""

    engine: str
    version: str  # meant where none is asked for
    entries: tuple[Constant, ...]
    found: dict[Any, float] = field(default_factory=dict[Any, float])

    def value(self, name: str, version: str = "", **scope: str) -> float:
        """Return a constant; of the entries whose version and scope are met, the one that says most wins."""
        key = name, version, tuple(scope.items())
        if key not in self.found:
            self.found[key] = self._find(name, version_key(version or self.version), scope)
        return self.found[key]

    def _find(self, name: str, at: tuple[int, ...], scope: Mapping[str, str]) -> float:
        best: tuple[int, float] | None = None
        for one in self.entries:
            if (
                one.name != name
                or (one.since and at < version_key(one.since))
                or (one.before and at >= version_key(one.before))
                or any(scope.get(key) != value for key, value in one.scope)
            ):
                continue
            weight = 2 * len(one.scope) + bool(one.since or one.before)
            if best is None or weight > best[0]:
                best = weight, one.value
        assert best is not None, f"data/engines/{self.engine}.toml has no constant {name} for {at} {dict(scope)}"
        return best[1]

    def replaced(self, values: Mapping[str, float]) -> Constants:
        """Return the same constants with some values changed, by their keys."""
        return Constants(
            engine=self.engine,
            version=self.version,
            entries=tuple(replace(one, value=values.get(one.key, one.value)) for one in self.entries),
        )


@cache
def constants_of(engine: str) -> Constants:
    """Return an engine's constants from its data file."""
    table = datafiles.table(f"engines/{engine}.toml")
    return Constants(
        engine=engine,
        version=table["version"],
        entries=tuple(
            Constant(
                name=one["name"],
                value=float(one["value"]),
                low=float(one["low"]),
                high=float(one["high"]),
                meaning=one["meaning"],
                evidence=one["evidence"],
                scope=tuple(sorted(one.get("scope", {}).items())),
                since=one.get("from", ""),
                before=one.get("before", ""),
            )
            for one in table.get("constant", ())
        ),
    )


def device_kind(load: ServingLoad) -> str:
    """Return the kind of device that rates differ by: nvidia, amd, apple, intel."""
    return load.vendor if load.vendor in ("nvidia", "amd", "apple", "intel") else "other"


def rates_of(constants: Constants, load: ServingLoad) -> ServingRates:
    """Return an engine's rates on the load's kind of device."""
    kind = device_kind(load)

    def value(name: str) -> float:
        return constants.value(name, load.version, device=kind)

    return ServingRates(
        bandwidth_ratio=value("bandwidth_ratio"),
        expert_bandwidth_ratio=value("expert_bandwidth_ratio"),
        cache_bandwidth_ratio=value("cache_bandwidth_ratio"),
        compute_ratio=value("compute_ratio"),
        expert_compute_ratio=value("expert_compute_ratio"),
        attention_compute_ratio=value("attention_compute_ratio"),
        layer_seconds=value("layer_seconds"),
        step_seconds=value("step_seconds"),
        chunk_seconds=value("chunk_seconds"),
        host_bandwidth_ratio=value("host_bandwidth_ratio"),
        host_flop_per_s_per_core=value("host_flop_per_s_per_core"),
        host_layer_seconds=value("host_layer_seconds"),
        pcie_ratio=value("pcie_ratio"),
        copies_host_weights=bool(value("copies_host_weights")),
        is_pipelined=bool(value("is_pipelined")),
        relative_error=value("relative_error"),
        prefill_relative_error=value("prefill_relative_error"),
        batch_relative_error=value("batch_relative_error"),
        is_calibrated=bool(value("is_calibrated")),
    )
