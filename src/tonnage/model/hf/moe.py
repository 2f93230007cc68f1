"""Decoders whose feed-forwards are mixtures of experts, with attention of the usual shape.

References
----------
.. [1] huggingface/transformers 5.24.0, `models/<family>/modeling_<family>.py`, the constructors of each family.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from tonnage.model.hf.blocks import (
    CHUNKED,
    FULL,
    LAYER,
    SLIDING,
    all_full,
    all_sparse,
    all_windowed,
    assemble,
    attention,
    build,
    full_every,
    layer_kinds,
    mlp,
    routed,
    shared_experts,
    sparse_after,
    stack,
    window_of,
)
from tonnage.model.hf.decoder import biased, full_every_or_all, full_first_of_four
from tonnage.model.hf.fields import Fields
from tonnage.model.types import Attention, Indexer, Layer, Mlp, Model, Moe


def sparse_by_step(f: Fields) -> list[bool]:
    """Whether each layer has experts: every `decoder_sparse_step`-th that `mlp_only_layers` does not name."""
    dense = set(f.counts("mlp_only_layers") or ())
    step = f.count_or("decoder_sparse_step", 1)
    has_experts = f.count("num_experts", least=0) > 0
    return [has_experts and index not in dense and (index + 1) % step == 0 for index in range(f.num_layers())]


def qwen2_moe_kinds(f: Fields) -> list[str]:
    """Every other layer below `max_window_layers` has the window, where it is switched on."""
    first_full, is_on = f.count_or("max_window_layers", 0, least=0), f.flag("use_sliding_window")
    return layer_kinds(f, lambda index: SLIDING if is_on and index < first_full and (index + 1) % 2 else FULL)


def qwen3_moe_kinds(f: Fields) -> list[str]:
    """Every layer has the window, where it is switched on."""
    is_on = f.flag("use_sliding_window") and window_of(f) is not None
    return [SLIDING if is_on else FULL] * f.num_layers()


def ernie_sparsity(f: Fields) -> list[bool]:
    """Every `moe_layer_interval`-th layer between a first and a last one has experts."""
    num_layers = f.num_layers()
    first, last = f.count_or("moe_layer_start_index", 0, least=0), f.count_or("moe_layer_end_index", -1, least=-1)
    last = num_layers - 1 if last == -1 else last
    interval = f.count_or("moe_layer_interval", 1)
    return [(index + 1) % interval == 0 and first <= index <= last for index in range(num_layers)]


def ernie_experts(f: Fields) -> Moe:
    """Return ERNIE's experts; a correction of the router's scores is kept as a weight."""
    shared = partial(shared_experts, number="moe_num_shared_experts", bias="use_bias")
    return routed(f, experts="num_experts", shared=shared, has_router_bias=True)


def afmoe_attention(f: Fields, kind: str) -> Attention:
    """Return Arcee's attention, with a gate for each channel of its output."""
    mixer = biased(f, kind, qk_norm="head")
    return replace(mixer, num_head_gates=mixer.num_heads * mixer.head_dim)


def cohere2_moe(f: Fields) -> Model:
    """Return Command A with experts: dense layers first, which have widths and windows of their own."""
    num_dense = f.count_or("first_k_dense_replace", 0, least=0)
    every, first_every = f.count_or("sliding_window_pattern", 4), f.count_or("prefix_dense_sliding_window_pattern", 1)

    def kind(index: int) -> str:
        is_full = (index + 1) % first_every == 0 if index < num_dense else (index - num_dense + 1) % every == 0
        return FULL if is_full else SLIDING

    def shared(g: Fields) -> Mlp | None:
        wide = g.count("num_shared_experts", least=0) * g.count("intermediate_size")
        return Mlp(intermediate_size=wide) if wide else None

    own_width = f.maybe_count("prefix_dense_intermediate_size")
    return build(
        f,
        mixer=biased,
        kinds=lambda g: layer_kinds(g, kind),
        dense=partial(mlp, width="prefix_dense_intermediate_size" if own_width else "intermediate_size"),
        sparse=partial(plain_experts, experts="num_experts", shared=shared),
        sparsity=sparse_after(),
        num_norms=1,
    )


