"""One reading of a machine: what its accelerators and its host say of themselves. Unknown is None."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSample:
    """What the driver says of one accelerator at one moment."""

    index: int
    name: str
    memory_bytes: int
    free_bytes: int
    uuid: str | None = None
    driver: str | None = None
    compute_capability: str | None = None
    drives_display: bool | None = None
    is_wddm: bool | None = None
    pcie_generation: int | None = None
    pcie_lanes: int | None = None

    @property
    def taken_bytes(self) -> int:
        """Memory that a new program does not get: desktop, other programs, and what the driver keeps."""
        return max(0, self.memory_bytes - self.free_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSample:
    """What the host says of itself: memory and the share of it that a new program may take, cores, and its kind."""

    memory_bytes: int | None = None
    available_bytes: int | None = None  # least of what is free and what the control group leaves
    limit_bytes: int | None = None  # of the control group
    num_cores: int | None = None
    drive_free_bytes: int | None = None  # of the working folder's file system, where it lies on an NVMe drive
    num_numa_nodes: int | None = None
    is_wsl: bool = False
    is_container: bool = False
    system: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSample:
    """A whole machine at one moment, and how its accelerators were read."""

    host: HostSample
    devices: tuple[DeviceSample, ...] = ()
    source: str = ""  # nvidia-ml-py, nvidia-smi
    notes: tuple[str, ...] = ()
