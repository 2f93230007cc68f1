"""The hardware of a request as a `Cluster`: named devices, or this machine as it was found, with what is assumed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tonnage.errors import OutsideError, RequestError
from tonnage.estimate.cost.machine import machine_kind
from tonnage.hardware.catalogue import device, find_device
from tonnage.hardware.ecosystem import driver_class, risks
from tonnage.hardware.host import default_host, parse_host, usual_drive, usual_host
from tonnage.hardware.names import resolve
from tonnage.hardware.topology import host_link, intra_link, link, network_link
from tonnage.hardware.types import Cluster, Device, Host, Link, Node
from tonnage.messages import say
from tonnage.nouns import noun
from tonnage.plan.types import Where
from tonnage.units import GIB, MIB, format_bytes

if TYPE_CHECKING:  # only --here takes a sample
    from tonnage.hardware.sample import DeviceSample, MachineSample

# A labelled assumption, settable by --reserve: what a desktop keeps of a game card, which drives a screen as a rule.
DESKTOP_RESERVE_BYTES: Final = 512 * MIB
_OLDEST_PCIE: Final = 3


@noun
class Placed:
    """A cluster, and what was assumed or must be warned of."""

    cluster: Cluster
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def place(where: Where) -> Placed:
    """Return the cluster of named devices.

    Raises
    ------
    UnknownNameError
        A name that no device has, or that more than one has.
    """
    named = [(resolve(name), name, number) for name, number in where.gpus]
    assumptions = [say("gpus.assumed", query=name, assumed=match.assumed) for match, name, _ in named if match.assumed]
    found = [(device(match.slug, match.sold_bytes), number) for match, _, number in named]
    devices = _smallest_first(one for one, number in found for _ in range(number))
    host = _host(where, devices)
    if host.is_assumed:
        assumptions.append(say("plan.assumed_host", host=usual_host_of(devices)))
    if host.drive is not None and host.drive.is_assumed:
        assumptions.append(say("plan.assumed_drive", rate=format_bytes(host.drive.read_bytes_per_s)))
    reserved = where.reserve_bytes or 0
    if where.reserve_bytes is None and any(driver_class(one) == "geforce" for one, _ in found):
        reserved = DESKTOP_RESERVE_BYTES
        assumptions.append(say("plan.assumed_reserve", reserve=format_bytes(reserved, 0)))
    if reserved >= devices[0].memory_bytes:
        what = f"{format_bytes(reserved)} leave nothing of {devices[0].name}'s {format_bytes(devices[0].memory_bytes)}"
        raise RequestError(what, where="--reserve", fix="write what the desktop and others take of each card")
    network = None if where.num_nodes == 1 else network_link(where.network or _usual_network(devices[0]))
    if network is not None and where.network is None:
        assumptions.append(say("plan.assumed_network", name=network.name))
    warnings = dict.fromkeys(text for one, _ in found for text in risks(one))
    if len(devices) == 1:
        warnings.pop(say("gpus.no_p2p"), None)  # one card talks to nobody
    if len(found) > 1:
        warnings[say("plan.mixed", num=len(devices), name=devices[0].name)] = None
    return Placed(
        cluster=_with_driver(_cluster(devices, host, where.num_nodes, reserved, network), where.driver),
        assumptions=tuple(assumptions),
        warnings=tuple(warnings),
    )


def _smallest_first(devices: Iterable[Device]) -> tuple[Device, ...]:
    """Order cards so that the one with the least memory, then bandwidth, comes first: estimates go by it."""
    return tuple(sorted(devices, key=lambda one: (one.memory_bytes, one.bandwidth_bytes_per_s)))


def usual_host_of(devices: tuple[Device, ...]) -> str:
    """Return the words for the machine that is assumed around devices."""
    return usual_host(machine_kind(devices), len(devices), devices[0].pcie_generation)


def _usual_network(device: Device) -> str:
    """Return the network that is assumed for each device: that of its generation's usual clusters, else 100 Gb/s."""
    is_board = device.form_factor.startswith("SXM") or device.form_factor == "OAM"
    if not is_board:
        return "eth-100"
    return "ib-ndr" if (device.pcie_generation or 0) >= _NDR_PCIE else "ib-hdr"


