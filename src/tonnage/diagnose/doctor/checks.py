"""Verdicts: readings of a machine held against what a plan needs; each function looks at one part and yields checks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from tonnage import datafiles
from tonnage.diagnose.doctor.types import Check, Gpu, Needs, Readings, Verdict
from tonnage.errors import UnknownNameError
from tonnage.hardware.catalogue import find_device
from tonnage.messages import say
from tonnage.units import GIB, format_bytes

__all__ = ["CHECKS", "examine", "is_passed"]

# nvmlClocksEventReasons: hardware slowdown, hardware thermal, power brake; software thermal is told as a warning too.
_HARD_REASONS: Final = 0x8 | 0x40 | 0x80
_SOFT_THERMAL: Final = 0x20
_SAME_MEMORY_RATIO: Final = 0.06  # drivers keep back up to so much of what a board has
_BANDWIDTH_SHORT_RATIO: Final = 0.85
_LEAST_CUDNN: Final = 9  # what today's PyTorch wheels are built with
_LEAST_FILES: Final = 4096
_LEAST_PIDS: Final = 4096
_CLOCK_SECONDS: Final = 1.0
_NETWORK_SHORT_RATIO: Final = 0.9
_FULL_MATRIX: Final = ("amx_int8", "amx_tile")
_HGX: Final = re.compile(r"\b(?:A100-SXM|H100|H200|H20|B200|B300|A800-SXM|H800)\b", re.IGNORECASE)
_HGX_COUNT: Final = 8


def examine(readings: Readings, needs: Needs) -> tuple[Check, ...]:
    """Return every check that this machine and this plan give reason for."""
    return tuple(check for look in CHECKS for check in look(readings, needs))


def is_passed(checks: tuple[Check, ...]) -> bool:
    """Whether nothing failed."""
    return all(check.verdict is not Verdict.FAIL for check in checks)


def _check(
    name: str, required: str, found: str | None, *, passes: bool | None, fix: str = "", grave: bool = True
) -> Check:
    """Return a check; `passes` of None is a thing that could not be read."""
    if passes is None:
        return Check(name=name, required=required, found=found or say("doctor.unknown"), verdict=Verdict.UNKNOWN)
    bad = Verdict.FAIL if grave else Verdict.WARNING
    verdict = Verdict.OK if passes else bad
    return Check(name=name, required=required, found=found or "", verdict=verdict, fix="" if passes else fix)


def _least(amount: float | None) -> str:
    return "" if amount is None else say("doctor.at_least", amount=format_bytes(amount))


def _version(text: str | None) -> tuple[int, ...] | None:
    numbers = re.findall(r"\d+", text or "")
    return tuple(int(n[:6]) for n in numbers[:3]) if numbers else None


def system(readings: Readings, needs: Needs) -> Iterator[Check]:
    """Look at the C library against the wheels' tags."""
    wanted = [
        row["glibc"]
        for row in datafiles.rows("doctor/glibc.csv")
        if row["package"] == "torch" or any(p.startswith(row["package"]) for p in needs.packages)
    ]
    least = max(wanted, key=lambda v: _version(v) or ())
    found = f"{readings.release}, Linux {readings.kernel}, glibc {readings.glibc or '?'}"
    have = _version(readings.glibc)
    if readings.system and readings.system != "Linux":
        yield Check(name="system", required=f"glibc ≥ {least}", found=readings.system, verdict=Verdict.UNKNOWN)
        return
    passes = None if have is None else have[:2] >= (_version(least) or ())[:2]
    yield _check("system", f"glibc ≥ {least}", found, passes=passes, fix=say("doctor.fix_glibc"))


