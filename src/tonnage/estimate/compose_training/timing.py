"""Composition of a training step's time from its operations, collectives and pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tonnage.estimate import collectives, efficiency, offload, pipeline, roofline, swap
from tonnage.estimate.branch import where
from tonnage.estimate.compose_training.case import TrainingCase
from tonnage.estimate.compose_training.constants import Constants
from tonnage.estimate.compose_training.memory import (
    expert_tensor_ranks,
    is_quantized,
    local_parameters,
    num_fp32_states,
    shards,
    stored_bytes,
)
from tonnage.estimate.compose_training.sums import layer_sums, rerun_operations
from tonnage.estimate.layer import Kind, Operation, Split, layer_operations
from tonnage.hardware.catalogue import first_launch_year
from tonnage.model.types import Layer
from tonnage.workload.optimizers import OPTIMIZERS
from tonnage.workload.precision import BYTES_PER_ELEMENT

FORMULAS: Final = {
    "matrix products": "roofline.roofline_seconds",
    "attention": "roofline.roofline_seconds",
    "element-wise": "roofline.roofline_seconds",
    "recomputation": "compose_training.timing",
    "launches": "roofline.launched_seconds",
    "logits and loss": "roofline.roofline_seconds",
    "tensor-parallel collectives": "collectives.all_reduce_seconds",
    "context-parallel collectives": "collectives.all_gather_seconds",
    "expert all-to-all": "collectives.all_to_all_seconds",
    "pipeline transfers": "offload.transfer_seconds",
    "pipeline bubble": "pipeline.pipeline_seconds",
    "data-parallel collectives": "collectives.all_gather_seconds",
    "gradient sums": "compose_training.timing",
    "optimizer step": "roofline.roofline_seconds",
    "offload traffic": "offload.transfer_seconds",
    "drive traffic": "swap.drive_seconds",
    "fixed": "compose_training.timing",
}
_FLASH_PASSES: Final = 3.5  # forward once, backward two and a half times as much arithmetic (arXiv:2205.14135)
_OVERLAP_SINCE: Final = 2023.0  # releases that run gradient and tensor-parallel collectives beside computation
_SECOND_FLASH: Final = 2024.0  # torch 2.2 is the first release with FlashAttention-2
_FP32_BYTES: Final = 4.0
_EXPERT_YEAR: Final = 2025.75
_UNMEASURED_RATIO: Final = 0.8  # of a specified rate, where no device at all is measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Seconds of one step by part, and the arithmetic of all devices in it."""

    parts: dict[str, Any]
    total: Any
    model_flop: Any  # forward and backward, causal attention counted once
    hardware_flop: Any  # recomputation in


@dataclass(frozen=True, slots=True, kw_only=True)
class _Passes:
    """Seconds of the mean layer and one micro-batch, forward and backward, and its arithmetic per token."""

    products: Any
    attention: Any
    elementwise: Any
    recomputed: Any
    launches: Any
    flop: Any
    rerun_flop: Any


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
    return next(rates[name] for name in order if rates.get(name) is not None)


def wide_kind(case: TrainingCase) -> str:
    """Return the type of products outside the layers' matrices: attention, head."""
    return "bf16" if case.compute in ("fp8", "fp4") else case.compute


def _since_launch(case: TrainingCase) -> float | None:
    """Years between the launch of a device's architecture and the software's release; None when either is unknown."""
    launched = first_launch_year(case.device.architecture)
    return None if launched is None or case.release_year is None else case.release_year - launched


def matmul_rate(case: TrainingCase, c: Constants, kind: str) -> Any:
    """Return the rate of large products: as measured of the device or a sibling, less shapes, maturity and power."""
    lender = case.matmul_lender
    measured = lender.ratio if lender else _UNMEASURED_RATIO
    rate = peak_rate(case, kind) * measured * c[architecture_key(case, "matmul_ratio", c)]
    rate = rate * {"fp8": c["fp8_ratio"], "fp4": c["fp4_ratio"]}.get(kind, 1.0)
    if kind == "fp8" and case.precision.compute == "fp8_rowwise":
        rate = rate * c["rowwise_ratio"]
    age = _since_launch(case)
    if age is not None:
        rate = rate * efficiency.maturity_ratio(max(age, 0.0), c["maturity_loss_ratio"], c["maturity_years"])
    return rate * power_ratio(case, c)


