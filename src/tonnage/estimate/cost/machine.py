"""What stands around accelerators: which kind of machine they need, what its parts cost, what it draws."""

from __future__ import annotations

from operator import mul
from typing import Final

from tonnage.estimate.cost.assumptions import Assumptions
from tonnage.estimate.cost.propagate import propagated
from tonnage.estimate.types import CostPart, Interval
from tonnage.hardware.ecosystem import driver_class
from tonnage.hardware.types import Device, Node
from tonnage.units import Count, Usd, Watts

# A supply is bought with this much more than the parts' limits: short peaks pass the limit, and half load is efficient.
SUPPLY_HEADROOM: Final = 1.25
_ADAPTABLE: Final = ("SXM2", "SXM4")  # boards for which adapters to a PCIe slot are sold
_MOST_ON_ADAPTERS: Final = 4
_DESKTOP_SLOTS: Final = 2
_WORKSTATION_SLOTS: Final = 4
# Machines whose assumed price has memory and supply in it.
_COMPLETE: Final = ("server_sxm",)
# Series of makers whose drivers do not tell the market: passive cards of servers, and cards of workstations.
_DATACENTRE: Final = ("Instinct", "Data Center GPU")
_PROFESSIONAL: Final = ("Radeon PRO", "Radeon AI PRO", "Arc Pro")


def machine_kind(devices: tuple[Device, ...]) -> str:
    """Return the kind of machine that devices need: desktop, workstation, server_pcie, server_sxm, or none around them.

    >>> from tonnage.hardware.catalogue import find_device
    >>> [machine_kind((find_device(n),) * k) for n, k in (("4080", 1), ("4090", 4), ("h100-sxm5", 8), ("m4-max", 1))]
    ['desktop', 'workstation', 'server_sxm', 'none']
    """
    first, num = devices[0], len(devices)
    if first.is_unified_memory or first.form_factor in ("laptop", "cloud"):
        return "none"
    if on_adapter(devices):  # with a cooler of its own, one board needs no more than a desktop's slot
        return "desktop" if num == 1 else "workstation"
    if first.form_factor.startswith("SXM") or first.form_factor == "OAM":
        return "server_sxm"
    if num > _WORKSTATION_SLOTS or first.form_factor == "superchip":
        return "server_pcie"
    is_plain = value_kind(first) != "datacentre"  # data-centre cards have no fan: a workstation's channel cools them
    return "desktop" if num <= _DESKTOP_SLOTS and is_plain else "workstation"


def on_adapter(devices: tuple[Device, ...]) -> bool:
    """Whether so few SXM boards would sit on adapters to PCIe slots rather than on their own baseboard."""
    return devices[0].form_factor in _ADAPTABLE and len(devices) <= _MOST_ON_ADAPTERS


def is_in_datacentre(devices: tuple[Device, ...]) -> bool:
    """Whether the machine stands in a machine room, with its tariff and cooling, rather than in an office or at home."""
    return machine_kind(devices).startswith("server") or devices[0].form_factor == "cloud"


def value_kind(device: Device) -> str:
    """Return the market in which a device is sold again: consumer, professional, datacentre or unofficial."""
    if device.is_unofficial:
        return "unofficial"
    kind = driver_class(device)
    if kind == "rtx" or device.name.startswith(_PROFESSIONAL):
        return "professional"
    is_for_servers = device.form_factor == "OAM" or device.name.startswith(_DATACENTRE)
    is_datacentre = is_for_servers or kind in ("datacenter", "cann", "tpu", "neuron")
    return "datacentre" if is_datacentre and not device.is_unified_memory else "consumer"


def supply_usd(num_devices: Count, device_limit: Watts, host_draw: Watts, usd_per_watt: Usd) -> Usd:
    """Price of the power supplies of a machine.

    Parameters
    ----------
    num_devices : numeric
        Devices in the machine. [1]
    device_limit : numeric
        Power limit of one device. [W]
    host_draw : numeric
        Draw of the machine without them. [W]
    usd_per_watt : numeric
        Price of a watt of supply. [USD]

    Returns
    -------
    numeric
        Price. [USD]

    Notes
    -----
    Derived: a quarter more than the sum of the limits.

    Examples
    --------
    >>> supply_usd(1, 320, 80, 0.1)
    50.0
    """
    return SUPPLY_HEADROOM * (num_devices * device_limit + host_draw) * usd_per_watt


def machine_parts(node: Node, assumed: Assumptions) -> tuple[CostPart, ...]:
    """Return what has to be bought around the devices of one machine."""
    devices, kind = node.devices, machine_kind(node.devices)
    if kind == "none":
        return ()
    parts = [CostPart(name="host", usd=assumed.value("host_usd", kind))]
    if kind not in _COMPLETE:
        limit = max((d.power_watts for d in devices if d.power_watts is not None), default=0.0)
        modules = propagated(mul, assumed.value("memory_usd"), node.host.memory_bytes)
        watts, price = assumed.value("host_power", kind), assumed.value("supply_usd")
        supply = propagated(supply_usd, len(devices), limit, watts, price)
        parts += [CostPart(name="memory", usd=modules), CostPart(name="supply", usd=supply)]
    if on_adapter(devices):
        adapters = propagated(mul, assumed.value("adapter_usd"), len(devices))
        parts.append(CostPart(name="adapter", usd=adapters))
    return tuple(parts)


def machine_draw(node: Node, work: str, assumed: Assumptions, limit_ratio: float = 1.0) -> Interval | None:
    """Return what one machine draws at work: its devices' limits by the measured share, and the rest of the machine.

    `work` is training, prefill or decode; `limit_ratio` is a power cap over the limit. None where no limit is known.
    """
    limits = [d.power_watts for d in node.devices]
    known = [limit for limit in limits if limit is not None]
    if not known or len(known) < len(limits):
        return None
    kind = machine_kind(node.devices)
    host = assumed.value("host_power", kind) if kind != "none" else Interval.exact(0.0)
    total = sum(known) * limit_ratio
    return propagated(_draw, assumed.value("draw_ratio", work), total, host)


def _draw(ratio: float, limit: float, rest: float) -> float:
    return ratio * limit + rest
