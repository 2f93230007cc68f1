"""Training estimates: one columnar composition, and `estimate_training` that asks it for one candidate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from tonnage.errors import RequestError
from tonnage.estimate import optimizer
from tonnage.estimate.branch import where
from tonnage.estimate.compose_training.case import COLUMN_DEFAULTS, Columns, TrainingCase, filled
from tonnage.estimate.compose_training.constants import Constants, software, software_names, training_constants
from tonnage.estimate.compose_training.memory import FORMULAS as MEMORY_FORMULAS
from tonnage.estimate.compose_training.memory import Memory, drive_bytes, rank_memory
from tonnage.estimate.compose_training.sums import layer_sums
from tonnage.estimate.compose_training.timing import FORMULAS as TIME_FORMULAS
from tonnage.estimate.compose_training.timing import peak_rate, step_timing
from tonnage.estimate.compose_training.width import memory_width, spread, time_width
from tonnage.estimate.layer import layer_operations
from tonnage.estimate.pipeline import has_fuller_middle
from tonnage.estimate.types import (
    Candidate,
    Cost,
    Estimate,
    Footprint,
    Performance,
    Pool,
    Provenance,
    Recompute,
    StepTime,
    Storage,
    TimePart,
)
from tonnage.hardware import siblings
from tonnage.hardware.types import Cluster, Device
from tonnage.workload.optimizers import OPTIMIZERS
from tonnage.workload.types import Training

__all__ = [
    "COLUMN_DEFAULTS",
    "TrainingCase",
    "TrainingColumns",
    "case_of",
    "columns_of",
    "drive_bytes",
    "estimate_training",
    "memory_of",
    "software",
    "software_names",
    "step_timing",
    "training_columns",
    "training_constants",
]

_BLOCK: Final = 8192  # candidates evaluated together: small enough for the cache
_PCIE_BYTES_PER_S: Final = {3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}  # a lane, one direction


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingColumns:
    """Estimates of many candidates: each value a scalar or an array as long as the columns."""

    pools: dict[str, Any]  # bytes on the fullest device
    host_pools: dict[str, Any]  # bytes of one node's host
    device_bytes: Any
    least_bytes: Any  # of the device, cached segments given back
    host_bytes: Any
    time_parts: dict[str, Any]
    step_seconds: Any
    tokens_per_s_per_gpu: Any
    mfu_ratio: Any
    hfu_ratio: Any


def training_columns(
    case: TrainingCase,
    columns: Columns,
    constants: Constants | None = None,
    *,
    quantity: str = "driver",
    rank: str = "max",
) -> TrainingColumns:
    """Estimate memory and step time of many training candidates that differ only in columns.

    Parameters
    ----------
    case : TrainingCase
        Model, kind, precision, optimizer, software and hardware, the same for all.
    columns : mapping of str to numeric
        Values of `COLUMN_DEFAULTS`' names, scalars or arrays of one length. [1]
    constants : mapping of str to float, optional
        Calibrated constants instead of those shipped.
    quantity : str
        Memory asked for: "allocated", "reserved" or "driver".
    rank : str
        Pipeline rank: "first", "last" or "max", the fuller of both.

    Returns
    -------
    TrainingColumns
        Pools, parts of the step time and rates.

    Examples
    --------
    See `estimate_training`, which calls this with scalars.
    """
    c = training_constants() if constants is None else constants
    x = filled(columns)
    lengths = {len(v) for v in x.values() if np.ndim(v)}
    if not lengths or max(lengths) <= _BLOCK:
        return _columns(case, x, c, quantity, rank)
    length = max(lengths)
    blocks = [
        _columns(case, {k: v[i : i + _BLOCK] if np.ndim(v) else v for k, v in x.items()}, c, quantity, rank)
        for i in range(0, length, _BLOCK)
    ]
    sizes = [min(_BLOCK, length - i) for i in range(0, length, _BLOCK)]

    def joined(values: list[Any]) -> Any:
        return np.concatenate([np.broadcast_to(v, (n,)) for v, n in zip(values, sizes, strict=True)])

    return TrainingColumns(
        pools={k: joined([b.pools[k] for b in blocks]) for k in blocks[0].pools},
        host_pools={k: joined([b.host_pools[k] for b in blocks]) for k in blocks[0].host_pools},
        time_parts={k: joined([b.time_parts[k] for b in blocks]) for k in blocks[0].time_parts},
        **{
            name: joined([getattr(b, name) for b in blocks])
            for name in (
                "device_bytes",
                "least_bytes",
                "host_bytes",
                "step_seconds",
                "tokens_per_s_per_gpu",
                "mfu_ratio",
                "hfu_ratio",
            )
        },
    )


def _columns(case: TrainingCase, x: dict[str, Any], c: Constants, quantity: str, rank: str) -> TrainingColumns:
    held = memory_of(case, x, c, quantity, rank)
    timing = step_timing(case, c, x)
    devices = x["dp"] * x["tp"] * x["pp"] * x["cp"]
    tokens = x["dp"] * x["micro_batch_size"] * x["num_micro_batches"] * x["seq_len"]
    peak = peak_rate(case, case.compute) * devices
    return TrainingColumns(
        pools=held.pools,
        host_pools=held.host_pools,
        device_bytes=held.total,
        least_bytes=held.least,
        host_bytes=held.host_total,
        time_parts=timing.parts,
        step_seconds=timing.total,
        tokens_per_s_per_gpu=tokens / timing.total / devices,
        mfu_ratio=timing.model_flop / timing.total / peak,
        hfu_ratio=timing.hardware_flop / timing.total / peak,
    )


def memory_of(case: TrainingCase, x: dict[str, Any], c: Constants, quantity: str, rank: str) -> Memory:
    """Compose the memory of the rank asked for."""
    if rank in ("first", "last", "middle"):
        return rank_memory(case, c, x, rank, quantity)
    if not np.ndim(x["pp"]) and x["pp"] == 1:
        return rank_memory(case, c, x, "first", quantity)
    first, last = rank_memory(case, c, x, "first", quantity), rank_memory(case, c, x, "last", quantity)
    if np.any(has_fuller_middle(case.model.num_layers, x["pp"], x["first_stage_layers"], x["last_stage_layers"])):
        first = _fuller(first, rank_memory(case, c, x, "second", quantity))
    return _fuller(first, last)


def _fuller(first: Memory, last: Memory) -> Memory:
    """Return the memory of the fuller of two ranks."""
    is_first = first.total >= last.total
    return Memory(
        pools={k: where(is_first, v, last.pools[k]) for k, v in first.pools.items()},
        host_pools={k: where(is_first, v, last.host_pools[k]) for k, v in first.host_pools.items()},
        total=np.maximum(first.total, last.total),
        host_total=np.maximum(first.host_total, last.host_total),
        least=np.maximum(first.least, last.least),
    )


def _intra_link(cluster: Cluster, device: Device) -> tuple[float, str]:
    link = cluster.node.intra_link
    if link is not None:
        return link.bytes_per_s, "nvlink" if link.kind == "nvlink" else "pcie"
    if device.nvlink_bytes_per_s:
        return device.nvlink_bytes_per_s, "nvlink"
    return _host_link(cluster, device), "pcie"


def _host_link(cluster: Cluster, device: Device) -> float:
    if cluster.node.host.pcie is not None:
        return cluster.node.host.pcie.bytes_per_s
    return _PCIE_BYTES_PER_S.get(device.pcie_generation or 4, 1.969e9) * (device.pcie_lanes or 16)


def case_of(candidate: Candidate) -> TrainingCase:
    """Return the part of a training candidate that is no column."""
    workload = candidate.workload
    if not isinstance(workload, Training):
        raise RequestError("this is no training job", where="workload", fix="use --pretrain or --finetune")
    cluster = candidate.cluster
    first = cluster.node.devices[0]
    device = replace(
        first, memory_bytes=first.memory_bytes - cluster.node.reserved_bytes
    )  # the allocator sees this much
    intra, kind = _intra_link(cluster, device)
    inter = cluster.inter_link.bytes_per_s if cluster.inter_link else 12.5e9
    settings, drive = candidate.settings, cluster.node.host.drive
    return TrainingCase(
        model=candidate.model,
        kind=workload.kind,
        device=device,
        software=software(candidate.engine),
        precision=candidate.precision,
        optimizer=candidate.optimizer,
        lora_targets=workload.lora_targets,
        has_flash_attention=settings.has_flash_attention,
        has_fused_loss=settings.has_fused_loss,
        has_compile=settings.has_compile,
        has_dropout=settings.has_dropout,
        has_cuda_graphs=settings.has_cuda_graphs,
        recompute_modules=settings.recompute_modules,
        release_year=settings.release_year,
        num_mtp_layers=workload.num_mtp_layers,
        steps_in_backward=settings.steps_in_backward,
        devices_per_node=len(cluster.node.devices),
        intra_bytes_per_s=intra,
        intra_kind=kind,
        inter_bytes_per_s=inter,
        host_link_bytes_per_s=_host_link(cluster, device),
        host_bytes_per_s=cluster.node.host.bandwidth_bytes_per_s,
        drive_read_bytes_per_s=drive.read_bytes_per_s if drive else 0.0,
        drive_write_bytes_per_s=drive.write_bytes_per_s if drive else 0.0,
        matmul_lender=siblings.lender(device, siblings.MATMUL),
        stream_lender=siblings.lender(device, siblings.STREAM),
    )


def columns_of(candidate: Candidate) -> dict[str, float]:
    """Return the columns of one training candidate."""
    workload, layout, offloaded = candidate.workload, candidate.layout, candidate.offload
    assert isinstance(workload, Training)
    micro_batches = max(1, round(workload.global_batch_size / (layout.dp * candidate.micro_batch_size)))
    return {
        "dp": layout.dp,
        "tp": layout.tp,
        "pp": layout.pp,
        "cp": layout.cp,
        "ep": layout.ep,
        "etp": layout.etp or 0,
        "num_virtual_stages": layout.num_virtual_stages,
        "zero_stage": layout.zero_stage,
        "has_sequence_parallel": int(layout.has_sequence_parallel),
        "first_stage_layers": layout.first_stage_layers or 0,
        "last_stage_layers": layout.last_stage_layers or 0,
        "micro_batch_size": candidate.micro_batch_size,
        "num_micro_batches": micro_batches,
        "seq_len": workload.seq_len,
        "recompute": {Recompute.NONE: 0, Recompute.SELECTIVE: 1, Recompute.FULL: 2}[candidate.recompute],
        "recompute_every": candidate.recompute_every,
        "lora_rank": workload.lora_rank,
        "offload_optimizer": int(offloaded.optimizer),
        "offload_parameters": int(offloaded.parameters),
        "offload_activations": int(offloaded.activations),
        "num_cpu_expert_layers": offloaded.num_cpu_expert_layers,
        "nvme_optimizer": int(offloaded.optimizer_nvme),
        "nvme_parameters": int(offloaded.parameters_nvme),
    }


def estimate_training(candidate: Candidate) -> Estimate:
    """Estimate memory, step time and rates of one training candidate.

    Parameters
    ----------
    candidate : Candidate
        A complete candidate whose workload is `Training` and whose engine is known training software.

    Returns
    -------
    Estimate
        Footprint of the fullest device and of a host, step time by part, performance; no cost.

    Raises
    ------
    RequestError
        The workload is no training, or the engine unknown.
    """
    swaps = candidate.offload.optimizer_nvme or candidate.offload.parameters_nvme
    if swaps and candidate.cluster.node.host.drive is None:
        fix = "give the host one"
        raise RequestError("training swaps with a drive, and the machine has none", where="host", fix=fix)
    case, columns = case_of(candidate), columns_of(candidate)
    result = training_columns(case, columns)
    workload = candidate.workload
    assert isinstance(workload, Training)
    capacity = case.device.memory_bytes
    c = training_constants()
    held = memory_width(case, c, workload.seq_len)
    launched = float(result.time_parts["launches"]) / float(result.step_seconds)
    timed = time_width(case, c, workload.seq_len, launched)
    footprint = Footprint(
        capacity_bytes=capacity,
        pools=_pools(result, held),
        total=spread(float(result.device_bytes), held),
        host_capacity_bytes=candidate.cluster.node.host.memory_bytes,
        host_total=spread(float(result.host_bytes), held),
        least_bytes=float(result.least_bytes),
        is_shared=case.device.is_unified_memory,
    )
    step = spread(float(result.step_seconds), timed)
    num_devices = candidate.layout.num_devices
    rate = float(result.tokens_per_s_per_gpu)
    job = workload.num_tokens / (rate * num_devices) if workload.num_tokens else None
    performance = Performance(
        tokens_per_s=spread(rate * num_devices, timed),
        tokens_per_s_per_gpu=spread(rate, timed),
        step_seconds=step,
        mfu_ratio=spread(float(result.mfu_ratio), timed),
        hfu_ratio=spread(float(result.hfu_ratio), timed),
        job_seconds=spread(job, timed) if job else None,
    )
    parts = tuple(
        TimePart(name=name, seconds=float(value), formula=TIME_FORMULAS.get(name, "compose_training.timing"))
        for name, value in result.time_parts.items()
        if float(value) != 0
    )
    return Estimate(
        candidate=candidate,
        footprint=footprint,
        step_time=StepTime(parts=parts, total=step),
        performance=performance,
        cost=Cost(),
        storage=_storage(case, candidate),
        provenance=_provenance(case, candidate),
    )


def _pools(result: TrainingColumns, width: float) -> tuple[Pool, ...]:
    device = (
        Pool(name=name, bytes=float(value), formula=MEMORY_FORMULAS[name], relative_error=width)
        for name, value in result.pools.items()
        if float(value) != 0
    )
    host = (
        Pool(
            name=name,
            bytes=float(value),
            formula="swap.step_buffer_bytes" if name == "host_swap_buffers" else "offload.pinned_bytes",
            is_on_host=True,
            relative_error=width,
        )
        for name, value in result.host_pools.items()
        if float(value) != 0
    )
    return (*device, *host)


def _storage(case: TrainingCase, candidate: Candidate) -> Storage:
    """Disk: the weights that are read, the tokens, and a checkpoint of what is trained, adapters alone where they are.

    Derived: a checkpoint that training goes on from holds each trained weight as it is stored, its fp32 master where there
    is one, and the optimizer's states; gradients are made anew. The job that DeepSpeed's plans start saves the master alone.
    """
    model = candidate.model
    total = sum(
        o.num_parameters * count for layer, count in model.groups() for o in layer_operations(layer, model.hidden_size)
    ) + model.vocab_size * model.hidden_size * (1 if model.is_tied else 2)
    workload = candidate.workload
    assert isinstance(workload, Training)
    data = 4.0 * workload.num_tokens if workload.num_tokens else None
    adapters = sum(sum(layer_sums(case, layer).adapters) * count for layer, count in model.groups())
    trained = total if case.trains_all else workload.lora_rank * adapters
    return Storage(
        weights_bytes=2.0 * total,
        data_bytes=data,
        checkpoints_bytes=_checkpoint_bytes(case, trained, has_copy=candidate.engine != "deepspeed"),
        offload_bytes=float(drive_bytes(case, filled(columns_of(candidate)))) or None,
    )


def _checkpoint_bytes(case: TrainingCase, trained: float, *, has_copy: bool) -> float:
    """Return the size of a checkpoint of some trained weights: they, their masters and the optimizer's states."""
    spec = OPTIMIZERS[case.optimizer]
    states = spec.state_bytes_per_parameter * trained
    if spec.is_factored:
        states = float(optimizer.adafactor_state_bytes(trained, 8 * case.model.num_layers))
    master = 4.0 if case.precision.has_fp32_master else 0.0
    copy = case.trained_bytes if has_copy or not master else 0.0
    return (copy + master) * trained + states


def _provenance(case: TrainingCase, candidate: Candidate) -> Provenance:
    assumptions: list[str] = []
    if candidate.cluster.num_nodes > 1 and candidate.cluster.inter_link is None:
        assumptions.append("network between nodes: 100 Gb/s for each device; set the link to change it")
    return Provenance(
        formulae=tuple(sorted({*MEMORY_FORMULAS.values(), *TIME_FORMULAS.values()})),
        sources=(case.software.source, case.device.source),
        is_calibrated=True,
        assumptions=tuple(assumptions),
    )