_NDR_PCIE: Final = 5  # a 400 Gb/s adapter fills a PCIe 5 x16 slot


def _host(where: Where, devices: tuple[Device, ...]) -> Host:
    """Return the host that was named; else the usual one, or for unified memory the device's own memory."""
    first = devices[0]
    named = None if where.host is None else parse_host(where.host, "--host")
    if first.is_unified_memory:  # of a host that is named the cores and the drive count
        name, rate = first.name, first.bandwidth_bytes_per_s
        own = Host(name=name, memory_bytes=first.memory_bytes, bandwidth_bytes_per_s=rate, source=first.source)
        return own if named is None else replace(own, num_cores=named.num_cores, drive=named.drive)
    if named is not None:
        return named
    return default_host(usual_host_of(devices))


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
    devices = _smallest_first(replace(find_device(one.name), memory_bytes=one.memory_bytes) for one in sample.devices)
    taken = max(one.taken_bytes for one in sample.devices)
    reserved = taken if where.reserve_bytes is None else where.reserve_bytes
    reserved = min(reserved, devices[0].memory_bytes - 1)
    host = _host(where, devices)
    assumptions: list[str] = []
    if where.host is None:
        host = replace(
            host,
            memory_bytes=sample.host.available_bytes or host.memory_bytes,
            num_cores=sample.host.num_cores or host.num_cores,
            pcie=_slot(sample.devices[0]) or host.pcie,
            drive=usual_drive(sample.host.drive_free_bytes) if sample.host.drive_free_bytes else None,
        )
        assumptions.append(say("plan.assumed_host_speed", host=host.name))
    cluster = _cluster(devices, host, 1, reserved)
    node = replace(cluster.node, is_wddm=any(one.is_wddm for one in sample.devices))
    return Placed(
        cluster=_with_driver(replace(cluster, node=node), where.driver or sample.devices[0].driver or ""),
        assumptions=tuple(assumptions),
        warnings=_traps(sample, reserved),
    )


def _slot(sample: DeviceSample) -> Link | None:
    """Return the slot that the driver reports."""
    generation, lanes = sample.pcie_generation, sample.pcie_lanes
    if generation is None or lanes is None or generation < _OLDEST_PCIE:
        return None
    return link(f"pcie{min(generation, 5)}-x{max(n for n in (4, 8, 16) if n <= max(lanes, 4))}")


def _traps(sample: MachineSample, reserved: int) -> tuple[str, ...]:
    """Say what makes this machine's memory less, or its failures quieter, than they look."""
    drives_display = any(one.drives_display for one in sample.devices)
    said: list[str] = []
    if drives_display:
        said.append(say("plan.trap_display", taken=format_bytes(reserved)))
    if any(one.is_wddm for one in sample.devices) or sample.host.is_wsl:
        said.append(say("plan.trap_wddm"))
    if sample.host.is_wsl:
        said.append(say("plan.trap_wsl", available=_size(sample.host.available_bytes)))
    if sample.host.limit_bytes is not None:
        said.append(say("plan.trap_cgroup", limit=_size(sample.host.limit_bytes)))
    if reserved > GIB and not drives_display:
        said.append(say("plan.trap_taken", taken=format_bytes(reserved)))
    return (*said, *sample.notes)


def _size(num_bytes: int | None) -> str:
    return "?" if num_bytes is None else format_bytes(num_bytes)


def _with_driver(cluster: Cluster, driver: str) -> Cluster:
    return replace(cluster, node=replace(cluster.node, driver=driver)) if driver else cluster


def _cluster(
    devices: tuple[Device, ...], host: Host, num_nodes: int, reserved_bytes: int, network: Link | None = None
) -> Cluster:
    kinds = {one.slug: one for one in devices}
    slots = [slot for one in kinds.values() if (slot := host_link(one)) is not None]
    known = [slot for slot in (host.pcie, *slots) if slot is not None]
    if known:
        host = replace(host, pcie=min(known, key=lambda slot: slot.bytes_per_s))
    joins = [intra_link(one, len(devices)) for one in kinds.values()]
    intra = min(joins, key=lambda one: one.bytes_per_s if one else 0.0)
    node = Node(devices=devices, host=host, intra_link=intra, reserved_bytes=reserved_bytes)
    return Cluster(node=node, num_nodes=num_nodes, inter_link=network)
