"""Which measured device stands in for one that was not measured: a rule of architecture, memory type and form."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from math import log
from typing import Final

from tonnage.hardware import catalogue, ecosystem
from tonnage.hardware.types import Device
from tonnage.nouns import noun

STEPS: Final = (
    "measured itself",
    "same architecture, memory type and form",
    "same architecture and memory type",
    "same generation and memory type",
    "same maker and memory type",
    "same generation",
    "same memory type",
    "any",
)
OTHER_GENERATION: Final = 4  # the first step that leaves a device's generation or its kind of memory
MATMUL: Final = ("matmul",)
STREAM: Final = ("memory-stream", "memory-read")
_HALF: Final = ("bf16", "fp16")
_UNKNOWN_LAUNCH: Final = 2022.0


@noun
class Lender:
    """A measured device whose fraction of its specification another one borrows."""

    slug: str
    ratio: float  # measured over specified rate
    step: int  # of STEPS: 0 is the device itself
    watts_per_flop_per_s: float | None  # power limit over 16-bit peak, as measured


@noun
class _Traits:
    slug: str
    architecture: str
    memory_family: str
    form: str
    vendor: str
    launched: float
    watts_per_flop_per_s: float | None


def memory_kind(memory_type: str) -> str:
    """Return the kind of a memory: stacked, graphics or other.

    >>> memory_kind("HBM2e"), memory_kind("GDDR6X"), memory_kind("LPDDR5X")
    ('hbm', 'gddr', 'other')
    """
    kind = memory_type.lower()
    return next((k for k in ("hbm", "gddr") if kind.startswith(k)), "other")


def watts_per_flop_per_s(device: Device) -> float | None:
    """Return a device's power limit over its 16-bit peak."""
    peak = next((device.flop_per_s[k] for k in _HALF if device.flop_per_s.get(k)), None)
    return device.power_watts / peak if device.power_watts and peak else None


def _traits(device: Device) -> _Traits:
    slug = ecosystem.base_slug(device)
    return _Traits(
        slug=slug,
        architecture=device.architecture.lower(),
        memory_family=memory_kind(device.memory_type),
        form="board" if device.form_factor.lower().startswith("pcie") else "module",
        vendor=device.vendor.lower(),
        launched=catalogue.years(device.launch_day) if device.launch_day else _UNKNOWN_LAUNCH,
        watts_per_flop_per_s=watts_per_flop_per_s(device),
    )


@cache
def _measured(operations: tuple[str, ...]) -> tuple[tuple[_Traits, float], ...]:
    """Return the devices measured in one of some operations, and the best fraction of each."""
    best: dict[str, float] = {}
    for operation in operations:
        found: dict[str, float] = {}
        for m in ecosystem.measured():
            if m.operation == operation and m.dtype in ("", *_HALF) and m.specified_per_s:
                found[m.device] = max(found.get(m.device, 0.0), m.measured_per_s / m.specified_per_s)
        best = {**found, **best}
    return tuple((_traits(ecosystem.device_of(slug)), ratio) for slug, ratio in sorted(best.items()))


def measured_devices(operations: tuple[str, ...]) -> tuple[str, ...]:
    """Return the slugs of the devices measured in one of some operations."""
    return tuple(traits.slug for traits, _ in _measured(operations))


def step_between(one: _Traits, other: _Traits) -> int:
    """Return the first of STEPS that two devices satisfy."""
    same_memory = one.memory_family == other.memory_family
    same_architecture = one.architecture == other.architecture
    same_generation = one.architecture.partition(" ")[0] == other.architecture.partition(" ")[0]
    tests = (
        one.slug == other.slug,
        same_architecture and same_memory and one.form == other.form,
        same_architecture and same_memory,
        same_generation and same_memory,
        one.vendor == other.vendor and same_memory,
        same_generation,
        same_memory,
    )
    return next((i for i, holds in enumerate(tests) if holds), len(tests))


def lender(device: Device, operations: tuple[str, ...], without: Collection[str] = ()) -> Lender:
    """Return the measured device nearest to a device; of equally near ones that with the most similar power for its peak.

    Parameters
    ----------
    device : Device
        The device asked about.
    operations : tuple of str
        Operations of data/efficiency/measured.csv, the preferred one first: `MATMUL` or `STREAM`.
    without : collection of str
        Slugs that may not lend.

    Returns
    -------
    Lender
        The device, its measured fraction and the step of the rule that it satisfies.

    Examples
    --------
    >>> from tonnage.hardware.catalogue import device
    >>> found = lender(device("h200-sxm5"), MATMUL)
    >>> found.slug, STEPS[found.step], round(found.ratio, 2)
    ('h100-sxm5', 'same architecture, memory type and form', 0.8)
    """
    return _nearest(_traits(device), operations, frozenset(without))


@cache
def _nearest(asked: _Traits, operations: tuple[str, ...], without: frozenset[str]) -> Lender:
    def distance(item: tuple[_Traits, float]) -> tuple[float, ...]:
        other = item[0]
        mine, theirs = asked.watts_per_flop_per_s, other.watts_per_flop_per_s
        apart = abs(log(mine / theirs)) if mine and theirs else 1.0
        return step_between(asked, other), round(apart, 2), abs(asked.launched - other.launched)

    candidates = [item for item in _measured(operations) if item[0].slug not in without]
    traits, ratio = min(candidates, key=distance)
    return Lender(
        slug=traits.slug,
        ratio=ratio,
        step=step_between(asked, traits),
        watts_per_flop_per_s=traits.watts_per_flop_per_s,
    )
