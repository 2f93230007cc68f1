"""Decoders with layers of a fixed state: gated delta nets, state spaces, short convolutions, lightning attention.

References
----------
.. [1] huggingface/transformers 5.24.0, `models/<family>/modeling_<family>.py`, the constructors of each family.
.. [2] S. Yang et al., "Gated Delta Networks", ICLR 2025, arXiv:2412.06464.
.. [3] T. Dao and A. Gu, "Transformers are SSMs", ICML 2024, arXiv:2405.21060.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import cycle
from typing import Final

from tonnage.model.hf.blocks import (
    FULL,
    LINEAR,
    all_sparse,
    assemble,
    attention,
    build,
    layer_kinds,
    mlp,
    routed,
    shared_experts,
    sparse_after,
    stack,
)
from tonnage.model.hf.decoder import biased
from tonnage.model.hf.fields import Fields
from tonnage.model.hf.latent import latent_attention
from tonnage.model.hf.moe import granite_hybrid_shared, plain_experts, qwen_experts, sparse_by_step
from tonnage.model.types import (
    Attention,
    GatedDeltaNet,
    LatentAttention,
    Layer,
    LightningAttention,
    Mamba1,
    Mamba2,
    Mixer,
    Mlp,
    Model,
    Moe,
    ShortConvolution,
)

CONVOLUTION: Final = "conv"


def gated_delta_net(f: Fields) -> GatedDeltaNet:
    """Return Qwen's linear attention."""
    return GatedDeltaNet(
        num_key_heads=f.count("linear_num_key_heads"),
        num_value_heads=f.count("linear_num_value_heads"),
        key_head_dim=f.count("linear_key_head_dim"),
        value_head_dim=f.count("linear_value_head_dim"),
        conv_kernel=f.count("linear_conv_kernel_dim"),
    )


def qwen_mixer(f: Fields, kind: str) -> Mixer:
    """Return a gated delta net, or attention with an output gate."""
    if kind == LINEAR:
        return gated_delta_net(f)
    return biased(f, kind, qk_norm="head", has_output_gate=True)


def full_every_interval(f: Fields) -> list[str]:
    """Every `full_attention_interval`-th layer has attention."""
    every = f.count_or("full_attention_interval", 4)
    return layer_kinds(f, lambda index: LINEAR if (index + 1) % every else FULL)


def olmo_hybrid(f: Fields) -> Model:
    """Return Olmo Hybrid: the delta net's sizes follow from the attention's where they are not set."""
    hidden_size, heads = f.count("hidden_size"), f.count("num_attention_heads")
    key_heads = f.count_or("linear_num_key_heads", heads)
    key_dim = f.count_or("linear_key_head_dim", int(0.75 * hidden_size / key_heads))
    sizes = {
        "linear_num_key_heads": key_heads,
        "linear_num_value_heads": f.count_or("linear_num_value_heads", heads),
        "linear_key_head_dim": key_dim,
        "linear_value_head_dim": f.count_or("linear_value_head_dim", 2 * key_dim),
    }

    def mixer(g: Fields, kind: str) -> Mixer:
        return gated_delta_net(g) if kind == LINEAR else biased(g, kind, qk_norm="row")

    def kinds(g: Fields) -> list[str]:
        num_layers = g.num_layers()
        usual = [FULL if index % 4 == 3 else LINEAR for index in range(num_layers)]
        if usual and FULL not in usual:
            usual[-1] = FULL
        return g.layer_types(num_layers) or usual

    return build(f.with_fields(sizes), mixer=mixer, kinds=kinds)


def kimi_delta_attention(f: Fields, *, rank: int | None) -> GatedDeltaNet:
    """Return Kimi's delta attention (KDA): a decay for each channel; gates of a low rank or of full rank.

    References
    ----------
    .. [1] Moonshot AI, "Kimi Linear", 2025, arXiv:2510.26692.
    """
    heads, width = f.count("linear_num_heads"), f.count("linear_head_dim")
    return GatedDeltaNet(
        num_key_heads=heads,
        num_value_heads=heads,
        key_head_dim=width,
        value_head_dim=width,
        conv_kernel=f.count("linear_conv_kernel_dim"),
        has_channel_decay=True,
        decay_rank=rank,
        gate_rank=rank,
    )


