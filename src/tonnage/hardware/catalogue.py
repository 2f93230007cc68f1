"""What accelerators there are, and what one is: rows of `data/hardware/gpus.csv` made into `Device`.

Rates are dense, with fp32 accumulation where the hardware tells them apart. A rate that the row does not state follows
from its family: a multiple of the fp32 shader rate, `data/hardware/rate_rules.csv`. Memory is what the driver reports;
where no such figure is known the marketed size stands in and `is_memory_reported` says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from tonnage import datafiles
from tonnage.hardware import names
from tonnage.hardware.types import Device
from tonnage.messages import say
from tonnage.units import GB, GIB, MIB

_RATES = {
    "fp32": "fp32_tflops", "tf32": "tf32_tflops", "fp16": "fp16_tflops", "bf16": "bf16_tflops",
    "fp8": "fp8_tflops", "int8": "int8_tops", "fp4": "fp4_tflops",
}  # fmt: skip
_YES_NO = {"yes": True, "no": False, "": None}
# What Metal lets a GPU hold of the machine's memory: two thirds up to 32 GiB, three quarters above.
# llama.cpp logs: 21845 of 32768 MiB on an M1 Max (pull request 2011), 49152 of 65536 MiB on an M2 Max (issue 1870).
_METAL_SHARE_UP_TO_32_GIB = 2 / 3
_METAL_SHARE_ABOVE = 3 / 4


def _number(text: str, scale: float = 1.0) -> float | None:
    return float(text) * scale if text else None


def _whole(text: str, scale: int = 1) -> int | None:
    return round(float(text) * scale) if text else None


@cache
def _rules() -> dict[str, dict[str, str]]:
    return {row["rule"]: row for row in datafiles.rows("hardware/rate_rules.csv")}


@cache
def _capabilities() -> dict[str, dict[str, str]]:
    return {row["compute_capability"]: row for row in datafiles.rows("hardware/compute_capabilities.csv")}


def _flop_per_s(row: Mapping[str, str]) -> dict[str, float]:
    """Return the dense rates: stated ones, else the family's multiple of fp32."""
    rule = _rules().get(row["rate_rule"], {})
    rates: dict[str, float] = {}
    for dtype, column in _RATES.items():
        if row[column]:
            rates[dtype] = float(row[column]) * 1e12
        elif rule.get(dtype) and row["fp32_tflops"]:
            rates[dtype] = float(row["fp32_tflops"]) * float(rule[dtype]) * 1e12
    return rates


def _memory_bytes(row: Mapping[str, str], sold_bytes: int) -> tuple[int, bool]:
    """Return what the accelerator may hold of the size on the box, and whether a driver said so."""
    if row["vendor"] == "Apple":
        share = _METAL_SHARE_UP_TO_32_GIB if sold_bytes <= 32 * GIB else _METAL_SHARE_ABOVE
        return round(sold_bytes * share), True
    if row["memory_mib"] and sold_bytes == _sold_bytes(row):
        return int(row["memory_mib"]) * MIB, True
    return sold_bytes, False


def _sold_bytes(row: Mapping[str, str]) -> int:
    return round(float(row["memory_gb"]) * GIB)


def _device(row: Mapping[str, str], sold_bytes: int) -> Device:
    memory_bytes, is_reported = _memory_bytes(row, sold_bytes)
    rates = _flop_per_s(row)
    capability = _capabilities().get(row["compute_capability"], {})
    is_unified = row["is_unified"] == "yes"
    suffix = "" if sold_bytes == _sold_bytes(row) else f"-{sold_bytes / GIB:g}gb"
    return Device(
        slug=row["slug"] + suffix,
        name=row["name"],
        vendor=row["vendor"],
        architecture=row["architecture"],
        form_factor=row["form_factor"],
        memory_bytes=memory_bytes,
        is_memory_reported=is_reported,
        sold_as=f"{sold_bytes / GIB:g} GB",
        unified_memory_bytes=sold_bytes if is_unified else None,
        memory_type=row["memory_type"],
        bandwidth_bytes_per_s=float(row["bandwidth_gb_s"]) * GB,
        flop_per_s=rates,
        formats=tuple(capability["formats"].split()) if capability else tuple(rates),
        compute_capability=row["compute_capability"] or None,
        num_multiprocessors=_whole(row["num_multiprocessors"]),
        l2_bytes=_whole(row["l2_mib"], MIB),
        nvlink_generation=None if row["fabric"] in ("", "none") else row["fabric"],
        nvlink_bytes_per_s=_number(row["fabric_gb_s"], GB),
        pcie_generation=_whole(row["pcie_generation"]),
        pcie_lanes=_whole(row["pcie_lanes"]),
        power_watts=_number(row["power_w"]),
        has_ecc=_YES_NO[row["has_ecc"]],
        has_p2p=_YES_NO[row["has_p2p"]],
        is_unofficial=row["is_unofficial"] == "yes",
        is_unified_memory=is_unified,
        launch_price_usd=_number(row["launch_usd"]),
        launch_day=row["launch_day"] or None,
        num_mig_slices=_whole(row["mig_slices"]),
        export_variant_of=row["export_variant_of"],
        min_cuda=capability.get("min_cuda") or None,
        max_cuda=capability.get("max_cuda") or None,
        min_driver_branch=capability.get("min_driver_branch") or None,
        last_driver_branch=capability.get("last_driver_branch") or None,
        needs_open_modules=_YES_NO[capability.get("needs_open_modules", "")],
        confidence=row["confidence"],
        source=row["source"],
        memory_source=row["memory_source"],
        rates_source=_rules()[row["rate_rule"]]["source"] if row["rate_rule"] else row["source"],
    )


