"""Which link joins which pair: NVLink where there is one, PCIe peer access where the driver allows it, else the host."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from tonnage import datafiles
from tonnage.errors import RequestError, UnknownNameError
from tonnage.hardware.types import Cluster, Device, Link
from tonnage.units import GB, parse_bits_per_s

# Where no collective was measured on a network: AWS EFA reaches 340 of 400 Gb/s in all-reduce tests
# (S. Bekman, Machine Learning Engineering, network/README.md).
UNMEASURED_NETWORK_RATIO = 0.85
# Where no collective was measured on a fabric of the maker's own: the ring over NVLink 5, the least of the known ones.
UNMEASURED_FABRIC_RATIO = 0.75
_LATENCY_SECONDS = {
    "nvlink": 5e-6,
    "pcie": 1e-5,
    "pcie-host": 4.2e-5,
    "infiniband": 5e-6,
    "ethernet": 5e-5,
    "efa": 2e-5,
}
_FULL_MESH_PEERS = 7  # an 8-GPU Infinity Fabric board joins each GPU to seven others
_SWITCHED_FORMS = ("SXM2", "SXM3", "SXM4", "SXM5", "SXM6", "superchip")


@cache
def _rows() -> dict[str, dict[str, str]]:
    return {row["slug"]: row for row in datafiles.rows("hardware/links.csv")}


def network_link(text: str) -> Link:
    """Return a network between machines: by name, or with a rate for each device, as no collective was measured on it.

    >>> network_link("400Gb/s").bytes_per_s == network_link("ib-ndr").bytes_per_s
    True
    """
    if not text[:1].isdigit():
        return link(text)
    return Link(
        name=text,
        kind="ethernet",
        bytes_per_s=parse_bits_per_s(text, "--network") / 8,
        achieved_ratio=UNMEASURED_NETWORK_RATIO,
        latency_seconds=_LATENCY_SECONDS["ethernet"],
        source="given",
    )


@cache
def networks() -> tuple[str, ...]:
    """Return the names of the links that join a device to other machines, by its own adapter."""
    return tuple(slug for slug, row in _rows().items() if row["kind"] in ("infiniband", "ethernet"))


def link(slug: str) -> Link:
    """Return a link by name: `nvlink4`, `pcie4-x16`, `ib-ndr`, `eth-25`.

    >>> link("ib-ndr").bytes_per_s
    50000000000.0
    """
    row = _rows().get(slug.strip().lower())
    if row is None:
        near = tuple(s for s in _rows() if s.split("-")[0] == slug.lower().split("-")[0])
        raise UnknownNameError(f"no link is named '{slug[:40]}'", where="link", suggestions=near[:6])
    kind = row["kind"]
    if row["achieved_ratio"]:
        ratio = float(row["achieved_ratio"])
    else:
        ratio = UNMEASURED_NETWORK_RATIO if kind in ("infiniband", "ethernet", "efa") else UNMEASURED_FABRIC_RATIO
    return Link(
        name=row["name"],
        kind=kind,
        bytes_per_s=float(row["gb_s"]) * GB,
        achieved_ratio=min(ratio, 1.0),
        latency_seconds=float(row["latency_us"]) * 1e-6 if row["latency_us"] else _LATENCY_SECONDS.get(kind, 5e-6),
        source=row["source"],
    )


def links() -> tuple[str, ...]:
    """Return the names of the links on record."""
    return tuple(_rows())


def host_link(device: Device) -> Link | None:
    """Return what joins a device to its host's memory; None where they share one memory or none is known."""
    if device.is_unified_memory:
        return None
    if device.form_factor == "superchip":
        return link("c2c")
    if device.pcie_generation is None:
        return None
    return link(f"pcie{min(device.pcie_generation, 5)}-x{_lanes(device)}")


def _lanes(device: Device) -> int:
    return max(n for n in (4, 8, 16) if n <= max(device.pcie_lanes or 16, 4))


def intra_link(device: Device, num_devices: int = 2, *, has_bridge: bool = False) -> Link | None:
    """Return what joins equal devices in one machine, at the rate a collective over all of them sees.

    Parameters
    ----------
    device : Device
        One of them.
    num_devices : int
        How many the machine holds. [1]
    has_bridge : bool
        Whether NVLink bridges are plugged in; they join pairs of cards (four of an H200 NVL), never more.

    Returns
    -------
    Link or None
        None for one device, and for machines that hold only one.
    """
    if num_devices < 2 or device.is_unified_memory:
        return None
    fabric = device.nvlink_generation or ""
    if fabric.startswith("nvlink") and device.form_factor in _SWITCHED_FORMS:
        return replace(link(fabric), bytes_per_s=device.nvlink_bytes_per_s or link(fabric).bytes_per_s)
    most_bridged = 4 if device.slug == "h200-nvl" else 2
    if fabric.startswith("nvlink") and has_bridge and num_devices <= most_bridged:
        return _bridge(device, fabric)
    if fabric in ("infinity-fabric", "roce", "hccs") and device.form_factor == "OAM":
        return _mesh(device, fabric, num_devices)
    return _pcie_link(device)


def _bridge(device: Device, fabric: str) -> Link:
    """Return an NVLink bridge of the card's own rate, with the ratio measured on one of its generation."""
    measured = {"nvlink3": "nvlink3-pcie-bridge", "nvlink4": "nvlink4-pcie-bridge"}.get(fabric, "nvlink2-bridge")
    known = link(measured)
    return replace(known, bytes_per_s=device.nvlink_bytes_per_s or known.bytes_per_s)


def _mesh(device: Device, fabric: str, num_devices: int) -> Link:
    """Return a fabric without a switch: each pair has its own wire, so fewer devices see fewer of them.

    An MI300X has seven wires of 64 GB/s; two of them measured 47.7 GB/s in all-reduce and eight 312.9 (S. Bekman, Machine
    Learning Engineering, network/README.md): 0.75 and 0.70 of one and of seven wires.
    """
    peers = min(num_devices - 1, _FULL_MESH_PEERS)
    known = link("infinity-fabric-mi300x") if fabric == "infinity-fabric" else None
    total = device.nvlink_bytes_per_s or (known.bytes_per_s if known else 0.0)
    share = peers / _FULL_MESH_PEERS if fabric == "infinity-fabric" else 1.0
    return Link(
        name=known.name if known else fabric,
        kind=fabric,
        bytes_per_s=total * share,
        achieved_ratio=known.achieved_ratio if known else UNMEASURED_FABRIC_RATIO,
        source=known.source if known else device.source,
    )


def _pcie_link(device: Device) -> Link | None:
    """Return PCIe with peer access, or through the host's memory where the driver blocks it or may."""
    direct = host_link(device)
    if direct is None or device.has_p2p:
        return direct
    through = link("pcie5-host-8gpu" if (device.pcie_generation or 0) >= 5 else "pcie4-host-8gpu")
    return replace(
        direct,
        name=f"{direct.name}, through the host",
        kind="pcie-host",
        achieved_ratio=through.achieved_ratio,
        latency_seconds=through.latency_seconds,
        source=through.source,
    )


def link_between(device: Device, cluster: Cluster) -> Link | None:
    """Return the slowest link that joins all devices of a cluster: the network between machines, else inside one."""
    if cluster.num_nodes > 1:
        if cluster.inter_link is None:
            raise RequestError(
                f"{cluster.num_nodes} machines and no network between them", where="network", fix='name one, "ib-ndr"'
            )
        return cluster.inter_link
    return cluster.node.intra_link or intra_link(device, len(cluster.node.devices))
