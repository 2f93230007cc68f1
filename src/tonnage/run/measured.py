"""What a run measured, in the words that `tonnage plan --from RUN` reads: its request and its figures."""

from __future__ import annotations

import statistics
from collections import Counter
from pathlib import Path
from typing import Any, Final

from tonnage.estimate.types import Recompute
from tonnage.plan.types import Plan
from tonnage.record.files import tail
from tonnage.record.folder import Folder, step_of
from tonnage.record.types import Step
from tonnage.units import GIB
from tonnage.workload.types import Training, TrainingKind

__all__ = ["measured_of", "request_of"]

_LOOK_BYTES: Final = 1 << 18  # the end of each rank's figures
_WARM_UP_STEPS: Final = 3  # of each attempt: compilation, caches, the allocator's first segments
_LEAST_STEPS: Final = 5


def request_of(plan: Plan) -> dict[str, Any] | None:
    """Return the request of a training plan with every field of its candidate fixed; None of a serving plan."""
    candidate = plan.estimate.candidate
    load = candidate.workload
    if not isinstance(load, Training):
        return None
    is_pretraining = load.kind is TrainingKind.PRETRAIN
    has_adapters = load.kind in (TrainingKind.LORA, TrainingKind.QLORA)
    layout = candidate.layout
    devices = Counter(device.slug for device in candidate.cluster.node.devices)
    pins: dict[str, Any] = {
        **plan.request.pins,
        **{f"layout.{way}": getattr(layout, way) for way in ("dp", "tp", "pp", "cp", "ep")},
        "layout.zero_stage": layout.zero_stage,
        "micro_batch_size": candidate.micro_batch_size,
        "recompute": str(Recompute(candidate.recompute)),
        "optimizer": candidate.optimizer,
    }
    return {
        "model": plan.request.model,
        "goal": "pretrain" if is_pretraining else "finetune",
        **({} if is_pretraining else {"finetune": str(load.kind)}),
        "load": {
            "seq_len": load.seq_len,
            "global_batch": load.global_batch_size,
            **({"lora_rank": load.lora_rank, "lora_targets": ",".join(load.lora_targets)} if has_adapters else {}),
        },
        "gpus": [f"{slug}:{number}" for slug, number in devices.items()],
        "nodes": candidate.cluster.num_nodes,
        "engines": [candidate.engine],
        "pins": pins,
    }


def measured_of(folder: Folder) -> dict[str, Any] | None:
    """Return what the last steps of a run's ranks measured on devices; None where there is too little."""
    ranks = {rank: _last_steps(folder.metrics(rank)) for rank in folder.ranks()}
    taken = [step.step_seconds for step in ranks.get(0, ()) if step.step_seconds is not None]
    reserved = [step.memory_reserved_bytes for steps in ranks.values() for step in steps if step.memory_reserved_bytes]
    if len(taken) < _LEAST_STEPS or not reserved:
        return None
    return {"step_time_s": statistics.median(taken), "peak_mem_gib": max(reserved) / GIB, "mem_kind": "reserved"}


def _last_steps(path: Path) -> list[Step]:
    """Return the last figures of a rank, without the first steps after a start."""
    size = path.stat().st_size
    offset, lines = max(0, size - _LOOK_BYTES), list[dict[str, Any]]()
    while True:
        found, reached = tail(path, offset)
        lines += found
        if reached == offset:
            break
        offset = reached
    steps = [step for line in lines if (step := step_of(line)) is not None]
    begins = max((n for n, step in enumerate(steps) if n == 0 or step.step <= steps[n - 1].step), default=0)
    return steps[begins + _WARM_UP_STEPS :]
