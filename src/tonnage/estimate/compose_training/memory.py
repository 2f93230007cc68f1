"""Composition of a training device's memory: pools at the fullest moment of a step, on a pipeline rank."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np

from tonnage.estimate import activations, offload, optimizer, pipeline, swap, workspace
from tonnage.estimate.branch import where
from tonnage.estimate.compose_training.case import TrainingCase
from tonnage.estimate.compose_training.constants import Constants
from tonnage.estimate.compose_training.sums import LayerSums, Split4, layer_sums
from tonnage.estimate.weights import find_format
from tonnage.workload.optimizers import OPTIMIZERS
from tonnage.workload.precision import BYTES_PER_ELEMENT, is_plain

FORMULAS: Final = {
    "weights": "optimizer.sharded_bytes",
    "gradients": "optimizer.sharded_bytes",
    "master_weights": "optimizer.sharded_bytes",
    "optimizer_states": "optimizer.sharded_bytes",
    "gradient_partition": "optimizer.sharded_bytes",
    "cast_weights": "compose_training.memory",
    "activations": "activations.kept_layer_bytes",
    "attention_scores": "activations.attention_score_bytes",
    "layer_workspace": "activations.kept_layer_bytes",
    "logits": "activations.logits_bytes",
    "gathered_weights": "workspace.gathered_units_bytes",
    "optimizer_workspace": "optimizer.step_workspace_bytes",
    "library_workspace": "compose_training.memory",
    "fragmentation": "workspace.reserved_bytes",
    "context": "workspace.usable_bytes",
    "communication_buffers": "workspace.collective_buffer_bytes",
}
_STAGES: Final = {"first": 0, "second": 1, "middle": 1, "last": 2}  # where `stage_layers` counts a rank
_SHIFT_COPY_UNTIL: Final = 2024.8  # transformers 4.46 makes no shifted fp32 copy of the logits any more


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Pools of one rank, bytes each a scalar or a column."""

    pools: dict[str, Any]
    host_pools: dict[str, Any]
    total: Any
    host_total: Any
    least: Any  # the most that tensors take in any phase, with what lies outside the allocator


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layers:
    """Sums over the layers of one rank, and the largest of one layer."""

    dense: Any  # parameters
    expert: Any
    dense_bytes: Any  # as stored
    expert_bytes: Any
    matrices: Any  # parameters that are cast or quantised
    adapters_dense: Any
    adapters_expert: Any
    kept: Any  # mean bytes of a layer that stay until backward
    scores: Any
    whole: Any  # … if nothing were recomputed
    whole_scores: Any
    selective: Any  # … if attention were
    work: Any  # bytes of one layer while it is recomputed
    selective_work: Any
    rerun_scores: Any
    working_scores: Any  # temporaries of attention's backward
    last: Any  # bytes of the last layer that runs backward, alone then
    last_scores: Any
    transient: Any
    unit: Any  # parameters of the largest layer
    unit_bytes: Any  # … as it is stored
    largest_matrix: Any


_LARGEST: Final = (
    "work",
    "selective_work",
    "rerun_scores",
    "working_scores",
    "last",
    "last_scores",
    "transient",
    "unit",
    "unit_bytes",
    "largest_matrix",
)


def expert_tensor_ranks(x: dict[str, Any]) -> Any:
    """Return over how many ranks one expert is cut: as told, else as the dense part when experts are not spread."""
    return where(x["etp"] > 0, x["etp"], where(x["ep"] > 1, 1, x["tp"]))


def split_parameters(sums: Split4, x: dict[str, Any], etp: Any) -> tuple[Any, Any]:
    """Return a layer's parameters on one device before data-parallel sharding: dense and expert."""
    return sums[0] / x["tp"] + sums[1], sums[2] / (x["ep"] * etp)


