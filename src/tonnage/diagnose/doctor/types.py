"""The nouns of `tonnage doctor`: what a machine was read to be, what is needed of it, and the verdict on each point.

Unknown is None everywhere: a thing that could not be read is no fault.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from tonnage.nouns import noun


class Verdict(StrEnum):
    """What a check says."""

    OK = "ok"
    WARNING = "warning"  # works, worse than it could
    FAIL = "fail"  # the plan does not run, or not as predicted
    UNKNOWN = "not found"  # could not be read here
    UNMEASURED = "not measured"


@noun
class Check:
    """One point: what is required and by what, what was found, the verdict, how to mend."""

    name: str
    required: str
    found: str
    verdict: Verdict
    fix: str = ""


@noun
class Gpu:
    """What the driver says of one accelerator."""

    index: int
    name: str
    memory_bytes: int | None = None
    used_bytes: int | None = None
    driver: str | None = None
    vbios: str | None = None
    device_id: str | None = None
    compute_capability: str | None = None
    is_persistent: bool | None = None
    has_ecc_on: bool | None = None
    num_uncorrected_errors: int | None = None
    is_remap_pending: bool | None = None
    power_limit_watts: float | None = None
    power_default_watts: float | None = None
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_lanes: int | None = None
    pcie_lanes_max: int | None = None
    max_clock_hz: float | None = None
    clock_reasons: int | None = None  # bits of nvmlClocksEventReasons
    temperature_celsius: float | None = None
    fabric_state: str | None = None
    has_mig_on: bool | None = None


@noun
class Links:
    """How accelerators reach each other."""

    topology: Mapping[str, str] = field(default_factory=dict[str, str])  # "0-1" -> NV18, PIX, PHB, SYS …
    peer_access: Mapping[str, str] = field(default_factory=dict[str, str])  # "0-1" -> OK, NS, CNS, GNS, TNS
    num_inactive_nvlinks: int | None = None


@noun
class Interface:
    """A network interface."""

    name: str
    bits_per_s: float | None = None
    is_up: bool | None = None


@noun
class Fabric:
    """A port of an InfiniBand or RoCE device."""

    name: str
    state: str
    rate: str
    layer: str


@noun
class Software:
    """What Python finds installed, read from files."""

    python: str = ""
    packages: Mapping[str, str] = field(default_factory=dict[str, str])
    torch_cuda: str | None = None  # "13.0"; None: a build without CUDA, or none at all
    torch_architectures: tuple[str, ...] = ()  # sm_80 …, as compiled in


@noun
class Measured:
    """What was measured, where that was asked for."""

    memory_bytes_per_s: float | None = None
    disk_read_bytes_per_s: float | None = None
    disk_write_bytes_per_s: float | None = None
    disk_reads_per_s: float | None = None  # random, 4 KiB
    gpu_pattern_bytes: Mapping[int, int] = field(default_factory=dict[int, int])  # by device, what held its pattern
    diagnostic: str | None = None  # of dcgmi diag -r 1: the lines that did not pass; "" all passed
    problems: tuple[str, ...] = ()


@noun
class Readings:
    """One reading of a machine."""

    system: str = ""
    release: str = ""  # "Ubuntu 24.04"
    kernel: str = ""
    glibc: str | None = None
    is_wsl: bool = False
    is_container: bool = False
    cpu: str = ""
    cpu_features: frozenset[str] = frozenset()
    num_cores: int | None = None
    num_threads: int | None = None
    num_numa_nodes: int | None = None
    has_numa_balancing: bool | None = None
    governor: str | None = None
    memory_bytes: int | None = None
    available_bytes: int | None = None
    swap_bytes: int | None = None
    swap_used_bytes: int | None = None
    memory_limit_bytes: int | None = None  # of the control group
    memory_limit_used_bytes: int | None = None
    cpu_limit: float | None = None  # cores that the control group gives
    pids_limit: int | None = None
    shared_memory_bytes: int | None = None
    shared_memory_free_bytes: int | None = None
    open_files: int | None = None
    locked_bytes: int | None = None  # -1: no limit
    disk_folder: str = ""
    disk_free_bytes: int | None = None
    is_disk_rotational: bool | None = None
    interfaces: tuple[Interface, ...] = ()
    fabrics: tuple[Fabric, ...] = ()
    listening_ports: frozenset[int] = frozenset()
    is_clock_synchronised: bool | None = None
    clock_offset_seconds: float | None = None
    modules: frozenset[str] = frozenset()
    has_secure_boot: bool | None = None
    kernel_driver: str | None = None  # version of the module that runs
    has_open_modules: bool | None = None
    driver_trouble: str | None = None  # what nvidia-smi said instead of an answer
    gpus: tuple[Gpu, ...] = ()
    gpu_source: str = ""
    links: Links = Links()
    has_docker: bool | None = None
    has_container_toolkit: bool | None = None
    is_fabric_manager_active: bool | None = None
    software: Software = Software()
    measured: Measured | None = None  # None: not asked for


@noun
class Needs:
    """What a plan needs of one machine; without a plan nothing is needed, and only faults are told."""

    plan: str = ""  # what asks, as it is told
    num_gpus: int = 0
    gpu_name: str = ""  # of the catalogue
    gpu_memory_bytes: int | None = None
    gpu_used_bytes: float | None = None  # the upper end of what the plan takes of one card
    vendor: str = "nvidia"
    host_bytes: float | None = None
    host_bytes_per_s: float | None = None  # memory bandwidth that the plan counts on, where the host computes
    cpu_features: tuple[str, ...] = ()  # any one of them
    num_cores: int | None = None
    disk_bytes: float | None = None
    read_bytes_per_s: float | None = None
    shared_memory_bytes: int | None = None
    ports: tuple[int, ...] = ()
    num_nodes: int = 1
    network: str = ""  # the link that the plan counts on between machines
    network_bytes_per_s: float | None = None
    is_rdma: bool = False
    has_nvlink: bool = False
    needs_peer_access: bool = False
    packages: tuple[str, ...] = ()  # as vllm==0.33.0
    place_has_containers: bool = False
    min_driver_branch: int | None = None
    needs_open_modules: bool = False
    has_torch: bool = True  # the engine stands on PyTorch

    @property
    def is_plan(self) -> bool:
        """Whether a plan asks."""
        return bool(self.plan)
