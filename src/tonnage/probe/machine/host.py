"""What the host says of itself: system, processor, limits, control group, disk, network, clock."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final

from tonnage.diagnose.doctor.types import Fabric, Interface
from tonnage.probe.host import parse_meminfo
from tonnage.probe.machine.world import World

__all__ = ["read_host"]

_NO_LIMIT: Final = 1 << 60
_DOCKER: Final = ("run/docker.sock", "var/run/docker.sock")


def read_host(world: World, folder: Path) -> dict[str, Any]:
    """Return the fields of `Readings` that the host gives."""
    return {
        **_system(world),
        **_processor(world),
        **_memory(world),
        **_group(world),
        **_limits(world),
        **_disk(world, folder),
        **_network(world),
        **_clock(world),
    }


def _system(world: World) -> dict[str, Any]:
    release = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', world.read("etc/os-release") or "", re.MULTILINE))
    asked = world.run(("uname", "-r"))
    kernel = (world.read("proc/sys/kernel/osrelease") or (asked.out if asked else "")).strip()
    modules = frozenset(re.findall(r"^(\w+) ", world.read("proc/modules") or "", re.MULTILINE))
    loader = world.run(("ldd", "--version"))
    glibc = re.search(r"(\d+\.\d+)\s*$", (loader.out if loader else "").partition("\n")[0])
    return {
        "system": "Linux" if kernel else _other_system(),
        "release": release.get("PRETTY_NAME", ""),
        "kernel": kernel,
        "glibc": glibc[1] if glibc else None,
        "is_wsl": "microsoft" in kernel.lower() or "wsl" in kernel.lower(),
        "is_container": bool({".dockerenv"} & set(world.names("."))) or world.read("run/.containerenv") is not None,
        "modules": modules,
        "has_secure_boot": _secure_boot(world),
    }


def _other_system() -> str:
    import platform  # noqa: PLC0415  only where /proc is not there

    return platform.system()


def _secure_boot(world: World) -> bool | None:
    """Read the variable's last byte: 1 is on (UEFI specification, section 3.3)."""
    for name in world.names("sys/firmware/efi/efivars"):
        if name.startswith("SecureBoot-"):
            held = world.raw(f"sys/firmware/efi/efivars/{name}")
            return None if not held else held[-1] == 1
    return None