def driver(readings: Readings, needs: Needs) -> Iterator[Check]:
    """Look at the driver: there, new enough, of the module that runs, with the open modules where a card needs them."""
    wants_nvidia = needs.num_gpus > 0 and needs.vendor == "nvidia"
    if not (wants_nvidia or readings.gpus or readings.kernel_driver or readings.driver_trouble):
        return
    required = f"≥ R{needs.min_driver_branch}" if needs.min_driver_branch else ""
    running = readings.gpus[0].driver if readings.gpus else None
    if readings.driver_trouble:
        is_mismatch = "mismatch" in readings.driver_trouble.lower()
        fix = say("doctor.fix_driver_mismatch" if is_mismatch else "doctor.fix_driver_silent")
        yield _check("driver", required, readings.driver_trouble, passes=False, fix=fix)
        return
    version = running or readings.kernel_driver
    if version is None:
        yield _check("driver", required, say("doctor.none"), passes=False, fix=say("doctor.fix_driver_missing"))
        return
    branch = (_version(version) or (0,))[0]
    if running and readings.kernel_driver and running != readings.kernel_driver:
        fix = say("doctor.fix_driver_mismatch")
        yield _check("driver", required, f"{running} / {readings.kernel_driver}", passes=False, fix=fix)
    else:
        passes = needs.min_driver_branch is None or branch >= needs.min_driver_branch
        fix = say("doctor.fix_driver_old", branch=needs.min_driver_branch or "")
        yield _check("driver", required, version, passes=passes, fix=fix)
    if needs.needs_open_modules:
        yield _check("driver modules", "nvidia-open", "nvidia-open" if readings.has_open_modules else "proprietary",
                     passes=readings.has_open_modules, fix=say("doctor.fix_modules"))  # fmt: skip


def cuda(readings: Readings, needs: Needs) -> Iterator[Check]:
    """Hold PyTorch's CUDA against the driver, and its compiled architectures against the cards."""
    torch = readings.software.packages.get("torch")
    if needs.is_plan and (needs.place_has_containers or not needs.has_torch):
        return  # a container brings its own
    if torch is None or not (readings.gpus or (needs.num_gpus and needs.vendor == "nvidia")):
        return
    if readings.software.torch_cuda is None:
        yield _check("torch", "CUDA", f"torch {torch}", passes=False, fix=say("doctor.fix_torch_cpu"),
                     grave=needs.is_plan)  # fmt: skip
        return
    yield from _compatibility(readings)
    cudnn = next((v for n, v in readings.software.packages.items() if n.startswith("nvidia-cudnn")), None)
    if cudnn is not None:  # the wheel's own; an installation beside it is not used
        passes = (_version(cudnn) or (0,))[0] >= _LEAST_CUDNN
        yield _check("cudnn", f"≥ {_LEAST_CUDNN}", cudnn, passes=passes, fix=say("doctor.fix_cudnn"))
    compiled = readings.software.torch_architectures
    for capability in dict.fromkeys(g.compute_capability for g in readings.gpus if g.compute_capability):
        arch = capability.replace(".", "")
        passes = _has_kernels(capability, compiled) if compiled else None
        yield _check("torch architectures", f"sm_{arch}", " ".join(compiled) or None, passes=passes,
                     fix=say("doctor.fix_architecture", arch=arch))  # fmt: skip


def _compatibility(readings: Readings) -> Iterator[Check]:
    """Minor version compatibility: the least driver branch of a major CUDA release."""
    version = _version(readings.software.torch_cuda)
    running = _version(readings.gpus[0].driver if readings.gpus else readings.kernel_driver)
    floors = {int(r["cuda_major"]): int(r["min_driver_branch"]) for r in datafiles.rows("doctor/cuda_drivers.csv")}
    floor = floors.get(version[0]) if version else None
    if floor is None:
        return
    found = f"torch {readings.software.packages['torch']}, CUDA {readings.software.torch_cuda}"
    passes = None if running is None else running[0] >= floor
    yield _check("cuda", f"R{floor}+", found, passes=passes, fix=say("doctor.fix_cuda", branch=floor))


def _has_kernels(capability: str, compiled: tuple[str, ...]) -> bool:
    """Whether code for one capability runs: the same major with no newer minor, or intermediate code of an older one.

    >>> _has_kernels("8.9", ("sm_80", "sm_86")), _has_kernels("12.0", ("sm_80", "sm_90a"))
    (True, False)
    """
    major, _, minor = capability.partition(".")
    for word in compiled:
        match = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", word)
        if match is None:
            continue
        same = int(match[2]) == int(major) and int(match[3]) <= int(minor or 0)
        older = (int(match[2]), int(match[3])) <= (int(major), int(minor or 0))
        if match[1] == "sm" and same and (not match[4] or match[3] == minor):
            return True
        if match[1] == "compute" and older and not match[4]:
            return True
    return False


