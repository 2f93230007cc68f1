"""What accelerators there are, and what one is: rows of `data/hardware/gpus.csv` made into `Device`.

Rates are dense, with fp32 accumulation where the hardware tells them apart. Memory is what the driver reports; where no
such figure is known the marketed size stands in and `is_memory_reported` says so.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from tonnage import datafiles
from tonnage.errors import RequestError
from tonnage.hardware import names
from tonnage.hardware.types import Device
from tonnage.units import GB, GIB, MIB

_RATES = {
    "fp32": "fp32_tflops", "tf32": "tf32_tflops", "fp16": "fp16_tflops", "bf16": "bf16_tflops",
    "fp8": "fp8_tflops", "int8": "int8_tops", "fp4": "fp4_tflops",
}  # fmt: skip
_YES_NO = {"yes": True, "no": False, "": None}


def _number(text: str, scale: float = 1.0) -> float | None:
    return float(text) * scale if text else None


def _whole(text: str, scale: int = 1) -> int | None:
    return round(float(text) * scale) if text else None


def _device(row: dict[str, str]) -> Device:
    reported = _whole(row["memory_mib"], MIB)
    rates = {dtype: float(row[column]) * 1e12 for dtype, column in _RATES.items() if row[column]}
    return Device(
        slug=row["slug"],
        name=row["name"],
        vendor=row["vendor"],
        architecture=row["architecture"],
        form_factor=row["form_factor"],
        memory_bytes=reported or round(float(row["memory_gb"]) * GIB),
        is_memory_reported=reported is not None,
        sold_as=f"{row['memory_gb']} GB",
        memory_type=row["memory_type"],
        bandwidth_bytes_per_s=float(row["bandwidth_gb_s"]) * GB,
        flop_per_s=rates,
        compute_capability=row["compute_capability"] or None,
        num_multiprocessors=_whole(row["num_multiprocessors"]),
        l2_bytes=_whole(row["l2_mib"], MIB),
        nvlink_generation=None if row["nvlink"] in ("", "none") else row["nvlink"],
        nvlink_bytes_per_s=_number(row["nvlink_gb_s"], GB),
        pcie_generation=_whole(row["pcie_generation"]),
        pcie_lanes=_whole(row["pcie_lanes"]),
        power_watts=_number(row["power_w"]),
        has_ecc=_YES_NO[row["has_ecc"]],
        has_p2p=_YES_NO[row["has_p2p"]],
        is_unofficial=row["is_unofficial"] == "yes",
        is_unified_memory=row["is_unified"] == "yes",
        launch_price_usd=_number(row["launch_usd"]),
        launch_day=row["launch_day"] or None,
        num_mig_slices=_whole(row["mig_slices"]),
        export_variant_of=row["export_variant_of"],
        confidence=row["confidence"],
        source=row["source"],
        memory_source=row["memory_source"],
        rates_source=row["rates_source"],
    )


@cache
def _by_slug() -> dict[str, dict[str, str]]:
    return {row["slug"]: row for row in datafiles.rows(names.GPUS)}


@cache
def device(slug: str) -> Device:
    """Return the device of a slug that is known to exist."""
    return _device(_by_slug()[slug])


def devices() -> tuple[Device, ...]:
    """Return every device of the catalogue, in its order."""
    return tuple(device(slug) for slug in _by_slug())


def find_device(query: str) -> Device:
    """Return the device that a name stands for.

    Case, brand words, memory size and form factor may be left out where that leaves no doubt.

    >>> find_device("4080").slug, find_device("NVIDIA A100-SXM4-80GB").slug
    ('rtx-4080', 'a100-sxm4-80gb')

    Raises
    ------
    UnknownNameError
        Nothing by that name, or more than one.
    """
    slug, assumed = names.resolve(query)
    found = device(slug)
    return replace(found, warnings=(*found.warnings, assumed)) if assumed else found


def find_devices(query: str) -> tuple[Device, ...]:
    """Return the devices of a name with a number, or of several: "2x RTX 3090 + RTX 5090", one entry a device.

    >>> [d.slug for d in find_devices("2x RTX 3090 + RTX 5090")]
    ['rtx-3090', 'rtx-3090', 'rtx-5090']
    """
    found: list[Device] = []
    for part in query.split(" + "):
        name, count = names.split_count(part)
        if count > 100_000:
            raise RequestError(f"{count} devices are too many", where="gpu", fix="100000 at most")
        found += [find_device(name)] * count
    return tuple(found)


def find_devices_like(query: str) -> tuple[Device, ...]:
    """Return every device whose name holds all the words of a query, for browsing: "blackwell", "rtx 40"."""
    words = query.lower().split()
    return tuple(
        device(row["slug"])
        for row in datafiles.rows(names.GPUS)
        if all(w in " ".join((row["slug"], row["name"], row["vendor"], row["architecture"])).lower() for w in words)
    )
