"""What a machine's own memory and processor can do: `--host "64 GiB ddr5-5600 x2"` read into `Host`."""

from __future__ import annotations

import re
from typing import Final

from tonnage import datafiles
from tonnage.errors import RequestError
from tonnage.hardware.topology import link
from tonnage.hardware.types import Drive, Host
from tonnage.units import GB, parse_bytes

_BYTES_PER_TRANSFER: Final = 8  # a 64-bit channel, JEDEC JESD79-4 and JESD79-5
_EXAMPLE: Final = '"64 GiB ddr5-5600 x2" (channels), optionally "pcie4 x16", "16 cores" and "nvme 2 TB 7/5 GB/s"'
_MEMORY: Final = re.compile(r"\b((?:lp)?ddr[345]x?|mrdimm)-?(\d{3,5})\b", re.IGNORECASE)
_SIZE: Final = re.compile(r"\b\d[\d_,.]*\s*[kmgtp]i?b\b", re.IGNORECASE)
_PCIE: Final = re.compile(r"\bpcie\s*([345])(?:\.0)?(?:\s*x\s*(4|8|16))?\b", re.IGNORECASE)
_CORES: Final = re.compile(r"\b(\d{1,4})\s*-?cores?\b", re.IGNORECASE)
_CHANNELS: Final = re.compile(r"(?<![\w])x\s*(\d{1,2})\b", re.IGNORECASE)
_DRIVE: Final = re.compile(
    r"\bnvme\s+(\d[\d_,.]*\s*[gtp]i?b)\b(?!/)(?:\s+(\d{1,4}(?:\.\d{1,3})?)(?:\s*/\s*(\d{1,4}(?:\.\d{1,3})?))?\s*gb/s)?",
    re.IGNORECASE,
)
_ASSUMED_DRIVE: Final = "pcie4-x4", 0.5  # slot of the drive, and the part of it that a drive keeps up for hours
_MANY_CHANNELS: Final = 8


def measured_ratio(kind: str, num_channels: int) -> tuple[float, str]:
    """Return the part of its theoretical bandwidth that memory of a kind reached, and the source.

    The row of the same kind with the nearest number of channels; of another kind where none was measured.
    """
    rows = [r for r in datafiles.rows("hardware/host_memory.csv") if r["num_channels"]]
    same = [r for r in rows if r["kind"] == kind] or [r for r in rows if r["kind"] == "ddr5"]
    row = min(same, key=lambda r: abs(int(r["num_channels"]) - num_channels))
    return float(row["measured_gb_s"]) / float(row["gb_s"]), row["source"]


def parse_host(text: str, where: str = "host") -> Host:
    """Read a machine's memory: size, kind and channels; where they differ from PCIe 4 x16 and 8 cores, those; its drive.

    >>> host = parse_host("64 GiB ddr5-5600 x2")
    >>> host.memory_bytes, host.theoretical_bytes_per_s, round(host.bandwidth_bytes_per_s / 1e9, 1)
    (68719476736, 89600000000.0, 70.5)
    """
    rest = text[:200]
    drive, rest = _take(_DRIVE, rest)
    pcie, rest = _take(_PCIE, rest)
    cores, rest = _take(_CORES, rest)
    modules, rest = _take(_MEMORY, rest)
    capacity, rest = _take(_SIZE, rest)
    channels, rest = _take(_CHANNELS, rest)
    if capacity is None or modules is None or rest.strip(" ,;+"):
        raise RequestError(f"'{text[:60]}' is not a machine's memory", where=where, fix=f"write it like {_EXAMPLE}")
    num_channels = int(channels[1]) if channels else 2
    transfers_per_s = int(modules[2]) * 10**6
    if not 1 <= num_channels <= 64 or not 4e8 <= transfers_per_s <= 2e10:
        raise RequestError(f"'{text[:60]}' names no memory on sale", where=where, fix=f"write it like {_EXAMPLE}")
    kind = modules[1].lower()
    theoretical = float(transfers_per_s * _BYTES_PER_TRANSFER * num_channels)
    ratio, source = measured_ratio(kind, num_channels)
    return Host(
        name=f"{modules[0].upper()} × {num_channels}",
        memory_bytes=parse_bytes(capacity[0], where),
        bandwidth_bytes_per_s=theoretical * ratio,
        theoretical_bytes_per_s=theoretical,
        num_cores=int(cores[1]) if cores else 8,
        pcie=link(f"pcie{pcie[1]}-x{pcie[2] or 16}" if pcie else "pcie4-x16"),
        source=source,
        drive=_drive(drive, where) if drive else None,
    )


