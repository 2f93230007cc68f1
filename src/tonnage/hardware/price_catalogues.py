"""The public price catalogues and their traps, read into offers.

A spot price of 0.00, or as high as on demand, is none. A price may be missing. Memory is said in MiB or in GB, of one
device or of all. Names collapse (an RTX 4070 may be a 4070 Ti SUPER) and the instance's name tells them apart; where no
name goes with the memory, the row is left out. The same machine is listed once a region: its cheapest places stay.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Final

from tonnage.errors import BadFileError, RequestError
from tonnage.hardware.catalogue import device
from tonnage.hardware.currency import from_euro
from tonnage.hardware.names import resolve
from tonnage.hardware.price_tables import (
    DEAREST,
    LONGEST_FIELD,
    MOST_DEVICES,
    MOST_ROWS,
    PriceTable,
    add_offer,
    provider_name,
)
from tonnage.hardware.prices import base_slug
from tonnage.hardware.types import Offer
from tonnage.units import GIB, MIB

_MEMORY_TOLERANCE: Final = 0.08  # 81559 MiB, 80 GB and 81920 MiB are one size


def read_gpuhunt(text: str, provider: str, day: str) -> PriceTable:
    """Read a provider's CSV out of a catalogue that gpuhunt publishes: memory in GB a device, spot in rows of its own.

    References
    ----------
    .. [1] gpuhunt, src/gpuhunt/_internal/models.py, https://github.com/dstackai/gpuhunt.
    """
    name = provider_name(provider)
    offers: list[Offer] = []
    num_left_out = 0
    for row in _loose_rows(text):
        number, price = _whole(row.get("gpu_count")), _amount(row.get("price"))
        if not number or not row.get("gpu_name"):
            continue
        gigabytes = _amount(row.get("gpu_memory"))
        held = gigabytes and gigabytes * GIB
        slug = _board(_gpuhunt_names(name, row), held, is_cloud=name not in _MARKETS)
        if slug is None or price is None or number > MOST_DEVICES:
            num_left_out += 1
            continue
        is_spot = row.get("spot", "").lower() == "true"
        full, spot = (None, price) if is_spot else (price, None)
        instance, place = row.get("instance_name", ""), row.get("location", "")
        offers.append(_listed(name, instance, place, slug, number, day, "gpuhunt", full=full, spot=spot))
    return PriceTable(offers=_cheapest_places(offers), num_left_out=num_left_out)


def read_skypilot(text: str, provider: str, day: str) -> PriceTable:
    """Read a provider's vms.csv of SkyPilot's catalogue: the order of its columns and its units differ by provider.

    References
    ----------
    .. [1] SkyPilot catalogue, README.md, https://github.com/skypilot-org/skypilot-catalog.
    """
    name = provider_name(provider)
    offers: list[Offer] = []
    num_left_out = 0
    for row in _loose_rows(text):
        number = _whole(row.get("AcceleratorCount"))
        if not number or not row.get("AcceleratorName"):
            continue
        held = _skypilot_bytes(name, row.get("GpuInfo", ""), number)
        slug = _board(_skypilot_names(name, row), held, is_cloud=name not in _MARKETS)
        full, spot = _amount(row.get("Price")), _amount(row.get("SpotPrice"))
        if slug is None or (full is None and spot is None) or number > MOST_DEVICES:
            num_left_out += 1
            continue
        place = " ".join(filter(None, (row.get("Region", ""), row.get("AvailabilityZone", ""))))
        offers.append(
            _listed(name, row.get("InstanceType", ""), place, slug, number, day, "skypilot", full=full, spot=spot)
        )
    return PriceTable(offers=_cheapest_places(offers), num_left_out=num_left_out)


def read_euro_rates(text: str) -> PriceTable:
    """Read the European Central Bank's daily reference rates.

    Raises
    ------
    BadFileError
        The text holds none.
    """
    day = re.search(r"time='(\d{4}-\d\d-\d\d)'", text)
    pairs = re.findall(r"currency='([A-Z]{3})' rate='(\d{1,9}(?:\.\d{1,9})?)'", text, re.ASCII)
    per_eur = {"EUR": 1.0} | {currency: float(number) for currency, number in pairs if float(number) > 0}
    if day is None or "USD" not in per_eur:
        raise BadFileError("holds no reference rates", where="ecb", fix="try again later")
    return PriceTable(rates=from_euro(per_eur, day[1], "ecb-rates"))


def _loose_rows(text: str) -> Iterator[dict[str, str]]:
    """Yield the rows of somebody else's CSV; a broken row ends it without a fault of ours."""
    reader = csv.DictReader(io.StringIO(text.removeprefix("\ufeff")))
    try:
        for number, row in enumerate(reader):
            if number >= MOST_ROWS:
                return
            yield {k: v.strip() for k, v in row.items() if isinstance(k, str) and isinstance(v, str)}
    except csv.Error:
        return