def kimi_linear(f: Fields) -> Model:
    """Return Kimi Linear: three delta attentions to one latent attention."""
    num_layers = f.num_layers()
    old = f.part("linear_attn_config")
    sizes = {
        "linear_num_heads": old.count_or("num_heads", f.count("linear_num_heads")),
        "linear_head_dim": old.count_or("head_dim", f.count("linear_head_dim")),
        "linear_conv_kernel_dim": old.count_or("short_conv_kernel_size", f.count("linear_conv_kernel_dim")),
    }
    full, linear = old.counts("full_attn_layers"), old.counts("kda_layers")

    def mixer(g: Fields, kind: str) -> Mixer:
        return latent_attention(g) if kind == FULL else kimi_delta_attention(g, rank=g.count("linear_head_dim"))

    def kinds(g: Fields) -> list[str]:
        listed = g.layer_types(num_layers)
        if listed is not None:
            return listed
        if full is None or linear is None:
            return [FULL if index and index % 4 == 0 else LINEAR for index in range(num_layers)]
        if sorted(full + linear) != list(range(1, num_layers + 1)):
            raise f.refuse("linear_attn_config", f"does not name each of {num_layers} layers once")
        return [FULL if index + 1 in full else LINEAR for index in range(num_layers)]

    return build(
        f.with_fields(sizes),
        mixer=mixer,
        kinds=kinds,
        sparse=partial(routed, shared=shared_experts),
        sparsity=sparse_after(otherwise=1),
        mixer_components={LINEAR: "attention"},
        is_tied=False,
    )


def bailing_hybrid(f: Fields) -> Model:
    """Return Ling 3: five delta attentions to one latent attention with a gate for each head."""
    heads = f.count("num_attention_heads")
    every = f.count_or("layer_group_size", 6)
    sizes = {
        "linear_num_heads": f.count_or("linear_num_heads", heads),
        "linear_head_dim": f.count_or("linear_head_dim", f.count("head_dim")),
        "linear_conv_kernel_dim": f.count_or("linear_conv_kernel_dim", f.count("short_conv_kernel_size")),
    }

    def mixer(g: Fields, kind: str) -> Mixer:
        if kind == LINEAR:
            return kimi_delta_attention(g, rank=None)
        latent: LatentAttention = latent_attention(g)
        return replace(latent, num_head_gates=heads)

    return build(
        f.with_fields(sizes),
        mixer=mixer,
        kinds=lambda g: layer_kinds(g, lambda index: LINEAR if (index + 1) % every else FULL),
        sparse=partial(routed, shared=shared_experts),
        sparsity=sparse_after(otherwise=2),
        mixer_components={LINEAR: "attention"},
        is_tied=False,
    )


def mamba1(f: Fields, *, inner_size: int, norms: int = 0, rank: str = "time_step_rank") -> Mamba1:
    """Return a selective state space from Mamba's fields.

    Parameters
    ----------
    norms : int
        1 where the step and the two projections of the state have norms with weights (Jamba).
    rank : str
        The field of the rank of the step's projection; "auto" is a sixteenth of the hidden size.
    """
    given = f.get(rank, "auto")
    dt_rank = math.ceil(f.count("hidden_size") / 16) if given == "auto" else f.count(rank)
    state_size = f.count("state_size")
    return Mamba1(
        inner_size=inner_size,
        state_size=state_size,
        conv_kernel=f.count("conv_kernel"),
        dt_rank=dt_rank,
        has_conv_bias=f.flag("use_conv_bias"),
        has_projection_bias=f.flag("use_bias"),
        extra_parameters=norms * (dt_rank + 2 * state_size),
    )


def mamba(f: Fields) -> Model:
    """Return Mamba and Falcon Mamba: nothing but state spaces."""
    inner = f.maybe_count("intermediate_size") or int(f.number("expand") * f.count("hidden_size"))
    return only(f, mamba1(f, inner_size=inner))