def doge(f: Fields) -> Model:
    """Return Doge: a learnt mask, weighed residuals, and many experts of one channel beside the feed-forward."""
    hidden_size = f.count("hidden_size")

    def mixer(g: Fields, kind: str) -> Attention:
        made = biased(g, kind, qk_norm="head")
        heads = made.num_kv_heads
        mask = heads + heads * (heads * made.head_dim + (1 if made.has_qkv_bias else 0))
        return replace(made, extra_parameters=mask + 2 * hidden_size)

    def experts(g: Fields) -> Moe:
        number = g.count("num_experts")
        return Moe(
            num_experts=number,
            top_k=g.count("num_experts_per_tok"),
            expert_size=1,
            is_gated=False,
            router_parameters=2 * math.isqrt(number) * hidden_size,
            shared=mlp(g, bias="mlp_bias"),
        )

    return build(
        f,
        mixer=mixer,
        kinds=all_windowed,
        dense=partial(mlp, bias="mlp_bias"),
        sparse=experts,
        sparsity=lambda g: [g.flag("is_moe")] * g.num_layers(),
    )


def laguna(f: Fields) -> Model:
    """Return Laguna: a number of heads for each layer, each with a gate."""
    num_layers, heads = f.num_layers(), f.counts("num_attention_heads_per_layer", least=1)
    if heads is not None and len(heads) < num_layers:
        raise f.refuse("num_attention_heads_per_layer", f"names {len(heads)} of {num_layers} layers")
    is_per_head = f.get("gating", True) in (True, "per-head")
    listed = f.words("mlp_layer_types")
    is_sparse = sparse_after("", 1)(f) if listed is not None else [index > 0 for index in range(num_layers)]

    def layer(spec: tuple[str, int | None, bool]) -> Layer:
        kind, own_heads, has_experts = spec
        own = f.with_fields({"num_attention_heads": own_heads}) if own_heads else f
        mixer = biased(own, kind, qk_norm="head")
        gates = mixer.num_heads * (1 if is_per_head else mixer.head_dim)
        return Layer(
            mixers=(replace(mixer, num_head_gates=gates),),
            feed_forwards=(qwen_experts_ungated(f) if has_experts else mlp(f),),
            norm_parameters=2 * f.count("hidden_size"),
        )

    kinds = all_full(f)
    specs = [(kinds[i], heads[i] if heads else None, is_sparse[i]) for i in range(num_layers)]
    return assemble(f, stack(specs, layer))


def dots_kinds(f: Fields) -> list[str]:
    """Layers from `max_window_layers` on have the window."""
    first = f.count_or("max_window_layers", 0, least=0)
    return layer_kinds(f, lambda index: SLIDING if window_of(f) is not None and index >= first else FULL)


def granite_hybrid_shared(f: Fields) -> Mlp | None:
    """Return Granite's shared expert, if it has one."""
    width = f.count_or("shared_intermediate_size", 0, least=0)
    return Mlp(intermediate_size=width) if width else None


def hy_v3_shared(f: Fields) -> Mlp:
    """Return Hunyuan 3's shared experts; with none of them transformers builds one as wide as a dense layer."""
    wide = f.count("num_shared_experts", least=0) * f.count("moe_intermediate_size")
    return Mlp(intermediate_size=wide or f.count("intermediate_size"), has_bias=f.flag("mlp_bias"))


def hunyuan_experts(f: Fields) -> Moe:
    """Return Hunyuan's experts; its `moe_topk` may be listed layer by layer."""
    listed = f.get("num_experts_per_tok")
    own = f.with_fields({"num_experts_per_tok": listed[0]}) if isinstance(listed, list) and listed else f
    return routed(own, width="intermediate_size", shared=mlp)


