"""The device, the links and the node that a measurement row names in its own words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Final

from tonnage.calibrate.types import Row
from tonnage.errors import UnknownNameError
from tonnage.hardware import catalogue
from tonnage.hardware.names import resolve
from tonnage.hardware.types import Cluster, Device, Host, Link, Node
from tonnage.units import GIB, MIB

UNKNOWN_DEVICE: Final = "a100-sxm4-80gb"  # what most rows without a name ran on; memory hardly depends on it
_NVL72_DEVICES: Final = 72
_NETWORK: Final = {  # network interface of one device where the row does not say, by architecture, bytes/s
    "volta": 3.125e9,
    "turing": 3.125e9,
    "ampere": 25e9,
    "hopper": 50e9,
    "blackwell": 50e9,
}
_HOST: Final = Host(memory_bytes=1024 * GIB, bandwidth_bytes_per_s=2e11, name="assumed", is_assumed=True)
_GBIT: Final = re.compile(
    r"(?:(\d+)\s*x\s*)?[A-Za-z ]*?(\d{2,4})\s*(?:Gb/s|Gbps)\s*(?:/|per )?\s*(node|GPU)?", re.IGNORECASE
)


def _spellings(text: str) -> Iterator[str]:
    bare = re.sub(r"\([^)]*\)", " ", text).strip()
    unsized = re.sub(r"\b\d+\s*GB\b", " ", bare)
    yield text
    yield bare
    if "/" in bare:
        yield from (part.strip() + " " + bare.rsplit(" ", 1)[-1] for part in bare.split("/"))
        yield from (part.strip() for part in bare.split("/"))
    if " on " in bare:
        yield bare.rsplit(" on ", 1)[1]
    yield unsized
    words = [w for w in unsized.split() if w.upper() not in {"HBM2E", "HBM3", "HBM3E", "HBM2"}]
    yield " ".join(words)
    yield words[0] if words else ""


@cache
def find(text: str) -> tuple[Device | None, bool]:
    """Return the device a row's `gpu` means and whether its form was assumed; None when nothing matches."""
    for spelling in _spellings(text):
        if not spelling:
            continue
        try:
            match = resolve(spelling)
        except UnknownNameError as error:
            if len(error.suggestions) > 1 and "may mean" in error.what:
                return catalogue.device(error.suggestions[0]), True
            continue
        return catalogue.device(match.slug), bool(match.assumed)
    return None, True


def device_of(row: Row) -> tuple[Device, set[str]]:
    """Return a row's device with the memory, power and clock limits the row tells, and what is unknown of it."""
    text = str(row.get("gpu") or "")
    device, is_assumed = find(text)
    unknown: set[str] = set()
    if device is None:
        unknown.add("gpu")
        device = catalogue.device(UNKNOWN_DEVICE)
    elif is_assumed:
        unknown.add("gpu_form")
    told = row.get("gpu_mem_gb")
    if told and abs(told * GIB / device.memory_bytes - 1) > 0.08:
        device = replace(device, memory_bytes=round(told * GIB * 0.985))
        if "96GB HBM2e" in text:
            device = replace(device, memory_type="HBM2e", bandwidth_bytes_per_s=2.4e12)
    watts = re.search(r"(\d{3,4})\s*W\b", f"{text} {row.get('interconnect') or ''}")
    if watts and device.power_watts and 0.3 < int(watts[1]) / device.power_watts < 1:
        device = replace(device, power_watts=float(watts[1]))
    return device, unknown


def _network(text: str, device: Device, per_node: int) -> float:
    for many, rate, per in _GBIT.findall(text):
        total = float(rate) * 1.25e8 * (int(many) if many else 1)
        return total if per.lower() == "gpu" else total / per_node
    if "omnipath 100" in text.lower():
        return 12.5e9 / per_node
    if "hdr" in text.lower():
        return 25e9
    architecture = device.architecture.lower().split()[0]
    return _NETWORK.get(architecture, 12.5e9)


def cluster_of(row: Row, device: Device) -> Cluster:
    """Return a row's cluster: devices that share the fast link, and the network between such groups."""
    text = str(row.get("interconnect") or "")
    num_devices = int(row.get("n_gpus") or layout_devices(row))
    num_nodes = int(row.get("n_nodes") or max(1, -(-num_devices // 8)))
    per_node = max(1, num_devices // num_nodes)
    is_rack = "NVL72" in text or device.slug.startswith(("gb200", "gb300"))
    if is_rack:
        per_node = min(num_devices, _NVL72_DEVICES)
        num_nodes = -(-num_devices // per_node)
    if "PCIe" in text and "NVLink intra" not in text:
        device = replace(device, nvlink_bytes_per_s=None)
    network = _network(text, device, max(1, min(per_node, 8)))
    node = Node(devices=(device,) * per_node, host=_HOST)
    inter = Link(name="network", kind="infiniband", bytes_per_s=network)
    return Cluster(node=node, num_nodes=num_nodes, inter_link=inter)


def layout_devices(row: Row) -> int:
    """Return the devices a row's layout needs, where it does not say how many there were."""
    product = 1
    for name in ("dp", "tp", "pp", "cp"):
        product *= int(row.get(name) or 1)
    return product


def is_above_capacity(row: Row, device: Device) -> bool:
    """Whether a row's peak is more than the card exposes, so that it cannot have fitted."""
    peak = row.get("peak_mem_gib")
    return bool(peak) and peak * GIB > device.memory_bytes + 64 * MIB