def mamba2_model(f: Fields) -> Model:
    """Return Mamba 2: nothing but state spaces with heads."""
    mixer = Mamba2(
        num_heads=f.count("num_heads"),
        head_dim=f.count("head_dim"),
        num_groups=f.count("n_groups"),
        state_size=f.count("state_size"),
        conv_kernel=f.count("conv_kernel"),
        inner_size=int(f.number("expand") * f.count("hidden_size")),
        has_conv_bias=f.flag("use_conv_bias"),
        has_projection_bias=f.flag("use_bias"),
    )
    return only(f, mixer)


def only(f: Fields, mixer: Mixer) -> Model:
    """Return a decoder of equal layers of one mixer and its norm."""
    layer = Layer(mixers=(mixer,), norm_parameters=f.count("hidden_size"))
    return assemble(f, stack([LINEAR] * f.num_layers(), lambda _: layer))


def mamba2(f: Fields, *, inner_size: int | None = None, has_norm: bool = True) -> Mamba2:
    """Return a state space with heads from the fields of Bamba, Granite 4 and Falcon H1."""
    heads = f.count("mamba_n_heads")
    inner = inner_size or int(f.number("mamba_expand") * f.count("hidden_size"))
    given = f.get("mamba_d_head", "auto")
    return Mamba2(
        num_heads=heads,
        head_dim=inner // heads if given == "auto" else f.count("mamba_d_head"),
        num_groups=f.count("mamba_n_groups"),
        state_size=f.count("mamba_d_state"),
        conv_kernel=f.count("mamba_d_conv"),
        inner_size=inner,
        has_conv_bias=f.flag("mamba_conv_bias"),
        has_projection_bias=f.flag("mamba_proj_bias"),
        has_norm=has_norm,
    )


def bamba(f: Fields) -> Model:
    """Return Bamba: state spaces, and attention in the layers that are named."""
    full = set(f.counts("attn_layer_indices") or ())

    def mixer(g: Fields, kind: str) -> Mixer:
        return mamba2(g) if kind == LINEAR else biased(g, kind)

    return build(
        f,
        mixer=mixer,
        kinds=lambda g: [FULL if index in full else LINEAR for index in range(g.num_layers())],
        dense=partial(mlp, bias="mlp_bias"),
    )


def granite_hybrid(f: Fields) -> Model:
    """Return Granite 4: state spaces and attention, each before experts with a shared one, or before that alone."""
    hidden_size = f.count("hidden_size")
    has_experts = f.count_or("num_local_experts", 0, least=0) > 0
    feed_forward = (
        plain_experts(f, shared=granite_hybrid_shared)
        if has_experts
        else Mlp(intermediate_size=f.count("shared_intermediate_size"))
    )

    def layer(kind: str) -> Layer:
        return Layer(
            mixers=(mamba2(f) if kind == LINEAR else biased(f, kind),),
            feed_forwards=(feed_forward,),
            norm_parameters=2 * hidden_size,
            mlp_component="shared_experts",
        )

    return assemble(f, stack(layer_kinds(f, lambda _: LINEAR), layer))


def falcon_h1(f: Fields) -> Model:
    """Return Falcon H1: attention and a state space side by side in every layer."""
    hidden_size = f.count("hidden_size")
    inner = f.maybe_count("mamba_d_ssm")
    state = mamba2(f, inner_size=inner, has_norm=f.flag("mamba_rms_norm"))
    if f.flag("projectors_bias") != f.flag("mamba_proj_bias"):
        # its input has the bias of `mamba_proj_bias`, its output that of `projectors_bias`
        widths = (state.inner_size or 0) * 2 + 2 * state.num_groups * state.state_size + state.num_heads
        bias = hidden_size if f.flag("projectors_bias") else widths
        state = replace(state, has_projection_bias=False, extra_parameters=bias)
    layer = Layer(
        mixers=(biased(f), state),
        feed_forwards=(mlp(f, bias="mlp_bias"),),
        norm_parameters=2 * hidden_size,
    )
    return assemble(f, stack([FULL] * f.num_layers(), lambda _: layer))


