"""Dense decoders of today's usual shape: attention and a feed-forward, each behind a norm.

References
----------
.. [1] huggingface/transformers 5.24.0, `models/<family>/modeling_<family>.py`, the constructors of each family.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, cast

from tonnage.model.hf.blocks import (
    FULL,
    LAYER,
    PLAIN,
    SLIDING,
    all_windowed,
    assemble,
    attention,
    build,
    full_every,
    layer_kinds,
    mlp,
    window_of,
    windowed_by_default,
)
from tonnage.model.hf.fields import Fields
from tonnage.model.types import Attention, Layer, Mlp, Model


def windowed_above(f: Fields) -> list[str]:
    """Layers from `max_window_layers` on have the window, where it is switched on (Qwen)."""
    first = f.count_or("max_window_layers", 0, least=0)
    is_on = f.flag("use_sliding_window") and window_of(f) is not None
    return layer_kinds(f, lambda index: SLIDING if is_on and index >= first else FULL)


def windowed_without_rope(f: Fields) -> list[str]:
    """Layers without rotary positions have the window, where it is switched on (SmolLM3)."""
    is_on = f.flag("use_sliding_window") and window_of(f) is not None
    num_layers, interval = f.num_layers(), f.count_or("no_rope_layer_interval", 4)
    has_rope = f.counts("no_rope_layers") or [int((index + 1) % interval != 0) for index in range(num_layers)]
    if len(has_rope) < num_layers:
        raise f.refuse("no_rope_layers", f"names {len(has_rope)} of {num_layers} layers")
    return layer_kinds(f, lambda index: SLIDING if is_on and not has_rope[index] else FULL)


def full_every_or_all(f: Fields) -> list[str]:
    """Every `sliding_window_pattern`-th layer, or each G of "LLLG", sees everything; all without a window (EXAONE 4)."""
    pattern = f.get("sliding_window_pattern")
    if window_of(f) is None:
        return layer_kinds(f, lambda _: FULL)
    if isinstance(pattern, str) and pattern:
        return layer_kinds(f, lambda index: FULL if pattern[index % len(pattern)] == "G" else SLIDING)
    return full_every(4)(f)


def full_first_of_four(f: Fields) -> list[str]:
    """Every fourth layer from the first on sees everything (CWM)."""
    return layer_kinds(f, lambda index: SLIDING if index % 4 else FULL)


def apertus_mlp(f: Fields) -> Mlp:
    """Return a plain feed-forward; its activation xIELU has two weights of its own (arXiv:2411.13010)."""
    return replace(mlp(f, is_gated=False), extra_parameters=2 if f.word("hidden_act") == "xielu" else 0)


def bitnet_attention(f: Fields, kind: str) -> Attention:
    """Return BitNet's attention, with a norm before its last projection."""
    return replace(biased(f, kind), extra_parameters=f.count("hidden_size"))


def bitnet_mlp(f: Fields) -> Mlp:
    """Return BitNet's feed-forward, with a norm before its last projection."""
    return replace(mlp(f), extra_parameters=f.count("intermediate_size"))


def differential_attention(f: Fields, kind: str) -> Attention:
    """Return the difference of two attentions, weighed by four vectors as wide as a head (arXiv:2410.05258)."""
    mixer = biased(f, kind)
    return replace(mixer, extra_parameters=4 * mixer.head_dim)


def helium_attention(f: Fields, kind: str) -> Attention:
    """Return Helium's attention, whose last projection is as wide as the layer whatever the heads' width."""
    mixer, hidden_size = attention(f, kind, qkv_bias="attention_bias"), f.count("hidden_size")
    return replace(mixer, extra_parameters=hidden_size * (hidden_size - mixer.num_heads * mixer.head_dim))


def hyperclovax(f: Fields) -> Model:
    """Return HyperCLOVA X: a norm behind each part too, where it is switched on."""
    return build(f, mixer=biased, dense=biased_mlp, num_norms=4 if f.flag("use_post_norm") else 2)