def _amount(text: str | None) -> float | None:
    """Return a positive number; nothing, 0 and what is none are None."""
    try:
        value = float(text or "nan")
    except ValueError:
        return None
    return value if 0 < value <= DEAREST else None


def _whole(text: str | None) -> int | None:
    value = _amount(text)
    return int(value) if value is not None and value == int(value) else None


def _listed(
    provider: str, instance: str, region: str, slug: str, number: int, day: str, source: str, *,
    full: float | None, spot: float | None,
) -> Offer:  # fmt: skip
    """Return an offer as a catalogue lists it; a spot price that is no discount is none."""
    if full is not None and spot is not None and spot >= full:
        spot = None
    return Offer(
        device=slug,
        provider=provider,
        region=region[:LONGEST_FIELD],
        instance=instance[:LONGEST_FIELD],
        num_devices=number,
        usd_per_device_hour=None if full is None else full / number,
        spot_usd_per_device_hour=None if spot is None else spot / number,
        day=day,
        source=source,
    )


def _cheapest_places(offers: Iterable[Offer]) -> tuple[Offer, ...]:
    """Return of each machine the place where it is cheapest on demand, and the one where it is cheapest as spot."""
    by_place: dict[tuple[str, ...], Offer] = {}
    for offer in offers:
        add_offer(by_place, offer)
    kept: dict[int, Offer] = {}
    for price in (_full, _spot):
        cheapest: dict[tuple[str, str, int], Offer] = {}
        for offer in by_place.values():
            key = offer.instance, offer.device, offer.num_devices
            known = cheapest.get(key)
            if price(offer) < math.inf and (known is None or price(offer) < price(known)):
                cheapest[key] = offer
        kept |= {id(offer): offer for offer in cheapest.values()}
    return tuple(kept.values())


def _full(offer: Offer) -> float:
    return offer.usd_per_device_hour or math.inf


def _spot(offer: Offer) -> float:
    return offer.spot_usd_per_device_hour or math.inf


# Markets of private machines; the others rent boards for servers.
_MARKETS: Final = frozenset(("vast", "runpod", "shadeform", "lium", "cloudrift", "primeintellect", "hyperbolic"))
_LEAST_MIB: Final = 2048  # a smaller figure is in GB: no board of today has 2 GiB or 2 TB
# Providers whose memory figure is that of all devices together.
_TOTAL_MEMORY: Final = frozenset(("vast",))
_PART_OF_INSTANCE: Final = {
    "vast": re.compile(r"\d+x-(.+?)-\d+-\d+"),
    "shadeform": re.compile(r"[a-z0-9]+_(.+?)(?:x\d+)?"),
    "lambda": re.compile(r"gpu_\d+x_(.+)"),
    "nebius": re.compile(r"gpu-(.+?)_\d+gpu.*"),
    "verda": re.compile(r"\d+([A-Z]+[0-9A-Z]*?)(?:\.\d+[SV].*)?"),
    "runpod": re.compile(r"\d+x_(.+?)_(?:SECURE|COMMUNITY)"),
}
_FORM: Final = re.compile(r"sxm|pcie|nvl", re.IGNORECASE)
_SIZE_IN_INFO: Final = re.compile(r"SizeInMiB['\"]*\s*:\s*(\d+(?:\.\d+)?)")
_NAME_IN_INFO: Final = re.compile(r"Name['\"]*\s*:\s*['\"]+([^'\"]{1,60})['\"]")


