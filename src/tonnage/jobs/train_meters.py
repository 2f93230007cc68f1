"""Times, memory and checksums of one rank's step."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import Any

import torch

PARTS = ("data", "forward", "backward", "optimizer")
# torch 2.13 cuda/memory.py memory_stats: our name -> its key.
ALLOCATOR = {
    "memory_allocated_bytes": "allocated_bytes.all.current",
    "memory_peak_allocated_bytes": "allocated_bytes.all.peak",
    "memory_reserved_bytes": "reserved_bytes.all.current",
    "memory_inactive_split_bytes": "inactive_split_bytes.all.current",
    "num_alloc_retries": "num_alloc_retries",
    "num_ooms": "num_ooms",
}


class Clock:
    """Seconds between two points of a step: of the device where there is one, else of the process."""

    def __init__(self, device: torch.device) -> None:
        self.is_cuda = device.type == "cuda"

    def now(self) -> Any:
        """Return a point in time."""
        if not self.is_cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, first: Any, last: Any) -> float:
        """Return seconds; on a device after it has come that far."""
        return first.elapsed_time(last) / 1e3 if self.is_cuda else last - first


class StepMeter:
    """Collects the parts of a step; every call is counted into `cost_seconds`."""

    def __init__(self, device: torch.device) -> None:
        self.clock = Clock(device)
        self.device = device
        self.spans: dict[str, list[tuple[Any, Any]]] = {part: [] for part in PARTS}
        self.began = time.perf_counter()
        self.num_tokens = 0
        self.losses: list[torch.Tensor] = []
        self.cost_seconds = 0.0

    def restart(self) -> None:
        """Begin the next step."""
        for spans in self.spans.values():
            spans.clear()
        self.began = time.perf_counter()
        self.num_tokens = 0
        self.losses.clear()
        self.cost_seconds = 0.0

    def seconds(self) -> dict[str, float]:
        """Return seconds of each part."""
        if self.clock.is_cuda:
            torch.cuda.synchronize(self.device)
        return {
            f"{part}_seconds": sum(self.clock.between(first, last) for first, last in spans)
            for part, spans in self.spans.items()
        }

    def loss(self) -> float:
        """Return this rank's loss of the step."""
        return (
            float(torch.stack([loss.detach().float() for loss in self.losses]).sum()) if self.losses else float("nan")
        )


_PAGE = os.sysconf("SC_PAGE_SIZE")


def memory(device: torch.device) -> dict[str, int | None]:
    """Return what the device's allocator and the process hold."""
    with open("/proc/self/statm", "rb") as file:  # noqa: PTH123  opened every step
        host = int(file.read().split()[1]) * _PAGE
    if device.type != "cuda":
        return {**dict.fromkeys(ALLOCATOR), "host_memory_bytes": host}
    stats = torch.cuda.memory_stats(device)
    return {**{name: stats.get(key) for name, key in ALLOCATOR.items()}, "host_memory_bytes": host}


def checksum(parameters: Iterable[torch.Tensor]) -> str:
    """Return a sum over the bits of what this rank holds, as hexadecimal text: equal for equal parameters."""
    total = 0
    for number, parameter in enumerate(parameters):
        local = parameter.detach()
        if hasattr(local, "to_local"):
            local = local.to_local()
        flat = local.contiguous().view(-1)
        if not flat.numel():
            continue
        ints = flat.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[flat.element_size()])
        total += (number + 1) * int(ints.sum(dtype=torch.int64))
    return f"{total & (2**64 - 1):016x}"