def gpus(readings: Readings, needs: Needs) -> Iterator[Check]:
    """Count the cards, and the memory that is free on them."""
    if not needs.num_gpus:
        return
    required = say("doctor.gpus_found", num=needs.num_gpus, name=needs.gpu_name)
    if not readings.gpus:
        yield _check("gpus", required, say("doctor.none"), passes=False, fix=say("doctor.fix_gpus"))
        return
    alike = [g for g in readings.gpus if _is_of(g, needs)]
    found = ", ".join(dict.fromkeys(say("doctor.gpus_found", num=sum(o.name == g.name for o in readings.gpus), name=g.name)
                                    for g in readings.gpus))  # fmt: skip
    yield _check("gpus", required, found, passes=len(alike) >= needs.num_gpus, fix=say("doctor.fix_gpus"))
    if needs.gpu_used_bytes is None:
        return
    free = sorted((g.memory_bytes - g.used_bytes for g in alike if g.memory_bytes is not None and g.used_bytes is not None),
                  reverse=True)[: needs.num_gpus]  # fmt: skip
    passes = None if len(free) < needs.num_gpus else free[-1] >= needs.gpu_used_bytes
    yield _check("gpu memory", _least(needs.gpu_used_bytes), format_bytes(free[-1]) if free else None, passes=passes,
                 fix=say("doctor.fix_gpu_memory"))  # fmt: skip


def _is_of(gpu: Gpu, needs: Needs) -> bool:
    """Whether a card is of the plan's kind: as the catalogue knows it, and with no less memory."""
    try:
        known = find_device(gpu.name).name
    except UnknownNameError:
        known = gpu.name
    enough = gpu.memory_bytes is None or needs.gpu_memory_bytes is None or (
        gpu.memory_bytes >= needs.gpu_memory_bytes * (1 - _SAME_MEMORY_RATIO)
    )  # fmt: skip
    return enough and (known == needs.gpu_name or needs.gpu_name in (gpu.name, known))


def boards(readings: Readings, needs: Needs) -> Iterator[Check]:
    """Hold each board's reported memory against what its maker sells, and against a pattern where one was written."""
    del needs
    for gpu in readings.gpus:
        name = f"board {gpu.index}"
        try:
            known = find_device(gpu.name)
        except UnknownNameError:
            yield Check(
                name=name, required="", found=say("doctor.not_in_catalogue", name=gpu.name), verdict=Verdict.UNKNOWN
            )
            continue
        held = readings.measured.gpu_pattern_bytes.get(gpu.index) if readings.measured else None
        if gpu.memory_bytes is not None and not known.is_unified_memory:
            ratio = gpu.memory_bytes / known.memory_bytes
            passes = ratio <= 1 + _SAME_MEMORY_RATIO and not known.is_unofficial
            found = say("doctor.reported_as", name=gpu.name, reported=format_bytes(gpu.memory_bytes),
                        sold=format_bytes(known.memory_bytes))  # fmt: skip
            vbios = f", VBIOS {gpu.vbios}" if gpu.vbios else ""
            yield _check(name, format_bytes(known.memory_bytes), found + vbios, passes=passes, grave=False,
                         fix=say("doctor.fix_board"))  # fmt: skip
            if held is not None:
                free = gpu.memory_bytes - (gpu.used_bytes or 0)
                found = say("doctor.held_of", held=format_bytes(held), reported=format_bytes(gpu.memory_bytes))
                yield _check(f"board {gpu.index} memory", format_bytes(free), found, passes=held >= 0.8 * free,
                             fix=say("doctor.fix_pattern"))  # fmt: skip


