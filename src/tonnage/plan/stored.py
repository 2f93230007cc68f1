"""What a plan asks of its disks: the larger of the rate that loads the weights in time and the one that feeds the job."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tonnage.estimate.cost.assumptions import Assumptions
from tonnage.estimate.storage import feed_bytes_per_s, load_bytes_per_s
from tonnage.estimate.types import Estimate
from tonnage.workload.types import Serving

_TOKEN_BYTES: Final = 4


def with_read_rate(estimate: Estimate, assumed: Assumptions) -> Estimate:
    """Return an estimate with the read rate that its storage must give; one that is stated stays."""
    held = estimate.storage
    if held.read_bytes_per_s is not None:
        return estimate
    rate = float(load_bytes_per_s(held.weights_bytes, assumed.best("load_time")))
    speed = estimate.performance.tokens_per_s
    if not isinstance(estimate.candidate.workload, Serving) and speed is not None:
        rate = max(rate, float(feed_bytes_per_s(speed.high, _TOKEN_BYTES)))
    return replace(estimate, storage=replace(held, read_bytes_per_s=rate))
