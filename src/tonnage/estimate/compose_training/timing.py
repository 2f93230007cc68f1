"""Composition of a training step's time from its operations, collectives and pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tonnage.estimate import collectives, efficiency, offload, pipeline, roofline
from tonnage.estimate.branch import where
from tonnage.estimate.compose_training.case import TrainingCase
from tonnage.estimate.compose_training.constants import Constants
from tonnage.estimate.compose_training.memory import eager_ratio, expert_tensor_ranks, shards
from tonnage.estimate.compose_training.sums import layer_sums, rerun_operations
from tonnage.estimate.layer import Kind, Operation, Split, layer_operations
from tonnage.workload.optimizers import OPTIMIZERS
from tonnage.workload.precision import BYTES_PER_ELEMENT

FORMULAS: Final = {
    "matrix products": "efficiency.size_ratio",
    "attention": "roofline.roofline_seconds",
    "element-wise": "roofline.roofline_seconds",
    "logits and loss": "roofline.roofline_seconds",
    "recomputation": "compose_training.timing",
    "tensor-parallel collectives": "collectives.all_reduce_seconds",
    "expert all-to-all": "collectives.all_to_all_seconds",
    "pipeline bubble": "pipeline.pipeline_seconds",
    "data-parallel collectives": "collectives.all_gather_seconds",
    "optimizer step": "roofline.roofline_seconds",
    "offload traffic": "offload.transfer_seconds",
    "fixed": "compose_training.timing",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Seconds of one step by part, and what the model needs of arithmetic for it."""

    parts: dict[str, Any]
    total: Any
    model_flop: Any  # of all devices, forward and backward, causal attention counted once
    hardware_flop: Any  # recomputation in


def architecture_key(case: TrainingCase, prefix: str, c: Constants) -> str:
    """Return the constant of a device's kind: by architecture and memory type, then by architecture, then any."""
    architecture = case.device.architecture.lower().split()[0]
    kind = "hbm" if case.device.memory_type.lower().startswith("hbm") else "gddr"
    for key in (f"{prefix}.{architecture}.{kind}", f"{prefix}.{architecture}"):
        if key in c:
            return key
    return f"{prefix}.other"


def peak_rate(case: TrainingCase, kind: str) -> float:
    """Return a device's dense rate for a compute type, falling back to the next wider type it has."""
    rates = case.device.flop_per_s
    order = {
        "fp4": ("fp4", "fp8", "bf16", "fp16", "fp32"),
        "fp8": ("fp8", "bf16", "fp16", "fp32"),
        "bf16": ("bf16", "fp16", "fp32"),
        "fp16": ("fp16", "bf16", "fp32"),
        "tf32": ("tf32", "fp32"),
        "fp32": ("fp32", "tf32", "fp16"),
    }[kind]
    return next(rates[name] for name in order if rates.get(name))


def _matmul_rate(case: TrainingCase, c: Constants, kind: str) -> Any:
    base = c[architecture_key(case, "matmul_ratio", c)]
    factor = {"fp8": c["fp8_ratio"], "fp4": c["fp4_ratio"]}.get(kind, 1.0)
    return peak_rate(case, kind) * base * factor


def _product_seconds(
    case: TrainingCase, c: Constants, o: Operation, rows: Any, x: dict[str, Any], etp: Any, kind: str
) -> Any:
    """Time of one forward product of an operation on one device."""
    inputs = o.matrices[0].num_inputs
    outputs = sum(m.num_outputs for m in o.matrices)
    ways = {Split.TENSOR: x["tp"], Split.SEQUENCE: 1, Split.EXPERT: etp}[o.split]
    share_in, share_out = (inputs / ways, outputs) if o.is_row_parallel else (inputs, outputs / ways)
    peak = peak_rate(case, kind)
    rate = _matmul_rate(case, c, kind)
    if o.split is Split.EXPERT:
        local = np.maximum(o.matrices[0].count / x["ep"], 1.0)
        rate = rate * c["grouped_ratio"]
        flop_each = 2.0 * (rows / local) * share_in * share_out
    else:
        flop_each = 2.0 * rows * share_in * share_out
        local = 1.0
    width = share_in if o.is_row_parallel else share_out
    rate = rate * efficiency.size_ratio(flop_each * local, peak, c["matmul_half_seconds"])
    rate = rate * efficiency.aligned_ratio(width, 64, c["alignment_penalty_ratio"])
    moved = roofline.matmul_bytes(rows, share_in, share_out, case.element_bytes)
    return roofline.roofline_seconds(flop_each * local, moved, rate, case.device.bandwidth_bytes_per_s)


