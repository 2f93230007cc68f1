"""How far a training plan reaches: the largest micro-batch and the longest sequence that its hardware holds."""

from __future__ import annotations

from dataclasses import replace

from tonnage.estimate.types import Estimate
from tonnage.plan.types import Reach, Room
from tonnage.workload.types import Training


def room_of(estimate: Estimate) -> Room | None:
    """Return how far a plan reaches, each size alone and everything else as planned; None for serving.

    The number of micro-batches of a step stays, so that the global batch grows with the micro-batch. Each number is
    exact for the estimate: it fits, and the next one does not.
    """
    if not isinstance(estimate.candidate.workload, Training):
        return None
    from tonnage.estimate.compose_training import case_of, columns_of  # noqa: PLC0415  serving does without
    from tonnage.estimate.compose_training.solve import (  # noqa: PLC0415
        Job,
        largest_micro_batch,
        longest_sequence,
        needed_bytes,
    )

    held = estimate.footprint
    job = Job(
        case=case_of(estimate.candidate),
        columns=columns_of(estimate.candidate),
        host_memory_bytes=held.host_capacity_bytes,
        modelled_ratio=estimate.provenance.modelled_ratio,
    )
    sure = replace(job, margin=held.total.high / held.total.best)
    return Room(
        micro_batch_size=Reach(best=largest_micro_batch(job), surely=largest_micro_batch(sure)),
        seq_len=Reach(best=longest_sequence(job), surely=longest_sequence(sure)),
        device_bytes=Reach(best=round(needed_bytes(job)), surely=round(needed_bytes(sure))),
    )
