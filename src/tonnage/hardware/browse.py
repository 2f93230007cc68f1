"""Which devices answer a question: named ones, those whose names hold some words, those above a limit, in an order."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tonnage.errors import RequestError, UnknownNameError
from tonnage.hardware.catalogue import devices, find_device, find_devices_like
from tonnage.hardware.prices import PriceBook, shipped_book
from tonnage.hardware.types import Device
from tonnage.hardware.worth import Worth, training_dtype, worth
from tonnage.units import GIB


def _priced(device: Device, book: PriceBook, *, is_rent: bool, per: Callable[[Worth], float | None]) -> float | None:
    prices = [per(w) for w in worth(device, book) if w.is_rent is is_rent and w.kind != "spot"]
    return min((p for p in prices if p is not None), default=None)


def _rate(device: Device, dtype: str) -> float | None:
    return device.flop_per_s.get(dtype)


# name -> (value, whether more is better); unknown values come last either way
ORDERS: dict[str, tuple[Callable[[Device, PriceBook], float | str | None], bool]] = {
    "memory": (lambda d, _: d.memory_bytes, True),
    "bandwidth": (lambda d, _: d.bandwidth_bytes_per_s, True),
    "bf16": (lambda d, _: _rate(d, training_dtype(d)), True),
    "fp8": (lambda d, _: _rate(d, "fp8"), True),
    "fp4": (lambda d, _: _rate(d, "fp4"), True),
    "power": (lambda d, _: d.power_watts, False),
    "price": (lambda d, book: _priced(d, book, is_rent=False, per=lambda w: w.usd), False),
    "rent": (lambda d, book: _priced(d, book, is_rent=True, per=lambda w: w.usd), False),
    "price-per-tflops": (lambda d, book: _priced(d, book, is_rent=False, per=lambda w: w.usd_per_flop_per_s), False),
    "price-per-gib": (lambda d, book: _priced(d, book, is_rent=False, per=lambda w: w.usd_per_byte), False),
    "price-per-gbs": (lambda d, book: _priced(d, book, is_rent=False, per=lambda w: w.usd_per_byte_per_s), False),
    "rent-per-tflops": (lambda d, book: _priced(d, book, is_rent=True, per=lambda w: w.usd_per_flop_per_s), False),
    "rent-per-gib": (lambda d, book: _priced(d, book, is_rent=True, per=lambda w: w.usd_per_byte), False),
    "rent-per-gbs": (lambda d, book: _priced(d, book, is_rent=True, per=lambda w: w.usd_per_byte_per_s), False),
    "launch": (lambda d, _: d.launch_day, True),
    "name": (lambda d, _: d.slug, False),
}


def named(queries: Iterable[str]) -> tuple[tuple[Device, ...], bool]:
    """Return the devices that queries name, and whether each query named exactly one.

    Words that together name one device are one query: `rtx 4080`, unquoted. A query that names none, or several, is
    taken for words to look for.
    """
    texts = [q for q in queries if q.strip()]
    if len(texts) > 1:
        try:
            return (find_device(" ".join(texts)),), True
        except UnknownNameError:
            pass
    found: list[Device] = []
    is_exact = True
    for text in texts:
        try:
            found.append(find_device(text))
        except UnknownNameError:
            similar = find_devices_like(text)
            if not similar:
                raise
            is_exact = False
            found += similar
    unique = {device.slug: device for device in reversed(found)}
    return tuple(unique[slug] for slug in dict.fromkeys(device.slug for device in found)), is_exact


def ordered(found: Iterable[Device], order: str, book: PriceBook | None = None) -> tuple[Device, ...]:
    """Return devices in an order of `ORDERS`, those without the figure last."""
    if order not in ORDERS:
        raise RequestError(f"'{order[:40]}' is not an order", where="--sort", fix=f"known: {', '.join(ORDERS)}")
    value, is_descending = ORDERS[order]
    prices = book or shipped_book()
    known = [(v, d) for d in found if (v := value(d, prices)) is not None]
    known.sort(key=lambda pair: pair[0], reverse=is_descending)
    return (*(d for _, d in known), *(d for d in found if value(d, prices) is None))


def _most_bytes(device: Device) -> float:
    """Return the larger of what the driver reports and the size on the box: a card sold as 24 GB counts as 24 GiB."""
    return max(device.memory_bytes, float(device.sold_as.removesuffix(" GB")) * GIB)


def select(
    queries: Iterable[str] = (),
    *,
    vendor: str = "",
    min_memory_bytes: float = 0,
    order: str = "",
    book: PriceBook | None = None,
) -> tuple[Device, ...]:
    """Return the devices that match every condition; all of them where none is given."""
    texts = tuple(queries)
    found = named(texts)[0] if any(t.strip() for t in texts) else devices()
    makers = {v.strip().casefold() for v in vendor.split(",") if v.strip()}
    known = {d.vendor.casefold() for d in devices()}
    if makers - known:
        raise UnknownNameError(
            f"'{vendor[:40]}' is not a maker on record", where="--vendor", suggestions=tuple(sorted(known))
        )
    kept = tuple(
        d for d in found if (not makers or d.vendor.casefold() in makers) and _most_bytes(d) >= min_memory_bytes
    )
    return ordered(kept, order, book) if order else kept
