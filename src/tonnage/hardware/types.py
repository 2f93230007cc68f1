"""The nouns of hardware: `Device`, `Link`, `Host`, `Node`, `Cluster`, `Offer`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from tonnage.nouns import noun


@noun
class Device:
    """One accelerator as the driver shows it. Rates are dense; unknown is None."""

    slug: str
    name: str
    vendor: str
    architecture: str
    form_factor: str
    memory_bytes: int  # what the driver reports, not the marketed size
    memory_type: str
    bandwidth_bytes_per_s: float
    flop_per_s: Mapping[str, float] = field(default_factory=dict[str, float])  # by fp32 tf32 fp16 bf16 fp8 int8 fp4
    compute_capability: str | None = None
    num_multiprocessors: int | None = None
    l2_bytes: int | None = None
    nvlink_generation: str | None = None  # nvlink3, xgmi, roce …: the maker's own fabric; None = there is none
    nvlink_bytes_per_s: float | None = None  # one direction
    pcie_generation: int | None = None
    pcie_lanes: int | None = None
    power_watts: float | None = None
    has_ecc: bool | None = None
    has_p2p: bool | None = None  # peer access over PCIe
    is_unofficial: bool = False
    is_unified_memory: bool = False
    launch_price_usd: float | None = None
    min_cuda: str | None = None
    max_cuda: str | None = None
    min_driver_branch: str | None = None
    launch_day: str | None = None
    confidence: str = "A"
    source: str = ""
    warnings: tuple[str, ...] = ()
    sold_as: str = ""  # the size on the box, as "16 GB"
    is_memory_reported: bool = True  # False: no driver's figure is known, the marketed size stands in
    unified_memory_bytes: int | None = None  # the whole machine's, where processor and accelerator share it
    memory_source: str = ""
    rates_source: str = ""
    num_mig_slices: int | None = None
    export_variant_of: str = ""
    last_driver_branch: str | None = None  # newer drivers have dropped it
    needs_open_modules: bool | None = None  # NVIDIA's open kernel modules only
    formats: tuple[str, ...] = ()  # number formats its matrix units multiply

    @property
    def has_nvlink(self) -> bool:
        """Whether an NVLink of any generation joins two of these."""
        return bool(self.nvlink_generation and self.nvlink_generation.startswith("nvlink"))


@noun
class Link:
    """What joins two devices, or a device and its host: one direction, theoretical and achieved."""

    name: str
    kind: str  # nvlink, pcie, infiniband, ethernet
    bytes_per_s: float
    achieved_ratio: float = 1.0
    latency_seconds: float = 5e-6
    source: str = ""


@noun
class Drive:
    """An NVMe drive of a machine, or several that work as one: what is free of it, and rates that it keeps up."""

    free_bytes: int
    read_bytes_per_s: float
    write_bytes_per_s: float
    is_assumed: bool = False  # of the rates


@noun
class Host:
    """A machine's own memory and processor."""

    memory_bytes: int
    bandwidth_bytes_per_s: float
    name: str = ""
    num_cores: int = 8
    core_flop_per_s: float = 1e11  # fp32 peak of one core's vector units
    pcie: Link | None = None
    is_assumed: bool = False
    theoretical_bytes_per_s: float | None = None  # transfer rate × 8 bytes × channels
    source: str = ""
    drive: Drive | None = None


@noun
class Node:
    """One machine: its devices (each with what is already taken of it), what joins them, and its host."""

    devices: tuple[Device, ...]
    host: Host
    intra_link: Link | None = None
    reserved_bytes: int = 0  # a device: desktop, other processes
    is_wddm: bool = False
    driver: str = ""  # its version, where it is known


@noun
class Cluster:
    """Equal nodes joined by a network."""

    node: Node
    num_nodes: int = 1
    inter_link: Link | None = None

    @property
    def num_devices(self) -> int:
        """Number of devices in all."""
        return len(self.node.devices) * self.num_nodes


@noun
class Offer:
    """A dated price of a device, to rent or to buy."""

    device: str
    provider: str
    region: str
    num_devices: int
    usd_per_device_hour: float | None
    spot_usd_per_device_hour: float | None
    day: str
    source: str
    instance: str = ""


@noun
class Measured:
    """What one device reached in one operation, and which part of its specified rate that is."""

    device: str
    operation: str  # matmul, mma, memory-read, memory-write, memory-stream
    dtype: str  # "" for memory
    measured_per_s: float  # flop/s or B/s
    specified_per_s: float
    shape: str = ""
    software: str = ""
    source: str = ""

    @property
    def ratio(self) -> float:
        """Measured over specified; boost clocks are not a ceiling, so it may pass 1."""
        return self.measured_per_s / self.specified_per_s


@noun
class PurchasePrice:
    """What a device costs to buy, by one source."""

    device: str
    usd: float
    kind: str  # launch, third-party
    day: str
    source: str


@noun
class Support:
    """One engine that runs on a device, and through what."""

    engine: str
    via: str = ""
    source: str = ""
