"""The ranks of a training and what they tell one another, over gloo, so that no device waits for it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

T = TypeVar("T")


class Ranks:
    """One rank among all; with one alone nothing is sent."""

    def __init__(self, timeout_seconds: float = 1800.0) -> None:
        self.is_alone = not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1
        self.rank = 0 if self.is_alone else dist.get_rank()
        self.world_size = 1 if self.is_alone else dist.get_world_size()
        self._group: Any = None
        if not self.is_alone:
            timeout = timedelta(seconds=timeout_seconds)
            self._group = (
                None if dist.get_backend() == "gloo" else dist.new_group(backend="gloo", timeout=timeout)
            )  # fmt: skip

    def gather(self, value: T) -> list[T]:
        """Return the value of every rank."""
        if self.is_alone:
            return [value]
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value, group=self._group)
        return values

    def from_first(self, value: T) -> T:
        """Return rank 0's value."""
        if self.is_alone:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0, group=self._group)
        return values[0]

    def add(self, values: list[float]) -> list[float]:
        """Return the sums over ranks."""
        if self.is_alone:
            return values
        sums = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(sums, group=self._group)
        return sums.tolist()

    def wait(self) -> None:
        """Wait for all ranks."""
        if not self.is_alone:
            dist.barrier(group=self._group)
