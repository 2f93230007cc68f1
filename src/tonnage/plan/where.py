"""The hardware of a request as a `Cluster`: named devices, or this machine as it was found, with what is assumed."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from tonnage.errors import OutsideError, RequestError
from tonnage.hardware.catalogue import find_device
from tonnage.hardware.sample import MachineSample
from tonnage.hardware.types import Cluster, Device, Host, Link, Node
from tonnage.messages import say
from tonnage.plan.types import Where
from tonnage.units import GIB, MIB, format_bytes, parse_bytes

DEFAULT_HOST: Final = "64 GiB ddr5-5600 x2"
# A labelled assumption, settable by --reserve: what a desktop keeps of the card that drives its screen.
DESKTOP_RESERVE_BYTES: Final = 512 * MIB
_PCIE_LANE_BYTES_PER_S: Final = {3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}  # PCI-SIG base specifications
_HOST: Final = re.compile(
    r"(?P<size>[\d.,_]+ *[A-Za-z]+) +(?:lp)?ddr(?P<kind>\d)x?-(?P<rate>\d{3,5})(?: +x(?P<channels>\d{1,2}))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A cluster, and what was assumed or must be warned of."""

    cluster: Cluster
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def parse_host(text: str) -> Host:
    """Read "64 GiB ddr5-5600 x2": size, kind and transfers a second (in millions), channels.

    >>> host = parse_host("64 GiB ddr5-5600 x2")
    >>> host.memory_bytes // 2**30, host.bandwidth_bytes_per_s / 1e9
    (64, 89.6)
    """
    match = _HOST.fullmatch(text.strip().lower()) if len(text) <= 60 else None
    channels = int(match["channels"] or 2) if match else 0
    if match is None or not channels:
        raise RequestError(f"'{text[:60]}' is not a host", where="--host", fix='write it like "64 GiB ddr5-5600 x2"')
    return Host(
        memory_bytes=parse_bytes(match["size"], "--host"),
        bandwidth_bytes_per_s=8e6 * int(match["rate"]) * channels,
        name=f"DDR{match['kind']}-{match['rate']} x{channels}",
    )


def place(where: Where) -> Placed:
    """Return the cluster of named devices."""
    named = [(find_device(name), number) for name, number in where.gpus]
    devices = tuple(device for device, number in named for _ in range(number))
    host, assumptions = parse_host(where.host or DEFAULT_HOST), []
    if where.host is None:
        host = replace(host, is_assumed=True)
        assumptions.append(say("plan.assumed_host", host=DEFAULT_HOST))
    reserved = where.reserve_bytes or 0
    if where.reserve_bytes is None and any(drives_screens(device) for device in devices):
        reserved = DESKTOP_RESERVE_BYTES
        assumptions.append(say("plan.assumed_reserve", reserve=format_bytes(reserved, 0)))
    warnings = [text for device, _ in named for text in device.warnings]
    warnings += [say("plan.unofficial", name=device.name) for device, _ in named if device.is_unofficial]
    return Placed(
        cluster=_cluster(devices, host, where.num_nodes, reserved),
        assumptions=tuple(assumptions),
        warnings=tuple(dict.fromkeys(warnings)),
    )


def drives_screens(device: Device) -> bool:
    """Whether a card of this kind usually drives a screen as well: game cards and laptops' parts."""
    return device.name.startswith(("GeForce", "Radeon RX", "Arc"))


def place_here(where: Where, sample: MachineSample) -> Placed:
    """Return this machine as a cluster: free memory counts, and the traps of its kind are said.

    Raises
    ------
    OutsideError
        No accelerator was found.
    """
    if not sample.devices:
        fix = "name one with --gpu, or mend the driver: nvidia-smi must list the card"
        raise OutsideError("no accelerator was found on this machine", where="--here", fix=fix)
    devices = tuple(replace(find_device(one.name), memory_bytes=one.memory_bytes) for one in sample.devices)
    taken = max(one.taken_bytes for one in sample.devices)
    reserved = taken if where.reserve_bytes is None else where.reserve_bytes
    host = parse_host(where.host or DEFAULT_HOST)
    assumptions: list[str] = []
    if where.host is None:
        host = replace(
            host,
            memory_bytes=sample.host.available_bytes or host.memory_bytes,
            num_cores=sample.host.num_cores or host.num_cores,
            is_assumed=True,
        )
        assumptions.append(say("plan.assumed_host_speed", host=host.name))
    first = sample.devices[0]
    generation, lanes = first.pcie_generation, first.pcie_lanes
    cluster = _cluster(devices, host, 1, reserved, generation, lanes)
    node = replace(cluster.node, is_wddm=any(one.is_wddm for one in sample.devices))
    return Placed(
        cluster=replace(cluster, node=node),
        assumptions=tuple(assumptions),
        warnings=_traps(sample, reserved),
    )


def _traps(sample: MachineSample, reserved: int) -> tuple[str, ...]:
    """Say what makes this machine's memory less, or its failures quieter, than they look."""
    said: list[str] = []
    if any(one.drives_display for one in sample.devices):
        said.append(say("plan.trap_display", taken=format_bytes(reserved)))
    if any(one.is_wddm for one in sample.devices) or sample.host.is_wsl:
        said.append(say("plan.trap_wddm"))
    if sample.host.is_wsl:
        said.append(say("plan.trap_wsl", available=_size(sample.host.available_bytes)))
    if sample.host.limit_bytes is not None:
        said.append(say("plan.trap_cgroup", limit=_size(sample.host.limit_bytes)))
    if reserved > GIB and not any(one.drives_display for one in sample.devices):
        said.append(say("plan.trap_taken", taken=format_bytes(reserved)))
    return (*said, *sample.notes)


def _size(num_bytes: int | None) -> str:
    return "?" if num_bytes is None else format_bytes(num_bytes)


def _cluster(
    devices: tuple[Device, ...],
    host: Host,
    num_nodes: int,
    reserved_bytes: int,
    pcie_generation: int | None = None,
    pcie_lanes: int | None = None,
) -> Cluster:
    first = devices[0]
    generation = min(pcie_generation or first.pcie_generation or 4, 4 if host.is_assumed else 6)
    lanes = pcie_lanes or first.pcie_lanes or 16
    pcie = Link(
        name=f"PCIe {generation} x{lanes}",
        kind="pcie",
        bytes_per_s=_PCIE_LANE_BYTES_PER_S.get(generation, 1.969e9) * lanes,
    )
    intra = None
    if len(devices) > 1:
        intra = pcie
        if all(device.nvlink_bytes_per_s for device in devices):
            intra = Link(name="NVLink", kind="nvlink", bytes_per_s=min(d.nvlink_bytes_per_s or 0 for d in devices))
    inter = Link(name="100 Gb/s", kind="ethernet", bytes_per_s=12.5e9) if num_nodes > 1 else None
    node = Node(devices=devices, host=replace(host, pcie=pcie), intra_link=intra, reserved_bytes=reserved_bytes)
    return Cluster(node=node, num_nodes=num_nodes, inter_link=inter)
