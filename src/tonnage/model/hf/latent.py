"""Decoders with multi-head latent attention (MLA), some of which select the tokens they look at.

References
----------
.. [1] huggingface/transformers 5.24.0, `models/<family>/modeling_<family>.py`, the constructors of each family.
.. [2] DeepSeek-AI, "DeepSeek-V2", 2024, arXiv:2405.04434.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from tonnage.model.hf.blocks import (
    FULL,
    SLIDING,
    assemble,
    build,
    mlp,
    routed,
    shared_experts,
    sparse_after,
    stack,
)
from tonnage.model.hf.fields import Fields
from tonnage.model.types import (
    CompressedAttention,
    Indexer,
    LatentAttention,
    Layer,
    Mlp,
    Model,
    Moe,
)

SPARSE_COMPRESSED: Final = "compressed_sparse_attention"
HEAVILY_COMPRESSED: Final = "heavily_compressed_attention"
# configuration_deepseek_v4.py, _COMPRESS_RATIO_TO_LAYER_TYPE
KIND_OF_RATIO: Final = {0: SLIDING, 4: SPARSE_COMPRESSED, 128: HEAVILY_COMPRESSED}


def latent_attention(f: Fields, kind: str = FULL) -> LatentAttention:
    """Return MLA from DeepSeek's fields."""
    del kind
    return LatentAttention(
        num_heads=f.count("num_attention_heads"),
        q_lora_rank=f.maybe_count("q_lora_rank"),
        kv_lora_rank=f.count("kv_lora_rank"),
        qk_nope_head_dim=f.count("qk_nope_head_dim"),
        qk_rope_head_dim=f.count("qk_rope_head_dim"),
        v_head_dim=f.count("v_head_dim"),
        has_bias=f.flag("attention_bias"),
    )


def indexer(f: Fields) -> Indexer:
    """Return DSA's selector of tokens."""
    return Indexer(num_heads=f.count("index_n_heads"), head_dim=f.count("index_head_dim"), top_k=f.count("index_topk"))


def indexed_attention(f: Fields, kind: str) -> LatentAttention:
    """Return MLA with a selector, or without its own where the kind says that it is shared."""
    mixer = latent_attention(f)
    return mixer if kind == "shared" else replace(mixer, indexer=indexer(f))


def glm_indexers(f: Fields) -> list[str]:
    """Say for each layer of GLM-5 whether it has a selector ("full") or takes over the one before ("shared")."""
    num_layers = f.num_layers()
    listed = f.words("indexer_types")
    if listed is None:
        pattern = f.get("index_topk_pattern")
        if isinstance(pattern, str):
            listed = ["full" if letter == "F" else "shared" for letter in pattern]
        else:
            listed = f.words("index_topk_pattern")
    if listed is None:
        every, offset = f.count_or("index_topk_freq", 1, least=0), f.count_or("index_skip_topk_offset", 2, least=0)
        listed = ["shared" if max(i - offset + 1, 0) % max(every, 1) else "full" for i in range(num_layers)]
    if len(listed) < num_layers:
        raise f.refuse("indexer_types", f"names {len(listed)} of {num_layers} layers")
    return listed[:num_layers]


def with_num_experts(f: Fields) -> Fields:
    """Return the config with `num_experts`, where it is set, taken for the number of routed experts."""
    number = f.maybe_count("num_experts")
    return f if number is None else f.with_fields({"n_routed_experts": number})


def longcat(f: Fields) -> Model:
    """Return LongCat-Flash: two latent attentions and two dense feed-forwards a layer, with experts beside them.

    Identity experts have no work to do, but a first projection is allocated for them as for the others.
    """
    hidden_size, width = f.count("hidden_size"), f.count("moe_intermediate_size")
    num_experts = f.count("n_routed_experts", least=0)
    idle = f.count_or("zero_expert_num", 0, least=0)
    total = num_experts + idle
    mixer = latent_attention(f)
    nope = f.count_or("qk_head_dim", mixer.qk_nope_head_dim + mixer.qk_rope_head_dim) - mixer.qk_rope_head_dim
    if nope != mixer.qk_nope_head_dim:
        raise f.refuse("qk_head_dim", "is not the sum of 'qk_nope_head_dim' and 'qk_rope_head_dim'")
    dense = mlp(f)
    experts = Moe(
        num_experts=num_experts,
        top_k=f.count("num_experts_per_tok"),
        expert_size=width,
        num_identity_experts=idle,
        identity_expert_parameters=2 * width * hidden_size,
        router_parameters=total * (hidden_size + (1 if f.flag("router_bias") else 0)),
    )
    layer = Layer(mixers=(mixer, mixer), feed_forwards=(dense, dense, experts), norm_parameters=4 * hidden_size)
    return assemble(f, stack([FULL] * f.num_layers("num_layers"), lambda _: layer))