@cache
def device(slug: str, sold_bytes: int | None = None) -> Device:
    """Return the device of a slug that is known to exist, in one of the memory sizes it comes in."""
    row = names.row_of(slug)
    return _device(row, sold_bytes or _sold_bytes(row))


@cache
def slugs() -> tuple[str, ...]:
    """Return the slugs of the catalogue, in its order."""
    return tuple(row["slug"] for row in datafiles.rows(names.GPUS))


def years(day: str) -> float:
    """Return a day, month or year as a number of years.

    >>> years("2024-11"), years("2025")
    (2024.8333333333333, 2025.0)
    """
    parts = [int(part) for part in day.split("-")]
    return parts[0] + (parts[1] - 1) / 12 if len(parts) > 1 else float(parts[0])


@cache
def first_launch_year(architecture: str) -> float | None:
    """Return when the first device of an architecture, by its first word, was launched; None when not known."""
    family = architecture.partition(" ")[0]
    rows = [row for row in datafiles.rows(names.GPUS) if row["architecture"].partition(" ")[0] == family]
    return min((years(row["launch_day"]) for row in rows if row["launch_day"]), default=None)


def devices() -> tuple[Device, ...]:
    """Return every device of the catalogue, in its order; those sold with several memory sizes in the largest."""
    return tuple(device(slug) for slug in slugs())


def find_device(query: str) -> Device:
    """Return the device that a name stands for.

    Case, brand words, memory size and form factor may be left out where that leaves no doubt. What custom settles rather
    than the name ("A100" is taken for the SXM4 board with 80 GB) stands in the device's `warnings`.

    >>> find_device("4080").slug, find_device("NVIDIA A100-SXM4-80GB").slug, find_device("M1 Max 32GB").slug
    ('rtx-4080', 'a100-sxm4-80gb', 'm1-max-32gb')

    Raises
    ------
    UnknownNameError
        Nothing by that name, or more than one.
    """
    match = names.resolve(query)
    found = device(match.slug, match.sold_bytes)
    if not match.assumed:
        return found
    return replace(found, warnings=(*found.warnings, say("gpus.assumed", query=query.strip(), assumed=match.assumed)))


def find_devices(query: str) -> tuple[Device, ...]:
    """Return the devices of a name with a number, or of several: "2x RTX 3090 + RTX 5090", one entry a device.

    >>> [d.slug for d in find_devices("2x RTX 3090 + RTX 5090")]
    ['rtx-3090', 'rtx-3090', 'rtx-5090']
    """
    found: list[Device] = []
    for part in query.split(" + "):
        name, count = names.split_count(part)
        found += [find_device(name)] * count
    return tuple(found)


def find_devices_like(query: str) -> tuple[Device, ...]:
    """Return every device whose name holds all the words of a query, for browsing: "blackwell", "rtx 40"."""
    words = query.lower().split()

    def says(row: Mapping[str, str]) -> str:
        return " ".join(row[c] for c in ("slug", "name", "vendor", "architecture", "form_factor", "aliases")).lower()

    return tuple(device(row["slug"]) for row in datafiles.rows(names.GPUS) if all(w in says(row) for w in words))


def matrix_flop_per_s(device: Device, dtype: str) -> float | None:
    """Return the fastest dense rate at which numbers of a type can be multiplied: natively, or widened first.

    bf16 on a card without it is computed in fp32, fp16 on Pascal likewise (its own rate is a 64th of fp32), fp8 and fp4
    weights in fp16 or bf16.

    Parameters
    ----------
    device : Device
        The accelerator.
    dtype : str
        fp32, tf32, fp16, bf16, fp8, int8 or fp4.

    Returns
    -------
    float or None
        Rate, or None where the catalogue knows none. [flop/s]

    Examples
    --------
    >>> matrix_flop_per_s(find_device("rtx-4080"), "bf16") / 1e12
    97.48
    >>> matrix_flop_per_s(find_device("gtx-1070"), "fp16") / 1e12
    6.46
    """
    wider = {"fp4": ("fp4", "fp8", "bf16", "fp16", "fp32"), "fp8": ("fp8", "bf16", "fp16", "fp32"),
             "int8": ("int8", "bf16", "fp16", "fp32"), "bf16": ("bf16", "fp32"), "fp16": ("fp16", "bf16", "fp32"),
             "tf32": ("tf32", "fp32")}  # fmt: skip
    rates = [device.flop_per_s[d] for d in wider.get(dtype, (dtype,)) if d in device.flop_per_s]
    return max(rates, default=None)
