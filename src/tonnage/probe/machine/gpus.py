"""What the driver says of the accelerators: through nvidia-smi, which every driver brings; without it through NVML."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from itertools import combinations
from typing import Any, Final

from tonnage.diagnose.doctor.types import Gpu, Links
from tonnage.errors import OutsideError
from tonnage.hardware.sample import DeviceSample
from tonnage.probe.machine.world import Said, World
from tonnage.units import MIB

__all__ = ["parse_gpus", "parse_matrix", "read_gpus"]

FIELDS: Final = (
    "index", "name", "driver_version", "vbios_version", "pci.device_id", "memory.total", "memory.used", "compute_cap",
    "persistence_mode", "ecc.mode.current", "ecc.errors.uncorrected.volatile.total", "remapped_rows.pending", "power.limit",
    "power.default_limit", "pcie.link.gen.current", "pcie.link.gen.max", "pcie.link.width.current", "pcie.link.width.max",
    "clocks.max.sm", "clocks_event_reasons.active", "temperature.gpu", "fabric.state", "mig.mode.current",
)  # fmt: skip
_UNKNOWN: Final = ("", "n/a", "[n/a]", "[not supported]", "not supported", "[unknown error]", "unknown")
_REFUSED: Final = re.compile(r'Field "([\w.]+)" is not a valid field')
_ON: Final = {"enabled": True, "disabled": False, "yes": True, "no": False}
_MOST_ASKED: Final = 8


def read_gpus(world: World, nvml: Callable[[], tuple[tuple[DeviceSample, ...], str]]) -> dict[str, Any]:
    """Return the fields of `Readings` that the driver gives."""
    kernel = world.read("proc/driver/nvidia/version") or ""
    module = re.search(r"Module(?: for \w+)?\s+(\d+\.\d+(?:\.\d+)?)", kernel)
    found: dict[str, Any] = {
        "kernel_driver": module[1] if module else None,
        "has_open_modules": None if not kernel else "Open Kernel Module" in kernel,
    }
    asked = _ask(world)
    if asked is None:
        return {**found, **_by_nvml(nvml)}
    said = (asked.out + asked.err).strip()
    if asked.code:
        none = "no devices were found" in said.lower()
        trouble = None if none else (said.splitlines() or [f"nvidia-smi: exit code {asked.code}"])[0][:200]
        return {**found, "driver_trouble": trouble, "gpu_source": "nvidia-smi"}
    gpus = parse_gpus(asked.out)
    return {**found, "gpus": gpus, "gpu_source": "nvidia-smi", "links": _links(world, len(gpus)),
            "is_fabric_manager_active": _fabric_manager(world, gpus)}  # fmt: skip


def _ask(world: World) -> Said | None:
    """Ask for every field; an older driver refuses those that it does not know, one at a time."""
    fields: list[str] = list(FIELDS)
    for _ in range(_MOST_ASKED):
        asked = world.run(("nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,nounits"))
        refused = _REFUSED.search(asked.out + asked.err) if asked is not None and asked.code else None
        if refused is None or refused[1] not in fields:
            return asked
        fields.remove(refused[1])
    return None


def parse_gpus(text: str) -> tuple[Gpu, ...]:
    """Read the table of `nvidia-smi --query-gpu=… --format=csv,nounits`, with its header.

    >>> parse_gpus("index, name, memory.total [MiB], pcie.link.width.current\\n0, NVIDIA H200, 143771, 16\\n")[0].pcie_lanes
    16
    """
    table = list(csv.reader(text.splitlines(), skipinitialspace=True))
    if not table:
        return ()
    header = [cell.partition(" [")[0].strip() for cell in table[0]]
    return tuple(_gpu(dict(zip(header, map(_known, row), strict=False))) for row in table[1:] if len(row) > 1)


def _known(cell: str) -> str | None:
    return None if cell.strip().lower() in _UNKNOWN else cell.strip()


def _gpu(row: dict[str, str | None]) -> Gpu:
    def number(name: str, scale: float = 1.0) -> float | None:
        text = row.get(name) or ""
        return float(text) * scale if re.fullmatch(r"\d{1,12}(?:\.\d{1,6})?", text) else None

    def whole(name: str, scale: int = 1) -> int | None:
        value = number(name)
        return None if value is None else round(value * scale)

    def flag(name: str) -> bool | None:
        return _ON.get((row.get(name) or "").lower())

    reasons = row.get("clocks_event_reasons.active") or ""
    return Gpu(
        index=whole("index") or 0,
        name=row.get("name") or "",
        memory_bytes=whole("memory.total", MIB),
        used_bytes=whole("memory.used", MIB),
        driver=row.get("driver_version"),
        vbios=row.get("vbios_version"),
        device_id=row.get("pci.device_id"),
        compute_capability=row.get("compute_cap"),
        is_persistent=flag("persistence_mode"),
        has_ecc_on=flag("ecc.mode.current"),
        num_uncorrected_errors=whole("ecc.errors.uncorrected.volatile.total"),
        is_remap_pending=flag("remapped_rows.pending"),
        power_limit_watts=number("power.limit"),
        power_default_watts=number("power.default_limit"),
        pcie_generation=whole("pcie.link.gen.current"),
        pcie_generation_max=whole("pcie.link.gen.max"),
        pcie_lanes=whole("pcie.link.width.current"),
        pcie_lanes_max=whole("pcie.link.width.max"),
        max_clock_hz=number("clocks.max.sm", 1e6),
        clock_reasons=int(reasons, 16) if re.fullmatch(r"0x[0-9a-fA-F]{1,16}", reasons) else None,
        temperature_celsius=number("temperature.gpu"),
        fabric_state=row.get("fabric.state"),
        has_mig_on=flag("mig.mode.current"),
    )


def _links(world: World, number: int) -> Links:
    if number < 2:
        return Links()
    topology = world.run(("nvidia-smi", "topo", "-m"))
    peers = world.run(("nvidia-smi", "topo", "-p2p", "r"))
    state = world.run(("nvidia-smi", "nvlink", "-s"))
    inactive = None
    if state is not None and state.code == 0 and "Link" in state.out:
        inactive = len(re.findall(r"Link \d+: <?inactive", state.out))
    return Links(
        topology=parse_matrix(topology.out) if topology and not topology.code else {},
        peer_access=parse_matrix(peers.out) if peers and not peers.code else {},
        num_inactive_nvlinks=inactive,
    )


def parse_matrix(text: str) -> dict[str, str]:
    """Read a table of `nvidia-smi topo`: what joins each two cards.

    >>> parse_matrix("\\tGPU0\\tGPU1\\nGPU0\\t X \\tNV18\\nGPU1\\tNV18\\t X \\n")
    {'0-1': 'NV18'}
    """
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    rows = {m[1]: m[2].split() for m in re.finditer(r"^\s*GPU(\d+)\s+(.+)$", plain, re.MULTILINE) if "GPU" not in m[2]}
    return {f"{a}-{b}": rows[a][int(b)] for a, b in combinations(sorted(rows, key=int), 2) if int(b) < len(rows[a])}


def _fabric_manager(world: World, gpus: tuple[Gpu, ...]) -> bool | None:
    if len(gpus) < 2:
        return None
    asked = world.run(("systemctl", "is-active", "nvidia-fabricmanager"))
    return None if asked is None or not asked.out.strip() else asked.out.strip() == "active"


def _by_nvml(nvml: Callable[[], tuple[tuple[DeviceSample, ...], str]]) -> dict[str, Any]:
    """Read what NVML alone gives, where nvidia-smi is not there (containers without utilities)."""
    try:
        samples, source = nvml()
    except OutsideError as error:
        return {"driver_trouble": error.what, "gpu_source": "NVML"}
    return {
        "gpu_source": source,
        "gpus": tuple(
            Gpu(
                index=s.index,
                name=s.name,
                memory_bytes=s.memory_bytes,
                used_bytes=s.taken_bytes,
                driver=s.driver,
                compute_capability=s.compute_capability,
                pcie_generation_max=s.pcie_generation,
            )
            for s in samples
        ),
    }
