"""Decoders from before 2023, with field names and shapes of their own.

References
----------
.. [1] huggingface/transformers 5.24.0, `models/<family>/modeling_<family>.py`, the constructors of each family.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tonnage.model.hf.blocks import FULL, LAYER, RMS, activation_of, assemble, chosen, stack
from tonnage.model.hf.fields import Fields
from tonnage.model.types import Attention, Layer, Mlp, Model, Norms


def uniform(
    f: Fields,
    *,
    num_kv_heads: int | None = None,
    qkv_bias: bool | str = True,
    output_bias: bool | str = True,
    width: int | None = None,
    mlp_bias: bool | str = True,
    norm: int = LAYER,
    num_norms: int = 2,
    is_parallel: bool = False,
    is_fused_view: bool = False,
    num_norms_inside: int = 0,
    attention_extra: int = 0,
    final_norm: int | None = None,
    num_positions: int = 0,
    head_bias: bool = False,
    extra: dict[str, int] | None = None,
) -> Model:
    """Return a decoder of equal layers: heads share the hidden size, the feed-forward is not gated.

    Parameters
    ----------
    width : int or None
        Inner width of the feed-forward; None: four hidden sizes.
    is_parallel : bool
        Whether feed-forward and attention read the same residual.
    is_fused_view : bool
        Whether one product makes queries, keys and values, of which the first two are rotated.
    num_norms_inside : int
        Norms whose weights count with the attention's.
    num_positions : int
        Rows of a learnt table of positions.
    final_norm : int or None
        Weights of the last norm in hidden sizes, where it is not like the others.
    """
    hidden_size, heads = f.count("hidden_size"), f.count("num_attention_heads")
    layer = Layer(
        mixers=(
            Attention(
                num_heads=heads,
                num_kv_heads=num_kv_heads or heads,
                head_dim=hidden_size // heads,
                has_qkv_bias=chosen(f, qkv_bias),
                has_output_bias=chosen(f, output_bias),
                extra_parameters=attention_extra,
                is_fused_view=is_fused_view,
            ),
        ),
        feed_forwards=(
            Mlp(
                intermediate_size=width or 4 * hidden_size,
                is_gated=False,
                has_bias=chosen(f, mlp_bias),
                activation=activation_of(f),
            ),
        ),
        norm_parameters=num_norms * norm * hidden_size,
        norms=Norms(count=num_norms + num_norms_inside, kind="layer"),
        is_parallel=is_parallel,
    )
    others = dict(extra or {})
    others["embedding"] = others.get("embedding", 0) + num_positions * hidden_size
    return assemble(
        f,
        stack([FULL] * f.num_layers(), lambda _: layer),
        norm=norm if final_norm is None else final_norm,
        head_bias=head_bias,
        extra=others,
    )


def gpt2(f: Fields) -> Model:
    """Return GPT-2 or GPT-3: learnt positions, biases everywhere."""
    refuse_cross_attention(f)
    return uniform(f, width=f.maybe_count("n_inner"), num_positions=f.count("max_position_embeddings"))


def gpt_bigcode(f: Fields) -> Model:
    """Return StarCoder: GPT-2 with one head of keys and values."""
    refuse_cross_attention(f)
    return uniform(
        f,
        num_kv_heads=1 if f.flag("multi_query") else None,
        width=f.maybe_count("n_inner"),
        num_positions=f.count("max_position_embeddings"),
    )


def refuse_cross_attention(f: Fields) -> None:
    """Refuse a decoder that reads an encoder: it is not a language model by itself."""
    if f.flag("add_cross_attention"):
        raise f.refuse("add_cross_attention", "makes it half of an encoder-decoder, which is not supported")


def gptj(f: Fields) -> Model:
    """Return GPT-J or CodeGen: one norm for attention and feed-forward, a biased head."""
    return uniform(
        f,
        qkv_bias=False,
        output_bias=False,
        width=f.maybe_count("n_inner"),
        num_norms=1,
        is_parallel=True,
        head_bias=True,
    )


def gpt_neox_japanese(f: Fields) -> Model:
    """Return GPT-NeoX Japanese: no biases but one, behind the last layer's attention."""
    multiple = f.number("intermediate_multiple_size")
    hidden_size = f.count("hidden_size")
    return uniform(
        f,
        qkv_bias=False,
        output_bias=False,
        mlp_bias=False,
        width=int(hidden_size * multiple),
        extra={"attention": hidden_size},
    )


def persimmon(f: Fields) -> Model:
    """Return Persimmon: biases everywhere, norms of queries and keys that are as wide as a head."""
    share = f.count("hidden_size") // f.count("num_attention_heads")
    extra = 2 * LAYER * share if f.flag("qk_layernorm") else 0
    return uniform(f, width=f.count("intermediate_size"), attention_extra=extra)