def shards(x: dict[str, Any], etp: Any) -> tuple[Any, Any]:
    """Return over how many ranks ZeRO divides dense and expert parameters."""
    dense = x["dp"] * x["cp"]
    return dense, np.maximum(dense * x["tp"] / (x["ep"] * etp), 1)


def eager_ratio(case: TrainingCase, c: Constants) -> Any:
    """Return how far a layer's code is unfused: 0 fused kernels, 1 one operator after another."""
    if case.software.kernels == "fused":
        return 0.0
    return c["compiled_eager_ratio"] if case.has_compile else 1.0


def loss_name(case: TrainingCase) -> str:
    """Return how logits and loss are held."""
    return "fused" if case.has_fused_loss else case.software.loss


def logit_bytes(case: TrainingCase, c: Constants) -> Any:
    """Return the bytes of one logit in all its copies at the peak."""
    name = loss_name(case)
    if name != "upcast":
        return c[f"logit_bytes.{name}"]
    shifted = case.release_year is not None and case.release_year < _SHIFT_COPY_UNTIL
    # Under mixed precision accelerate hands out fp32 copies of all outputs (utils/operations.py, ConvertOutputsToFp32).
    copies = (2.0 if case.precision.gradients == "fp32" else 1.0) if shifted else 0.0
    return case.residual_bytes + c["logit_bytes.upcast"] + copies * c["logit_bytes.shifted"]


def is_quantized(case: TrainingCase) -> bool:
    """Whether the frozen weights are held in a quantised format."""
    return not is_plain(case.precision.weights)


