"""The power limits that a plan could run under: speed and energy at each, and the best for what is wanted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tonnage.estimate.cost import electricity_usd_per_hour, usd_per_million_tokens
from tonnage.estimate.cost.assumptions import Assumptions
from tonnage.estimate.cost.machine import is_in_datacentre, machine_draw
from tonnage.estimate.power import capped_speed_ratio, joules_per_token
from tonnage.estimate.types import Estimate, Interval
from tonnage.hardware.power_curves import PowerCurve, curve_of
from tonnage.plan.price import work_of

OBJECTIVES: Final = ("speed", "energy", "cost")
_STEP_RATIO: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Cap:
    """One power limit of a device: speed over that without one, and the energy and the owner's cost of a token."""

    cap_watts: float
    speed_ratio: Interval
    joules_per_token: Interval
    usd_per_million_tokens: float | None  # owned: value lost and electricity; None where no price is known


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """All limits that were measured, from the lowest to none, and the best one for each objective."""

    caps: tuple[Cap, ...]
    curve: PowerCurve

    def best(self, objective: str) -> Cap:
        """Return the best limit for speed, energy or cost; of equals the highest."""
        assert objective in OBJECTIVES
        in_order = tuple(reversed(self.caps))
        if objective == "speed" or (objective == "cost" and in_order[0].usd_per_million_tokens is None):
            return in_order[0]
        if objective == "energy":
            return min(in_order, key=lambda cap: cap.joules_per_token.best)
        return min(in_order, key=lambda cap: cap.usd_per_million_tokens or 0.0)


def caps_of(estimate: Estimate, assumed: Assumptions) -> Caps | None:
    """Return the power limits of an estimate's devices; None where the limit, or the speed, is not known.

    Of equal devices, or by the first; measured curves, or a borrowed one with a wider interval.
    """
    cluster, rate = estimate.candidate.cluster, estimate.performance.tokens_per_s
    device, work = cluster.node.devices[0], work_of(estimate.candidate)
    if device.power_watts is None or device.vendor != "NVIDIA" or rate is None or rate.low <= 0:
        return None
    curve = curve_of(device, work)
    lowest = curve.caps[0]
    steps = round((1 - lowest) / _STEP_RATIO)
    ratios = sorted({*(round(1 - _STEP_RATIO * i, 4) for i in range(steps + 1)), *curve.caps})
    found = [_cap(estimate, ratio, curve, assumed) for ratio in ratios if lowest <= ratio <= 1]
    return Caps(caps=tuple(cap for cap in found if cap is not None), curve=curve)


def _cap(estimate: Estimate, ratio: float, curve: PowerCurve, assumed: Assumptions) -> Cap | None:
    cluster, rate = estimate.candidate.cluster, estimate.performance.tokens_per_s
    draw = machine_draw(cluster.node, work_of(estimate.candidate), assumed, ratio)
    limit = cluster.node.devices[0].power_watts
    if draw is None or rate is None or limit is None:
        return None
    speed = float(capped_speed_ratio(ratio, curve.caps, curve.ratios))
    error = curve.loss_error(speed) if ratio < 1 else 0.0
    slow = Interval(best=speed, low=max(0.02, speed - error), high=min(1.0, speed + error))
    watts = draw.best * cluster.num_nodes
    energy = (float(joules_per_token(watts, rate.best * part)) for part in (slow.best, slow.high, slow.low))
    best, low, high = energy
    return Cap(
        cap_watts=ratio * limit,
        speed_ratio=slow,
        joules_per_token=Interval(best=best, low=low, high=high),
        usd_per_million_tokens=_owned(estimate, watts, rate.best * speed, assumed),
    )


def _owned(estimate: Estimate, watts: float, tokens_per_s: float, assumed: Assumptions) -> float | None:
    """Return what a token costs its owner: a slower card spreads the value that it loses over fewer tokens."""
    own = estimate.cost.own
    if own is None:
        return None
    place = "datacentre" if is_in_datacentre(estimate.candidate.cluster.node.devices) else "home"
    lost = own.lost_usd.best / (own.used_seconds / 3600.0)
    electricity = electricity_usd_per_hour(watts, assumed.best("tariff", place), assumed.best("pue", place))
    return float(usd_per_million_tokens(lost + electricity, tokens_per_s))
