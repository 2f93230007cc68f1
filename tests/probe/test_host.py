"""The host is read from its files: the least of what is free counts, whatever limits it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.probe.host import parse_meminfo, read_host
from tonnage.units import GIB

MEMINFO = "MemTotal:       67108864 kB\nMemFree:         1000000 kB\nMemAvailable:   50331648 kB\n"
CPUINFO = "".join(
    f"processor\t: {i}\nphysical id\t: 0\nsiblings\t: 4\ncore id\t\t: {i // 2}\ncpu cores\t: 2\n\n" for i in range(4)
)


@pytest.fixture
def machine(tmp_path: Path):
    def write(**files: str) -> Path:
        for name, text in {"proc/meminfo": MEMINFO, "proc/cpuinfo": CPUINFO, **files}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write


def test_memory_and_physical_cores(machine):
    host = read_host(machine())
    assert (host.memory_bytes, host.available_bytes, host.limit_bytes) == (64 * GIB, 48 * GIB, None)
    assert host.num_cores == 2
    assert not host.is_wsl


@pytest.mark.parametrize(
    ("files", "available"),
    [
        ({"sys/fs/cgroup/memory.max": f"{8 * GIB}\n", "sys/fs/cgroup/memory.current": f"{GIB}\n"}, 7 * GIB),
        ({"sys/fs/cgroup/memory.max": "max\n"}, 48 * GIB),
        ({"sys/fs/cgroup/memory/memory.limit_in_bytes": str(9223372036854771712)}, 48 * GIB),
        ({"sys/fs/cgroup/memory/memory.limit_in_bytes": str(4 * GIB)}, 4 * GIB),
        ({"sys/fs/cgroup/memory.max": f"{999 * GIB}\n"}, 48 * GIB),
    ],
)
def test_a_control_group_limits(machine, files, available):
    assert read_host(machine(**files)).available_bytes == available


def test_wsl_is_seen(machine):
    assert read_host(machine(**{"proc/sys/kernel/osrelease": "6.6.87.2-microsoft-standard-WSL2\n"})).is_wsl


def test_an_empty_machine_is_unknown_not_zero(tmp_path):
    host = read_host(tmp_path)
    assert host.available_bytes is None
    assert host.limit_bytes is None
    assert host.num_numa_nodes is None


@given(st.text(max_size=300))
def test_any_meminfo_is_read(text):
    assert all(size >= 0 for size in parse_meminfo(text).values())


@pytest.mark.parametrize(("block", "found"), [("nvme0n1p2", True), ("sda1", False), (None, False)])
def test_the_working_folder_s_drive_counts_where_it_is_nvme(machine, tmp_path, monkeypatch, block, found):
    monkeypatch.chdir(tmp_path)
    root, number = machine(), tmp_path.stat().st_dev
    if block:
        links = root / "sys/dev/block"
        links.mkdir(parents=True)
        (root / "sys/devices" / block).mkdir(parents=True)
        (links / f"{os.major(number)}:{os.minor(number)}").symlink_to(root / "sys/devices" / block)
    free = read_host(root).drive_free_bytes
    assert (free is not None) == found
    assert free is None or free > 0
