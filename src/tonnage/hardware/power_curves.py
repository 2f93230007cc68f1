"""Speed under a power limit, as measured: which curve goes with a device and a kind of work, its own or a borrowed one.

Two kinds of work have curves of their own: arithmetic (training, prefill) loses speed soon, decoding late. A device that
was not measured borrows the curve of its kind with the most points, by share of its own power limit, and its interval
is as wide as measured cards differ from one another and more.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

from tonnage import datafiles
from tonnage.hardware.catalogue import device as device_of
from tonnage.hardware.prices import base_slug
from tonnage.hardware.types import Device

_WORKS: Final = {"training": "arithmetic", "prefill": "arithmetic", "decode": "decode", "serving": "decode"}
# Half-widths of 80 % intervals of the loss: two sources of one card agree to 0.02; other cards' curves are not known to
# follow, so a borrowed loss may be half or twice as large.
_OWN_ERROR: Final = 0.02
_BORROWED_LOSS_RATIO: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerCurve:
    """Speed over that without a limit, by limit over the device's own; both ascending, the last point is (1, 1)."""

    device: str  # whose curve it is
    work: str
    caps: tuple[float, ...]
    ratios: tuple[float, ...]
    sources: tuple[str, ...]
    is_borrowed: bool = False

    def loss_error(self, ratio: float) -> float:
        """Return the half-width of the interval of a speed ratio."""
        return _OWN_ERROR + (_BORROWED_LOSS_RATIO * (1 - ratio) if self.is_borrowed else 0.0)


@cache
def _measured() -> dict[tuple[str, str], PowerCurve]:
    points: dict[tuple[str, str], dict[float, list[float]]] = {}
    sources: dict[tuple[str, str], dict[str, None]] = {}
    for row in datafiles.rows("hardware/power.csv"):
        limit = device_of(row["subject"]).power_watts if row["kind"] == "cap" else None
        if limit is None:
            continue
        key = row["subject"], _WORKS[row["workload"]]
        points.setdefault(key, {}).setdefault(float(row["cap_w"]) / limit, []).append(float(row["performance_ratio"]))
        sources.setdefault(key, {})[row["source"]] = None
    return {key: _curve(*key, by_cap, tuple(sources[key])) for key, by_cap in points.items()}


def _curve(slug: str, work: str, by_cap: dict[float, list[float]], sources: tuple[str, ...]) -> PowerCurve:
    """Join the points of several sources; a higher limit is never slower, and 1 is the speed without one."""
    caps, ratios, highest = [], [], 0.0
    for cap in sorted(c for c in by_cap if c < 1):
        highest = max(highest, sum(by_cap[cap]) / len(by_cap[cap]))
        caps.append(cap)
        ratios.append(min(1.0, highest))
    return PowerCurve(device=slug, work=work, caps=(*caps, 1.0), ratios=(*ratios, 1.0), sources=sources)


def curve_of(device: Device, work: str) -> PowerCurve:
    """Return the curve of a device for a kind of work (training, prefill, decode), its own or the borrowed one."""
    kind = _WORKS[work]
    own = _measured().get((base_slug(device), kind))
    if own is not None:
        return own
    most = max((c for (_, k), c in _measured().items() if k == kind), key=lambda curve: len(curve.caps))
    return PowerCurve(
        device=most.device, work=kind, caps=most.caps, ratios=most.ratios, sources=most.sources, is_borrowed=True
    )