def phi_attention(f: Fields, kind: str) -> Attention:
    """Return attention with biases; the norms of queries and keys are as wide as an equal share of the hidden size."""
    mixer = attention(f, kind, qkv_bias=True, output_bias=True)
    share = f.count("hidden_size") // mixer.num_heads
    return replace(mixer, extra_parameters=4 * share if f.flag("qk_layernorm") else 0)


def stablelm(f: Fields) -> Model:
    """Return StableLM: with a parallel residual a layer has one norm only."""
    mixer = partial(
        attention, qkv_bias="use_qkv_bias", qk_norm="row", qk_norm_if="qk_layernorm", can_set_head_dim=False
    )
    is_parallel = f.flag("use_parallel_residual")
    return build(f, mixer=mixer, norm=LAYER, num_norms=1 if is_parallel else 2, is_parallel=is_parallel)


def nemotron_nas(f: Fields) -> Model:
    """Return NVIDIA's pruned Llama: each layer's attention and feed-forward of its own size, of one matrix, or absent.

    References
    ----------
    .. [1] ggml-org/llama.cpp, `convert_hf_to_gguf.py`, `DeciModel`: widths are rounded up to a multiple of 256.
    """
    hidden_size, heads = f.count("hidden_size"), f.count("num_attention_heads")
    blocks = f.items("block_configs")
    if blocks is None or len(blocks) != f.num_layers():
        raise f.refuse("block_configs", "does not give one block a layer")

    def layer(block: Any) -> Layer:
        if not isinstance(block, Mapping):
            raise f.refuse("block_configs", "has an entry that is not an object")
        own = f.with_fields(cast("Mapping[str, Any]", block))
        mixer, width = own.part("attention"), own.part("ffn")
        mixers: tuple[Attention, ...] = ()
        feed_forwards: tuple[Mlp, ...] = ()
        linear = hidden_size * hidden_size * (mixer.flag("replace_with_linear") + width.flag("replace_with_linear"))
        if not mixer.flag("no_op") and not mixer.flag("replace_with_linear"):
            num_kv_heads = heads // mixer.count("n_heads_in_group")
            made = biased(own.with_fields({"num_key_value_heads": num_kv_heads}))
            mixers = (replace(made, window_tokens=mixer.maybe_count("window_length")),)
        if not width.flag("no_op") and not width.flag("replace_with_linear"):
            wide = int(2 * width.number("ffn_mult") * hidden_size / 3)
            feed_forwards = (Mlp(intermediate_size=-(-wide // 256) * 256, has_bias=f.flag("mlp_bias")),)
        return Layer(
            mixers=mixers,
            feed_forwards=feed_forwards,
            norm_parameters=hidden_size * (2 - mixer.flag("no_op") - width.flag("no_op")),
            other_parameters=linear,
        )

    return assemble(f, tuple(layer(block) for block in blocks))


biased = partial(attention, qkv_bias="attention_bias", output_bias="attention_bias")
biased_mlp = partial(mlp, bias="mlp_bias")

DENSE: Final[dict[str, Callable[[Fields], Model]]] = {
    "apertus": partial(build, mixer=partial(biased, qk_norm="head"), dense=apertus_mlp),
    "arcee": partial(build, mixer=biased, dense=partial(biased_mlp, is_gated=False)),
    "bitnet": partial(build, mixer=bitnet_attention, dense=bitnet_mlp),
    "cohere": partial(
        build, mixer=partial(biased, qk_norm="row", qk_norm_if="use_qk_norm"), num_norms=1, is_parallel=True
    ),
    "cohere2": partial(build, mixer=biased, kinds=full_every(4), num_norms=1, is_parallel=True),
    "cwm": partial(build, mixer=attention, dense=partial(mlp, bias="mlp_bias"), kinds=full_first_of_four),
    "diffllama": partial(build, mixer=differential_attention),
    "ernie4_5": partial(
        build,
        mixer=partial(attention, qkv_bias="use_bias", output_bias="use_bias"),
        dense=partial(mlp, bias="use_bias"),
    ),
    "exaone": partial(build, mixer=biased, dense=biased_mlp),
    "exaone4": partial(build, mixer=partial(attention, qk_norm="head"), kinds=full_every_or_all),
    "gemma": partial(build, mixer=biased),
    "gemma2": partial(build, mixer=biased, kinds=full_every(2, field=None), num_norms=4),
    "gemma3_text": partial(build, mixer=partial(biased, qk_norm="head"), kinds=full_every(6), num_norms=4),
    "glm": partial(build, mixer=partial(attention, qkv_bias="attention_bias")),
    "glm4": partial(build, mixer=partial(attention, qkv_bias="attention_bias"), num_norms=4),
    "glm4v_text": partial(build, mixer=partial(attention, qkv_bias=True), num_norms=4),
    "granite": partial(build, mixer=biased, dense=biased_mlp),
    "granite_swa": partial(build, mixer=partial(biased, has_sinks=True), dense=biased_mlp, kinds=full_first_of_four),
    "helium": partial(build, mixer=helium_attention, dense=biased_mlp),
    "hunyuan_v1_dense": partial(build, mixer=partial(biased, qk_norm="head")),
    "hyperclovax": hyperclovax,
    "internlm3": partial(build, mixer=biased, dense=biased_mlp),
    "iquestcoder": partial(build, mixer=biased, dense=biased_mlp),
    "jais2": partial(build, mixer=biased, dense=partial(biased_mlp, is_gated=False), norm=LAYER),
    "llama": partial(build, mixer=biased, dense=biased_mlp),
    "ministral": partial(build, kinds=windowed_by_default),
    "ministral3": partial(build, kinds=all_windowed),
    "mistral": partial(build, kinds=all_windowed),
    "nanochat": partial(build, mixer=biased, dense=partial(mlp, is_gated=False), norm=PLAIN),
    "nemotron-nas": nemotron_nas,
    "nemotron": partial(build, mixer=biased, dense=partial(biased_mlp, is_gated=False), norm=LAYER),
    "olmo": partial(build, mixer=biased, norm=PLAIN),
    "olmo2": partial(build, mixer=partial(biased, qk_norm="row")),
    "olmo3": partial(build, mixer=partial(biased, qk_norm="row"), kinds=full_every(4, field=None)),
    "phi": partial(
        build,
        mixer=phi_attention,
        dense=partial(mlp, is_gated=False, bias=True),
        norm=LAYER,
        num_norms=1,
        is_parallel=True,
        head_bias=True,
    ),
    "phi3": partial(build, mixer=partial(attention, is_fused_view=True), kinds=all_windowed),
    "qwen2": partial(build, mixer=partial(attention, qkv_bias=True), kinds=windowed_above),
    "qwen2_vl_text": partial(
        build, mixer=partial(attention, qkv_bias=True, can_set_head_dim=False), kinds=windowed_above
    ),
    "qwen2_5_vl_text": partial(
        build, mixer=partial(attention, qkv_bias=True, can_set_head_dim=False), kinds=windowed_above
    ),
    "qwen3": partial(build, mixer=partial(biased, qk_norm="head"), kinds=windowed_above),
    "qwen3_vl_text": partial(build, mixer=partial(biased, qk_norm="head")),
    "seed_oss": partial(
        build,
        mixer=partial(attention, qkv_bias="attention_bias", output_bias="attention_out_bias"),
        dense=biased_mlp,
    ),
    "smollm3": partial(build, mixer=biased, dense=biased_mlp, kinds=windowed_without_rope),
    "stablelm": stablelm,
    "vaultgemma": partial(build, mixer=biased, kinds=full_every(2, field=None)),
    "starcoder2": partial(
        build,
        mixer=partial(attention, qkv_bias="use_bias", output_bias="use_bias"),
        dense=partial(mlp, is_gated=False, bias="use_bias"),
        kinds=all_windowed,
        norm=LAYER,
    ),
}
