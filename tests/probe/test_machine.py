"""The doctor's readings, taken from recorded files and answers: of both kinds of control group, of several drivers."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tonnage.probe.machine import read_machine
from tonnage.probe.machine.gpus import FIELDS, parse_gpus, parse_matrix, read_gpus
from tonnage.probe.machine.host import read_host
from tonnage.probe.machine.measure import PATTERN, measure_card, measure_disk, measure_memory, together
from tonnage.probe.machine.software import read_software, torch_build
from tonnage.probe.machine.world import Said, World, here
from tonnage.units import GIB, MIB

CPUINFO = "".join(
    f"processor\t: {i}\nmodel name\t: Xeon 6430\nphysical id\t: {i // 4}\ncore id\t\t: {i % 4}\nflags\t\t: fpu avx2 avx512f amx_int8\n\n"
    for i in range(8)
)
MEMINFO = "MemTotal: 67108864 kB\nMemAvailable: 50331648 kB\nSwapTotal: 8388608 kB\nSwapFree: 4194304 kB\n"
LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max locked memory         unlimited            unlimited            bytes
Max open files            1024                 1048576              files
"""
TCP = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1
   1: 0100007F:0016 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 2 1
"""
SMI_HEADER = ", ".join(FIELDS)
H200 = ("{}, NVIDIA H200, 590.48.01, 96.00.D0.00.03, 0x233510DE, 143771, 4, 9.0, Enabled, Enabled, 0, No, 700.00, 700.00, 5, 5, 16, 16, "
        "1980, 0x0000000000000001, 31, Completed, Disabled")  # fmt: skip
RTX = ("0, NVIDIA GeForce RTX 4080, 580.95.05, 95.03.1E.00.B4, 0x270410DE, 16376, 900, 8.9, Disabled, [N/A], [N/A], [N/A], 320.00, 320.00, "
       "1, 4, 8, 16, 3105, 0x0000000000000024, 51, N/A, [N/A]")  # fmt: skip
TOPOLOGY = (
    "\t\x1b[4mGPU0\tGPU1\tCPU Affinity\x1b[0m\nGPU0\t X \tNV18\t0-31\nGPU1\tNV18\t X \t0-31\n\nLegend:\n  X = Self\n"
)


def world(tmp_path: Path, files: dict[str, str | bytes], answers: dict[str, Said] | None = None) -> World:
    for name, held in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(held if isinstance(held, bytes) else held.encode())

    def run(arguments):
        text = " ".join(arguments)
        return next((said for start, said in (answers or {}).items() if text.startswith(start)), None)

    return World(root=tmp_path, run=run, space=lambda path: (100 * GIB, 40 * GIB) if path.exists() else None)


def host(tmp_path, files=None, answers=None):
    base = {"proc/cpuinfo": CPUINFO, "proc/meminfo": MEMINFO, "proc/self/limits": LIMITS, "proc/net/tcp": TCP}
    return read_host(world(tmp_path, {**base, **(files or {})}, answers), tmp_path)


def test_the_host_is_read(tmp_path):
    found = host(
        tmp_path,
        {
            "etc/os-release": 'PRETTY_NAME="Ubuntu 24.04.3 LTS"\nVERSION_ID="24.04"\n',
            "proc/sys/kernel/osrelease": "6.8.0-60-generic\n",
            "proc/modules": "nvidia 1 0 - Live 0x0\nnouveau 2 0 - Live 0x0\n",
            "proc/sys/kernel/numa_balancing": "1\n",
            "sys/devices/system/node/node0/x": "",
            "sys/devices/system/node/node1/x": "",
            "sys/firmware/efi/efivars/SecureBoot-8be4df61": b"\x06\0\0\0\x01",
            "dev/shm/x": "",
        },
        {"ldd --version": Said(code=0, out="ldd (Ubuntu GLIBC 2.39-0ubuntu8.5) 2.39\nCopyright\n")},
    )
    assert (found["release"], found["glibc"], found["kernel"]) == ("Ubuntu 24.04.3 LTS", "2.39", "6.8.0-60-generic")
    assert found["modules"] == {"nvidia", "nouveau"}
    assert found["has_secure_boot"] is True
    assert (found["num_cores"], found["num_threads"], found["num_numa_nodes"]) == (8, 8, 2)
    assert found["has_numa_balancing"] is True
    assert "amx_int8" in found["cpu_features"]
    assert (found["available_bytes"], found["swap_used_bytes"]) == (48 * GIB, 4 * GIB)
    assert (found["open_files"], found["locked_bytes"]) == (1024, -1)
    assert found["listening_ports"] == {8000}
    assert found["shared_memory_bytes"] == 100 * GIB


def test_nothing_there_is_unknown(tmp_path):
    found = read_host(world(tmp_path, {}), tmp_path / "none")
    for name in ("glibc", "num_cores", "memory_bytes", "available_bytes", "open_files", "has_secure_boot", "disk_free_bytes",
                 "is_clock_synchronised", "memory_limit_bytes", "cpu_limit", "shared_memory_bytes"):  # fmt: skip
        assert found[name] is None, name


@pytest.mark.parametrize(
    ("files", "memory", "cpu", "pids"),
    [
        (
            {
                "proc/self/cgroup": "0::/a.slice/b.service\n", "sys/fs/cgroup/cgroup.controllers": "cpu memory pids",
                "sys/fs/cgroup/a.slice/memory.max": str(8 * GIB), "sys/fs/cgroup/a.slice/memory.current": str(GIB),
                "sys/fs/cgroup/a.slice/b.service/memory.max": "max", "sys/fs/cgroup/a.slice/b.service/cpu.max": "400000 100000",
                "sys/fs/cgroup/a.slice/cpu.max": "max 100000", "sys/fs/cgroup/a.slice/b.service/pids.max": "300",
            },
            (8 * GIB, GIB), 4.0, 300,
        ),
        (
            {
                "proc/self/cgroup": "5:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n3:pids:/docker/x\n0::/\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": str(4 * GIB), "sys/fs/cgroup/memory/memory.usage_in_bytes": str(2 * GIB),
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "150000", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
                "sys/fs/cgroup/pids/pids.max": "max",
            },
            (4 * GIB, 2 * GIB), 1.5, None,
        ),
        (
            {
                "proc/self/cgroup": "5:memory:/\n0::/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            (None, None), None, None,
        ),
    ],
    ids=["v2 nested", "v1 in a container", "v1 without limits"],
)  # fmt: skip
def test_control_groups_of_both_kinds(tmp_path, files, memory, cpu, pids):
    found = host(tmp_path, files)
    assert (found["memory_limit_bytes"], found["memory_limit_used_bytes"]) == memory
    assert (found["cpu_limit"], found["pids_limit"]) == (cpu, pids)


def test_the_network_is_read(tmp_path):
    found = host(
        tmp_path,
        {
            "sys/class/net/lo/operstate": "unknown\n",
            "sys/class/net/ens3/operstate": "up\n",
            "sys/class/net/ens3/speed": "100000\n",
            "sys/class/net/wlan0/operstate": "down\n",
            "sys/class/net/wlan0/speed": "-1\n",
            "sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
            "sys/class/infiniband/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)\n",
            "sys/class/infiniband/mlx5_0/ports/1/link_layer": "InfiniBand\n",
        },
    )
    by_name = {i.name: i for i in found["interfaces"]}
    assert (by_name["ens3"].bits_per_s, by_name["ens3"].is_up) == (100e9, True)
    assert (by_name["wlan0"].bits_per_s, by_name["wlan0"].is_up) == (None, False)
    assert [(f.name, f.state, f.layer) for f in found["fabrics"]] == [("mlx5_0:1", "4: ACTIVE", "InfiniBand")]


@pytest.mark.parametrize(
    ("answers", "known", "offset"),
    [
        ({"chronyc": Said(code=0, out="System time     : 0.250000000 seconds slow of NTP time\nLeap status     : Normal\n")}, True, -0.25),
        ({"chronyc": Said(code=0, out="System time     : 0.0 seconds fast of NTP time\nLeap status     : Not synchronised\n")}, False, 0.0),
        ({"timedatectl": Said(code=0, out="yes\n")}, True, None),
        ({"timedatectl": Said(code=0, out="no\n")}, False, None),
        ({"timedatectl": Said(code=1, out="", err="System has not been booted with systemd")}, None, None),
    ],
)  # fmt: skip
def test_the_clock(tmp_path, answers, known, offset):
    found = host(tmp_path, {}, answers)
    assert (found["is_clock_synchronised"], found["clock_offset_seconds"]) == (known, offset)


def smi(*rows, **more):
    return {"nvidia-smi --query-gpu": Said(code=0, out="\n".join((SMI_HEADER, *rows)) + "\n"), **more}


def gpus(tmp_path, answers, files=None):
    return read_gpus(world(tmp_path, files or {}, answers), lambda: ((), ""))


def test_cards_are_read(tmp_path):
    version = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  590.48.01  Release Build\n"
    more = {
        "nvidia-smi topo -m": Said(code=0, out=TOPOLOGY),
        "nvidia-smi topo -p2p r": Said(code=0, out=" \tGPU0\tGPU1\nGPU0\tX\tOK\nGPU1\tOK\tX\n"),
        "nvidia-smi nvlink -s": Said(code=0, out="GPU 0: NVIDIA H200\n\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n"),
        "systemctl is-active": Said(code=3, out="inactive\n"),
    }
    found = gpus(tmp_path, smi(H200.format(0), H200.format(1), **more), {"proc/driver/nvidia/version": version})
    first = found["gpus"][0]
    assert (first.name, first.memory_bytes, first.driver, first.fabric_state) == (
        "NVIDIA H200",
        143771 * MIB,
        "590.48.01",
        "Completed",
    )
    assert (first.is_persistent, first.has_ecc_on, first.is_remap_pending, first.power_limit_watts) == (
        True,
        True,
        False,
        700.0,
    )
    assert (found["kernel_driver"], found["has_open_modules"]) == ("590.48.01", True)
    assert found["links"].topology == {"0-1": "NV18"}
    assert found["links"].peer_access == {"0-1": "OK"}
    assert found["links"].num_inactive_nvlinks == 1
    assert found["is_fabric_manager_active"] is False


def test_what_a_card_does_not_tell_is_unknown():
    (card,) = parse_gpus(f"{SMI_HEADER}\n{RTX}\n")
    assert (card.has_ecc_on, card.num_uncorrected_errors, card.is_remap_pending, card.has_mig_on) == (None,) * 4
    assert (card.pcie_lanes, card.pcie_lanes_max, card.pcie_generation) == (8, 16, 1)
    assert card.clock_reasons == 0x24
    assert card.used_bytes == 900 * MIB


def test_an_older_driver_refuses_fields(tmp_path):
    """The field that is refused is left out and the rest asked again."""
    answers = []

    def run(arguments):
        if arguments[0] != "nvidia-smi" or "topo" in arguments or "nvlink" in arguments:
            return None
        answers.append(arguments[1])
        for field in ("fabric.state", "clocks_event_reasons.active"):
            if field in arguments[1]:
                return Said(code=2, out=f'Field "{field}" is not a valid field to query.\n')
        names = arguments[1].partition("=")[2].split(",")
        cells = dict(zip(FIELDS, RTX.split(", "), strict=True))
        return Said(code=0, out=", ".join(names) + "\n" + ", ".join(cells[n] for n in names) + "\n")

    found = read_gpus(World(root=tmp_path, run=run, space=lambda _: None), lambda: ((), ""))
    assert found["gpus"][0].name == "NVIDIA GeForce RTX 4080"
    assert found["gpus"][0].clock_reasons is None
    assert len(answers) == 3


@pytest.mark.parametrize(
    ("said", "trouble"),
    [
        (Said(code=18, out="Failed to initialize NVML: Driver/library version mismatch\n"), "version mismatch"),
        (Said(code=6, out="No devices were found\n"), None),
        (Said(code=124, out="", err="nvidia-smi does not answer within 4 s"), "does not answer"),
    ],
)
def test_a_driver_in_trouble(tmp_path, said, trouble):
    found = gpus(tmp_path, {"nvidia-smi --query-gpu": said})
    assert found["driver_trouble"] is None if trouble is None else trouble in found["driver_trouble"]


def test_matrices_of_eight():
    names = [f"GPU{i}" for i in range(8)]
    rows = [" \t" + "\t".join(names)] + [
        f"{a}\t" + "\t".join(" X " if a == b else "NV18" for b in names) + "\tNODE\t0-47" for a in names
    ]
    found = parse_matrix("\n".join(rows))
    assert len(found) == 28
    assert set(found.values()) == {"NV18"}


def elf(*words: bytes) -> bytes:
    return b"\x7fELF" + struct.pack("<Q", 7) + b"\0".join(words) + b"\0" * 100


def test_a_torch_build_is_read_without_importing_it(tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "version.py").write_text("from typing import Optional\ncuda: Optional[str] = '13.0'\n")
    (tmp_path / "lib" / "libtorch_python.so").write_bytes(elf(b"sm_80", b"x", b"sm_75 sm_80 sm_90a compute_120", b"y"))
    assert torch_build(tmp_path) == ("13.0", ("sm_75", "sm_80", "sm_90a", "compute_120"))
    (tmp_path / "version.py").write_text("cuda: Optional[str] = None\n")
    assert torch_build(tmp_path) == (None, ())
    assert torch_build(tmp_path / "none") == (None, ())


def test_installed_packages_are_told():
    found = read_software(("numpy>=1.26", "no-such-package==1"))
    assert "numpy" in found.packages
    assert "no-such-package" not in found.packages
    assert found.python == ".".join(map(str, sys.version_info[:3]))


def test_this_machine_is_read_in_time(tmp_path):
    start = time.monotonic()
    readings = read_machine(tmp_path)
    assert readings.measured is None
    assert readings.disk_free_bytes > 0
    assert time.monotonic() - start < 5


def test_a_recorded_machine_has_no_devices_of_this_one(tmp_path):
    readings = read_machine(tmp_path, world=world(tmp_path, {"proc/meminfo": MEMINFO}))
    assert readings.gpus == ()
    assert readings.memory_bytes == 64 * GIB


@pytest.mark.slow
def test_the_disk_is_measured_and_left_clean(tmp_path):
    before = set(tmp_path.iterdir())
    rates = measure_disk(tmp_path)
    assert set(tmp_path.iterdir()) == before
    assert rates is None or all(rate > 0 for rate in rates)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="platform: no processor affinity")
def test_memory_bandwidth_is_that_of_memory():
    rate = measure_memory(2 * GIB, seconds=0.3)
    assert rate is not None
    assert 1e8 < rate < 5e12


def test_workers_are_added_in_the_same_slices():
    """Two workers that take turns have the rate of one, not of two."""
    first = (100, [float(i) for i in range(31)])
    assert together([first, first]) == pytest.approx(200)
    second = (100, [0.0, 15.0, *(15.0 + i for i in range(1, 16))])
    slow = (100, [0.0, 15.0, 30.0])
    assert together([first, slow]) == pytest.approx(100 + 100 / 15, rel=0.01)
    assert together([first, second]) == pytest.approx(200, rel=0.01)


@pytest.mark.slow
def test_a_pattern_needs_pytorch():
    """Without PyTorch nothing is said; on a processor the program's own logic is tried."""
    held = measure_card(0, limit_bytes=64 * MIB)
    assert held is None or 0 < held <= 64 * MIB


@pytest.mark.trace
@pytest.mark.slow
@pytest.mark.parametrize(("damage", "held"), [("", 60397977), ("held[0][5] += 1\n", 0)])
def test_a_damaged_cell_is_seen(damage, held):
    """One number of a block that reads back otherwise costs the whole block."""
    program = PATTERN.replace("good = 0", f"{damage}good = 0")
    ended = subprocess.run(
        [sys.executable, "-c", program, "0", str(64 * MIB)], capture_output=True, text=True, check=True
    )
    assert int(ended.stdout) == held


def test_here_is_this_machine():
    assert here().read("no/such/file") is None
    assert here().run(("no-such-program",)) is None
