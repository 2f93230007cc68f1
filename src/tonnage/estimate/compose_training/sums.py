"""A layer's operations summed once per distinct layer: what memory and time need of them, as plain numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

from tonnage.estimate.compose_training.case import TrainingCase, carries_adapter
from tonnage.estimate.layer import Kind, Split, Width, layer_operations
from tonnage.model.types import Layer

Split4 = tuple[float, float, float, float]  # tensor, sequence, expert, routed

# What a module named for selective recomputation stops keeping: operations whose kept tensors go.
_DROPPED: Final = {
    "core_attn": (),
    "layernorm": ("qkv", "latent_down", "linear_in", "mamba_in", "conv_in", "mlp_up", "router"),
    "mla_up_proj": ("q_up", "kv_up", "attention"),
    "mlp": ("mlp_activation", "mlp_down", "shared_mlp_activation", "shared_mlp_down"),
    "moe_act": ("expert_down",),
    "moe": ("router", "dispatch", "expert_up", "expert_activation", "expert_down", "combine"),
    "shared_experts": ("shared_mlp_up", "shared_mlp_activation", "shared_mlp_down"),
}
# … and what it runs again.
_RERUN: Final = {
    "core_attn": ("attention",),
    "layernorm": ("norm",),
    "mla_up_proj": ("q_up", "kv_up", "q_norm", "kv_norm", "rotary"),
    "mlp": ("mlp_up", "mlp_activation", "shared_mlp_up", "shared_mlp_activation"),
    "moe_act": ("expert_activation",),
    "moe": ("router", "dispatch", "expert_up", "expert_activation", "expert_down", "combine"),
    "shared_experts": ("shared_mlp_up", "shared_mlp_activation", "shared_mlp_down"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSums:
    """Sums over one layer, each by how a layout divides it: (tensor, sequence, expert, routed)."""

    parameters: Split4
    matrix_parameters: Split4  # those a quantised format covers
    adapters: Split4  # trained parameters for each unit of rank
    kept: Split4  # bytes a token, by every implementation
    kept_fused: Split4
    kept_eager: Split4
    kept_scores: Split4  # where attention makes its scores
    kept_fused_qkv: Split4  # where values are a view of one product
    kept_views: Split4  # where values are a view of a larger product and attention makes no scores
    kept_formulas: Split4  # by activations of several operators
    kept_norm_fp32: Split4  # where norms are weighed in fp32, over 16 bit
    kept_frozen: Split4  # inputs of frozen products, which some quantised code keeps
    kept_adapter: Split4  # elements that adapters read
    adapter_ranks: float  # adapter matrices: elements kept for each unit of rank
    scores: float  # probabilities of a pair, as unfused code holds them
    fused_scores: float  # … as one kernel of softmax and dropout does: in 16 bit, whatever the softmax computes in
    widest: Split4  # elements in and out of the widest operation
    largest_matrix: float
    num_kernels: float


def _by_split(items: list[tuple[Split, float]]) -> Split4:
    totals = dict.fromkeys(Split, 0.0)
    for split, value in items:
        totals[split] += value
    return totals[Split.TENSOR], totals[Split.SEQUENCE], totals[Split.EXPERT], totals[Split.ROUTED]


def dropped_operations(modules: tuple[str, ...]) -> frozenset[str]:
    """Return the operations whose kept tensors selective recomputation of some modules frees."""
    return frozenset(name for module in modules for name in _DROPPED.get(module, ()))


def rerun_operations(modules: tuple[str, ...]) -> frozenset[str]:
    """Return the operations that selective recomputation of some modules runs again."""
    return frozenset(name for module in modules for name in _RERUN.get(module, ()))


def layer_sums(case: TrainingCase, layer: Layer, modules: tuple[str, ...] = ()) -> LayerSums:
    """Sum a layer's operations for a case, some modules recomputed."""
    targets = () if case.trains_all else case.lora_targets
    return _sums(layer, case.model.hidden_size, case.element_bytes, case.trains_all, targets, case.has_dropout, modules)


@cache
def _sums(
    layer: Layer,
    hidden_size: int,
    element_bytes: float,
    trains_all: bool,
    lora_targets: tuple[str, ...],
    has_dropout: bool,
    modules: tuple[str, ...],
) -> LayerSums:
    operations = layer_operations(layer, hidden_size)
    dropped = dropped_operations(modules)
    targeted = frozenset(m.name for o in operations for m in o.matrices if carries_adapter(m.name, lora_targets))
    width = {Width.COMPUTE: element_bytes, Width.FP32: 4.0, Width.MASK: 1.0}
    names = ("all", "fused", "eager", "scores", "fused_qkv", "views", "formulas", "norm_fp32", "frozen", "adapter")
    kept: dict[str, list[tuple[Split, float]]] = {name: [] for name in names}
    for operation in operations:
        has_adapter = any(m.name in targeted for m in operation.matrices)
        for tensor in operation.kept:
            if operation.name in dropped or (tensor.is_dropout_mask and not has_dropout):
                continue
            by, kept_bytes = tensor.by, tensor.elements * width[tensor.width]
            if tensor.is_weight_input and not trains_all and not has_adapter:
                by = "frozen" if operation.matrices and by == "all" else ""
            if tensor.is_weight_input and has_adapter:
                kept["adapter"].append((tensor.split, tensor.elements))
            if by in kept:
                kept[by].append((tensor.split, kept_bytes))
    matrices = [(o, m) for o in operations for m in o.matrices]
    adapted = [(o, m) for o, m in matrices if m.name in targeted]
    widest: dict[Split, float] = dict.fromkeys(Split, 0.0)
    for o in operations:
        if o.matrices:
            elements = o.tokens_ratio * (o.matrices[0].num_inputs + sum(m.num_outputs for m in o.matrices))
            widest[o.split] = max(widest[o.split], elements)
    scores = sum(o.score_elements_per_pair for o in operations if o.kind is Kind.ATTENTION)
    return LayerSums(
        parameters=_by_split([(o.split, o.num_parameters) for o in operations]),
        matrix_parameters=_by_split([(o.split, m.num_parameters) for o, m in matrices]),
        adapters=_by_split([(o.split, (m.num_inputs + m.num_outputs) * m.count) for o, m in adapted]),
        kept=_by_split(kept["all"]),
        kept_fused=_by_split(kept["fused"]),
        kept_eager=_by_split(kept["eager"]),
        kept_scores=_by_split(kept["scores"]),
        kept_fused_qkv=_by_split(kept["fused_qkv"]),
        kept_views=_by_split(kept["views"]),
        kept_formulas=_by_split(kept["formulas"]),
        kept_norm_fp32=_by_split(kept["norm_fp32"]),
        kept_frozen=_by_split(kept["frozen"]),
        kept_adapter=_by_split(kept["adapter"]),
        adapter_ranks=float(len(adapted)),
        scores=scores,
        fused_scores=scores * (1.0 if all(getattr(m, "has_fp32_softmax", True) for m in layer.mixers) else 3.0),
        widest=(widest[Split.TENSOR], widest[Split.SEQUENCE], widest[Split.EXPERT], 0.0),
        largest_matrix=float(max((m.num_inputs * m.num_outputs for _, m in matrices), default=0)),
        num_kernels=sum(o.num_kernels for o in operations),
    )
