"""Reads the host of this machine: memory, the limit of its control group, cores, and whether it is WSL."""

from __future__ import annotations

import os
import platform
import re
import shutil
from pathlib import Path
from typing import Final

from tonnage.hardware.sample import HostSample, MachineSample
from tonnage.units import KIB

_NO_LIMIT_BYTES: Final = 1 << 60  # the first kind of control group writes nearly 2^63 for "none"


def read_machine(root: Path = Path("/")) -> MachineSample:
    """Return one reading of this machine."""
    from tonnage.probe.nvml import read_devices  # noqa: PLC0415  only --here pays for it

    devices, source = read_devices()
    return MachineSample(host=read_host(root), devices=devices, source=source)


def read_host(root: Path = Path("/")) -> HostSample:
    """Return one reading of the host; `root` is where its /proc and /sys hang."""
    memory = parse_meminfo(_read(root / "proc/meminfo"))
    limit, used = _control_group(root)
    free = [memory.get("MemAvailable"), None if limit is None else max(0, limit - (used or 0))]
    known = [size for size in free if size is not None]
    release = _read(root / "proc/sys/kernel/osrelease").lower()
    nodes = [p for p in (root / "sys/devices/system/node").glob("node[0-9]*") if p.is_dir()]
    return HostSample(
        memory_bytes=memory.get("MemTotal") or _darwin_memory(),
        available_bytes=min(known) if known else None,
        limit_bytes=limit,
        num_cores=_num_cores(root),
        drive_free_bytes=_drive_free(root),
        num_numa_nodes=len(nodes) or None,
        is_wsl="microsoft" in release or "wsl" in release,
        is_container=(root / ".dockerenv").exists() or (root / "run/.containerenv").exists(),
        system=platform.system(),
    )


def _drive_free(root: Path) -> int | None:
    """Return what is free where this program runs, if the kernel says that it lies on an NVMe drive."""
    try:
        number = Path.cwd().stat().st_dev
        block = (root / f"sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve(strict=True)
        return shutil.disk_usage(Path.cwd()).free if "nvme" in block.name else None
    except OSError:
        return None


def parse_meminfo(text: str) -> dict[str, int]:
    """Read /proc/meminfo into bytes.

    >>> parse_meminfo("MemTotal:       65536 kB\\nHugePages_Total:       0\\n")
    {'MemTotal': 67108864}
    """
    found = re.findall(r"^(\w+):\s+(\d{1,15}) kB$", text, flags=re.MULTILINE)
    return {name: int(number) * KIB for name, number in found}


def _control_group(root: Path) -> tuple[int | None, int | None]:
    """Return the memory limit of the control group and what is used of it, of either kind of control group."""
    base = root / "sys/fs/cgroup"
    for limit_name, used_name in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        limit = _read(base / limit_name).strip()
        if limit.isdigit() and int(limit) < _NO_LIMIT_BYTES:
            used = _read(base / used_name).strip()
            return int(limit), int(used) if used.isdigit() else None
    return None, None


def _num_cores(root: Path) -> int | None:
    """Return physical cores where the kernel tells them, else what the system counts."""
    text = _read(root / "proc/cpuinfo")
    pairs = set(re.findall(r"^physical id\s*:\s*(\d+)$(?:.*\n)+?^core id\s*:\s*(\d+)$", text, flags=re.MULTILINE))
    return len(pairs) or os.cpu_count()


def _darwin_memory() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