def llama4(f: Fields) -> Model:
    """Return Llama 4: every so many layers experts with one shared; layers with rotary positions attend in chunks."""
    num_layers = f.num_layers()
    interval, step = f.count_or("no_rope_layer_interval", 4), f.count_or("interleave_moe_layer_step", 1)
    has_rope = f.counts("no_rope_layers") or [int((index + 1) % interval != 0) for index in range(num_layers)]
    if len(has_rope) < num_layers:
        raise f.refuse("no_rope_layers", f"names {len(has_rope)} of {num_layers} layers")
    is_chunked = f.maybe_count("attention_chunk_size") is not None
    listed = f.counts("moe_layers")
    sparse = set(range(step - 1, num_layers, step) if listed is None else listed)
    return build(
        f,
        mixer=biased,
        kinds=lambda g: layer_kinds(g, lambda index: CHUNKED if is_chunked and has_rope[index] else FULL),
        dense=partial(mlp, width="intermediate_size_mlp"),
        sparse=partial(routed, width="intermediate_size", shared=mlp),
        sparsity=lambda _: [index in sparse for index in range(num_layers)],
    )


def mimo_attention(f: Fields, kind: str) -> Attention:
    """Return MiMo-V2's attention: narrow values, and in windowed layers twice the key-value heads and sinks."""
    mixer = replace(attention(f, kind, qkv_bias="attention_bias"), value_head_dim=f.count("v_head_dim"))
    if kind != SLIDING:
        return mixer
    # transformers turns the authors' `sliding_window_size` into a `sliding_window` of one token more
    window = f.maybe_count("sliding_window_size") or window_of(f)
    return replace(mixer, num_kv_heads=2 * mixer.num_kv_heads, num_sinks=mixer.num_heads, window_tokens=window)


def mimo_kinds(f: Fields) -> list[str]:
    """Let the first layer and every sixth see everything."""
    return layer_kinds(f, lambda index: FULL if index == 0 or (index + 1) % 6 == 0 else SLIDING)


def minimax_m3(f: Fields) -> Model:
    """Return MiniMax-M3: some layers look only at blocks that an indexer chooses."""
    legacy = f.part("sparse_attention_config")

    def either(name: str, old: str) -> int:
        return legacy.count_or(old, f.count(name))

    heads, width = either("index_n_heads", "sparse_num_index_heads"), either("index_head_dim", "sparse_index_dim")
    indexer = Indexer(
        num_heads=heads,
        head_dim=width,
        top_k=either("index_topk_blocks", "sparse_topk_blocks"),
        block_tokens=either("index_block_size", "sparse_block_size"),
        parameters=f.count("hidden_size") * (heads + 1) * width + 2 * width,
    )

    def kinds(g: Fields) -> list[str]:
        listed = legacy.counts("sparse_attention_freq")
        if listed is not None and g.words("layer_types") is None:
            return ["minimax_m3_sparse" if item else FULL for item in listed[: g.num_layers()]]
        return all_full(g)

    def sparsity(g: Fields) -> list[bool]:
        listed = g.counts("moe_layer_freq")
        if listed is not None and g.words("mlp_layer_types") is None:
            return [bool(item) for item in listed[: g.num_layers()]]
        return sparse_after("", 0)(g)

    def mixer(g: Fields, kind: str) -> Attention:
        made = attention(g, kind, qk_norm="head")
        return replace(made, indexer=indexer) if kind == "minimax_m3_sparse" else made

    return build(
        f,
        mixer=mixer,
        kinds=kinds,
        dense=partial(mlp, width="dense_intermediate_size"),
        sparse=partial(routed, width="intermediate_size", shared=partial(mlp, width="shared_intermediate_size")),
        sparsity=sparsity,
    )


def step3p5(f: Fields) -> Model:
    """Return Step 3.5 and 3.7: a gate for each head, and more query heads in windowed layers."""
    num_layers = f.num_layers()
    other = f.part("attention_other_setting")
    heads = f.maybe_count("num_sliding_attention_heads") or other.maybe_count("num_attention_heads")
    is_per_head = f.get("gating", True) in (True, "per-head")

    def mixer(g: Fields, kind: str) -> Attention:
        own = g.with_fields({"num_attention_heads": heads}) if heads and kind == SLIDING else g
        made = attention(own, kind, qkv_bias="attention_bias", output_bias="attention_bias", qk_norm="head")
        gate = made.num_heads * (1 if is_per_head else made.head_dim)
        return replace(made, num_head_gates=gate)

    def kinds(g: Fields) -> list[str]:
        # the list may go on with the layers for multi-token prediction, which are not loaded
        listed = g.words("layer_types")
        own = g if listed is None else g.with_fields({"layer_types": listed[:num_layers]})
        return all_full(own)

    return build(
        f,
        mixer=mixer,
        kinds=kinds,
        dense=partial(mlp, bias="mlp_bias"),
        sparse=partial(
            routed, experts="n_routed_experts", shared=partial(mlp, width="share_expert_dim", bias="mlp_bias")
        ),
        sparsity=step_sparsity,
    )