def power_ratio(case: TrainingCase, c: Constants) -> Any:
    """Return the share of its rate that a device keeps with less power for its peak than the measured one."""
    reference = case.matmul_lender.watts_per_flop_per_s if case.matmul_lender else None
    if reference is None or case.device.power_watts is None:
        return 1.0
    share = case.device.power_watts / peak_rate(case, wide_kind(case)) / reference
    return efficiency.power_ratio(share, c["power_exponent"])


def _product_seconds(
    case: TrainingCase, c: Constants, o: Operation, rows: Any, x: dict[str, Any], etp: Any, rate: Any
) -> tuple[Any, Any]:
    """Time of one operation's products on one device, forward and backward."""
    inputs = o.matrices[0].num_inputs
    outputs = sum(m.num_outputs for m in o.matrices)
    ways = {Split.TENSOR: x["tp"], Split.SEQUENCE: 1, Split.EXPERT: etp, Split.ROUTED: etp}[o.split]
    share_in, share_out = (inputs / ways, outputs) if o.is_row_parallel else (inputs, outputs / ways)
    flop = 2.0 * rows * share_in * share_out
    count: Any = 1.0
    if o.split is Split.EXPERT:
        count = np.maximum(o.matrices[0].count / x["ep"], 1.0)
        rate = (
            rate
            * c["grouped_ratio"]
            * expert_maturity(case, c)
            * efficiency.size_ratio(rows / count, 1.0, c["grouped_half_rows"])
        )
    rate = rate * efficiency.size_ratio(flop, peak_rate(case, case.compute), c["matmul_half_seconds"])
    rate = rate * efficiency.aligned_ratio(
        share_in if o.is_row_parallel else share_out, 64, c["alignment_penalty_ratio"]
    )
    moved = roofline.matmul_bytes(rows, share_in, share_out, case.element_bytes)
    if o.split is Split.EXPERT:
        moved = moved + (count - 1.0) * share_in * share_out * case.element_bytes
    bandwidth = case.device.bandwidth_bytes_per_s
    one = roofline.roofline_seconds(flop, moved, rate, bandwidth)
    sms = case.device.num_multiprocessors
    if o.split is Split.EXPERT or sms is None:
        return one, one * (2.0 if case.trains_all else 1.0)

    def waves(down: Any, across: Any) -> Any:
        return 1.0 + c["wave_share"] * (1.0 / efficiency.wave_ratio(down, across, sms) - 1.0)

    backward = waves(rows, share_in) + (waves(share_in, share_out) if case.trains_all else 0.0)
    return one * waves(rows, share_out), one * backward


def _pairs(case: TrainingCase, window: int | None, x: dict[str, Any]) -> Any:
    """Query–key pairs a query meets: half of the sequence when masked ones are skipped."""
    s = x["seq_len"]
    if not case.has_flash_attention:
        return s
    if window is None:
        return (s + 1) / 2
    w = np.minimum(window, s)
    return w - w * w / (2 * s)