def buses(readings: Readings, needs: Needs) -> Iterator[Check]:
    """Look at each card's PCIe link: lanes are fixed, the generation falls while idle."""
    for gpu in readings.gpus:
        if gpu.pcie_lanes is None or gpu.pcie_lanes_max is None:
            continue
        found = say("doctor.lanes", generation=gpu.pcie_generation or "?", lanes=gpu.pcie_lanes,
                    generation_max=gpu.pcie_generation_max or "?", lanes_max=gpu.pcie_lanes_max)  # fmt: skip
        name = f"pcie {gpu.index}"
        if gpu.pcie_lanes < gpu.pcie_lanes_max:
            yield _check(name, f"x{gpu.pcie_lanes_max}", found, passes=False, grave=needs.num_gpus > 1,
                         fix=say("doctor.fix_lanes"))  # fmt: skip
            continue
        is_low = (gpu.pcie_generation or 0) < (gpu.pcie_generation_max or 0)
        yield Check(name=name, required=f"x{gpu.pcie_lanes_max}", found=found, verdict=Verdict.OK,
                    fix=say("doctor.fix_generation") if is_low else "")  # fmt: skip


def links(readings: Readings, needs: Needs) -> Iterator[Check]:
    """Look at peer access, NVLink and the fabric manager where several cards work together."""
    if len(readings.gpus) < 2 or needs.num_gpus == 1:
        return
    held = readings.links
    if held.peer_access:
        wrong = {pair: word for pair, word in held.peer_access.items() if word not in ("OK", "X")}
        found = ", ".join(f"{pair} {word}" for pair, word in wrong.items()) or "OK"
        yield _check("peer access", "OK" if needs.needs_peer_access else "", found, grave=False,
                     passes=not wrong or not (needs.needs_peer_access or not needs.is_plan), fix=say("doctor.fix_peer"))  # fmt: skip
    if held.topology:
        kinds = set(held.topology.values())
        has_nvlink = bool(kinds) and all(k.startswith("NV") for k in kinds)
        required = "NVLink" if needs.has_nvlink else ""
        yield _check("topology", required, " ".join(sorted(kinds)), passes=has_nvlink or not needs.has_nvlink,
                     fix=say("doctor.fix_nvlink"))  # fmt: skip
    if held.num_inactive_nvlinks is not None and held.num_inactive_nvlinks > 0:
        yield _check("nvlink", "0 inactive", f"{held.num_inactive_nvlinks} inactive", passes=False, grave=False,
                     fix=say("doctor.fix_nvlink"))  # fmt: skip
    needs_manager = len(readings.gpus) >= _HGX_COUNT and all(_HGX.search(g.name) for g in readings.gpus)
    if needs_manager:
        states = {g.fabric_state.lower() for g in readings.gpus if g.fabric_state}
        active = readings.is_fabric_manager_active
        passes = True if states == {"completed"} else active
        yield _check("fabric manager", "active", " ".join(sorted(states)) or (say("doctor.on") if active else say("doctor.off")),
                     passes=passes, fix=say("doctor.fix_fabric"))  # fmt: skip


