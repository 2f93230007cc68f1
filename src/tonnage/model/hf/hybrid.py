"""Decoders that mix attention with layers of a fixed state: gated delta nets, state spaces, short convolutions.

References
----------
.. [1] huggingface/transformers 5.24.0, `models/<family>/modeling_<family>.py`, the constructors of each family.
.. [2] S. Yang et al., "Gated Delta Networks", ICLR 2025, arXiv:2412.06464.
"""

from __future__ import annotations

from tonnage.model.hf.blocks import FULL, LINEAR, assemble, attention, kinds_or, mlp, stack
from tonnage.model.hf.fields import Fields
from tonnage.model.hf.moe import qwen_experts
from tonnage.model.types import GatedDeltaNet, Layer, Model


def gated_delta_net(f: Fields) -> GatedDeltaNet:
    """Return Qwen's linear attention."""
    return GatedDeltaNet(
        num_key_heads=f.count("linear_num_key_heads"),
        num_value_heads=f.count("linear_num_value_heads"),
        key_head_dim=f.count("linear_key_head_dim"),
        value_head_dim=f.count("linear_value_head_dim"),
        conv_kernel=f.count("linear_conv_kernel_dim"),
    )


def qwen_hybrid(f: Fields, *, is_sparse: bool) -> Model:
    """Return Qwen 3.5: three gated delta nets to one gated attention, with a dense feed-forward or experts."""
    step = f.count_or("full_attention_interval", 4)
    feed_forward = qwen_experts(f) if is_sparse else mlp(f)
    norms = 2 * f.count("hidden_size")

    def layer(kind: str) -> Layer:
        mixer = (
            gated_delta_net(f)
            if kind == LINEAR
            else attention(
                f, qkv_bias="attention_bias", output_bias="attention_bias", qk_norm="head", has_output_gate=True
            )
        )
        return Layer(mixers=(mixer,), feed_forwards=(feed_forward,), norm_parameters=norms)

    return assemble(f, stack(kinds_or(f, lambda index: LINEAR if (index + 1) % step else FULL), layer))
