"""What a device costs for what it gives: per flop/s, per byte and per byte/s, each with the price's source and day."""

from __future__ import annotations

from dataclasses import dataclass

from tonnage.hardware.ecosystem import offers, purchase_price
from tonnage.hardware.prices import PriceBook
from tonnage.hardware.types import Device


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """A price of one device, to buy (USD) or to rent (USD/h), and what it buys of each quantity. Unknown is None."""

    kind: str  # own, launch, third-party: to buy; rent, spot: an hour
    usd: float
    provider: str
    day: str
    source: str
    usd_per_flop_per_s: float | None  # dense, in `dtype`
    usd_per_byte: float
    usd_per_byte_per_s: float
    dtype: str

    @property
    def is_rent(self) -> bool:
        """Whether the price is for an hour."""
        return self.kind in ("rent", "spot")


def training_dtype(device: Device) -> str:
    """Return the 16-bit type that models are trained and served in on a device: bf16, fp16 before it, else fp32."""
    return next((d for d in ("bf16", "fp16", "fp32") if d in device.flop_per_s), "bf16")


def _worth(device: Device, kind: str, usd: float, provider: str, day: str, source: str) -> Worth:
    dtype = training_dtype(device)
    rate = device.flop_per_s.get(dtype)
    return Worth(
        kind=kind,
        usd=usd,
        provider=provider,
        day=day,
        source=source,
        usd_per_flop_per_s=usd / rate if rate else None,
        usd_per_byte=usd / device.memory_bytes,
        usd_per_byte_per_s=usd / device.bandwidth_bytes_per_s,
        dtype=dtype,
    )


def worth(device: Device, book: PriceBook | None = None) -> tuple[Worth, ...]:
    """Return every price on record of a device: to buy, the cheapest hour on demand, the cheapest spot hour."""
    found: list[Worth] = []
    if price := purchase_price(device, book):
        found.append(_worth(device, price.kind, price.usd, "", price.day, price.source))
    known = offers(device, book)
    rent = min((o for o in known if o.usd_per_device_hour), key=lambda o: o.usd_per_device_hour or 0, default=None)
    if rent and rent.usd_per_device_hour:
        found.append(_worth(device, "rent", rent.usd_per_device_hour, rent.provider, rent.day, rent.source))
    spot = min(
        (o for o in known if o.spot_usd_per_device_hour), key=lambda o: o.spot_usd_per_device_hour or 0, default=None
    )
    if spot and spot.spot_usd_per_device_hour:
        found.append(_worth(device, "spot", spot.spot_usd_per_device_hour, spot.provider, spot.day, spot.source))
    return tuple(found)