def health(readings: Readings, needs: Needs) -> Iterator[Check]:
    """Look at ECC, remapped rows, persistence, power limit, clocks, and DCGM's quick diagnostic."""
    del needs
    for gpu in readings.gpus:
        bad = gpu.num_uncorrected_errors or 0
        if gpu.has_ecc_on is not None or bad or gpu.is_remap_pending:
            found = f"ECC {say('doctor.on') if gpu.has_ecc_on else say('doctor.off')}, {bad} uncorrected"
            passes = bad == 0 and not gpu.is_remap_pending
            yield _check(f"ecc {gpu.index}", "0 uncorrected", found, passes=passes, fix=say("doctor.fix_ecc_errors"))
        if gpu.power_limit_watts and gpu.power_default_watts and gpu.power_limit_watts < gpu.power_default_watts - 1:
            found = say(
                "doctor.limit_of", limit=f"{gpu.power_limit_watts:.0f}", default=f"{gpu.power_default_watts:.0f}"
            )
            fix = say("doctor.fix_power", watts=f"{gpu.power_default_watts:.0f}")
            yield _check(f"power {gpu.index}", "", found, passes=False, fix=fix, grave=False)
        elif gpu.power_limit_watts:
            yield _check(f"power {gpu.index}", "", f"{gpu.power_limit_watts:.0f} W", passes=True)
        if gpu.clock_reasons is not None:
            passes = not gpu.clock_reasons & (_HARD_REASONS | _SOFT_THERMAL)
            yield _check(f"clocks {gpu.index}", "", f"0x{gpu.clock_reasons:x}", passes=passes,
                         grave=bool(gpu.clock_reasons & _HARD_REASONS), fix=say("doctor.fix_clocks"))  # fmt: skip
    states = {g.is_persistent for g in readings.gpus if g.is_persistent is not None}
    if states:
        found = say("doctor.on") if states == {True} else say("doctor.off")
        yield _check("persistence", say("doctor.on"), found, passes=states == {True}, grave=False,
                     fix=say("doctor.fix_persistence"))  # fmt: skip
    if readings.measured and readings.measured.diagnostic is not None:
        found = readings.measured.diagnostic or say("doctor.passed")
        yield _check("dcgmi diag", say("doctor.passed"), found, passes=not readings.measured.diagnostic,
                     fix=say("doctor.fix_diagnostic"))  # fmt: skip


def kernel_modules(readings: Readings, needs: Needs) -> Iterator[Check]:
    """Look for nouveau, for Secure Boot without the driver, and for GPUDirect where machines are joined by RDMA."""
    has_cards = bool(readings.gpus or readings.kernel_driver)
    if "nouveau" in readings.modules:
        yield _check("nouveau", say("doctor.not_loaded"), say("doctor.loaded"), passes=False,
                     grave=needs.vendor == "nvidia" and needs.num_gpus > 0, fix=say("doctor.fix_nouveau"))  # fmt: skip
    elif readings.modules and (has_cards or needs.num_gpus):
        yield _check("nouveau", say("doctor.not_loaded"), say("doctor.not_loaded"), passes=True)
    if readings.has_secure_boot is not None and (has_cards or needs.num_gpus):
        blocks = readings.has_secure_boot and "nvidia" not in readings.modules and not has_cards
        yield _check("secure boot", "", say("doctor.on") if readings.has_secure_boot else say("doctor.off"),
                     passes=not blocks, grave=False, fix=say("doctor.fix_secure_boot"))  # fmt: skip
    if needs.is_rdma:
        has_peer = "nvidia_peermem" in readings.modules
        new_kernel = (_version(readings.kernel) or ()) >= (5, 12)
        has_dmabuf = bool(readings.has_open_modules and new_kernel)
        found = "nvidia_peermem" if has_peer else "dma-buf" if has_dmabuf else say("doctor.none")
        yield _check("gpudirect rdma", "nvidia_peermem / dma-buf", found, passes=has_peer or has_dmabuf, grave=False,
                     fix=say("doctor.fix_gpudirect"))  # fmt: skip


def containers(readings: Readings, needs: Needs) -> Iterator[Check]:
    """Look at the container toolkit where containers start the plan, or Docker and cards are there."""
    wanted = needs.place_has_containers
    if not wanted and not (readings.has_docker and readings.gpus and not needs.is_plan):
        return
    if needs.num_gpus == 0 and needs.is_plan:
        return
    found = "nvidia-ctk" if readings.has_container_toolkit else say("doctor.none")
    yield _check("container toolkit", "nvidia-ctk", found, passes=readings.has_container_toolkit, grave=wanted,
                 fix=say("doctor.fix_toolkit"))  # fmt: skip


