"""Composition of a training device's memory: pools at the fullest moment of a step, on a pipeline rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tonnage.estimate import activations, offload, optimizer, pipeline, workspace
from tonnage.estimate.branch import where
from tonnage.estimate.compose_training.case import TrainingCase
from tonnage.estimate.compose_training.constants import Constants
from tonnage.estimate.compose_training.sums import LayerSums, Split4, layer_sums
from tonnage.workload.optimizers import OPTIMIZERS
from tonnage.workload.precision import BYTES_PER_ELEMENT

FORMULAS: Final = {
    "weights": "optimizer.sharded_bytes",
    "gradients": "optimizer.sharded_bytes",
    "master_weights": "optimizer.sharded_bytes",
    "optimizer_states": "optimizer.sharded_bytes",
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
HOST_POOLS: Final = ("host_weights", "host_optimizer", "host_activations", "host_experts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Pools of one rank, bytes each a scalar or a column."""

    pools: dict[str, Any]
    host_pools: dict[str, Any]
    total: Any
    host_total: Any


def split_parameters(sums: Split4, x: dict[str, Any], etp: Any) -> tuple[Any, Any]:
    """Return a layer's parameters on one device before data-parallel sharding: dense and expert."""
    return sums[0] / x["tp"] + sums[1], sums[2] / (x["ep"] * etp)


def expert_tensor_ranks(x: dict[str, Any]) -> Any:
    """Return over how many ranks one expert is cut: as told, else as the dense part when experts are not spread."""
    return where(x["etp"] > 0, x["etp"], where(x["ep"] > 1, 1, x["tp"]))


def shards(x: dict[str, Any], etp: Any) -> tuple[Any, Any]:
    """Return over how many ranks ZeRO divides dense and expert parameters."""
    dense = x["dp"] * x["cp"]
    return dense, np.maximum(dense * x["tp"] / (x["ep"] * etp), 1)