def deepseek_v4_kinds(f: Fields) -> list[str]:
    """Return the kind of each layer: listed, or by old compression ratios, or alternating."""
    num_layers = f.num_layers()
    listed, ratios = f.words("layer_types"), f.counts("compress_ratios")
    if listed is None and ratios is not None:
        unknown = sorted({ratio for ratio in ratios if ratio not in KIND_OF_RATIO})
        if unknown:
            raise f.refuse("compress_ratios", f"has {unknown[0]}, which is none of {sorted(KIND_OF_RATIO)}")
        listed = [KIND_OF_RATIO[ratio] for ratio in ratios]
    if listed is None:
        listed = [SPARSE_COMPRESSED if index >= 2 and index % 2 else HEAVILY_COMPRESSED for index in range(num_layers)]
    if len(listed) < num_layers:
        raise f.refuse("layer_types", f"names {len(listed)} of {num_layers} layers")
    return listed[:num_layers]


def compress_tokens(f: Fields, kind: str) -> int:
    """Return how many tokens one compressed entry stands for."""
    old = {SPARSE_COMPRESSED: "compress_rate_csa", HEAVILY_COMPRESSED: "compress_rate_hca"}[kind]
    usual = {SPARSE_COMPRESSED: 4, HEAVILY_COMPRESSED: 128}[kind]
    rates = f.part("compress_rates")
    return f.maybe_count(old) or rates.count_or(kind, usual)


def compressed_attention(f: Fields, kind: str) -> CompressedAttention:
    """Return DeepSeek-V4's attention of one kind."""
    rate = None if kind == SLIDING else compress_tokens(f, kind)
    return CompressedAttention(
        num_heads=f.count("num_attention_heads"),
        head_dim=f.count("head_dim"),
        q_lora_rank=f.count("q_lora_rank"),
        num_output_groups=f.count("o_groups"),
        o_lora_rank=f.count("o_lora_rank"),
        window_tokens=f.count("sliding_window"),
        compress_tokens=rate,
        has_overlap=kind == SPARSE_COMPRESSED,
        indexer=indexer(f) if kind == SPARSE_COMPRESSED else None,
    )


def deepseek_v4(f: Fields) -> Model:
    """Return DeepSeek-V4: compressed attention, experts everywhere, several residual streams mixed before each part."""
    hidden_size, streams = f.count("hidden_size"), f.count("hc_mult")
    mixed = (2 + streams) * streams
    connection = mixed * streams * hidden_size + mixed + 3
    shared = Mlp(intermediate_size=f.count("moe_intermediate_size"), has_bias=f.flag("mlp_bias"))
    experts = replace(routed(f), shared=shared, extra_parameters=connection)

    def layer(kind: str) -> Layer:
        mixer = replace(compressed_attention(f, kind), extra_parameters=connection)
        return Layer(mixers=(mixer,), feed_forwards=(experts,), norm_parameters=2 * hidden_size)

    head = streams * streams * hidden_size + streams + 1
    return assemble(f, stack(deepseek_v4_kinds(f), layer), extra={"other": head})


def deepseek_v2_shared(f: Fields) -> Mlp:
    """Return DeepSeek-V2's shared experts, which keep a bias of the hidden size even where there are none."""
    wide = f.count("n_shared_experts", least=0) * f.count("moe_intermediate_size")
    return Mlp(intermediate_size=wide, has_bias=f.flag("mlp_bias"))


def minicpm3_attention(f: Fields, kind: str) -> LatentAttention:
    """Return MLA whose values are an equal share of the hidden size, where their width is not set."""
    share = f.count("hidden_size") // f.count("num_attention_heads")
    return latent_attention(f.with_fields({"v_head_dim": f.count_or("v_head_dim", share)}), kind)


deepseek_experts = partial(routed, shared=shared_experts)

LATENT: Final[dict[str, Callable[[Fields], Model]]] = {
    "deepseek_v2": partial(
        build,
        mixer=latent_attention,
        dense=partial(mlp, bias="mlp_bias"),
        sparse=partial(routed, experts="num_experts", shared=deepseek_v2_shared),
        sparsity=sparse_after(),
    ),
    "deepseek_v3": partial(build, mixer=latent_attention, sparse=deepseek_experts, sparsity=sparse_after()),
    "deepseek_v32": lambda f: build(
        with_num_experts(f),
        mixer=indexed_attention,
        sparse=deepseek_experts,
        sparsity=sparse_after(),
    ),
    "deepseek_v4": deepseek_v4,
    "glm4_moe_lite": partial(build, mixer=latent_attention, sparse=deepseek_experts, sparsity=sparse_after("", 1)),
    "glm_moe_dsa": lambda f: build(
        with_num_experts(f),
        mixer=indexed_attention,
        kinds=glm_indexers,
        sparse=deepseek_experts,
        sparsity=sparse_after(),
    ),
    "longcat_flash": longcat,
    "minicpm3": partial(build, mixer=minicpm3_attention, dense=partial(mlp, bias="mlp_bias")),
    "mistral4": partial(build, mixer=latent_attention, sparse=deepseek_experts, sparsity=sparse_after()),
    "sarvam_mla": partial(build, mixer=latent_attention, sparse=deepseek_experts, sparsity=sparse_after()),
    "youtu": partial(build, mixer=latent_attention),
}