def _pairs(case: TrainingCase, window: int | None, x: dict[str, Any]) -> Any:
    """Query–key pairs a query meets: half of the sequence when masked ones are skipped."""
    s = x["seq_len"]
    if not case.has_flash_attention:
        return s
    if window is None:
        return (s + 1) / 2
    w = np.minimum(window, s)
    return w - w * w / (2 * s)


def step_timing(case: TrainingCase, c: Constants, x: dict[str, Any]) -> Timing:
    """Compose the time of one optimizer step."""
    model, device = case.model, case.device
    etp = expert_tensor_ranks(x)
    tokens = x["micro_batch_size"] * (x["seq_len"] + case.num_image_tokens) / x["cp"]
    cut = where(x["has_sequence_parallel"], x["tp"], 1)
    num_layers = model.num_layers
    eager = eager_ratio(case, c)
    bandwidth = device.bandwidth_bytes_per_s * c["elementwise_ratio.fused"]
    traffic_factor = 1.0 + eager * (c["elementwise_eager_factor"] - 1.0)
    frozen_factor = 2.0 if case.trains_all else 1.0
    kind = case.compute
    modules = case.recompute_modules or ("core_attn",)
    rerun = rerun_operations(modules)
    is_full, is_selective = x["recompute"] == 2, x["recompute"] == 1
    attention_rate = peak_rate(case, "bf16" if kind in ("fp8", "fp4") else kind) * c["flash_ratio"]

    products: Any = 0.0
    attention: Any = 0.0
    elementwise: Any = 0.0
    recomputed: Any = 0.0
    launches: Any = 0.0
    flop: Any = 0.0
    rerun_flop: Any = 0.0
    expert_tokens: Any = 0.0
    blocks: float = 0.0
    for layer, count in model.groups():
        part = count / num_layers
        layer_forward: Any = 0.0
        layer_rerun: Any = 0.0
        for o in layer_operations(layer, model.hidden_size):
            rows = tokens * (c["expert_imbalance_ratio"] * o.tokens_ratio / cut if o.split is Split.EXPERT else 1.0)
            ways = {Split.TENSOR: x["tp"], Split.SEQUENCE: cut, Split.EXPERT: cut}[o.split]
            seconds: Any = 0.0
            if o.matrices:
                seconds = _product_seconds(case, c, o, rows, x, etp, kind)
                products = products + part * seconds * (1.0 + frozen_factor)
            elif o.kind is Kind.ATTENTION:
                pairs = _pairs(case, o.window_tokens, x)
                work = tokens * o.flop_per_pair * pairs / ways
                if case.has_flash_attention:
                    seconds = work / attention_rate
                    attention = attention + part * seconds * 3.5
                else:
                    product = work / _matmul_rate(case, c, "bf16" if kind in ("fp8", "fp4") else kind)
                    scores = tokens * pairs * o.score_elements_per_pair / ways * c["score_moved_bytes"] / bandwidth
                    seconds = product + scores
                    attention = attention + part * seconds * 3.0
                causal = (x["seq_len"] + 1) / 2 if o.window_tokens is None else _pairs(case, o.window_tokens, x)
                flop = flop + part * tokens * o.flop_per_pair * causal * 3.0
                rerun_flop = rerun_flop + part * tokens * o.flop_per_pair * causal
            else:
                moved = tokens * o.moved_elements * case.element_bytes / ways * traffic_factor
                seconds = roofline.roofline_seconds(
                    tokens * o.flop_per_token / ways, moved, _matmul_rate(case, c, "bf16"), bandwidth
                )
                elementwise = elementwise + part * seconds * 3.0
            flop = flop + part * tokens * o.flop_per_token * (1.0 + frozen_factor)
            rerun_flop = rerun_flop + part * tokens * o.flop_per_token
            layer_forward = layer_forward + seconds
            if o.name in rerun or o.kind is Kind.ATTENTION:
                layer_rerun = layer_rerun + seconds
            if case.software.selective == "operations" and o.matrices:
                layer_rerun = layer_rerun + 0.5 * seconds
            if o.name == "dispatch":
                expert_tokens = expert_tokens + part * o.moved_elements / 2.0
        recomputed = recomputed + part * where(is_full, layer_forward, where(is_selective, layer_rerun, 0.0))
        sums = layer_sums(case, layer)
        launches = launches + part * sums.num_kernels * (3.0 + is_full) * (0.3 + 0.7 * eager)
        blocks += part * (len(layer.mixers) > 0) + part * (len(layer.feed_forwards) > 0)

    # Collectives of one layer and micro-batch.
    per_node = case.devices_per_node
    intra = case.intra_bytes_per_s * (c["nvlink_ratio"] if case.intra_kind == "nvlink" else c["pcie_ratio"])
    inter = case.inter_bytes_per_s * c["network_ratio"]
    latency = c["latency_seconds"]
    tensor_group = collectives.group_bandwidth(x["tp"], np.minimum(x["tp"], per_node), intra, inter)
    reduced = tokens * model.hidden_size * case.element_bytes
    tensor_each = collectives.all_reduce_seconds(reduced, x["tp"], tensor_group, latency) * blocks
    tensor_time = tensor_each * (2.0 + is_full) * (1 - c["overlap_ratio.tensor"])
    expert_group = collectives.group_bandwidth(
        x["ep"], np.maximum(np.minimum(x["ep"], per_node / x["tp"]), 1), intra, inter
    )
    sent = tokens / cut * expert_tokens * case.element_bytes
    expert_each = 2.0 * collectives.all_to_all_seconds(sent, x["ep"], expert_group, latency)
    expert_time = expert_each * (2.0 + is_full) * (1 - c["overlap_ratio.expert"])

    # Embedding, head and loss: on the last rank.
    head = model.hidden_size * model.vocab_size
    head_rate = _matmul_rate(case, c, "bf16" if kind in ("fp8", "fp4") else kind)
    head_flop = 2.0 * tokens * head / x["tp"]
    loss_factor = 3.0 if case.trains_all else 2.0
    if loss_is_recomputed(case):
        loss_factor += 1.0
    head_seconds = head_flop / head_rate * loss_factor
    loss_seconds = (
        tokens
        * model.vocab_size
        / x["tp"]
        * c["logit_moved_bytes"]
        / bandwidth
        * (0.5 + 0.5 * traffic_factor / c["elementwise_eager_factor"])
    )
    flop_head = 2.0 * tokens * head * (3.0 if case.trains_all else 2.0)

    layer_compute = products + attention + elementwise + recomputed
    launched = roofline.launched_seconds(layer_compute, launches, c["launch_seconds"])
    layer_time = launched + tensor_time + expert_time
    first, middle, last = pipeline.stage_layers(num_layers, x["pp"], x["first_stage_layers"], x["last_stage_layers"])
    outer = head_seconds + loss_seconds
    slowest = np.maximum(np.maximum(first, middle) * layer_time, last * layer_time + outer)
    slowest = where(x["pp"] > 1, slowest, num_layers * layer_time + outer)
    mean_stage = (num_layers * layer_time + outer) / x["pp"]
    micro_batches = x["num_micro_batches"]
    piped = pipeline.pipeline_seconds(slowest, mean_stage, x["pp"], x["num_virtual_stages"], micro_batches)
    useful = micro_batches * mean_stage

    # Data-parallel gradient reduction and gathering of sharded weights.
    layer_params = 0.0
    expert_params = 0.0
    for layer, count in model.groups():
        sums = layer_sums(case, layer)
        layer_params = layer_params + count * (sums.parameters[0] / x["tp"] + sums.parameters[1]) / x["pp"]
        expert_params = expert_params + count * sums.parameters[2] / (x["ep"] * etp) / x["pp"]
    outer_params = head * (1 if model.is_tied else 2) / x["tp"] / x["pp"]
    local = layer_params + outer_params
    over_dense, over_expert = shards(x, etp)
    dp_per_node = np.maximum(np.minimum(over_dense, per_node / x["tp"]), 1)
    data_group = collectives.group_bandwidth(over_dense, dp_per_node, intra, inter)
    stored = 2.0 if case.precision.weights in ("fp32", "bf16", "fp16") else 0.56
    gradient = BYTES_PER_ELEMENT[case.precision.gradients]
    gathered = collectives.all_gather_seconds(local * stored, over_dense, data_group, latency)
    gathered = gathered + collectives.all_gather_seconds(expert_params * stored, over_expert, data_group, latency)
    trained_share = 1.0 if case.trains_all else 0.02
    reduced_seconds = collectives.all_gather_seconds(local * gradient, over_dense, data_group, latency)
    reduced_seconds = reduced_seconds + collectives.all_gather_seconds(
        expert_params * gradient, over_expert, data_group, latency
    )
    reduced_seconds = reduced_seconds * trained_share
    zero = x["zero_stage"]
    is_sharded = zero >= 3
    sharded = (2.0 * gathered + reduced_seconds) * micro_batches
    replicated = reduced_seconds + where(zero >= 1, gathered, reduced_seconds)
    communication = where(is_sharded, sharded, replicated)
    overlap = where(is_sharded, c["overlap_ratio.sharded"], c["overlap_ratio.gradients"])
    cover = where(is_sharded, piped, slowest)
    data_time = collectives.exposed_seconds(communication, cover, overlap)

    trained = (local + expert_params) * (1.0 if case.trains_all else 0.01)
    shard = where(zero >= 1, over_dense, 1)
    state = OPTIMIZERS[case.optimizer].state_bytes_per_parameter
    step_bytes = 2.0 * state + 2.0 * gradient + 6.0
    on_device = trained / shard * step_bytes / (device.bandwidth_bytes_per_s * c["step_bandwidth_ratio"])
    link = case.host_link_bytes_per_s * c["host_link_ratio"]
    on_host = offload.host_step_seconds(trained / shard * per_node, 28.0, case.host_bytes_per_s)
    on_host = on_host + offload.transfer_seconds(trained / shard * (gradient + 2.0), link)
    step_time = where(x["offload_optimizer"] > 0, on_host, on_device)
    kept = tokens * model.hidden_size * case.element_bytes / cut * num_layers / x["pp"]
    moved = x["offload_activations"] * kept * 2.0 * micro_batches
    moved = moved + x["offload_parameters"] * (local + expert_params) * stored / over_dense * 2.0 * micro_batches
    offload_time = offload.transfer_seconds(moved, link) * 0.5
    fixed = c["step_overhead_seconds"]

    busy = layer_compute + tensor_time + expert_time
    scale = micro_batches * num_layers / x["pp"]
    stretch = launched - layer_compute
    parts = {
        "matrix products": products * scale + micro_batches * head_seconds / x["pp"],
        "attention": attention * scale,
        "element-wise": elementwise * scale,
        "launches": stretch * scale,
        "logits and loss": micro_batches * loss_seconds / x["pp"],
        "recomputation": recomputed * scale,
        "tensor-parallel collectives": tensor_time * scale,
        "expert all-to-all": expert_time * scale,
        "pipeline bubble": piped - useful,
        "data-parallel collectives": data_time,
        "optimizer step": step_time,
        "offload traffic": offload_time,
        "fixed": fixed,
    }
    del busy
    total = piped + data_time + step_time + offload_time + fixed
    replicas = x["dp"] * x["cp"] * micro_batches
    model_flop = (flop * num_layers + flop_head) * replicas
    hardware_flop = model_flop + where(is_full, rerun_flop * num_layers, 0.0) * replicas
    return Timing(parts=parts, total=total, model_flop=model_flop, hardware_flop=hardware_flop)


def loss_is_recomputed(case: TrainingCase) -> bool:
    """Whether the head runs again in backward, as a fused loss does."""
    return case.has_fused_loss or case.software.loss == "fused"