def _attention_seconds(
    case: TrainingCase, c: Constants, o: Operation, tokens: Any, ways: Any, x: dict[str, Any]
) -> Any:
    """Time of attention's forward pass: fused at a fraction of peak, else two products and the traffic of scores."""
    pairs = _pairs(case, o.window_tokens, x)
    flop = tokens * o.flop_per_pair * pairs / ways
    kind = case.precision.attention or wide_kind(case)
    peak = peak_rate(case, kind)
    if case.has_flash_attention:
        width = o.flop_per_pair / (4.0 * max(o.score_elements_per_pair, 1.0))
        key = "flash_ratio.fp32" if kind == "fp32" else flash_key(case, c)
        ratio = c[key] * efficiency.size_ratio(width, 1.0, c["flash_half_width"])
        ratio = ratio * efficiency.size_ratio(pairs, 1.0, c["flash_half_pairs"])
        age = _since_launch(case)
        if case.software.attention == "portable" and (case.release_year or _SECOND_FLASH) < _SECOND_FLASH:
            ratio = ratio * c["flash_first_ratio"]
        if age is not None and case.software.attention == "tuned":
            ratio = ratio * efficiency.maturity_ratio(
                max(age, 0.0), c["flash_maturity_loss_ratio"], c["maturity_years"]
            )
        return flop / (peak * ratio * power_ratio(case, c))
    name = "fused" if case.software.kernels == "fused" else "unfused"
    scores = tokens * pairs * o.score_elements_per_pair / ways * c[f"score_moved_bytes.{name}"]
    rate = matmul_rate(case, c, kind)
    return flop / rate + scores / _elementwise_rate(case, c)


def flash_key(case: TrainingCase, c: Constants) -> str:
    """Return the constant of fused attention: kernels made for the architecture, or one source for all."""
    tuned = architecture_key(case, "flash_ratio.tuned", c)
    is_tuned = case.software.attention == "tuned" and not tuned.endswith(".other")
    return tuned if is_tuned else architecture_key(case, "flash_ratio", c)


def _elementwise_rate(case: TrainingCase, c: Constants) -> Any:
    measured = case.stream_lender.ratio if case.stream_lender else _UNMEASURED_RATIO
    return case.device.bandwidth_bytes_per_s * measured * c["elementwise_ratio"]


def _traffic_factor(case: TrainingCase, c: Constants, unfused_ratio: float) -> Any:
    """Return how much more unfused code moves in an operation than one kernel."""
    if case.software.kernels == "fused":
        return 1.0
    composed = unfused_ratio if case.software.operators == "composed" else 1.0
    more = composed * c["elementwise_eager_factor"] - 1.0
    return 1.0 + more * (c["compiled_traffic_ratio"] if case.has_compile else 1.0)


