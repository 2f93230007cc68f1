"""Reads an engine's data file: abilities, refusals, and constants by version and kind of device."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from tonnage import datafiles
from tonnage.engines.types import EngineTraits, Refusal
from tonnage.estimate.serving import ServingLoad, ServingRates
from tonnage.estimate.types import Candidate

__all__ = ["constant", "rates_of", "refusal_of", "traits_of", "version_key"]


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


@cache
def _constants(engine: str) -> tuple[dict[str, Any], ...]:
    return tuple(datafiles.table(f"engines/{engine}.toml").get("constant", ()))


@cache
def constant(engine: str, name: str, version: str = "", **scope: str) -> float:
    """Return a constant by name, for a version and a scope such as `device="nvidia"`.

    Of the entries whose scope is met the one that says most wins. An entry without `from` and `before` holds for every
    version; without a version asked for, the data file's own is meant.
    """
    at = version_key(version or traits_of(engine).version)
    best: tuple[int, float] | None = None
    for one in _constants(engine):
        if one["name"] != name:
            continue
        if "from" in one and at < version_key(one["from"]):
            continue
        if "before" in one and at >= version_key(one["before"]):
            continue
        wanted = one.get("scope", {})
        if any(scope.get(key) != value for key, value in wanted.items()):
            continue
        weight = len(wanted) * 2 + ("from" in one or "before" in one)
        if best is None or weight > best[0]:
            best = weight, float(one["value"])
    assert best is not None, f"data/engines/{engine}.toml has no constant {name} for {version} {scope}"
    return best[1]


def device_kind(load: ServingLoad) -> str:
    """Return the kind of device that rates differ by: nvidia, amd, apple, intel."""
    return load.vendor if load.vendor in ("nvidia", "amd", "apple", "intel") else "other"


def rates_of(engine: str, load: ServingLoad) -> ServingRates:
    """Return an engine's rates on the load's kind of device."""
    kind = device_kind(load)

    def value(name: str) -> float:
        return constant(engine, name, load.version, device=kind)

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
        pcie_ratio=value("pcie_ratio"),
        copies_host_weights=bool(value("copies_host_weights")),
        is_pipelined=bool(value("is_pipelined")),
        relative_error=value("relative_error"),
        prefill_relative_error=value("prefill_relative_error"),
        batch_relative_error=value("batch_relative_error"),
        is_calibrated=bool(value("is_calibrated")),
    )