def kept_bytes(case: TrainingCase, c: Constants, sums: LayerSums, x: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    """Return the bytes a token leaves behind in one layer, by how a layout divides them."""
    eager = eager_ratio(case, c)
    frozen = c["quantized_input_ratio"] if is_quantized(case) else 0.0
    has_copies = 1.0 if case.software.keys == "repeated" or not case.has_flash_attention else 0.0
    fused_qkv = eager if case.software.qkv == "fused" else 0.0
    views = eager if case.has_flash_attention else 0.0
    formulas = eager if case.software.activations == "formulas" else 0.0
    norm_fp32 = eager if case.software.norm == "fp32" else 0.0
    copies = case.software.adapter_copy
    if copies == 4.0 and case.precision.gradients != "fp32":
        copies = 0.0
    ranks = sums.adapter_ranks * x["lora_rank"] * case.element_bytes
    tensor, sequence, expert, routed = (
        sums.kept[i]
        + sums.kept_fused[i] * (1 - eager)
        + sums.kept_eager[i] * eager
        + sums.kept_scores[i] * has_copies * eager
        + sums.kept_fused_qkv[i] * fused_qkv
        + sums.kept_views[i] * views
        + sums.kept_formulas[i] * formulas
        + sums.kept_norm_fp32[i] * norm_fp32
        + sums.kept_frozen[i] * frozen
        + sums.kept_adapter[i] * copies
        for i in range(4)
    )
    imbalance = c["expert_imbalance_ratio"]
    return tensor, sequence + ranks, expert * imbalance, routed * imbalance


def _score_bytes(case: TrainingCase, each: Any, sums: LayerSums, x: dict[str, Any]) -> Any:
    if case.has_flash_attention or not sums.scores:
        return 0.0
    queries = x["seq_len"] / x["cp"]
    heads = sums.fused_scores if case.software.kernels == "fused" else sums.scores
    return activations.attention_score_bytes(x["micro_batch_size"], queries, x["seq_len"], heads, each, x["tp"])


def _layer_kept(case: TrainingCase, c: Constants, sums: LayerSums, x: dict[str, Any], tokens: Any, etp: Any) -> Any:
    kept = kept_bytes(case, c, sums, x)
    return activations.kept_layer_bytes(tokens, *kept, x["tp"], x["has_sequence_parallel"], etp)


def _layers(case: TrainingCase, c: Constants, x: dict[str, Any], layers_here: Any, tokens: Any, etp: Any) -> _Layers:
    """Sum the layers of one rank; kinds of layers are spread evenly over ranks."""
    model = case.model
    cut = where(x["has_sequence_parallel"] > 0, x["tp"], 1)
    is_full, is_selective = x["recompute"] == 2, x["recompute"] == 1
    every = np.minimum(x["recompute_every"], np.maximum(np.ceil(layers_here), 1))
    stored = stored_bytes(case)
    kept_score = c["score_bytes.fused"] if case.software.kernels == "fused" else c["score_bytes.unfused"]
    checkpoint = activations.checkpointed_layer_bytes(tokens, model.hidden_size, case.residual_bytes, cut)
    checkpoint = checkpoint * (1 - x["offload_activations"])
    modules = case.recompute_modules or ("core_attn",)
    total: dict[str, Any] = dict.fromkeys(_Layers.__slots__, 0.0)
    for layer, count in model.groups():
        part = count / model.num_layers
        here = layers_here * part
        sums = layer_sums(case, layer)
        dense, expert = split_parameters(sums.parameters, x, etp)
        matrix_dense, matrix_expert = split_parameters(sums.matrix_parameters, x, etp)
        adapters = split_parameters(sums.adapters, x, etp)
        full = _layer_kept(case, c, sums, x, tokens, etp)
        if case.software.selective == "operations":
            selective = np.minimum(np.maximum(full * c["selective_kept_ratio"], checkpoint), full)
        else:
            selective = _layer_kept(case, c, layer_sums(case, layer, modules), x, tokens, etp)
        scores = _score_bytes(case, kept_score, sums, x)
        rerun_scores = where(is_full, scores * every, where(is_selective, scores, 0.0))
        working_scores = _score_bytes(case, c["score_bytes.working"], sums, x)
        wide = sums.widest
        one = {
            "dense": dense * here,
            "expert": expert * here,
            "dense_bytes": (matrix_dense * stored[0] + (dense - matrix_dense) * stored[1]) * here,
            "expert_bytes": expert * stored[3] * here,
            "matrices": (matrix_dense + matrix_expert) * here,
            "adapters_dense": adapters[0] * x["lora_rank"] * here,
            "adapters_expert": adapters[1] * x["lora_rank"] * here,
            "kept": part * where(is_full, checkpoint / every, where(is_selective, selective, full)),
            "scores": part * where(x["recompute"] == 0, scores, 0.0),
            "whole": part * full,
            "whole_scores": part * scores,
            "selective": part * selective,
            # What was kept of a segment is what its recomputation begins with: the same tensor.
            "work": where(
                is_full, np.maximum(full * every - checkpoint, 0.0), where(is_selective, full - selective, 0.0)
            ),
            "selective_work": full - selective,
            "rerun_scores": rerun_scores,
            "working_scores": working_scores,
            "last": full,
            "last_scores": scores + working_scores,
            "transient": tokens * case.element_bytes * (wide[0] / x["tp"] + wide[1] / cut + wide[2] / cut),
            "unit": dense + expert,
            "unit_bytes": dense * stored[0] + expert * stored[3],
            "largest_matrix": sums.largest_matrix,
        }
        for name, value in one.items():
            total[name] = np.maximum(total[name], value) if name in _LARGEST else total[name] + value
    return _Layers(**total)


def outer_parameters(case: TrainingCase, x: dict[str, Any], stage: str) -> Any:
    """Return the parameters of embedding, head, last norm and tower on one device of a pipeline rank."""
    model = case.model
    other = model.other_parameters
    table = float(model.vocab_size * model.hidden_size)
    embedding = other.get("embedding", table) / x["tp"]
    head = other.get("lm_head", 0.0 if model.is_tied else table) / x["tp"]
    rest = float(sum(v for k, v in other.items() if k not in ("embedding", "lm_head")))
    tower = float(model.encoder.num_parameters) if model.encoder else 0.0
    has_embedding, has_head = float(stage == "first"), float(stage == "last")
    piped = embedding * (max(has_embedding, has_head) if model.is_tied else has_embedding) + head * has_head
    return where(x["pp"] > 1, piped + rest * has_head + tower * has_embedding, embedding + head + rest + tower)


def stored_bytes(case: TrainingCase) -> tuple[float, float, float, float]:
    """Return the bytes of a stored weight: layers' matrices, other weights, embedding and head, routed experts."""
    weights = case.precision.weights
    matrix = _weight_bytes(weights)
    rest = BYTES_PER_ELEMENT[weights] if is_plain(weights) else case.element_bytes
    other = BYTES_PER_ELEMENT[case.precision.unquantized] if case.precision.unquantized else rest
    return matrix, other, other, _weight_bytes(case.precision.experts or weights)


@cache
def _weight_bytes(name: str) -> float:
    """Return the bytes of one weight of a large matrix, scales in."""
    return BYTES_PER_ELEMENT[name] if is_plain(name) else find_format(name).bits_per_weight / 8


def _states(
    case: TrainingCase, c: Constants, x: dict[str, Any], stored: tuple[Any, Any], trained: tuple[Any, Any]
) -> dict[str, Any]:
    """Bytes of weights, gradients, masters and states of one rank."""
    over_dense, over_expert = shards(x, expert_tensor_ranks(x))
    zero = x["zero_stage"]
    spec = OPTIMIZERS[case.optimizer]

    def shared(pair: tuple[Any, Any], each: Any, stage: int) -> Any:
        dense = optimizer.sharded_bytes(pair[0], each, zero, stage, over_dense)
        return dense + optimizer.sharded_bytes(pair[1], each, zero, stage, over_expert)

    gradients = shared(trained, BYTES_PER_ELEMENT[case.precision.gradients], 2)
    if case.software.partition == "copied" and case.precision.gradients == "fp32" and case.trains_all:
        gradients = gradients + shared(trained, case.element_bytes, 2)
    state = shared(trained, spec.state_bytes_per_parameter, 1)
    if spec.is_factored:
        state = optimizer.adafactor_state_bytes(trained[0] + trained[1], 8 * case.model.num_layers / x["pp"])
    master = shared(trained, 4.0 if case.precision.has_fp32_master else 0.0, 1)
    weights = shared(stored, 1.0, 3)
    adapters = 0.0 if case.trains_all else shared(trained, case.trained_bytes, 3)
    on_device = 1 - x["offload_optimizer"]
    is_copied = case.software.partition == "copied"
    copied = c["partition_bytes"] * is_copied * (zero >= 1)
    # The host steps with a gradient in fp32, beside the one that micro-batches are summed in (DeepSpeed 0.19.8, stage3.py).
    has_cast = is_copied and case.precision.gradients != "fp32"
    cast = shared(trained, 4.0 * has_cast, 1)
    return {
        "weights": weights * (1 - x["offload_parameters"]) + adapters,
        "gradients": gradients * (1 - np.maximum(x["offload_optimizer"], x["offload_parameters"])),
        "master_weights": master * on_device,
        "optimizer_states": state * on_device * (0.0 if spec.is_paged else 1.0),
        "gradient_partition": shared(trained, copied, 1) * on_device,
        "stepped": shared(trained, 1.0, 1),
        "host_weights": weights * x["offload_parameters"] * (1 - x["nvme_parameters"]),
        "host_optimizer": (state + master + cast) * x["offload_optimizer"] * (1 - x["nvme_optimizer"])
        + gradients * x["offload_optimizer"]
        + (state if spec.is_paged else 0.0) * on_device,
    }


def _gathered(
    case: TrainingCase, c: Constants, x: dict[str, Any], r: _Layers, outer: Any, stored: Any
) -> tuple[Any, Any]:
    """Bytes of gathered weights in forward and in backward, where data parallelism shards them."""
    streamed = np.maximum((x["zero_stage"] >= 3) * (x["dp"] * x["cp"] > 1), x["offload_parameters"])
    sharded = streamed * 1.0
    each = case.element_bytes if case.trains_all else stored_bytes(case)[0]
    unit = r.unit if case.trains_all else r.unit_bytes / each
    forward = workspace.gathered_units_bytes(unit, outer, each, c["gathered_units"], sharded)
    gradient = BYTES_PER_ELEMENT[case.precision.gradients] * c["gradient_units"]
    backward = forward + r.unit * gradient * sharded * case.trains_all
    if case.software.frozen_gather == "all" and not case.trains_all:
        whole = stored * sharded
        return forward, whole
    if case.software.gathered_pp:
        held = (r.dense + r.expert + outer) * (case.element_bytes + BYTES_PER_ELEMENT[case.precision.gradients])
        forward, backward = where(x["pp"] > 1, held * sharded, forward), where(x["pp"] > 1, held * sharded, backward)
    return forward, backward


def _rerun(x: dict[str, Any], r: _Layers, in_flight: Any) -> tuple[Any, Any]:
    """Return the bytes that recomputation makes again at the start of backward, and those of attention scores.

    What is alive is always a part of what would be alive had less been recomputed: with full recomputation no more
    than with selective, with either no more than with none.
    """
    whole = r.whole * in_flight
    selective = np.minimum(r.selective * in_flight + r.selective_work, whole)
    is_layer_by_layer = (x["recompute"] == 2) & (x["recompute_every"] == 1)
    most = where(is_layer_by_layer, selective, whole)
    work = np.minimum(r.work, np.maximum(most - r.kept * in_flight, 0.0))
    return work, np.minimum(r.rerun_scores, r.whole_scores * in_flight) + r.working_scores


def rank_memory(case: TrainingCase, c: Constants, x: dict[str, Any], stage: str, quantity: str = "driver") -> Memory:
    """Compose one pipeline rank's memory: stage "first", "second", "middle" or "last"; quantity allocated, reserved or driver."""
    model = case.model
    etp = expert_tensor_ranks(x)
    counts = pipeline.stage_layers(model.num_layers, x["pp"], x["first_stage_layers"], x["last_stage_layers"])
    layers_here = counts[_STAGES[stage]]
    index = {"first": 0 * x["pp"], "second": 0 * x["pp"] + 1, "middle": x["pp"] // 2, "last": x["pp"] - 1}[stage]
    if stage == "last" or not np.ndim(x["pp"]):
        layers_here = layers_here + where(x["pp"] > 1, float(stage == "last"), 1.0) * case.num_mtp_layers
    in_flight = activations.layers_in_flight(
        layers_here, x["pp"], x["num_virtual_stages"], index, x["num_micro_batches"]
    )
    tokens = x["micro_batch_size"] * (x["seq_len"] + case.num_image_tokens) / x["cp"]
    r = _layers(case, c, x, layers_here, tokens, etp)
    outer = outer_parameters(case, x, stage)
    trained = (r.dense + outer, r.expert) if case.trains_all else (r.adapters_dense, r.adapters_expert)
    stored = (r.dense_bytes + outer * stored_bytes(case)[2], r.expert_bytes)
    states = _states(case, c, x, stored, trained)
    gathered_forward, gathered_backward = _gathered(case, c, x, r, outer, stored[0] + stored[1])

    has_head = where(x["pp"] > 1, float(stage == "last"), 1.0)
    num_losses = 1 + case.num_mtp_layers
    logits = activations.logits_bytes(tokens * has_head * num_losses, model.vocab_size, logit_bytes(case, c), x["tp"])
    kept, scores = r.kept * in_flight, r.scores * in_flight
    work, work_scores = _rerun(x, r, in_flight)
    transient = r.transient * c["backward_transient_ratio"]
    is_first_pass = where(x["num_micro_batches"] > 1, 1.0, 0.0)
    early = states["gradients"] * (1.0 if case.software.gradients == "persistent" else is_first_pass)
    late = states["gradients"]
    if case.steps_in_backward:
        early, late = 0.0, r.unit / np.maximum(r.dense + r.expert, 1.0) * states["gradients"]
    step_bytes = 4.0 * c["foreach_ratio"] if case.software.step == "foreach" else 0.0
    step_space = optimizer.step_workspace_bytes(states["stepped"], step_bytes, 1.0) * (1 - x["offload_optimizer"])
    # At the end of forward, at the start and the end of backward, and in the optimizer step.
    phases: dict[str, tuple[Any, Any, Any, Any]] = {
        "gradients": (early, early, late, late),
        "activations": (kept, kept, 0.0, 0.0),
        "attention_scores": (scores, scores + work_scores, r.last_scores, 0.0),
        "layer_workspace": (0.0, work + transient, r.last + transient, 0.0),
        "logits": (logits, 0.0, 0.0, 0.0),
        "gathered_weights": (gathered_forward, gathered_backward, gathered_backward, 0.0),
        "optimizer_workspace": (0.0, 0.0, 0.0, step_space),
    }
    # FSDP gathers weights in the type that computes, so that nothing is left to cast.
    is_gathered = np.maximum((x["zero_stage"] >= 3) * (x["dp"] * x["cp"] > 1), x["offload_parameters"])
    casts = r.matrices * case.element_bytes * (1 - is_gathered) if case.is_autocast else 0.0
    held = {
        "weights": states["weights"] - _on_host(case, x, r.expert_bytes),
        "master_weights": states["master_weights"],
        "optimizer_states": states["optimizer_states"],
        "gradient_partition": states["gradient_partition"],
        "cast_weights": casts + (r.largest_matrix * case.element_bytes if is_quantized(case) else 0.0),
        "library_workspace": c["library_bytes"],
    }
    at_peak, tensors = _fullest(case, c, x, sum(held.values()), phases, quantity)
    beside = _outside(c, x) if quantity == "driver" else {}
    pools = {**held, **at_peak, **beside}
    host = _host(case, x, states, r, tokens * in_flight)
    return Memory(
        pools=pools,
        host_pools=host,
        total=sum(pools.values()),
        host_total=sum(host.values()),
        least=sum(held.values()) + tensors + sum(beside.values()),
    )


def _fullest(
    case: TrainingCase, c: Constants, x: dict[str, Any], held: Any, phases: dict[str, tuple[Any, ...]], quantity: str
) -> tuple[dict[str, Any], Any]:
    """Return the pools of the phase that takes most, cached segments with them, and the most that tensors take.

    On a full card the allocator gives cached segments back, so a phase of more tensors never takes less.
    """
    num_phases = len(next(iter(phases.values())))
    tensors = [sum(values[i] for values in phases.values()) for i in range(num_phases)]
    if quantity == "allocated":
        pools, taken = phases, tensors
    else:
        usable = workspace.usable_bytes(case.device.memory_bytes, sum(_outside(c, x).values()))
        usable = usable - 1.0  # so that rounded sums stay within the device
        cached: list[Any] = []
        for i, total in enumerate(tensors):
            transient = total - phases["gradients"][i]
            wanted = workspace.reserved_bytes(transient, c["fragmentation_ratio"], c["reserve_floor_bytes"]) - transient
            cached.append(np.minimum(wanted, np.maximum(usable - held - total, 0.0)))
        pools = {**phases, "fragmentation": tuple(cached)}
        taken = [total + more for total, more in zip(tensors, cached, strict=True)]
    if not any(map(np.ndim, taken)):  # one candidate: without the cost of arrays
        fullest = max(range(num_phases), key=taken.__getitem__)
        return {name: values[fullest] for name, values in pools.items()}, max(tensors)
    best = np.argmax(np.stack(np.broadcast_arrays(*taken)), axis=0)
    at_peak = {name: np.choose(best, np.broadcast_arrays(*values)) for name, values in pools.items()}
    return at_peak, np.maximum.reduce(np.broadcast_arrays(*tensors))


def _outside(c: Constants, x: dict[str, Any]) -> dict[str, Any]:
    """Return what the driver counts beside the allocator's memory."""
    groups = sum((x[k] > 1) * 1 for k in ("dp", "tp", "pp", "cp", "ep"))
    buffers = workspace.collective_buffer_bytes(groups, c["communicator_bytes"])
    return {"context": c["context_bytes"], "communication_buffers": buffers}


def _on_host(case: TrainingCase, x: dict[str, Any], expert_bytes: Any) -> Any:
    return np.minimum(x["num_cpu_expert_layers"] / case.model.num_layers, 1.0) * expert_bytes


def _host(case: TrainingCase, x: dict[str, Any], states: dict[str, Any], r: _Layers, tokens: Any) -> dict[str, Any]:
    """Bytes of one node's host memory."""
    cut = where(x["has_sequence_parallel"] > 0, x["tp"], 1)
    kept = activations.checkpointed_layer_bytes(tokens, case.model.hidden_size, case.residual_bytes, cut)
    pools = {
        "host_weights": states["host_weights"],
        "host_optimizer": states["host_optimizer"],
        "host_activations": kept * x["offload_activations"],
        "host_experts": _on_host(case, x, r.expert_bytes),
        "host_swap_buffers": _swap_buffers(case, x, states["stepped"]),
    }
    return {name: offload.pinned_bytes(value, 1.0) * case.devices_per_node for name, value in pools.items()}


def _swap_buffers(case: TrainingCase, x: dict[str, Any], stepped: Any) -> Any:
    """Return the pinned memory of one rank through which optimizer and weights pass on their way from a drive and back."""
    if not np.any(x["nvme_optimizer"]) and not np.any(x["nvme_parameters"]):
        return 0.0
    share = swap.largest_tensor(case.model) / shards(x, expert_tensor_ranks(x))[0]
    group = swap.step_group_parameters(stepped, share)
    read_ahead = swap.NUM_WEIGHT_BUFFERS * share * case.element_bytes
    written = group * case.element_bytes * case.trains_all
    optimizer_buffers = swap.step_buffer_bytes(group, num_fp32_states(case))
    return x["nvme_optimizer"] * optimizer_buffers + x["nvme_parameters"] * (read_ahead + written)


def num_fp32_states(case: TrainingCase) -> float:
    """Return the states of a parameter that the host steps in fp32."""
    return np.ceil(OPTIMIZERS[case.optimizer].state_bytes_per_parameter / 4.0)


def drive_bytes(case: TrainingCase, x: dict[str, Any]) -> Any:
    """Return the bytes that all ranks of a machine keep on its drive."""
    over = shards(x, expert_tensor_ranks(x))
    dense, expert = local_parameters(case, x)
    sharded = where(x["zero_stage"] >= 1, 1, 0)
    held = dense / where(sharded, over[0], 1) + expert / where(sharded, over[1], 1)
    stepped = held if case.trains_all else 0.0
    states = swap.drive_bytes_per_parameter(num_fp32_states(case)) * stepped
    weights = held * stored_bytes(case)[0]
    return (x["nvme_optimizer"] * states + x["nvme_parameters"] * weights) * case.devices_per_node


def local_parameters(case: TrainingCase, x: dict[str, Any]) -> tuple[Any, Any]:
    """Return the dense and expert parameters of one device of an average pipeline rank."""
    etp = expert_tensor_ranks(x)
    dense: Any = 0.0
    expert: Any = 0.0
    for layer, count in case.model.groups():
        a, b = split_parameters(layer_sums(case, layer).parameters, x, etp)
        dense, expert = dense + a * count, expert + b * count
    outer = outer_parameters(case, {**x, "pp": 1}, "first")
    return (dense + outer) / x["pp"], expert / x["pp"]