def kept_bytes(case: TrainingCase, c: Constants, sums: LayerSums, x: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    """Return the bytes a token leaves behind in one layer, by how a layout divides them."""
    eager = eager_ratio(case, c)
    frozen = c["quantized_input_ratio"] if case.precision.weights not in BYTES_PER_ELEMENT else 0.0
    copies = case.software.adapter_copy if case.precision.gradients == "fp32" or case.software.adapter_copy < 4 else 0.0
    ranks = sums.adapter_ranks * x["lora_rank"] * case.element_bytes
    tensor, sequence, expert, routed = (
        sums.kept[i]
        + sums.kept_fused[i] * (1 - eager)
        + sums.kept_eager[i] * eager
        + sums.kept_frozen[i] * frozen
        + sums.kept_adapter[i] * copies
        for i in range(4)
    )
    imbalance = c["expert_imbalance_ratio"]
    return tensor, sequence + ranks, expert * imbalance, routed * imbalance


def eager_ratio(case: TrainingCase, c: Constants) -> Any:
    """Return how far a layer's code is unfused: 0 fused kernels, 1 one operator after another."""
    if case.software.kernels == "fused":
        return 0.0
    return c["compiled_eager_ratio"] if case.has_compile else 1.0


def loss_name(case: TrainingCase) -> str:
    """Return how logits and loss are held."""
    return "fused" if case.has_fused_loss else case.software.loss


def _states(case: TrainingCase, x: dict[str, Any], dense: Any, expert: Any, trained: tuple[Any, Any]) -> dict[str, Any]:
    """Bytes of weights, gradients, masters and states of one rank."""
    etp = expert_tensor_ranks(x)
    over_dense, over_expert = shards(x, etp)
    zero = x["zero_stage"]
    spec = OPTIMIZERS[case.optimizer]

    def shared(pair: tuple[Any, Any], each: Any, stage: int) -> Any:
        return optimizer.sharded_bytes(pair[0], each, zero, stage, over_dense) + optimizer.sharded_bytes(
            pair[1], each, zero, stage, over_expert
        )

    gradient = BYTES_PER_ELEMENT[case.precision.gradients]
    on_device = 1 - x["offload_optimizer"]
    state = shared(trained, spec.state_bytes_per_parameter, 1)
    if spec.is_factored:
        state = optimizer.adafactor_state_bytes(trained[0] + trained[1], 8 * case.model.num_layers / x["pp"])
    if spec.is_paged:
        state = state * 0.0
    master = shared(trained, 4.0 if case.precision.has_fp32_master else 0.0, 1)
    weights = shared((dense, expert), 1.0, 3)
    adapters = 0.0 if case.trains_all else shared(trained, case.trained_bytes, 3)
    return {
        "weights": weights * (1 - x["offload_parameters"]) + adapters,
        "gradients": shared(trained, gradient, 2) * (1 - np.maximum(x["offload_optimizer"], x["offload_parameters"])),
        "master_weights": master * on_device,
        "optimizer_states": state * on_device,
        "host_weights": weights * x["offload_parameters"],
        "host_optimizer": (state + master + shared(trained, gradient, 2)) * x["offload_optimizer"],
    }


def rank_memory(case: TrainingCase, c: Constants, x: dict[str, Any], stage: str, quantity: str = "driver") -> Memory:
    """Compose one pipeline rank's memory: stage "first", "middle" or "last"; quantity allocated, reserved or driver."""
    model = case.model
    etp = expert_tensor_ranks(x)
    num_layers = model.num_layers
    counts = pipeline.stage_layers(num_layers, x["pp"], x["first_stage_layers"], x["last_stage_layers"])
    layers_here = counts[("first", "middle", "last").index(stage)]
    stage_index = {"first": 0 * x["pp"], "middle": x["pp"] // 2, "last": x["pp"] - 1}[stage]
    in_flight = activations.layers_in_flight(
        layers_here, x["pp"], x["num_virtual_stages"], stage_index, x["num_micro_batches"]
    )
    tokens = x["micro_batch_size"] * (x["seq_len"] + case.num_image_tokens) / x["cp"]
    cut = where(x["has_sequence_parallel"], x["tp"], 1)

    dense: Any = 0.0
    expert: Any = 0.0
    dense_bytes: Any = 0.0
    expert_bytes: Any = 0.0
    adapters_dense: Any = 0.0
    adapters_expert: Any = 0.0
    kept_all: Any = 0.0
    scores_all: Any = 0.0
    one_layer: Any = 0.0
    one_scores: Any = 0.0
    transient: Any = 0.0
    unit: Any = 0.0
    largest: float = 0.0
    cast: Any = 0.0
    modules = case.recompute_modules or ("core_attn",)
    is_full = x["recompute"] == 2
    is_selective = x["recompute"] == 1
    stored = _stored_bytes(case)
    for layer, count in model.groups():
        share = layers_here * (count / num_layers)
        sums = layer_sums(case, layer)
        layer_dense, layer_expert = split_parameters(sums.parameters, x, etp)
        matrix_dense, matrix_expert = split_parameters(sums.matrix_parameters, x, etp)
        dense = dense + layer_dense * share
        expert = expert + layer_expert * share
        dense_bytes = dense_bytes + (matrix_dense * stored[0] + (layer_dense - matrix_dense) * stored[1]) * share
        expert_bytes = expert_bytes + layer_expert * stored[0] * share
        a_dense, a_expert = split_parameters(sums.adapters, x, etp)
        adapters_dense = adapters_dense + a_dense * x["lora_rank"] * share
        adapters_expert = adapters_expert + a_expert * x["lora_rank"] * share
        cast = cast + (matrix_dense + matrix_expert) * share

        kept = kept_bytes(case, c, sums, x)
        full_layer = activations.kept_layer_bytes(tokens, *kept, x["tp"], x["has_sequence_parallel"], etp)
        scores = _scores(case, c, sums, x)
        if case.software.selective == "operations":
            selective_layer = full_layer * c["selective_kept_ratio"]
        else:
            selective_sums = layer_sums(case, layer, modules)
            selective_kept = kept_bytes(case, c, selective_sums, x)
            selective_layer = activations.kept_layer_bytes(
                tokens, *selective_kept, x["tp"], x["has_sequence_parallel"], etp
            )
        checkpoint = (
            activations.checkpointed_layer_bytes(tokens, model.hidden_size, case.element_bytes, cut)
            / x["recompute_every"]
            * (1 - x["offload_activations"])
        )
        part = count / num_layers
        kept_all = kept_all + part * where(is_full, checkpoint, where(is_selective, selective_layer, full_layer))
        scores_all = scores_all + part * where(x["recompute"] == 0, scores, 0.0)
        work = where(is_full, full_layer * x["recompute_every"], where(is_selective, full_layer - selective_layer, 0.0))
        one_layer = np.maximum(one_layer, work)
        one_scores = np.maximum(
            one_scores, where(x["recompute"] > 0, scores * where(is_full, x["recompute_every"], 1), scores * 0.5)
        )
        wide = sums.widest
        transient = np.maximum(
            transient, tokens * case.element_bytes * (wide[0] / x["tp"] + wide[1] / cut + wide[2] / cut)
        )
        unit = np.maximum(unit, layer_dense + layer_expert)
        largest = max(largest, sums.largest_matrix)

    embedding = model.vocab_size * model.hidden_size / x["tp"]
    has_embedding = 1.0 if stage == "first" else 0.0
    has_head = 1.0 if stage == "last" else 0.0
    if model.is_tied:
        outer = embedding * where(x["pp"] > 1, np.maximum(has_embedding, has_head), 1.0)
    else:
        outer = embedding * where(x["pp"] > 1, has_embedding + has_head, 2.0)
    outer = outer + sum(model.other_parameters.get(k, 0) for k in ("norm", "other"))
    if model.encoder:
        outer = outer + model.encoder.num_parameters * where(x["pp"] > 1, has_embedding, 1.0)
    dense_all = dense + outer
    trained = (dense_all, expert) if case.trains_all else (adapters_dense, adapters_expert)

    states = _states(case, x, dense_bytes + outer * stored[2], expert_bytes, trained)
    on_host = x["num_cpu_expert_layers"] / num_layers * expert_bytes
    sharded = (x["zero_stage"] >= 3) * (x["dp"] * x["cp"] > 1)
    gathered = workspace.gathered_units_bytes(
        unit, outer, case.element_bytes if case.trains_all else stored[0], c["gathered_units"], sharded
    )
    unreduced = unit * BYTES_PER_ELEMENT[case.precision.gradients] * c["gradient_units"] * sharded * case.trains_all
    casts = cast * 2.0 if case.software.autocast and case.precision.weights == "fp32" and case.trains_all else 0.0
    dequantized = largest * case.element_bytes if case.precision.weights not in BYTES_PER_ELEMENT else 0.0
    last_tokens = tokens * where((x["pp"] > 1) & (has_head == 0), 0.0, 1.0)
    logits = activations.logits_bytes(last_tokens, model.vocab_size, c[f"logit_bytes.{loss_name(case)}"], x["tp"])
    persistent = case.software.gradients == "persistent"
    accumulates = 1.0 if persistent else where(x["num_micro_batches"] > 1, 1.0, 0.0)
    step_size = 4.0 * c["foreach_ratio"] if case.software.step == "foreach" else 0.0
    over_dense, over_expert = shards(x, etp)
    stepped = optimizer.sharded_bytes(trained[0], 1.0, x["zero_stage"], 1, over_dense) + optimizer.sharded_bytes(
        trained[1], 1.0, x["zero_stage"], 1, over_expert
    )
    step_space = optimizer.step_workspace_bytes(stepped, step_size, 1.0) * (1 - x["offload_optimizer"])

    activation_total = kept_all * in_flight
    score_total = scores_all * in_flight
    working = one_layer + transient * c["backward_transient_ratio"]
    zero = 0.0 * activation_total
    # At the end of forward, at the start and the end of backward, and in the optimizer step.
    phases: dict[str, tuple[Any, Any, Any, Any]] = {
        "gradients": (
            states["gradients"] * accumulates,
            states["gradients"] * accumulates,
            states["gradients"],
            states["gradients"],
        ),
        "activations": (activation_total, activation_total, kept_all, zero),
        "attention_scores": (score_total, score_total + one_scores, one_scores, zero),
        "layer_workspace": (zero, working, working, zero),
        "logits": (logits, zero, zero, zero),
        "gathered_weights": (gathered, gathered + unreduced, gathered + unreduced, zero),
        "optimizer_workspace": (zero, zero, zero, step_space),
    }
    sums_by_phase = [sum(values[i] for values in phases.values()) for i in range(4)]
    best = np.argmax(np.stack(np.broadcast_arrays(*sums_by_phase)), axis=0)
    pools = {
        "weights": states["weights"] - on_host,
        "master_weights": states["master_weights"],
        "optimizer_states": states["optimizer_states"],
        "cast_weights": casts + dequantized,
    }
    for name, values in phases.items():
        pools[name] = np.choose(best, np.broadcast_arrays(*values))
    pools["library_workspace"] = c["library_bytes"]
    allocated = sum(pools.values())
    if quantity in ("reserved", "driver"):
        pools["fragmentation"] = (
            workspace.reserved_bytes(allocated, c["fragmentation_ratio"], c["reserve_floor_bytes"]) - allocated
        )
    if quantity == "driver":
        groups = sum((x[k] > 1) * 1 for k in ("dp", "tp", "pp", "cp", "ep"))
        pools["context"] = c["context_bytes"]
        pools["communication_buffers"] = workspace.collective_buffer_bytes(groups, c["communicator_bytes"])
    host = {
        "host_weights": offload.pinned_bytes(states["host_weights"], 1.0) * case.devices_per_node,
        "host_optimizer": offload.pinned_bytes(states["host_optimizer"], 1.0) * case.devices_per_node,
        "host_activations": activations.checkpointed_layer_bytes(tokens, model.hidden_size, case.element_bytes, cut)
        * in_flight
        * x["offload_activations"]
        * case.devices_per_node,
        "host_experts": on_host * case.devices_per_node,
    }
    return Memory(pools=pools, host_pools=host, total=sum(pools.values()), host_total=sum(host.values()))


def _stored_bytes(case: TrainingCase) -> tuple[float, float, float]:
    """Bytes of one stored weight: of a layer's matrices, of its other weights, of embedding and head."""
    weights = case.precision.weights
    matrix = BYTES_PER_ELEMENT.get(weights) or _QUANTIZED_BYTES[weights]
    rest = BYTES_PER_ELEMENT.get(weights) or case.element_bytes
    other = BYTES_PER_ELEMENT[case.precision.unquantized] if case.precision.unquantized else rest
    return matrix, other, other


# Bytes of one weight in the formats that adapters are trained on; estimate.weights derives them.
_QUANTIZED_BYTES: Final = {
    "nf4": 0.5625,
    "nf4_dq": 0.5159,
    "int8": 1.001,
    "gptq_int4": 0.5195,
    "gptq_int8": 1.02,
    "awq": 0.5195,
}


def _scores(case: TrainingCase, c: Constants, sums: LayerSums, x: dict[str, Any]) -> Any:
    if case.has_flash_attention or not sums.scores:
        return 0.0 * x["tp"]
    kept = 5.0 if case.software.kernels == "fused" else c["score_bytes.unfused"]
    queries = x["seq_len"] / x["cp"]
    return activations.attention_score_bytes(x["micro_batch_size"], queries, x["seq_len"], sums.scores, kept, x["tp"])