def _drive(match: re.Match[str], where: str) -> Drive:
    """Return the drive that was named; one rate is for both ways."""
    if match[2] is None:
        return usual_drive(parse_bytes(match[1], where))
    read, write = float(match[2]) * GB, float(match[3] or match[2]) * GB
    if min(read, write) <= 0:
        raise RequestError("a drive that moves nothing", where=where, fix=f"write it like {_EXAMPLE}")
    return Drive(free_bytes=parse_bytes(match[1], where), read_bytes_per_s=read, write_bytes_per_s=write)


def usual_drive(free_bytes: int) -> Drive:
    """Return a drive of which the size alone is known.

    Notes
    -----
    A labelled assumption, settable: half of what four lanes of PCIe 4 carry, both ways. Data sheets tell the rate of a
    drive that is cold and has room in its cache; training writes for hours.

    Examples
    --------
    >>> round(usual_drive(2 * 10**12).read_bytes_per_s / 1e9, 2)
    3.94
    """
    slot, part = _ASSUMED_DRIVE
    rate = part * link(slot).bytes_per_s
    return Drive(free_bytes=free_bytes, read_bytes_per_s=rate, write_bytes_per_s=rate, is_assumed=True)


DESKTOP: Final = "64 GiB ddr5-5600 x2"


def usual_host(kind: str, num_devices: int, pcie_generation: int | None) -> str:
    """Return the words for the machine that is assumed around devices where none is named.

    Parameters
    ----------
    kind : str
        Of `estimate.cost.machine.machine_kind`.
    num_devices : int
        Cards in it.
    pcie_generation : int, optional
        Of the cards.

    Returns
    -------
    str
        As `parse_host` reads it.

    Notes
    -----
    Assumptions, each settable. A desktop, or a workstation with one card: 64 GiB in two channels. Beyond, 64 GiB for
    each card on a server board with eight channels, or sixteen where two processors carry more than four cards. Around
    boards on a baseboard 128 GiB a card, the least that is rented with eight of them (AWS p4d: 1,152 GiB; Azure ND A100
    v4: 900 GiB and, with 80 GB cards, 1,900 GiB; AWS p5: 2,048 GiB), and two channels and twelve cores for each.

    Examples
    --------
    >>> usual_host("desktop", 2, 4), usual_host("server_sxm", 8, 4)
    ('64 GiB ddr5-5600 x2', '1024 GiB ddr4-3200 x16, pcie4 x16, 96 cores')
    """
    is_board = kind == "server_sxm"
    if not is_board and (kind not in ("workstation", "server_pcie") or num_devices == 1):
        return DESKTOP
    generation = min(max(pcie_generation or 4, 4), 5)
    modules = "ddr5-4800" if generation == 5 or not is_board else "ddr4-3200"
    channels = min(2 * num_devices, 16) if is_board else 16 if num_devices > _SINGLE_SOCKET_CARDS else 8
    cores, gibibytes = 12 * num_devices, (128 if is_board else 64) * num_devices
    return f"{gibibytes} GiB {modules} x{channels}, pcie{generation} x16, {cores} cores"


_SINGLE_SOCKET_CARDS: Final = 4


def default_host(text: str = DESKTOP) -> Host:
    """Return the machine that is assumed where none is named: 64 GiB of dual-channel DDR5-5600 on PCIe 4 x16."""
    known = parse_host(text)
    return Host(
        name=known.name,
        memory_bytes=known.memory_bytes,
        bandwidth_bytes_per_s=known.bandwidth_bytes_per_s,
        theoretical_bytes_per_s=known.theoretical_bytes_per_s,
        num_cores=known.num_cores,
        pcie=known.pcie,
        is_assumed=True,
        source=known.source,
    )


def _take(pattern: re.Pattern[str], text: str) -> tuple[re.Match[str] | None, str]:
    """Return the first match of a pattern and the text without it."""
    match = pattern.search(text)
    return match, (text[: match.start()] + " " + text[match.end() :]) if match else text