def processor(readings: Readings, needs: Needs) -> Iterator[Check]:
    """Look at matrix units, cores and NUMA where the host computes a part of the model."""
    known = ("amx_int8", "amx_bf16", "avx512f", "avx512_vnni", "avx512_bf16", "avx_vnni", "avx2", "sve", "i8mm")
    has = [name for name in known if name in readings.cpu_features]
    if needs.is_plan and not needs.cpu_features:
        return
    cores = say("doctor.cores_threads", cores=readings.num_cores or "?", threads=readings.num_threads or "?")
    found = ", ".join(x for x in (readings.cpu, cores, " ".join(has)) if x)
    if not needs.cpu_features:
        yield _check("processor", "", found, passes=True if readings.num_cores else None)
    else:
        passes = any(n in readings.cpu_features for n in needs.cpu_features) if readings.cpu_features else None
        yield _check(
            "processor", " / ".join(needs.cpu_features), found, passes=passes, fix=say("doctor.fix_cpu_features")
        )
        wants_matrix = any(n in needs.cpu_features for n in _FULL_MATRIX)
        if passes and wants_matrix and not any(n in readings.cpu_features for n in _FULL_MATRIX):
            yield Check(name="matrix units", required="AMX", found=" ".join(has), verdict=Verdict.WARNING,
                        fix=say("doctor.fix_cpu_slow_route"))  # fmt: skip
    if needs.num_cores and readings.num_cores:
        yield _check("cores", str(needs.num_cores), str(readings.num_cores), passes=readings.num_cores >= needs.num_cores,
                     grave=False, fix=say("doctor.fix_cores"))  # fmt: skip
    if readings.num_numa_nodes and readings.num_numa_nodes > 1:
        balancing = say("doctor.on") if readings.has_numa_balancing else say("doctor.off")
        found = say("doctor.numa_nodes", nodes=readings.num_numa_nodes, balancing=balancing)
        yield _check("numa", "", found, passes=not (needs.cpu_features and readings.has_numa_balancing), grave=False,
                     fix=say("doctor.fix_numa"))  # fmt: skip
    if readings.governor:
        yield _check("governor", "", readings.governor, passes=readings.governor != "powersave" or not needs.cpu_features,
                     grave=False, fix=say("doctor.fix_governor"))  # fmt: skip


def memory(readings: Readings, needs: Needs) -> Iterator[Check]:
    """Look at host memory: free, left by the control group, its bandwidth, swap."""
    found = None
    if readings.available_bytes is not None:
        found = say(
            "doctor.free_of",
            free=format_bytes(readings.available_bytes),
            total=format_bytes(readings.memory_bytes or 0),
        )
    passes = (
        None
        if readings.available_bytes is None
        else needs.host_bytes is None or readings.available_bytes >= needs.host_bytes
    )
    yield _check("memory", _least(needs.host_bytes), found, passes=passes, fix=say("doctor.fix_memory"))
    limit = readings.memory_limit_bytes
    if limit is not None:
        left = limit - (readings.memory_limit_used_bytes or 0)
        passes = needs.host_bytes is None or left >= needs.host_bytes
        yield _check("memory limit", _least(needs.host_bytes), format_bytes(limit), passes=passes,
                     fix=say("doctor.fix_group_memory"))  # fmt: skip
    yield from _bandwidth(readings, needs)
    if readings.swap_bytes is not None:
        used = readings.swap_used_bytes or 0
        found = f"{format_bytes(used)} / {format_bytes(readings.swap_bytes)}"
        heavy = used > GIB and used > 0.2 * readings.swap_bytes
        yield _check("swap", "", found, passes=not heavy, grave=False, fix=say("doctor.fix_swap"))


def _bandwidth(readings: Readings, needs: Needs) -> Iterator[Check]:
    """Hold the bandwidth of host memory, the limit of all that the host computes, against what the plan counts on."""
    if needs.is_plan and needs.host_bytes_per_s is None:
        return
    required = "" if needs.host_bytes_per_s is None else f"{needs.host_bytes_per_s / 1e9:.0f} GB/s"
    measured = readings.measured.memory_bytes_per_s if readings.measured else None
    if measured is None:
        if needs.host_bytes_per_s is not None or readings.measured:
            yield Check(name="memory bandwidth", required=required, found="", verdict=Verdict.UNMEASURED,
                        fix=say("doctor.fix_measure"))  # fmt: skip
        return
    passes = needs.host_bytes_per_s is None or measured >= _BANDWIDTH_SHORT_RATIO * needs.host_bytes_per_s
    yield _check(
        "memory bandwidth", required, f"{measured / 1e9:.1f} GB/s", passes=passes, fix=say("doctor.fix_bandwidth")
    )