def jamba(f: Fields) -> Model:
    """Return Jamba: state spaces with attention now and then, experts in every so many layers."""
    num_layers, hidden_size = f.num_layers(), f.count("hidden_size")
    attention_every, attention_first = f.count("attn_layer_period"), f.count("attn_layer_offset", least=0)
    experts_every, experts_first = f.count("expert_layer_period"), f.count("expert_layer_offset", least=0)
    num_experts = f.count("num_experts")
    own = f.with_fields(
        {
            "state_size": f.count("mamba_d_state"),
            "conv_kernel": f.count("mamba_d_conv"),
            "use_conv_bias": f.flag("mamba_conv_bias"),
            "use_bias": f.flag("mamba_proj_bias"),
        }
    )
    state = mamba1(own, inner_size=f.count("mamba_expand") * hidden_size, norms=1, rank="mamba_dt_rank")
    kinds = [FULL if index % attention_every == attention_first else LINEAR for index in range(num_layers)]
    sparse = [num_experts > 1 and index % experts_every == experts_first for index in range(num_layers)]
    return build(
        f,
        mixer=lambda g, kind: state if kind == LINEAR else attention(g, kind),
        kinds=lambda _: kinds,
        sparse=plain_experts,
        sparsity=lambda _: sparse,
    )


def nemotron_h(f: Fields) -> Model:
    """Return Nemotron H: each layer is one part only, a state space, attention, a feed-forward or experts.

    transformers calls each of them `mixer`, so attention and plain feed-forwards count as state space there.
    """
    hidden_size = f.count("hidden_size")
    makers: dict[str, Callable[[], Layer]] = {
        LINEAR: lambda: Layer(mixers=(nemotron_state(f),)),
        FULL: lambda: Layer(mixers=(attention(f),)),
        "mlp": lambda: Layer(feed_forwards=(mlp(f, is_gated=False, bias="mlp_bias"),)),
        "moe": lambda: Layer(feed_forwards=(nemotron_experts(f),)),
    }

    def layer(kind: str) -> Layer:
        if kind not in makers:
            raise f.refuse("layers_block_type", f"has '{kind[:40]}', which is none of {', '.join(makers)}")
        return replace(
            makers[kind](),
            norm_parameters=hidden_size,
            mixer_component="linear_attn_ssm",
            mlp_component="linear_attn_ssm",
        )

    return assemble(f, stack(nemotron_kinds(f), layer), is_tied=False)


def nemotron_kinds(f: Fields) -> list[str]:
    """Return the part that each layer is: as listed, or as the letters of the old pattern say."""
    listed = f.words("layers_block_type")
    if listed is not None:
        renamed = {"mamba": LINEAR, "attention": FULL}
        return [renamed.get(kind, kind) for kind in listed]
    pattern = f.word("hybrid_override_pattern")
    if pattern is None:
        return [LINEAR, "moe", FULL, "mlp"]
    letters = {"M": LINEAR, "E": "moe", "*": FULL, "-": "mlp"}
    unknown = next((letter for letter in pattern if letter not in letters), None)
    if unknown is not None:
        raise f.refuse("hybrid_override_pattern", f"has '{unknown}', which is none of {' '.join(letters)}")
    return [letters[letter] for letter in pattern]


def nemotron_state(f: Fields) -> Mamba2:
    """Return Nemotron's state space; some of its fields have older names that win."""
    return Mamba2(
        num_heads=f.count("mamba_num_heads"),
        head_dim=f.count("mamba_head_dim"),
        num_groups=f.count_or("mamba_n_groups", f.count("n_groups")),
        state_size=f.count("ssm_state_size"),
        conv_kernel=f.count_or("mamba_d_conv", f.count("conv_kernel")),
        has_conv_bias=f.flag("mamba_conv_bias") if f.is_known("mamba_conv_bias") else f.flag("use_conv_bias"),
        has_projection_bias=f.flag("use_bias"),
    )