def _processor(world: World) -> dict[str, Any]:
    text = world.read("proc/cpuinfo") or ""
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", text, re.MULTILINE)
    pairs = set(re.findall(r"^physical id\s*:\s*(\d+)$(?:.*\n)+?^core id\s*:\s*(\d+)$", text, re.MULTILINE))
    threads = len(re.findall(r"^processor\s*:", text, re.MULTILINE))
    nodes = [n for n in world.names("sys/devices/system/node") if re.fullmatch(r"node\d+", n)]
    balancing = world.whole("proc/sys/kernel/numa_balancing")
    governor = (world.read("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or "").strip()
    return {
        "cpu": model[1].strip() if model else "",
        "cpu_features": frozenset(flags[1].split()) if flags else frozenset(),
        "num_cores": len(pairs) or threads or None,
        "num_threads": threads or None,
        "num_numa_nodes": len(nodes) or None,
        "has_numa_balancing": None if balancing is None else balancing == 1,
        "governor": governor or None,
    }


def _memory(world: World) -> dict[str, Any]:
    held = parse_meminfo(world.read("proc/meminfo") or "")
    total, free = held.get("SwapTotal"), held.get("SwapFree")
    return {
        "memory_bytes": held.get("MemTotal"),
        "available_bytes": held.get("MemAvailable"),
        "swap_bytes": total,
        "swap_used_bytes": None if total is None or free is None else total - free,
    }


def _group(world: World) -> dict[str, Any]:
    """Return the tightest limits of the own control group and the groups around it, of either kind."""
    lines = (world.read("proc/self/cgroup") or "").splitlines()
    paths = {kinds: path for _, kinds, path in (line.split(":", 2) for line in lines if line.count(":") >= 2)}
    found: dict[str, Any] = {
        "memory_limit_bytes": None,
        "memory_limit_used_bytes": None,
        "cpu_limit": None,
        "pids_limit": None,
    }
    unified = paths.get("")
    is_v2 = world.read("sys/fs/cgroup/cgroup.controllers") is not None
    for folder in _ancestors("sys/fs/cgroup", unified if is_v2 else None):
        _least(found, "memory", world.whole(f"{folder}/memory.max"), world.whole(f"{folder}/memory.current"))
        _least(found, "pids", world.whole(f"{folder}/pids.max"), None)
        quota = (world.read(f"{folder}/cpu.max") or "").split()
        if len(quota) == 2 and quota[0].isdigit() and quota[1].isdigit() and int(quota[1]):
            _least_cpu(found, int(quota[0]) / int(quota[1]))
    for kinds, path in paths.items():
        for kind in set(kinds.split(",")) & {"memory", "cpu", "pids"}:
            for folder in _ancestors(f"sys/fs/cgroup/{kind if kind != 'cpu' else _cpu_folder(world)}", path):
                if kind == "memory":
                    _least(found, "memory", world.whole(f"{folder}/memory.limit_in_bytes"),
                           world.whole(f"{folder}/memory.usage_in_bytes"))  # fmt: skip
                elif kind == "pids":
                    _least(found, "pids", world.whole(f"{folder}/pids.max"), None)
                else:
                    quota_us, period = (
                        world.whole(f"{folder}/cpu.cfs_quota_us"),
                        world.whole(f"{folder}/cpu.cfs_period_us"),
                    )
                    if quota_us and period and quota_us > 0:
                        _least_cpu(found, quota_us / period)
    return found


def _cpu_folder(world: World) -> str:
    return "cpu" if "cpu" in world.names("sys/fs/cgroup") else "cpu,cpuacct"


def _ancestors(base: str, path: str | None) -> list[str]:
    """Return the folders of a group and of those around it; inside a container the path may not be there."""
    if path is None:
        return [base]
    parts = [p for p in path.split("/") if p not in ("", "..", ".")]
    return [f"{base}/{'/'.join(parts[:i])}".rstrip("/") for i in range(len(parts), -1, -1)]


def _least(found: dict[str, Any], kind: str, limit: int | None, used: int | None) -> None:
    name = "memory_limit_bytes" if kind == "memory" else "pids_limit"
    if limit is None or not 0 < limit < _NO_LIMIT:
        return
    if found[name] is None or limit < found[name]:
        found[name] = limit
        if kind == "memory":
            found["memory_limit_used_bytes"] = used


def _least_cpu(found: dict[str, Any], cores: float) -> None:
    found["cpu_limit"] = cores if found["cpu_limit"] is None else min(found["cpu_limit"], cores)


def _limits(world: World) -> dict[str, Any]:
    text = world.read("proc/self/limits") or ""

    def soft(name: str) -> int | None:
        match = re.search(rf"^{name}\s+(\d+|unlimited)\s", text, re.MULTILINE)
        return None if match is None else -1 if match[1] == "unlimited" else int(match[1])

    shared = world.space(world.root / "dev/shm") if "shm" in world.names("dev") else None
    return {
        "open_files": soft("Max open files"),
        "locked_bytes": soft("Max locked memory"),
        "shared_memory_bytes": shared[0] if shared else None,
        "shared_memory_free_bytes": shared[1] if shared else None,
    }


def _disk(world: World, folder: Path) -> dict[str, Any]:
    held = world.space(folder)
    return {
        "disk_folder": str(folder),
        "disk_free_bytes": held[1] if held else None,
        "is_disk_rotational": _rotates(world, folder),
    }


def _rotates(world: World, folder: Path) -> bool | None:
    try:
        number = folder.stat().st_dev
    except OSError:
        return None
    block = f"sys/dev/block/{os.major(number)}:{os.minor(number)}"
    for path in (f"{block}/queue/rotational", f"{block}/../queue/rotational"):
        held = world.whole(path)
        if held is not None:
            return held == 1
    return None


def _network(world: World) -> dict[str, Any]:
    interfaces = []
    for name in world.names("sys/class/net"):
        speed = world.whole(f"sys/class/net/{name}/speed")
        state = (world.read(f"sys/class/net/{name}/operstate") or "").strip()
        interfaces.append(
            Interface(
                name=name,
                bits_per_s=speed * 1e6 if speed and speed > 0 else None,
                is_up=None if not state else state == "up",
            )
        )
    fabrics = []
    for device in world.names("sys/class/infiniband"):
        for port in world.names(f"sys/class/infiniband/{device}/ports"):
            folder = f"sys/class/infiniband/{device}/ports/{port}"
            words = {n: (world.read(f"{folder}/{n}") or "").strip() for n in ("state", "rate", "link_layer")}
            fabrics.append(
                Fabric(name=f"{device}:{port}", state=words["state"], rate=words["rate"], layer=words["link_layer"])
            )
    return {"interfaces": tuple(interfaces), "fabrics": tuple(fabrics), "listening_ports": _ports(world)}


def _ports(world: World) -> frozenset[int]:
    """Return the ports that something listens on: state 0A (proc(5), /proc/net/tcp)."""
    found = set[int]()
    for name in ("tcp", "tcp6"):
        for line in (world.read(f"proc/net/{name}") or "").splitlines()[1:]:
            words = line.split()
            if len(words) > 3 and words[3] == "0A":
                found.add(int(words[1].rpartition(":")[2], 16))
    return frozenset(found)


def _clock(world: World) -> dict[str, Any]:
    """Ask chrony, else systemd; neither is unknown."""
    tracking = world.run(("chronyc", "-n", "tracking"))
    if tracking is not None and tracking.code == 0:
        match = re.search(r"^System time\s*:\s*([\d.]+) seconds (fast|slow)", tracking.out, re.MULTILINE)
        leap = re.search(r"^Leap status\s*:\s*(.+)$", tracking.out, re.MULTILINE)
        offset = None if match is None else float(match[1]) * (1 if match[2] == "fast" else -1)
        known = None if leap is None else "Not synchronised" not in leap[1]
        return {"is_clock_synchronised": known, "clock_offset_seconds": offset}
    asked = world.run(("timedatectl", "show", "-p", "NTPSynchronized", "--value"))
    answer = asked.out.strip() if asked is not None and asked.code == 0 else ""
    return {"is_clock_synchronised": {"yes": True, "no": False}.get(answer), "clock_offset_seconds": None}


def has_docker(world: World) -> bool:
    """Whether Docker's socket is there."""
    return any(world.root.joinpath(path).exists() for path in _DOCKER)
