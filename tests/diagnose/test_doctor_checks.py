"""Each check of the doctor passes where it should, fails where it should, and says unknown where nothing could be read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tonnage import api
from tonnage.diagnose.doctor import examine, is_passed, needs_of
from tonnage.diagnose.doctor.checks import _has_kernels
from tonnage.diagnose.doctor.types import (
    Fabric,
    Gpu,
    Interface,
    Links,
    Measured,
    Needs,
    Readings,
    Software,
    Verdict,
)
from tonnage.plan.request import make_request
from tonnage.units import GIB, MIB

CARD = Gpu(
    index=0, name="NVIDIA GeForce RTX 4090", memory_bytes=24564 * MIB, used_bytes=500 * MIB, driver="580.95.05",
    vbios="95.02.3C.40.E8", compute_capability="8.9", is_persistent=True, has_ecc_on=False, num_uncorrected_errors=0,
    is_remap_pending=False, power_limit_watts=450.0, power_default_watts=450.0, pcie_generation=4, pcie_generation_max=4,
    pcie_lanes=16, pcie_lanes_max=16, clock_reasons=0x1,
)  # fmt: skip
GOOD = Readings(
    system="Linux", release="Ubuntu 24.04.3 LTS", kernel="6.8.0-60-generic", glibc="2.39", cpu="EPYC",
    cpu_features=frozenset({"avx2", "avx512f", "amx_int8", "amx_tile"}), num_cores=32, num_threads=64, num_numa_nodes=2,
    has_numa_balancing=False, governor="performance", memory_bytes=256 * GIB, available_bytes=200 * GIB, swap_bytes=8 * GIB,
    swap_used_bytes=0, memory_limit_bytes=220 * GIB, memory_limit_used_bytes=4 * GIB, cpu_limit=32.0, pids_limit=50_000,
    shared_memory_bytes=64 * GIB, shared_memory_free_bytes=64 * GIB, open_files=1 << 20, locked_bytes=-1, disk_folder="/data",
    disk_free_bytes=2000 * GIB, interfaces=(Interface(name="ens3", bits_per_s=100e9, is_up=True),),
    fabrics=(Fabric(name="mlx5_0:1", state="4: ACTIVE", rate="400 Gb/sec (4X NDR)", layer="InfiniBand"),),
    listening_ports=frozenset({22}), is_clock_synchronised=True, clock_offset_seconds=0.001,
    modules=frozenset({"nvidia", "nvidia_peermem"}), has_secure_boot=False, kernel_driver="580.95.05", has_open_modules=True,
    gpus=(CARD, replace(CARD, index=1)), links=Links(topology={"0-1": "PHB"}, peer_access={"0-1": "OK"}, num_inactive_nvlinks=0),
    has_docker=True, has_container_toolkit=True,
    software=Software(packages={"torch": "2.13.0", "vllm": "0.33.0", "nvidia-cudnn-cu13": "9.15.1.9"}, torch_cuda="13.0", torch_architectures=("sm_80", "sm_90", "sm_120")),
    measured=Measured(memory_bytes_per_s=300e9, disk_read_bytes_per_s=6e9, disk_write_bytes_per_s=4e9, disk_reads_per_s=5e5,
                      gpu_pattern_bytes={0: 22 * GIB, 1: 22 * GIB}, diagnostic=""),
)  # fmt: skip
PLAN = Needs(
    plan="m, vllm", num_gpus=2, gpu_name="GeForce RTX 4090", gpu_memory_bytes=24564 * MIB, gpu_used_bytes=20 * GIB,
    host_bytes=64 * GIB, host_bytes_per_s=250e9, cpu_features=("amx_int8", "avx512f", "avx2"), num_cores=16, disk_bytes=100 * GIB,
    read_bytes_per_s=1e9, shared_memory_bytes=8 * GIB, ports=(8000,), num_nodes=2, network="100 GbE", network_bytes_per_s=12.5e9,
    packages=("vllm==0.33.0",), min_driver_branch=580, needs_open_modules=True,
)  # fmt: skip
CONTAINERS = replace(PLAN, place_has_containers=True)
RDMA = replace(PLAN, is_rdma=True, network="InfiniBand NDR", network_bytes_per_s=50e9)
HGX = replace(
    CARD, name="NVIDIA H100 80GB HBM3", memory_bytes=81559 * MIB, compute_capability="9.0", fabric_state="Completed"
)
EIGHT = tuple(replace(HGX, index=i) for i in range(8))
H100 = replace(PLAN, num_gpus=8, gpu_name="H100 SXM5 80GB", gpu_memory_bytes=81559 * MIB, has_nvlink=True)


def card(**change):
    return {"gpus": (replace(CARD, **change), replace(CARD, index=1, **change))}


def measured(**change):
    return {"measured": replace(GOOD.measured, **change)}


# check -> readings that pass it (on top of GOOD), readings that do not, the verdict then, needs
CASES = {
    "system": ({}, {"glibc": "2.17"}, "fail", PLAN),
    "driver": ({}, {**card(driver="535.183.01"), "kernel_driver": "535.183.01"}, "fail", PLAN),
    "driver:mismatch": ({}, {"kernel_driver": "580.65.06"}, "fail", PLAN),
    "driver:trouble": ({}, {"driver_trouble": "Failed to initialize NVML: Driver/library version mismatch", "gpus": ()}, "fail", PLAN),
    "driver:missing": ({}, {"gpus": (), "kernel_driver": None}, "fail", PLAN),
    "driver modules": ({}, {"has_open_modules": False}, "fail", PLAN),
    "cuda": ({}, card(driver="570.86.15") | {"kernel_driver": "570.86.15"}, "fail", PLAN),
    "cudnn": ({}, {"software": replace(GOOD.software, packages={"torch": "2.13.0", "nvidia-cudnn-cu12": "8.9.7.29"})}, "fail", PLAN),
    "torch": (None, {"software": replace(GOOD.software, torch_cuda=None)}, "fail", PLAN),
    "torch architectures": ({}, card(compute_capability="12.1") | {"software": replace(GOOD.software, torch_architectures=("sm_80", "sm_90"))},
                            "fail", PLAN),
    "gpus": ({}, {"gpus": (CARD,)}, "fail", PLAN),
    "gpus:kind": ({}, card(name="NVIDIA GeForce RTX 4080", memory_bytes=16376 * MIB), "fail", PLAN),
    "gpu memory": ({}, card(used_bytes=8 * GIB), "fail", PLAN),
    "board 0": ({}, card(memory_bytes=49140 * MIB), "warning", PLAN),
    "board 0 memory": ({}, measured(gpu_pattern_bytes={0: 11 * GIB}), "fail", PLAN),
    "pcie 0": ({}, card(pcie_lanes=4), "fail", PLAN),
    "peer access": ({}, {"links": replace(GOOD.links, peer_access={"0-1": "CNS"})}, "warning", replace(PLAN, needs_peer_access=True)),
    "topology": ({"gpus": EIGHT, "links": Links(topology={"0-1": "NV18"})}, {"gpus": EIGHT, "links": Links(topology={"0-1": "SYS"})},
                 "fail", H100),
    "nvlink": (None, {"gpus": EIGHT, "links": Links(num_inactive_nvlinks=2)}, "warning", H100),
    "fabric manager": ({"gpus": EIGHT}, {"gpus": tuple(replace(g, fabric_state="In Progress") for g in EIGHT),
                                         "is_fabric_manager_active": False}, "fail", H100),
    "ecc 0": ({}, card(num_uncorrected_errors=3), "fail", PLAN),
    "ecc 0:remap": ({}, card(is_remap_pending=True), "fail", PLAN),
    "power 0": ({}, card(power_limit_watts=300.0), "warning", PLAN),
    "clocks 0": ({}, card(clock_reasons=0x40), "fail", PLAN),
    "clocks 0:soft": ({}, card(clock_reasons=0x20), "warning", PLAN),
    "persistence": ({}, card(is_persistent=False), "warning", PLAN),
    "dcgmi diag": ({}, measured(diagnostic="PCIe : Fail"), "fail", PLAN),
    "nouveau": ({}, {"modules": frozenset({"nouveau"})}, "fail", PLAN),
    "secure boot": ({}, {"has_secure_boot": True, "modules": frozenset({"ext4"}), "gpus": (), "kernel_driver": None}, "warning", PLAN),
    "gpudirect rdma": ({}, {"modules": frozenset({"nvidia"}), "has_open_modules": False}, "warning", RDMA),
    "container toolkit": ({}, {"has_container_toolkit": False}, "fail", CONTAINERS),
    "processor": ({}, {"cpu_features": frozenset({"sse4_2"})}, "fail", PLAN),
    "matrix units": (None, {"cpu_features": frozenset({"avx2", "avx512f"})}, "warning", PLAN),
    "cores": ({}, {"num_cores": 8}, "warning", PLAN),
    "numa": ({}, {"has_numa_balancing": True}, "warning", PLAN),
    "governor": ({}, {"governor": "powersave"}, "warning", PLAN),
    "memory": ({}, {"available_bytes": 10 * GIB}, "fail", PLAN),
    "memory limit": ({}, {"memory_limit_bytes": 16 * GIB}, "fail", PLAN),
    "memory bandwidth": ({}, measured(memory_bytes_per_s=90e9), "fail", PLAN),
    "memory bandwidth:unmeasured": ({}, {"measured": None}, "not measured", PLAN),
    "swap": ({}, {"swap_used_bytes": 6 * GIB}, "warning", PLAN),
    "cpu limit": ({}, {"cpu_limit": 2.0}, "warning", PLAN),
    "tasks limit": ({}, {"pids_limit": 100}, "warning", PLAN),
    "open files": ({}, {"open_files": 1024}, "warning", PLAN),
    "locked memory": ({}, {"locked_bytes": 8 * MIB}, "fail", RDMA),
    "shared memory": ({}, {"shared_memory_bytes": 64 * MIB, "shared_memory_free_bytes": 64 * MIB}, "fail", PLAN),
    "disk": ({}, {"disk_free_bytes": 10 * GIB}, "fail", PLAN),
    "disk speed": ({}, measured(disk_read_bytes_per_s=0.2e9), "warning", PLAN),
    "disk speed:unmeasured": ({}, {"measured": None}, "not measured", PLAN),
    "network": ({}, {"interfaces": (Interface(name="ens3", bits_per_s=1e9, is_up=True),)}, "warning", PLAN),
    "infiniband": ({}, {"fabrics": (Fabric(name="mlx5_0:1", state="1: DOWN", rate="10 Gb/sec", layer="InfiniBand"),)}, "fail", RDMA),
    "peers": (None, {}, "not measured", PLAN),
    "clock": ({}, {"is_clock_synchronised": False}, "fail", PLAN),
    "clock:offset": ({}, {"clock_offset_seconds": -7.0}, "fail", PLAN),
    "port 8000": ({}, {"listening_ports": frozenset({8000})}, "fail", PLAN),
    "package vllm": ({}, {"software": replace(GOOD.software, packages={"vllm": "0.11.0"})}, "warning", PLAN),
    "package vllm:missing": ({}, {"software": Software()}, "warning", PLAN),
}  # fmt: skip


def verdicts(readings, needs):
    return {check.name: check for check in examine(readings, needs)}


@pytest.mark.parametrize("case", [c for c in CASES if CASES[c][0] is not None])
def test_it_passes(case):
    good, _, _, needs = CASES[case]
    check = verdicts(replace(GOOD, **good), needs)[case.partition(":")[0]]
    assert (check.verdict, check.fix if check.verdict is not Verdict.OK else "") == (Verdict.OK, ""), check


@pytest.mark.parametrize("case", sorted(CASES))
def test_it_does_not_pass(case):
    _, bad, verdict, needs = CASES[case]
    check = verdicts(replace(GOOD, **bad), needs)[case.partition(":")[0]]
    assert check.verdict == verdict, check
    assert check.fix


def test_a_good_machine_passes_as_a_whole():
    wrong = [c for c in examine(GOOD, PLAN) if c.verdict not in (Verdict.OK, Verdict.UNMEASURED)]
    assert wrong == []
    assert is_passed(examine(GOOD, PLAN))


def test_every_check_has_a_case():
    """What can be said of a machine is in the table of cases."""
    names = {
        c.name
        for readings, needs in ((GOOD, PLAN), (GOOD, RDMA), (replace(GOOD, gpus=EIGHT), H100))
        for c in examine(readings, needs)
    }
    known = {case.partition(":")[0] for case in CASES}
    import re

    assert {re.sub(r"(board|pcie|ecc|power|clocks) \d", r"\1 0", name) for name in names} <= known


def test_nothing_known_fails_nothing():
    """A machine of which nothing can be read has no fault; with a plan it has what the plan lacks."""
    assert [c for c in examine(Readings(), Needs()) if c.verdict is Verdict.FAIL] == []
    failed = {c.name for c in examine(Readings(), PLAN) if c.verdict is Verdict.FAIL}
    assert failed == {"driver", "gpus"}


def test_a_machine_without_cards_is_examined():
    plain = replace(GOOD, gpus=(), kernel_driver=None, links=Links(), measured=None)
    checks = examine(plain, Needs())
    assert is_passed(checks)
    assert {"system", "memory", "disk", "network"} <= {c.name for c in checks}


def test_only_what_the_plan_needs_is_checked():
    one = replace(
        PLAN, num_nodes=1, network="", network_bytes_per_s=None, cpu_features=(), host_bytes_per_s=None, num_cores=None
    )
    names = {c.name for c in examine(GOOD, one)}
    assert not {"network", "infiniband", "clock", "peers", "processor", "memory bandwidth", "gpudirect rdma"} & names


@pytest.mark.parametrize(
    ("capability", "compiled", "runs"),
    [
        ("8.9", ("sm_80",), True),
        ("8.6", ("sm_80", "sm_89"), True),
        ("8.0", ("sm_86",), False),
        ("12.0", ("sm_90", "compute_90"), True),
        ("12.0", ("sm_90a", "compute_90a"), False),
        ("9.0", ("sm_90a",), True),
        ("12.0", ("sm_100",), False),
        ("7.0", ("sm_75", "sm_80"), False),
    ],
)
def test_which_kernels_run(capability, compiled, runs):
    """Same major and no newer minor, or intermediate code of an older one; `a` variants for their own chip alone."""
    assert _has_kernels(capability, compiled) is runs


def test_a_container_brings_its_own_packages():
    broken = replace(GOOD, software=replace(GOOD.software, torch_cuda=None, packages={"torch": "2.13.0"}))
    assert {"torch", "package vllm"} <= set(verdicts(broken, PLAN))
    assert not {"torch", "cuda", "package vllm"} & set(verdicts(broken, CONTAINERS))
    assert "torch" not in verdicts(broken, replace(PLAN, has_torch=False))


def test_what_could_not_be_measured_is_told():
    checks = verdicts(replace(GOOD, measured=Measured(problems=("disk: Read-only file system",))), PLAN)
    assert checks["measurement"].found == "disk: Read-only file system"
    assert checks["disk speed"].verdict is Verdict.UNMEASURED


def test_what_a_plan_needs():
    plan = api.plan(make_request("Qwen/Qwen3-8B", gpus=["rtx-4090:2"], limits={"engines": ["vllm"]})).plans[0]
    needs = needs_of(plan)
    assert needs.num_gpus == 2
    assert needs.gpu_name == "GeForce RTX 4090"
    assert needs.packages == ("vllm==0.33.0",)
    assert needs.ports == (8000,)
    assert needs.min_driver_branch == 580
    assert needs.cpu_features == ()
    assert needs.gpu_used_bytes >= plan.estimate.footprint.total.best
    assert needs_of(plan, place="compose").place_has_containers


def test_a_hybrid_plan_needs_the_processor():
    request = make_request(
        "Qwen/Qwen3-30B-A3B", gpus=["rtx-4080"], limits={"engines": ["ktransformers"]}, host="128 GiB ddr5-4800 x8"
    )
    plan = next(p for p in api.plan(request).plans if p.estimate.candidate.offload.num_cpu_expert_layers)
    needs = needs_of(plan)
    assert "amx_int8" in needs.cpu_features
    assert needs.host_bytes_per_s == plan.estimate.candidate.cluster.node.host.bandwidth_bytes_per_s
