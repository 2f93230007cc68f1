"""What `plan --oracle` asks: a trace beside a plan's formulae, or a trace alone where no formula covers the family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tonnage.errors import RequestError
from tonnage.estimate.types import Candidate
from tonnage.model.hf import BUILDERS
from tonnage.oracle.compare import Comparison, alone, compare, job_of
from tonnage.oracle.fit import Fits, fits
from tonnage.oracle.trace import trace
from tonnage.oracle.types import Job, Step
from tonnage.plan.types import Request
from tonnage.plan.where import place
from tonnage.workload.types import Training

_DEFAULT_OPTIMIZER = "adamw_bf16"
_STEPS: Mapping[str, Step] = {"adamw_bf16": "adamw", "adamw": "adamw", "sgd": "sgd"}
_RECOMPUTED: Mapping[str, bool] = {"none": False, "full": True}


def is_covered(config: Mapping[str, Any]) -> bool:
    """Whether formulae cover a config's family."""
    return config.get("model_type") in BUILDERS


def cross_check(candidate: Candidate, config: Mapping[str, Any]) -> Comparison:
    """Trace a training candidate on one device, and put the formulae beside it."""
    single = alone(candidate)
    job = job_of(single, config)
    return compare(single, job, trace(job))


def fits_of(request: Request, config: Mapping[str, Any]) -> Fits:
    """Find by traces how a family without formulae fits the hardware that a request names."""
    load, pins = request.workload, request.pins
    if not isinstance(load, Training):
        raise RequestError("it traces training", where="--oracle", fix="add --pretrain or --finetune full|lora|qlora")
    if not request.where.gpus:
        raise RequestError("no card is named", where="--oracle", fix="add --gpu NAME:N")
    recompute, optimizer = pins.get("recompute"), str(pins.get("optimizer", _DEFAULT_OPTIMIZER))
    if recompute is not None and recompute not in _RECOMPUTED:
        raise RequestError(f"'{recompute}' is not traced", where="--recompute", fix="none or full")
    if optimizer not in _STEPS:
        raise RequestError(f"'{optimizer}' is not traced", where="--optimizer", fix=", ".join(_STEPS))
    cluster = place(request.where).cluster
    num_devices = len(cluster.node.devices) * cluster.num_nodes
    compute = str(pins.get("precision.compute", "bf16"))
    if compute not in ("bf16", "fp16", "fp32"):
        raise RequestError(f"'{compute}' is not traced", where="--precision", fix="bf16, fp16 or fp32")
    job = Job(
        config=config,
        kind=load.kind,
        seq_len=load.seq_len,
        weights="fp32" if optimizer == "adamw" else compute,
        compute=compute,
        step=_STEPS[optimizer],
        lora_rank=load.lora_rank,
        lora_targets=load.lora_targets,
    )
    micro_batch = pins.get("micro_batch_size")
    return fits(
        job,
        min(device.memory_bytes for device in cluster.node.devices) - cluster.node.reserved_bytes,
        num_devices,
        trace_quickly,
        recomputes=None if recompute is None else _RECOMPUTED[str(recompute)],
        micro_batch_size=int(micro_batch) if micro_batch is not None else None,
        most_sequences=max(1, load.global_batch_size // num_devices),
    )


def trace_quickly(job: Job) -> Any:
    """Trace a few layers only."""
    return trace(job, is_whole=False)