def _layer_passes(case: TrainingCase, c: Constants, layer: Layer, x: dict[str, Any], tokens: Any) -> _Passes:
    """Compose one layer: forward and backward of one micro-batch, what recomputation adds, launches."""
    etp = expert_tensor_ranks(x)
    cut = where(x["has_sequence_parallel"] > 0, x["tp"], 1)
    is_full, is_selective = x["recompute"] == 2, x["recompute"] == 1
    rate = matmul_rate(case, c, case.compute)
    elementwise_rate = _elementwise_rate(case, c)
    rerun = rerun_operations(case.recompute_modules or ("core_attn",))
    reruns_products = 0.5 if case.software.selective == "operations" else 0.0
    backward = 2.0 if case.trains_all else 1.0
    is_cast = case.compute in ("fp8", "fp4")
    quantized = stored_bytes(case)[0] + 2.0 * case.element_bytes if is_quantized(case) else 0.0
    total: dict[str, Any] = dict.fromkeys(_Passes.__slots__, 0.0)
    forward: Any = 0.0
    again: Any = 0.0
    num_kernels: Any = 0.0
    operations = layer_operations(layer, case.model.hidden_size)
    for o in operations:
        ways = {Split.TENSOR: x["tp"], Split.SEQUENCE: cut, Split.EXPERT: cut, Split.ROUTED: cut}[o.split]
        is_expert = o.split in (Split.EXPERT, Split.ROUTED)
        num_kernels = num_kernels + (
            c["grouped_kernels"] if is_expert and case.software.kernels == "fused" else o.num_kernels
        )
        width = case.residual_bytes if o.split is Split.SEQUENCE else case.element_bytes
        factor = _traffic_factor(case, c, o.unfused_ratio)
        moved = tokens * o.moved_elements * width / ways * factor / (expert_maturity(case, c) if is_expert else 1.0)
        seconds: Any = 0.0
        extra: Any = 0.0  # traffic beside a product: casts, dequantised weights, adapters
        if o.matrices:
            rows = tokens * (c["expert_imbalance_ratio"] * o.tokens_ratio / cut if is_expert else 1.0)
            seconds, back = _product_seconds(case, c, o, rows, x, etp, rate)
            elements = o.matrices[0].num_inputs + sum(m.num_outputs for m in o.matrices)
            if is_cast:
                cast = c["cast_bytes.expert"] if is_expert else c["cast_bytes.dense"]
                extra = extra + rows * elements / (etp if is_expert else x["tp"]) * cast
            if quantized and not (is_expert and case.precision.experts in BYTES_PER_ELEMENT):
                share = (x["ep"] * etp) if is_expert else x["tp"]
                extra = extra + sum(m.num_parameters for m in o.matrices) / share * quantized
            adapted = [m for m in o.matrices if case.targets(m.name)]
            if adapted:
                each = sum(m.num_inputs + m.num_outputs for m in adapted)
                extra = extra + rows * each / ways * case.element_bytes * c["adapter_traffic_factor"]
                num_kernels += 6.0 * len(adapted)
            extra = extra / elementwise_rate
            total["products"] = total["products"] + seconds + back
            total["elementwise"] = total["elementwise"] + extra * 2.0
        elif o.kind is Kind.ATTENTION:
            seconds = _attention_seconds(case, c, o, tokens, ways, x)
            total["attention"] = total["attention"] + seconds * (_FLASH_PASSES if case.has_flash_attention else 3.0)
            pairs = (x["seq_len"] + 1) / 2 if o.window_tokens is None else _pairs(case, o.window_tokens, x)
            total["flop"] = total["flop"] + o.flop_per_pair * pairs * 3.0
            total["rerun_flop"] = total["rerun_flop"] + o.flop_per_pair * pairs
        else:
            seconds = roofline.roofline_seconds(tokens * o.flop_per_token / ways, moved, rate, elementwise_rate)
            total["elementwise"] = total["elementwise"] + seconds * (1.0 + c["elementwise_backward_ratio"])
        total["flop"] = total["flop"] + o.flop_per_token * (1.0 + backward)
        total["rerun_flop"] = total["rerun_flop"] + o.flop_per_token
        forward = forward + seconds + extra
        if o.name in rerun or o.kind is Kind.ATTENTION:
            again = again + seconds
        elif reruns_products:
            again = again + seconds * (reruns_products if o.matrices else 1.0)
    total["recomputed"] = where(is_full, forward, where(is_selective, again, 0.0))
    passes = 3.0 + where(is_full, 1.0, 0.0)
    blocks = (len(layer.mixers) > 0) + (len(layer.feed_forwards) > 0)
    called = where(x["tp"] > 1, blocks, 0) + where(x["cp"] > 1, 2.0 * len(layer.mixers), 0.0)
    called = called + where(x["ep"] > 1, 2.0 * any(o.name == "dispatch" for o in operations), 0.0)
    total["launches"] = (
        (num_kernels + called * c["collective_kernels"])
        * passes
        * c[f"launch_seconds.{case.software.kernels}"]
        * host_ratio(case, c)
    )
    return _Passes(**total)


def host_ratio(case: TrainingCase, c: Constants) -> Any:
    """Return how slow the host of a device's generation launches, and what graphs leave of it."""
    return c[architecture_key(case, "host_ratio", c)] * (c["graph_launch_ratio"] if case.has_cuda_graphs else 1.0)


def expert_maturity(case: TrainingCase, c: Constants) -> Any:
    """Return how much faster code of experts is than in mid 2025, by the release of the software."""
    if case.release_year is None:
        return 1.0
    return np.exp(c["expert_gain_per_year"] * min(max(case.release_year - _EXPERT_YEAR, -2.0), 1.5))