def _skypilot_bytes(provider: str, info: str, number: int) -> float | None:
    """Return a device's memory out of a GpuInfo cell: in MiB or GB, of one device or of all; None where unknown."""
    found = _SIZE_IN_INFO.search(info)
    said = _amount(found[1]) if found else None
    if said is None:
        return None
    held = said * (GIB if said < _LEAST_MIB else MIB)
    return held / number if provider in _TOTAL_MEMORY else held


def _skypilot_names(provider: str, row: Mapping[str, str]) -> tuple[str, ...]:
    instance, pattern = row.get("InstanceType", ""), _PART_OF_INSTANCE.get(provider)
    match = pattern.fullmatch(instance) if pattern else None
    part = match[1] if match else ""
    said = _NAME_IN_INFO.search(row.get("GpuInfo", ""))
    inner = said[1] if said else ""
    names = (part, inner, row["AcceleratorName"])
    if _FORM.search(inner) and not _FORM.search(part):
        names = (inner, part, row["AcceleratorName"])
    is_plain = re.match(r"[AH]100\b", part) and not _FORM.search(part)
    if provider == "shadeform" and is_plain and not instance.startswith("lambdalabs"):
        names = (f"{part} PCIe", *names)  # its names say where a board is an SXM one
    return tuple(_spelled(name) for name in names if name)


def _gpuhunt_names(provider: str, row: Mapping[str, str]) -> tuple[str, ...]:
    name, instance = row["gpu_name"], row.get("instance_name", "")
    names = [name]
    if provider == "runpod":
        names = [instance, name]  # the instance is the driver's name of the board
    if provider == "azure" and "_nc" in instance.lower() and name in ("A100", "H100"):
        names = [f"{name} PCIe", f"{name} NVL", name]
    return tuple(_spelled(one) for one in names if one)


def _spelled(name: str) -> str:
    """Return a provider's spelling as people write it: "RTX_4070S_Ti" is the 4070 Ti SUPER.

    >>> _spelled("RTX_4070S_Ti"), _spelled("RTX_6000Ada"), _spelled("h100-sxm"), _spelled("A100-80G-sxm4")
    ('RTX 4070 Ti SUPER', 'RTX 6000 Ada', 'h100 sxm', 'A100 80GB sxm4')
    """
    text = re.sub(r"[_-]+", " ", name).strip()
    text = re.sub(r"\b(\d{4})S Ti\b", r"\1 Ti SUPER", text)
    text = re.sub(r"\b(\d{4})S\b", r"\1 SUPER", text)
    text = re.sub(r"(\d)(Ada)\b", r"\1 Ada", text, flags=re.IGNORECASE)
    text = re.sub(r"\b(\d+)G\b", r"\1GB", text)
    return re.sub(r"\b(l40s) [ad]\b", r"\1", text)


@cache
def _board(names: tuple[str, ...], device_bytes: float | None, *, is_cloud: bool) -> str | None:
    """Return the device that the first name stands for whose memory is right; None where no name does."""
    for name in names:
        said = "" if device_bytes is None else f" {device_bytes / GIB:.0f}GB"
        for words in dict.fromkeys((name + said, name)):
            slug = _resolved(words)
            if slug is not None and _has_memory(slug, device_bytes):
                return _server_board(slug, name, is_cloud=is_cloud)
    return None


def _resolved(name: str) -> str | None:
    try:
        match = resolve(name)
    except RequestError:
        return None
    return base_slug(device(match.slug, match.sold_bytes))


def _has_memory(slug: str, device_bytes: float | None) -> bool:
    """Whether a device has so much memory, by its driver or by the size on the box."""
    if device_bytes is None:
        return True
    own = device(slug)
    sold = float(own.sold_as.removesuffix(" GB")) * GIB
    return any(abs(device_bytes - held) <= _MEMORY_TOLERANCE * held for held in (sold, own.memory_bytes))


def _server_board(slug: str, name: str, *, is_cloud: bool) -> str:
    """Return the server's edition of a board that is sold in several, where a data centre rents it and says no other."""
    says_other = re.search(r"\b(ws|workstation|max)", name, re.IGNORECASE)
    is_both = slug == "rtx-pro-6000-blackwell-ws"
    return "rtx-pro-6000-blackwell-server" if is_both and is_cloud and not says_other else slug
