"""Decoders whose feed-forwards are mixtures of experts.

References
----------
.. [1] huggingface/transformers 5.24.0, `models/<family>/modeling_<family>.py`, the constructors of each family.
"""

from __future__ import annotations

from tonnage.model.hf.blocks import assemble, attention, mlp, stack
from tonnage.model.hf.decoder import windowed_above
from tonnage.model.hf.fields import Fields
from tonnage.model.types import Layer, Model, Moe, QkNorm


def sparse_by_step(f: Fields) -> list[bool]:
    """Whether each layer has experts: every `decoder_sparse_step`-th that `mlp_only_layers` does not name."""
    dense = set(f.counts("mlp_only_layers") or ())
    step = f.count_or("decoder_sparse_step", 1)
    has_experts = f.count("num_experts", least=0) > 0
    return [has_experts and index not in dense and (index + 1) % step == 0 for index in range(f.num_layers())]


def qwen_moe(f: Fields, *, qkv_bias: bool | str, output_bias: bool | str, qk_norm: QkNorm) -> Model:
    """Return a Qwen mixture: routed experts, with a gated shared one where the family has it."""
    norms = 2 * f.count("hidden_size")

    def layer(spec: tuple[str, bool]) -> Layer:
        kind, is_sparse = spec
        mixer = attention(f, kind=kind, qkv_bias=qkv_bias, output_bias=output_bias, qk_norm=qk_norm)
        feed_forward = qwen_experts(f) if is_sparse else mlp(f)
        return Layer(mixers=(mixer,), feed_forwards=(feed_forward,), norm_parameters=norms)

    return assemble(f, stack(zip(windowed_above(f), sparse_by_step(f), strict=True), layer))


def qwen_experts(f: Fields) -> Moe:
    """Return Qwen's routed experts and, where the family has one, the shared expert behind a scalar gate."""
    shared = mlp(f, field="shared_expert_intermediate_size") if f.is_known("shared_expert_intermediate_size") else None
    return Moe(
        num_experts=f.count("num_experts"),
        top_k=f.count("num_experts_per_tok"),
        expert_size=f.count("moe_intermediate_size"),
        shared=shared,
        shared_gate_parameters=f.count("hidden_size") if shared else 0,
    )