def step_sparsity(f: Fields) -> list[bool]:
    """Layers have experts as listed in any of three ways; else from the fourth on."""
    num_layers = f.num_layers()
    if f.words("mlp_layer_types") is not None:
        return sparse_after("", 0)(f)
    listed = f.get("moe_layers_enum")
    if listed is None:
        return [index >= 3 for index in range(num_layers)]
    items = listed.split(",") if isinstance(listed, str) else f.items("moe_layers_enum") or []
    try:
        sparse = {int(item) for item in items if str(item).strip()}
    except ValueError:
        raise f.refuse("moe_layers_enum", "has an entry that is not a layer's number") from None
    return [index in sparse for index in range(num_layers)]


def gpt_oss(f: Fields) -> Model:
    """Return gpt-oss: every other layer windowed, with sinks; router and experts have biases."""
    return build(
        f,
        mixer=partial(biased, has_sinks=True),
        kinds=full_every(2, field=None),
        sparse=partial(
            routed,
            experts="num_local_experts",
            width="intermediate_size",
            has_router_bias=True,
            has_expert_bias=True,
            activation="clamped_swiglu",
        ),
        sparsity=all_sparse,
    )


def dbrx(f: Fields) -> Model:
    """Return DBRX, whose attention and experts have a config of their own."""
    inner, ffn = f.part("attn_config"), f.part("ffn_config")
    hidden_size, heads = f.count("d_model"), f.count("n_heads")
    num_experts = ffn.count_or("moe_num_experts", 4)
    layer = Layer(
        mixers=(
            Attention(num_heads=heads, num_kv_heads=inner.count_or("kv_n_heads", 1), head_dim=hidden_size // heads),
        ),
        feed_forwards=(
            Moe(
                num_experts=num_experts,
                top_k=ffn.count_or("moe_top_k", 1),
                expert_size=ffn.count_or("ffn_hidden_size", 3584),
            ),
        ),
        norm_parameters=2 * hidden_size,
    )
    own = f.with_fields({"hidden_size": hidden_size, "max_position_embeddings": f.maybe_count("max_seq_len")})
    return assemble(own, stack([FULL] * f.num_layers("n_layers"), lambda _: layer))


qwen3 = partial(biased, qk_norm="head")
qwen_shared = partial(mlp, width="shared_expert_intermediate_size")
qwen_experts = partial(routed, experts="num_experts", shared=qwen_shared, has_shared_gate=True)
qwen_experts_ungated = partial(routed, experts="num_experts", shared=qwen_shared, has_router_bias=True)
plain_experts = partial(routed, width="intermediate_size")

SPARSE: Final[dict[str, Callable[[Fields], Model]]] = {
    "afmoe": partial(
        build,
        mixer=afmoe_attention,
        kinds=full_every(4, field="global_attn_every_n_layers"),
        sparse=partial(
            routed,
            experts="num_experts",
            shared=partial(shared_experts, number="num_shared_experts"),
            has_router_bias=True,
        ),
        sparsity=sparse_after("num_dense_layers"),
        num_norms=4,
    ),
    "cohere2_moe": cohere2_moe,
    "dbrx": dbrx,
    "doge": doge,
    "dots1": partial(
        build,
        mixer=partial(biased, qk_norm="head"),
        kinds=dots_kinds,
        sparse=partial(routed, experts="n_routed_experts", shared=shared_experts),
        sparsity=sparse_after(),
    ),
    "ernie4_5_moe": partial(
        build,
        mixer=partial(attention, qkv_bias="use_bias", output_bias="use_bias"),
        dense=partial(mlp, bias="use_bias"),
        sparse=ernie_experts,
        sparsity=ernie_sparsity,
        head_bias="use_bias",
    ),
    "exaone_moe": partial(
        build,
        mixer=partial(attention, qk_norm="head"),
        kinds=full_every_or_all,
        sparse=partial(routed, experts="num_experts", shared=partial(shared_experts, number="num_shared_experts")),
        sparsity=sparse_after(otherwise=1),
    ),
    "flex_olmo": partial(
        build,
        mixer=partial(biased, qk_norm="row"),
        sparse=partial(plain_experts, experts="num_experts"),
        sparsity=all_sparse,
    ),
    "glm4_moe": partial(
        build,
        mixer=partial(attention, qkv_bias="attention_bias", qk_norm="head", qk_norm_if="use_qk_norm"),
        sparse=partial(routed, shared=shared_experts),
        sparsity=sparse_after(),
    ),
    "glm4v_moe_text": partial(
        build,
        mixer=partial(attention, qkv_bias="attention_bias"),
        sparse=partial(routed, shared=shared_experts),
        sparsity=sparse_after(),
    ),
    "gpt_oss": gpt_oss,
    "granitemoe": partial(build, mixer=biased, sparse=plain_experts, sparsity=all_sparse),
    "granitemoeshared": partial(
        build, mixer=biased, sparse=partial(plain_experts, shared=granite_hybrid_shared), sparsity=all_sparse
    ),
    "granitemoe_swa": partial(
        build,
        mixer=partial(biased, has_sinks=True),
        kinds=full_first_of_four,
        sparse=partial(plain_experts, shared=granite_hybrid_shared),
        sparsity=all_sparse,
    ),
    "hunyuan_v1_moe": partial(
        build, mixer=partial(biased, qk_norm="head"), sparse=hunyuan_experts, sparsity=all_sparse
    ),
    "hy_v3": partial(
        build,
        mixer=partial(biased, qk_norm="head"),
        dense=partial(mlp, bias="mlp_bias"),
        sparse=partial(routed, shared=hy_v3_shared),
        sparsity=sparse_after("", 1),
    ),
    "laguna": laguna,
    "llama4_text": llama4,
    "mellum": partial(build, mixer=qwen3, sparse=partial(routed, experts="num_experts"), sparsity=sparse_after("", 0)),
    "mimo_v2_flash": partial(
        build,
        mixer=mimo_attention,
        kinds=mimo_kinds,
        sparse=routed,
        sparsity=sparse_after("", 1),
    ),
    "minimax_m2": partial(build, mixer=partial(attention, qk_norm="row"), sparse=plain_experts, sparsity=all_sparse),
    "minimax_m3_vl_text": minimax_m3,
    "mixtral": partial(build, kinds=all_windowed, sparse=plain_experts, sparsity=all_sparse),
    "olmoe": partial(build, mixer=partial(biased, qk_norm="row"), sparse=plain_experts, sparsity=all_sparse),
    "phimoe": partial(
        build,
        mixer=biased,
        kinds=all_windowed,
        sparse=plain_experts,
        sparsity=all_sparse,
        norm=LAYER,
        head_bias="lm_head_bias",
    ),
    "qwen2_moe": partial(
        build,
        mixer=partial(attention, qkv_bias="qkv_bias"),
        kinds=qwen2_moe_kinds,
        sparse=qwen_experts,
        sparsity=sparse_by_step,
    ),
    "qwen3_moe": partial(
        build,
        mixer=qwen3,
        kinds=qwen3_moe_kinds,
        sparse=partial(routed, experts="num_experts"),
        sparsity=sparse_by_step,
    ),
    "qwen3_omni_moe_text": partial(
        build, mixer=qwen3, sparse=partial(routed, experts="num_experts"), sparsity=sparse_by_step
    ),
    "qwen3_vl_moe_text": partial(
        build, mixer=qwen3, sparse=partial(routed, experts="num_experts"), sparsity=sparse_by_step
    ),
    "sarvam_moe": partial(
        build,
        mixer=partial(attention, qkv_bias="attention_bias", qk_norm="head", qk_norm_if="use_qk_norm"),
        sparse=partial(routed, shared=shared_experts),
        sparsity=sparse_after(),
    ),
    "solar_open": partial(
        build,
        mixer=partial(attention, qkv_bias="attention_bias"),
        sparse=partial(routed, shared=shared_experts),
        sparsity=all_sparse,
    ),
    "step3p5": step3p5,
}