def limits(readings: Readings, needs: Needs) -> Iterator[Check]:
    """Look at what limits a process: cores, tasks, open files, locked memory, shared memory."""
    if readings.cpu_limit is not None:
        wanted = float(needs.num_cores or max(2, 2 * needs.num_gpus))
        yield _check("cpu limit", f"{wanted:g}", f"{readings.cpu_limit:g}", passes=readings.cpu_limit >= wanted, grave=False,
                     fix=say("doctor.fix_cpu_limit"))  # fmt: skip
    if readings.pids_limit is not None:
        yield _check("tasks limit", str(_LEAST_PIDS), str(readings.pids_limit), passes=readings.pids_limit >= _LEAST_PIDS,
                     grave=False, fix=say("doctor.fix_pids"))  # fmt: skip
    if readings.open_files is not None:
        yield _check("open files", str(_LEAST_FILES), str(readings.open_files), grave=False,
                     passes=readings.open_files < 0 or readings.open_files >= _LEAST_FILES, fix=say("doctor.fix_files"))  # fmt: skip
    if readings.locked_bytes is not None and (needs.is_rdma or not needs.is_plan):
        found = say("doctor.no_limit") if readings.locked_bytes < 0 else format_bytes(readings.locked_bytes)
        passes = readings.locked_bytes < 0 or not needs.is_rdma
        yield _check("locked memory", say("doctor.no_limit") if needs.is_rdma else "", found, passes=passes,
                     fix=say("doctor.fix_locks"))  # fmt: skip
    wanted_shm = needs.shared_memory_bytes
    if readings.shared_memory_bytes is not None and (wanted_shm or not needs.is_plan):
        found = say("doctor.free_of", free=format_bytes(readings.shared_memory_free_bytes or 0),
                    total=format_bytes(readings.shared_memory_bytes))  # fmt: skip
        passes = wanted_shm is None or (readings.shared_memory_free_bytes or 0) >= wanted_shm
        fix = say("doctor.fix_shm", amount=format_bytes(wanted_shm or GIB).replace(" GiB", "g"))
        yield _check("shared memory", _least(wanted_shm), found, passes=passes, fix=fix)


def disk(readings: Readings, needs: Needs) -> Iterator[Check]:
    """Look at space, and at the speed where it was measured."""
    free = readings.disk_free_bytes
    passes = None if free is None else needs.disk_bytes is None or free >= needs.disk_bytes
    found = None if free is None else f"{format_bytes(free)} ({readings.disk_folder})"
    yield _check("disk", _least(needs.disk_bytes), found, passes=passes, fix=say("doctor.fix_disk"))
    measured = readings.measured
    if measured is None or measured.disk_read_bytes_per_s is None:
        if needs.read_bytes_per_s and needs.is_plan:
            yield Check(name="disk speed", required=f"{needs.read_bytes_per_s / 1e9:.2f} GB/s", found="",
                        verdict=Verdict.UNMEASURED, fix=say("doctor.fix_measure"))  # fmt: skip
        return
    read, write = measured.disk_read_bytes_per_s, measured.disk_write_bytes_per_s or 0.0
    found = say("doctor.read_write", read=f"{read / 1e9:.2f} GB", write=f"{write / 1e9:.2f} GB",
                random=f"{measured.disk_reads_per_s or 0:.0f}")  # fmt: skip
    passes = needs.read_bytes_per_s is None or read >= needs.read_bytes_per_s
    required = "" if needs.read_bytes_per_s is None else f"{needs.read_bytes_per_s / 1e9:.2f} GB/s"
    time = f"{(needs.disk_bytes or 0) / read:.0f} s"
    yield _check("disk speed", required, found, passes=passes, grave=False, fix=say("doctor.fix_disk_speed", time=time))