def nemotron_experts(f: Fields) -> Moe:
    """Return Nemotron's experts, which may work in a narrower latent space between two projections."""
    hidden_size, latent = f.count("hidden_size"), f.maybe_count("moe_latent_size")
    has_bias = f.flag("mlp_bias")
    around = 0
    if latent is not None:
        around = 2 * hidden_size * latent + (hidden_size + latent if has_bias else 0)
    return Moe(
        num_experts=f.count("n_routed_experts"),
        top_k=f.count("num_experts_per_tok"),
        expert_size=f.count("moe_intermediate_size"),
        is_gated=False,
        expert_input_size=latent,
        shared=mlp(f, width="moe_shared_expert_intermediate_size", is_gated=False, bias=has_bias),
        extra_parameters=around,
    )


def short_convolution(f: Fields) -> ShortConvolution:
    """Return LFM2's gated short convolution."""
    return ShortConvolution(
        channels=f.count("hidden_size"), conv_kernel=f.count("conv_L_cache"), has_bias=f.flag("conv_bias")
    )


def lfm2_mixer(f: Fields, kind: str) -> Mixer:
    """Return a short convolution, or attention with norms of queries and keys."""
    return short_convolution(f) if kind == CONVOLUTION else attention(f, kind, qk_norm="head")


def lfm2_mlp(f: Fields) -> Mlp:
    """Return LFM2's feed-forward: two thirds of the width given, scaled and rounded up to whole blocks."""
    width = f.maybe_count("block_ff_dim") or f.count("intermediate_size")
    if f.flag("block_auto_adjust_ff_dim"):
        width = int(2 * width / 3)
        if f.get("block_ffn_dim_multiplier") is not None:
            block = f.count("block_multiple_of")
            width = int(f.number("block_ffn_dim_multiplier") * width)
            width = block * ((width + block - 1) // block)
    return Mlp(intermediate_size=width)


def tied_as_lfm(f: Fields) -> bool:
    """Return whether the head is the embedding; an older name of the field wins."""
    return f.flag("tie_embedding") if f.is_known("tie_embedding") else f.flag("tie_word_embeddings")


def lfm2(f: Fields) -> Model:
    """Return LFM2: short convolutions, and attention in some layers."""
    named = f.counts("full_attn_idxs")
    full = set(range(f.num_layers()) if named is None else named)
    return build(
        f,
        mixer=lfm2_mixer,
        kinds=lambda g: layer_kinds(g, lambda index: FULL if index in full else CONVOLUTION),
        dense=lfm2_mlp,
        is_tied=tied_as_lfm(f),
    )


def lfm2_moe(f: Fields) -> Model:
    """Return LFM2 with experts behind the first dense layers."""
    first, num_layers = f.count("num_dense_layers", least=0), f.num_layers()
    kinds = f.layer_types(num_layers)
    if kinds is None:
        raise f.refuse("layer_types", "is missing")
    return build(
        f,
        mixer=lfm2_mixer,
        kinds=lambda _: kinds,
        sparse=partial(routed, experts="num_experts"),
        sparsity=lambda _: [index >= first for index in range(num_layers)],
        is_tied=tied_as_lfm(f),
    )


def minimax_mixer(f: Fields, kind: str) -> Mixer:
    """Return MiniMax's lightning attention, or attention."""
    if kind != LINEAR:
        return attention(f, kind)
    heads = f.count("num_attention_heads")
    return LightningAttention(num_heads=heads, head_dim=f.count_or("head_dim", f.count("hidden_size") // heads))


def minimax_kinds(f: Fields) -> list[str]:
    """Every other layer is lightning attention, where the file does not list the kinds."""
    return layer_kinds(f, lambda index: FULL if (index + 1) % 2 else LINEAR)


def zamba2(f: Fields) -> Model:
    """Return Zamba 2: state spaces, before some of which one of a few shared attention blocks runs.

    A shared block sees the stream beside the embedding, hence twice the hidden size. Its feed-forward (and its
    attention, where `use_shared_attention_adapter` says so) has a low-rank adapter for each place it runs in. The
    blocks are shared by the same switch as head and embedding.
    """
    hidden_size, heads = f.count("hidden_size"), f.count("num_attention_heads")
    is_tied, num_blocks = f.flag("tie_word_embeddings"), f.count("num_mem_blocks")
    kinds = zamba2_kinds(f)
    num_places = kinds.count("hybrid")
    state = Layer(mixers=(zamba2_state(f),), norm_parameters=hidden_size)
    layers: list[Layer] = []
    block_of_place = cycle(range(num_blocks))
    place = 0
    for kind in kinds:
        if kind == "hybrid":
            block = next(block_of_place)
            shared = zamba2_block(f, heads=heads, num_adapters=len(range(block, num_places, num_blocks)))
            layers.append(replace(shared, is_repeat=is_tied and place >= num_blocks))
            place += 1
        layers.append(state)
    return assemble(f, layers)


def zamba2_kinds(f: Fields) -> list[str]:
    """Return the kind of each layer: as listed, else as in the published model."""
    listed = f.words("layers_block_type")
    if listed is None:
        near = [LINEAR] + ([LINEAR] * 5 + ["hybrid"]) * 7
        listed = near + [LINEAR] * 4 + ["hybrid"] + [LINEAR] * 3 + ["hybrid"] + [LINEAR] * 2
    return listed


def zamba2_state(f: Fields) -> Mamba2:
    """Return Zamba 2's state space."""
    heads = f.count("n_mamba_heads")
    inner = int(f.number("mamba_expand") * f.count("hidden_size"))
    return Mamba2(
        num_heads=heads,
        head_dim=inner // heads,
        num_groups=f.count("mamba_ngroups"),
        state_size=f.count("mamba_d_state"),
        conv_kernel=f.count("mamba_d_conv"),
        inner_size=inner,
        has_projection_bias=f.flag("add_bias_linear"),
    )


def zamba2_block(f: Fields, *, heads: int, num_adapters: int) -> Layer:
    """Return a shared block with its adapters, and the projection behind it that belongs to the place."""
    hidden_size, rank = f.count("hidden_size"), f.count("adapter_rank")
    width = f.maybe_count("intermediate_size") or 4 * hidden_size
    source = 2 * hidden_size
    adapted = 3 * 2 * source * rank if f.flag("use_shared_attention_adapter") else 0
    mixer = Attention(
        num_heads=heads,
        num_kv_heads=f.count_or("num_key_value_heads", heads),
        head_dim=source // heads,
        input_size=source,
        extra_parameters=num_adapters * adapted,
    )
    feed_forward = Mlp(
        intermediate_size=width,
        has_bias=f.flag("add_bias_linear"),
        extra_parameters=num_adapters * rank * (hidden_size + 2 * width),
    )
    return Layer(
        mixers=(mixer,),
        feed_forwards=(feed_forward,),
        norm_parameters=source + hidden_size,
        other_parameters=hidden_size * hidden_size,
    )


HYBRID: Final[dict[str, Callable[[Fields], Model]]] = {
    "bailing_hybrid": bailing_hybrid,
    "bamba": bamba,
    "falcon_h1": falcon_h1,
    "falcon_mamba": mamba,
    "granitemoehybrid": granite_hybrid,
    "jamba": jamba,
    "kimi_linear": kimi_linear,
    "lfm2": lfm2,
    "lfm2_moe": lfm2_moe,
    "mamba": mamba,
    "mamba2": mamba2_model,
    "minimax": partial(
        build,
        mixer=minimax_mixer,
        kinds=minimax_kinds,
        sparse=plain_experts,
        sparsity=all_sparse,
        mixer_components={LINEAR: "attention"},
    ),
    "nemotron_h": nemotron_h,
    "olmo_hybrid": olmo_hybrid,
    "qwen3_5_moe_text": partial(
        build, mixer=qwen_mixer, kinds=full_every_interval, sparse=qwen_experts, sparsity=all_sparse
    ),
    "qwen3_5_text": partial(build, mixer=qwen_mixer, kinds=full_every_interval),
    "qwen3_next": partial(
        build, mixer=qwen_mixer, kinds=full_every_interval, sparse=qwen_experts, sparsity=sparse_by_step
    ),
    "zamba2": zamba2,
}