def _mean_layer(case: TrainingCase, c: Constants, x: dict[str, Any], tokens: Any) -> _Passes:
    """Average the layers of a model."""
    total: dict[str, Any] = dict.fromkeys(_Passes.__slots__, 0.0)
    for layer, count in case.model.groups():
        one = _layer_passes(case, c, layer, x, tokens)
        share = count / case.model.num_layers
        total = {name: value + getattr(one, name) * share for name, value in total.items()}
    return _Passes(**total)


def link_ratio(case: TrainingCase, c: Constants) -> Any:
    """Return the achieved over the theoretical rate of the links in a node: NVLink, PCIe between peers, or by the host."""
    if case.intra_kind == "nvlink":
        return c["nvlink_ratio"]
    return c["pcie_ratio" if is_staged(case) else "pcie_direct_ratio"]


def _rates(case: TrainingCase, c: Constants) -> tuple[Any, Any]:
    """Return the achieved rates of one device inside a node and between nodes."""
    intra = case.intra_bytes_per_s * link_ratio(case, c)
    return intra, case.inter_bytes_per_s * c["network_ratio"]


def _overlaps(case: TrainingCase) -> float:
    return 0.0 if case.release_year is not None and case.release_year < _OVERLAP_SINCE else 1.0


def _layer_collectives(case: TrainingCase, c: Constants, x: dict[str, Any], tokens: Any) -> dict[str, Any]:
    """Exposed time of the collectives inside the mean layer, one micro-batch."""
    model, per_node = case.model, case.devices_per_node
    intra, inter = _rates(case, c)
    latency = c["latency_seconds"]
    cut = where(x["has_sequence_parallel"] > 0, x["tp"], 1)
    is_full = where(x["recompute"] == 2, 1.0, 0.0)
    blocks = sum(n * ((len(g.mixers) > 0) + (len(g.feed_forwards) > 0)) for g, n in model.groups()) / model.num_layers
    tensor = collectives.group_bandwidth(x["tp"], np.minimum(x["tp"], per_node), intra, inter)
    reduced = tokens * model.hidden_size * case.element_bytes
    reduce_seconds = collectives.all_reduce_seconds(reduced, x["tp"], tensor, latency) * blocks
    # Backward hides reductions behind weight gradients. Sequence parallelism gathers the inputs once more, hidden too,
    # and the gradients of its outputs first, which nothing can hide.
    is_async = case.software.tensor_overlap
    hidden = c["overlap_ratio.tensor"] * _overlaps(case) * is_async
    bare = where(x["has_sequence_parallel"] > 0, 0.5, 0.0)
    passes = (1.0 + is_full) * (1 - hidden) + bare + (1 - c["overlap_ratio.tensor_backward"] * is_async)

    routed = sum(
        n * o.moved_elements / 2.0
        for g, n in model.groups()
        for o in layer_operations(g, model.hidden_size)
        if o.name == "dispatch"
    )
    expert_near = np.maximum(np.minimum(x["ep"], per_node / x["tp"]), 1)
    expert = collectives.group_bandwidth(x["ep"], expert_near, intra, inter)
    sent = tokens / cut * (routed / model.num_layers) * case.element_bytes / expert_maturity(case, c)
    exchange = 2.0 * collectives.all_to_all_seconds(sent, x["ep"], expert, latency)

    keys = sum(
        n * m.num_outputs
        for g, n in model.groups()
        for o in layer_operations(g, model.hidden_size)
        for m in o.matrices
        if m.name in ("k", "v", "kv_a")
    )
    context_near = np.maximum(np.minimum(x["cp"], per_node / x["tp"]), 1)
    context = collectives.group_bandwidth(x["cp"], context_near, intra, inter)
    gathered = tokens * x["cp"] * (keys / model.num_layers) / x["tp"] * case.element_bytes
    rotate = collectives.all_gather_seconds(gathered, x["cp"], context, latency)
    return {
        "tensor-parallel collectives": reduce_seconds * passes,
        "expert all-to-all": exchange * (2.0 + is_full) * (1 - c["overlap_ratio.expert"]),
        "context-parallel collectives": rotate * (3.0 + is_full) * (1 - c["overlap_ratio.context"]),
    }