def network(readings: Readings, needs: Needs) -> Iterator[Check]:
    """Look at interfaces, InfiniBand and the clock where machines work together, and at the plan's ports."""
    up = [i for i in readings.interfaces if i.is_up and i.name != "lo"]
    if needs.num_nodes > 1 or not needs.is_plan:
        rates = [i.bits_per_s for i in up if i.bits_per_s]
        found = ", ".join(f"{i.name} {i.bits_per_s / 1e9:g} Gb/s" if i.bits_per_s else i.name for i in up) or say(
            "doctor.none"
        )
        wanted = needs.network_bytes_per_s * 8 if needs.network_bytes_per_s and not needs.is_rdma else None
        passes = None if not rates and wanted else wanted is None or max(rates) >= _NETWORK_SHORT_RATIO * wanted
        yield _check("network", f"{wanted / 1e9:g} Gb/s" if wanted else "", found, passes=passes, grave=False,
                     fix=say("doctor.fix_interface"))  # fmt: skip
    if needs.is_rdma or (readings.fabrics and not needs.is_plan):
        active = [f for f in readings.fabrics if "ACTIVE" in f.state.upper()]
        found = ", ".join(f"{f.name} {f.state} {f.rate} {f.layer}" for f in readings.fabrics) or say("doctor.none")
        yield _check("infiniband", needs.network or "", found, passes=bool(active) or not needs.is_rdma,
                     fix=say("doctor.fix_ib"))  # fmt: skip
    if needs.num_nodes > 1:
        yield Check(
            name="peers", required=needs.network, found="", verdict=Verdict.UNMEASURED, fix=say("doctor.fix_peers")
        )
    if needs.num_nodes > 1 or not needs.is_plan:
        yield from _clock(readings, needs)
    for port in needs.ports:
        taken = port in readings.listening_ports
        found = say("doctor.listening", port=port) if taken else say("doctor.free")
        yield _check(f"port {port}", say("doctor.free"), found, passes=not taken, fix=say("doctor.fix_port"))


def _clock(readings: Readings, needs: Needs) -> Iterator[Check]:
    """Time has to agree between machines: logs are ordered by it, and certificates and rendezvous time out by it."""
    known = readings.is_clock_synchronised
    offset = readings.clock_offset_seconds
    if known is None and offset is None:
        yield _check("clock", say("doctor.synchronised"), None, passes=None)
        return
    passes = known is not False and (offset is None or abs(offset) < _CLOCK_SECONDS)
    found = say("doctor.synchronised" if known else "doctor.not_synchronised") + (
        f", {offset:+.3f} s" if offset is not None else ""
    )
    yield _check(
        "clock",
        say("doctor.synchronised"),
        found,
        passes=passes,
        grave=needs.num_nodes > 1,
        fix=say("doctor.fix_clock"),
    )


def packages(readings: Readings, needs: Needs) -> Iterator[Check]:
    """Hold the engine's package against the version that the plan was counted for."""
    if needs.place_has_containers:
        return
    for wanted in needs.packages:
        name, _, version = wanted.partition("==")
        name = name.partition("[")[0].strip()
        if not re.fullmatch(r"[A-Za-z0-9._-]+", name):
            continue
        have = readings.software.packages.get(name.lower().replace("_", "-"))
        if have is None:
            yield _check(f"package {name}", wanted, say("doctor.none"), passes=False, grave=False,
                         fix=say("doctor.fix_package", package=wanted))  # fmt: skip
        else:
            same = not version or have.partition("+")[0] == version
            yield _check(f"package {name}", wanted, have, passes=same, grave=False,
                         fix=say("doctor.fix_package", package=wanted))  # fmt: skip


def measuring(readings: Readings, needs: Needs) -> Iterator[Check]:
    """Tell what could not be measured."""
    del needs
    for problem in readings.measured.problems if readings.measured else ():
        yield Check(name="measurement", required="", found=problem, verdict=Verdict.UNKNOWN)


CHECKS: Final[tuple[Callable[[Readings, Needs], Iterator[Check]], ...]] = (
    system,
    driver,
    cuda,
    gpus,
    boards,
    buses,
    links,
    health,
    kernel_modules,
    containers,
    processor,
    memory,
    limits,
    disk,
    network,
    packages,
    measuring,
)
