"""What software a device can be used with, what it costs to rely on it, and what was measured on it."""

from __future__ import annotations

from functools import cache

from tonnage import datafiles
from tonnage.hardware.catalogue import device as device_of
from tonnage.hardware.prices import PriceBook, base_slug, offers_of, purchase_prices, shipped_book
from tonnage.hardware.types import Device, Measured, Offer, PurchasePrice, Support
from tonnage.messages import say
from tonnage.units import GB


def _covers(targets: str, capability: str | None) -> bool:
    """Whether a list of targets, "*", ">=7.5" or "gfx90a gfx942", holds a compute capability."""
    if targets == "*":
        return True
    if capability is None:
        return False
    if targets.startswith(">="):
        return not capability.startswith("gfx") and float(capability) >= float(targets[2:])
    return capability in targets.split()


def engines(device: Device) -> tuple[Support, ...]:
    """Return the engines whose makers list the device's kind as supported."""
    return tuple(
        Support(engine=row["engine"], via=row["via"], source=row["source"])
        for row in datafiles.rows("hardware/engine_support.csv")
        if row["vendor"] == device.vendor and _covers(row["targets"], device.compute_capability)
    )


def driver_class(device: Device) -> str:
    """Return which family of drivers serves the device: geforce, rtx, datacenter, jetson, rocm, metal and so on."""
    if device.vendor != "NVIDIA":
        return {"AMD": "rocm", "Intel": "oneapi", "Apple": "metal", "Google": "tpu", "AWS": "neuron"}.get(
            device.vendor, "cann"
        )
    if device.name.startswith("Jetson"):
        return "jetson"
    if device.name.startswith(("GeForce", "TITAN")):
        return "geforce"
    return "rtx" if device.name.startswith(("RTX", "Quadro")) else "datacenter"


def risks(device: Device) -> tuple[str, ...]:
    """Return what a buyer or planner must know beside the figures, in the language in use."""
    found: list[str] = []
    if device.is_unofficial:
        found.append(say("gpus.unofficial"))
    if device.export_variant_of:
        found.append(say("gpus.export_variant", of=device.export_variant_of))
    if device.last_driver_branch:
        found.append(say("gpus.last_driver", branch=device.last_driver_branch, cuda=device.max_cuda or "-"))
    if not device.is_memory_reported:
        found.append(say("gpus.marketed_memory", sold_as=device.sold_as))
    if device.is_unified_memory:
        found.append(say("gpus.unified"))
    if device.has_p2p is False and not device.has_nvlink and not device.is_unified_memory:
        found.append(say("gpus.no_p2p"))
    if device.confidence == "C":
        found.append(say("gpus.weak_sources"))
    return (*device.warnings, *found)


def offers(device: Device, book: PriceBook | None = None) -> tuple[Offer, ...]:
    """Return the dated prices at which the device is rented, cheapest first."""
    return offers_of(device, book or shipped_book())


def purchase_price(device: Device, book: PriceBook | None = None) -> PurchasePrice | None:
    """Return the person's own price, else that at launch, else a third party's estimate, else None."""
    return next(iter(purchase_prices(device, book or shipped_book())), None)


@cache
def measured() -> tuple[Measured, ...]:
    """Return what was measured of devices against their specification: matrix and memory rates."""
    found: list[Measured] = []
    for row in datafiles.rows("efficiency/measured.csv"):
        known = device_of(row["device"])
        is_memory = row["unit"] == "GB/s"
        found.append(
            Measured(
                device=row["device"],
                operation=row["operation"],
                dtype=row["dtype"],
                measured_per_s=float(row["measured"]) * (GB if is_memory else 1e12),
                specified_per_s=known.bandwidth_bytes_per_s if is_memory else known.flop_per_s[row["peak_dtype"]],
                shape=row["shape"],
                software=row["software"],
                source=row["source"],
            )
        )
    return tuple(found)


def measured_of(device: Device, operation: str = "", dtype: str = "") -> tuple[Measured, ...]:
    """Return the measurements of one device, of one operation and type where they are named."""
    slug = base_slug(device)
    return tuple(
        m for m in measured() if m.device == slug and operation in ("", m.operation) and dtype in ("", m.dtype)
    )