def _loss_seconds(case: TrainingCase, c: Constants, x: dict[str, Any], tokens: Any) -> tuple[Any, Any]:
    """Time of head and loss, forward and backward, for one micro-batch; and the head's arithmetic per token."""
    model = case.model
    kind = "fp32" if case.precision.unquantized == "fp32" else wide_kind(case)
    passes = 3.0 if case.trains_all else 2.0
    flop_per_token = 2.0 * model.hidden_size * model.vocab_size
    again = 1.0 if loss_is_recomputed(case) else 0.0
    losses = 1.0 + case.num_mtp_layers
    product = tokens * flop_per_token / x["tp"] / matmul_rate(case, c, kind) * (passes + again) * losses
    moved = tokens * model.vocab_size / x["tp"] * c["logit_moved_bytes"] * losses
    share = 0.5 if case.software.kernels == "fused" or case.has_compile else 1.0
    return product + moved * share / _elementwise_rate(case, c), flop_per_token * passes * losses


def loss_is_recomputed(case: TrainingCase) -> bool:
    """Whether the head runs again in backward, as a fused loss does."""
    return case.has_fused_loss or case.software.loss == "fused"


def is_staged(case: TrainingCase) -> bool:
    """Whether collectives pass through host memory, for lack of peer access: what is gathered so, layer by layer, waits."""
    return case.intra_kind == "pcie" and not case.device.has_p2p


def _adapter_share(case: TrainingCase, x: dict[str, Any]) -> Any:
    """Return trained over all parameters."""
    if case.trains_all:
        return 1.0
    sums = [(layer_sums(case, layer), n) for layer, n in case.model.groups()]
    adapters = sum(sum(s.adapters) * n for s, n in sums) * x["lora_rank"]
    return np.minimum(adapters / sum(sum(s.parameters) * n for s, n in sums), 1.0)


def _data_parallel(
    case: TrainingCase, c: Constants, x: dict[str, Any], local: tuple[Any, Any], cover: tuple[Any, Any]
) -> Any:
    """Exposed time of gradient reduction and of gathering sharded weights, a whole step."""
    intra, inter = _rates(case, c)
    latency = c["latency_seconds"]
    over = shards(x, expert_tensor_ranks(x))
    near = np.maximum(np.minimum(over[0], case.devices_per_node / x["tp"]), 1)
    rate = collectives.group_bandwidth(over[0], near, intra, inter)
    stored = stored_bytes(case)[0] if is_quantized(case) else case.element_bytes
    gradient = BYTES_PER_ELEMENT[case.precision.gradients] * _adapter_share(case, x)

    def moved(each: Any) -> Any:
        dense = collectives.all_gather_seconds(local[0] * each, over[0], rate, latency)
        return dense + collectives.all_gather_seconds(local[1] * each, over[1], rate, latency)

    zero = x["zero_stage"]
    units = where(zero >= 3, case.model.num_layers / x["pp"] - 1.0, 0.0)
    more = units * latency * np.log2(np.maximum(over[0], 1))
    gather, reduce = moved(stored) + more, moved(gradient) + more
    is_sharded = zero >= 3
    communication = where(
        is_sharded,
        (2.0 * gather + reduce) * x["num_micro_batches"],
        reduce + where(zero >= 1, gather * (gradient > 0), reduce),
    )
    sharded_overlap = 0.0 if is_staged(case) else c["overlap_ratio.sharded"]
    overlap = where(is_sharded, sharded_overlap, c["overlap_ratio.gradients"] * _overlaps(case))
    return collectives.exposed_seconds(communication, where(is_sharded, cover[0], cover[1]), overlap)


