"""Whether a model's weights fit on a device, by format: the first question, before cache and workspace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tonnage.estimate.weights import weights_bytes
from tonnage.hardware.types import Device
from tonnage.model.types import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A model's weights in one format against one device's memory."""

    format: str
    weights_bytes: int
    memory_bytes: int

    @property
    def num_devices(self) -> int:
        """How many such devices hold the weights, cut evenly."""
        return max(-(-self.weights_bytes // self.memory_bytes), 1)


def weights_fit(model: Model, devices: Iterable[Device], formats: Iterable[str]) -> Mapping[str, tuple[Fit, ...]]:
    """Return how a model's weights fit on devices, by the device's slug, one `Fit` a format."""
    sizes = [(name, sum(weights_bytes(model, name).values())) for name in formats]
    return {
        device.slug: tuple(
            Fit(format=name, weights_bytes=needed, memory_bytes=device.memory_bytes) for name, needed in sizes
        )
        for device in devices
    }
