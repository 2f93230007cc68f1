"""Where a family's code in transformers computes in fp32 or in 16 bit, whatever the sizes say.

References
----------
.. [1] huggingface/transformers 5.24.0, `models/<family>/modeling_<family>.py`: the norms' `forward` (the cast after the
   weight or before it), and `forward` of the routers (`F.linear(hidden_states.type(torch.float32), …)`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tonnage.model.types import Attention, FeedForward, Layer, Mixer, Moe, NormKind, Norms

_NORMS_IN_FP32: Final = frozenset({
    "afmoe", "deepseek_v4", "flex_olmo", "gemma", "gemma2", "gemma3_text", "gemma3n_text", "gemma4_text", "gpt_oss",
    "helium", "minimax_m3_vl_text", "nemotron_h", "olmo2", "olmo3", "olmo_hybrid", "qwen3_5_moe_text", "qwen3_5_text",
    "qwen3_next", "qwen4_exp_text", "vaultgemma",
})  # fmt: skip
_DIFFERENCES_IN_FP32: Final = frozenset({"cohere", "cohere2", "cohere2_moe"})
_SOFTMAX_IN_16_BIT: Final = frozenset({
    "albert", "bert", "biogpt", "camembert", "deepseek_v4", "electra", "falcon", "gpt2", "gpt_oss", "llama4_text",
    "roberta", "xlm-roberta",
})  # fmt: skip
_ROUTERS_IN_FP32: Final = frozenset({
    "bailing_hybrid", "deepseek_v2", "deepseek_v3", "deepseek_v32", "dots1", "ernie4_5_moe", "ernie4_5_vl_moe_text",
    "exaone_moe", "glm4_moe", "glm4_moe_lite", "glm4v_moe_text", "glm_moe_dsa", "hy_v3", "kimi_linear",
    "longcat_flash", "mimo_v2_flash", "nemotron_h",
})  # fmt: skip


def as_computed(model_type: str, layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """Return a family's layers as its code computes them; equal ones stay one object."""
    kind: NormKind | None = (
        "rms_fp32" if model_type in _NORMS_IN_FP32 else "layer_fp32" if model_type in _DIFFERENCES_IN_FP32 else None
    )
    has_routers, has_softmax = model_type in _ROUTERS_IN_FP32, model_type in _SOFTMAX_IN_16_BIT
    if not (kind or has_routers or has_softmax):
        return tuple(layers)
    made: dict[int, Layer] = {}
    for layer in layers:
        if id(layer) in made:
            continue
        norms = layer.norms or Norms(count=bool(layer.mixers) + bool(layer.feed_forwards))
        made[id(layer)] = replace(
            layer,
            norms=replace(norms, kind=kind) if kind else layer.norms,
            mixers=tuple(_in_16_bit(mixer) if has_softmax else mixer for mixer in layer.mixers),
            feed_forwards=tuple(_routed(part) if has_routers else part for part in layer.feed_forwards),
        )
    return tuple(made[id(layer)] for layer in layers)


def _in_16_bit(mixer: Mixer) -> Mixer:
    return replace(mixer, has_fp32_softmax=False) if isinstance(mixer, Attention) else mixer


def _routed(part: FeedForward) -> FeedForward:
    return replace(part, has_fp32_router=True) if isinstance(part, Moe) else part