def _step_seconds(case: TrainingCase, c: Constants, x: dict[str, Any], local: tuple[Any, Any]) -> Any:
    """Time of the optimizer step, on the device or on the host."""
    over = shards(x, expert_tensor_ranks(x))
    is_sharded = x["zero_stage"] >= 1
    stepped = local[0] / where(is_sharded, over[0], 1) + local[1] / where(is_sharded, over[1], 1)
    stepped = stepped * _adapter_share(case, x)
    spec = OPTIMIZERS[case.optimizer]
    state = spec.state_bytes_per_parameter
    gradient = BYTES_PER_ELEMENT[case.precision.gradients]
    master = _FP32_BYTES if case.precision.has_fp32_master else 0.0
    moved = 2.0 * state + gradient + 2.0 * master + 2.0 * case.trained_bytes
    on_device = stepped * moved / (case.device.bandwidth_bytes_per_s * c[f"step_bandwidth_ratio.{case.software.step}"])
    on_host = offload.host_step_seconds(
        stepped * case.devices_per_node, 2.0 * state + 3.0 * _FP32_BYTES, case.host_bytes_per_s
    )
    link = case.host_link_bytes_per_s * c["host_link_ratio"]
    if spec.is_paged:
        on_device = on_device + offload.transfer_seconds(stepped * 2.0 * state, link)
    on_host = on_host + offload.transfer_seconds(stepped * (gradient + case.trained_bytes), link)
    return where(x["offload_optimizer"] > 0, on_host, on_device)


def _accumulation_seconds(case: TrainingCase, c: Constants, x: dict[str, Any], local: tuple[Any, Any]) -> Any:
    """Time of adding one micro-batch's gradients to those before, and of casting fp32 weights and their gradients."""
    over = shards(x, expert_tensor_ranks(x))
    width = BYTES_PER_ELEMENT[case.precision.gradients]
    if not case.trains_all:
        return 0.0
    if case.software.kernels == "fused":  # fp32 sums inside the product's kernel, unless another library keeps them
        moved = 2.0 * width + 2.0 if case.software.partition == "copied" else 0.0
    else:
        moved = 3.0 * width * (1.0 - 1.0 / x["num_micro_batches"])
    casts = (2.0 * _FP32_BYTES + 2.0 * case.element_bytes) * case.is_autocast
    whole = where(x["zero_stage"] >= 3, 0.0, casts)
    dense = local[0] * (moved / where(x["zero_stage"] >= 3, over[0], 1) + whole)
    expert = local[1] * (moved / where(x["zero_stage"] >= 3, over[1], 1) + whole)
    return (dense + expert) / _elementwise_rate(case, c)


def _offload_seconds(case: TrainingCase, c: Constants, x: dict[str, Any], local: tuple[Any, Any], tokens: Any) -> Any:
    """Time of traffic between host and device that computation does not hide."""
    cut = where(x["has_sequence_parallel"] > 0, x["tp"], 1)
    link = case.host_link_bytes_per_s * c["host_link_ratio"]
    kept = tokens * case.model.hidden_size * case.residual_bytes / cut * case.model.num_layers / x["pp"]
    over = x["dp"] * x["cp"]
    weights = (local[0] + local[1]) * stored_bytes(case)[0] / where(x["zero_stage"] >= 3, over, 1)
    moved = x["offload_activations"] * kept * 2.0 + x["offload_parameters"] * weights * 2.0
    return offload.transfer_seconds(moved * x["num_micro_batches"], link) * (1 - c["overlap_ratio.offload"])


def _drive_seconds(case: TrainingCase, c: Constants, x: dict[str, Any], local: tuple[Any, Any], cover: Any) -> Any:
    """Time of a drive's traffic that computation does not hide: the optimizer's whole, the weights' as they are read ahead.

    All ranks of a machine share its drive. Weights are read for forward and backward of each micro-batch and, trained,
    written once; they cannot be hidden behind less computation than there is.
    """
    if not np.any(x["nvme_optimizer"]) and not np.any(x["nvme_parameters"]):
        return 0.0
    over = shards(x, expert_tensor_ranks(x))
    sharded = x["zero_stage"] >= 1
    held = local[0] / where(sharded, over[0], 1) + local[1] / where(sharded, over[1], 1)
    held = held * case.devices_per_node
    rates = case.drive_read_bytes_per_s, case.drive_write_bytes_per_s
    stepped = x["nvme_optimizer"] * held * case.trains_all
    step = swap.drive_seconds(*swap.step_traffic_bytes(stepped, num_fp32_states(case)), *rates)
    weights = x["nvme_parameters"] * held * stored_bytes(case)[0]
    read = swap.drive_seconds(2.0 * weights * x["num_micro_batches"], 0.0, *rates)
    written = swap.drive_seconds(0.0, weights * case.trains_all, *rates)
    return step + collectives.exposed_seconds(read, cover, c["overlap_ratio.offload"]) + written


