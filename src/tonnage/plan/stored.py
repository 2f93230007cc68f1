"""What a plan asks of its disks: the rate that loads the weights in time, and the one that feeds a training job."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tonnage.estimate.cost.assumptions import Assumptions
from tonnage.estimate.storage import feed_bytes_per_s, load_bytes_per_s
from tonnage.estimate.types import Candidate, Estimate
from tonnage.workload.types import Serving, Training, TrainingKind

TOKEN_BYTES: Final = 4  # tokenised before


def with_read_rate(estimate: Estimate, assumed: Assumptions) -> Estimate:
    """Return an estimate with the read rates that its storage must give; a load rate that is stated stays."""
    held, candidate = estimate.storage, estimate.candidate
    load = candidate.workload
    if held.read_bytes_per_s is None and not (isinstance(load, Training) and load.kind is TrainingKind.PRETRAIN):
        weights = held.weights_bytes * machine_share(candidate)
        held = replace(held, read_bytes_per_s=float(load_bytes_per_s(weights, assumed.best("load_time"))))
    speed = estimate.performance.tokens_per_s
    if not isinstance(load, Serving) and speed is not None:
        held = replace(held, feed_bytes_per_s=float(feed_bytes_per_s(speed.high, TOKEN_BYTES)))
    return replace(estimate, storage=held)


def machine_share(candidate: Candidate) -> float:
    """Return the share of the weights that one machine holds: all of them, unless they are divided over machines."""
    layout, cluster = candidate.layout, candidate.cluster
    group = max(layout.tp, layout.ep) * layout.pp
    if layout.zero_stage >= 3:
        group = cluster.num_devices
    return min(1.0, len(cluster.node.devices) / max(group, 1))