def xglm(f: Fields) -> Model:
    """Return XGLM: positions that are computed, biases everywhere."""
    refuse_cross_attention(f)
    return uniform(f, width=f.count("ffn_dim"))


def biogpt(f: Fields) -> Model:
    """Return BioGPT: OPT's positions, biases everywhere."""
    return uniform(f, width=f.count("intermediate_size"), num_positions=f.count("max_position_embeddings") + 2)


def gpt_neo(f: Fields) -> Model:
    """Return GPT-Neo: learnt positions, no biases of queries, keys and values."""
    return uniform(
        f,
        qkv_bias=False,
        width=f.maybe_count("intermediate_size"),
        num_positions=f.count("max_position_embeddings"),
    )


def gpt_neox(f: Fields) -> Model:
    """Return GPT-NeoX and Pythia."""
    return uniform(
        f,
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        width=f.count("intermediate_size"),
        is_parallel=f.flag("use_parallel_residual"),
        is_fused_view=True,
    )


def bloom(f: Fields) -> Model:
    """Return BLOOM: a norm behind the embedding."""
    width = f.maybe_count("n_embed")
    if width is not None:
        f = f.with_fields({"hidden_size": width})
    return uniform(f, extra={"norm": LAYER * f.count("hidden_size")})


def mpt(f: Fields) -> Model:
    """Return MPT: no biases, its norms included; the feed-forward is always four hidden sizes wide."""
    return uniform(f, qkv_bias=False, output_bias=False, mlp_bias=False, norm=RMS)


def falcon(f: Fields) -> Model:
    """Return Falcon: one head of keys and values, or a few in the new decoder."""
    width = f.maybe_count("n_embed")
    if width is not None:
        f = f.with_fields({"hidden_size": width})
    is_new = f.flag("new_decoder_architecture")
    if is_new:
        num_kv_heads = f.count_or("num_kv_heads", f.count("num_attention_heads"))
    else:
        num_kv_heads = 1 if f.flag("multi_query") else None
    in_parallel = f.count_or("num_ln_in_parallel_attn", 2 if is_new else 1)
    has_own_norm = (
        f.flag("parallel_attn") and in_parallel == 2
    )  # transformers keeps it with the attention, as `ln_attn`
    return uniform(
        f,
        num_kv_heads=num_kv_heads,
        qkv_bias="bias",
        output_bias="bias",
        width=f.maybe_count("ffn_hidden_size"),
        mlp_bias="bias",
        num_norms=1 if f.flag("parallel_attn") else 2,
        is_parallel=f.flag("parallel_attn"),
        is_fused_view=not f.flag("alibi"),
        num_norms_inside=int(has_own_norm),
        attention_extra=LAYER * f.count("hidden_size") if has_own_norm else 0,
        final_norm=LAYER,
    )


def opt(f: Fields) -> Model:
    """Return OPT: two spare rows of positions; an embedding narrower than the layers is projected."""
    hidden_size, vocab_size = f.count("hidden_size"), f.count("vocab_size")
    narrow = f.count_or("word_embed_proj_dim", hidden_size)
    extra: dict[str, int] = {}
    if narrow != hidden_size:
        tables = 1 if f.flag("tie_word_embeddings") else 2
        extra = {"embedding": vocab_size * (narrow - hidden_size), "other": 2 * narrow * hidden_size}
        if tables == 2:
            extra["lm_head"] = vocab_size * (narrow - hidden_size)
    norm = LAYER if f.flag("layer_norm_elementwise_affine") else 0
    has_final_norm = f.flag("do_layer_norm_before") and not f.flag("_remove_final_layer_norm")
    return uniform(
        f,
        qkv_bias="enable_bias",
        output_bias="enable_bias",
        width=f.count("ffn_dim"),
        mlp_bias="enable_bias",
        norm=norm,
        final_norm=norm if has_final_norm else 0,
        num_positions=f.count("max_position_embeddings") + 2,
        extra=extra,
    )


CLASSIC: Final[dict[str, Callable[[Fields], Model]]] = {
    "biogpt": biogpt,
    "bloom": bloom,
    "codegen": gptj,
    "falcon": falcon,
    "gpt2": gpt2,
    "gpt_bigcode": gpt_bigcode,
    "gpt_neo": gpt_neo,
    "gpt_neox": gpt_neox,
    "gpt_neox_japanese": gpt_neox_japanese,
    "gptj": gptj,
    "mpt": mpt,
    "opt": opt,
    "persimmon": persimmon,
    "xglm": xglm,
}