def step_timing(case: TrainingCase, c: Constants, x: dict[str, Any]) -> Timing:
    """Compose the time of one optimizer step."""
    model = case.model
    tokens = x["micro_batch_size"] * (x["seq_len"] + case.num_image_tokens) / x["cp"]
    num_layers = model.num_layers + case.num_mtp_layers
    micro_batches = x["num_micro_batches"]
    one = _mean_layer(case, c, x, tokens)
    busy = one.products + one.attention + one.elementwise + one.recomputed
    is_serial = case.software.launches == "serial"
    launched = busy + one.launches if is_serial else roofline.launched_seconds(busy, one.launches, 1.0)
    inside = _layer_collectives(case, c, x, tokens)
    layer_seconds = launched + sum(inside.values())
    outer, head_flop = _loss_seconds(case, c, x, tokens)

    # Megatron sends each tensor rank's share only, with or without sequence parallelism (arXiv:2104.04473, 4.1).
    passed = tokens * model.hidden_size * case.element_bytes / x["tp"]
    devices = x["dp"] * x["tp"] * x["pp"] * x["cp"]
    intra, inter = _rates(case, c)
    hop = where(devices > case.devices_per_node, np.minimum(intra, inter), intra)
    exposed = c["pipeline_exposed_ratio"] if _overlaps(case) else 1.0
    transfer = 2.0 * offload.transfer_seconds(passed, hop) * x["num_virtual_stages"] * exposed
    transfer = where(x["pp"] > 1, transfer, 0.0)

    first, middle, last = pipeline.stage_layers(num_layers, x["pp"], x["first_stage_layers"], x["last_stage_layers"])
    slowest = np.maximum(np.maximum(first, middle) * layer_seconds, last * layer_seconds + outer)
    slowest = where(x["pp"] > 1, slowest, num_layers * layer_seconds + outer) + transfer
    mean_stage = (num_layers * layer_seconds + outer) / x["pp"] + transfer
    piped = pipeline.pipeline_seconds(slowest, mean_stage, x["pp"], x["num_virtual_stages"], micro_batches)

    local = local_parameters(case, x)
    scale = micro_batches * num_layers / x["pp"]
    parts = {
        "matrix products": one.products * scale,
        "attention": one.attention * scale,
        "element-wise": one.elementwise * scale,
        "recomputation": one.recomputed * scale,
        "launches": (launched - busy) * scale,
        "logits and loss": micro_batches * outer / x["pp"],
        **{name: value * scale for name, value in inside.items()},
        "pipeline transfers": transfer * micro_batches,
        "pipeline bubble": piped - micro_batches * mean_stage,
        "data-parallel collectives": _data_parallel(case, c, x, local, (piped, slowest)),
        "gradient sums": _accumulation_seconds(case, c, x, local) * micro_batches,
        "optimizer step": _step_seconds(case, c, x, local),
        "offload traffic": _offload_seconds(case, c, x, local, tokens),
        "drive traffic": _drive_seconds(case, c, x, local, piped),
        "fixed": c["step_overhead_seconds"],
    }
    whole = tokens * x["cp"] * x["dp"] * micro_batches
    model_flop = (one.flop * num_layers + head_flop) * whole
    rerun = where(x["recompute"] == 2, one.rerun_flop * num_layers, 0.0) * whole
    return Timing(parts=parts, total=sum(parts.values()), model_flop=model_flop, hardware_flop=model_flop + rerun)
