"""Encoders, encoder-decoders and decoders with cross-attention: BERT and its kin, T5, Whisper, Llama 3.2 Vision.

An encoder's layers see their whole input at once and keep no cache. In an encoder-decoder they stand first, then the
decoder's, whose cross-attention keeps keys and values of the encoder's output once a sequence.

References
----------
.. [1] J. Devlin et al., "BERT", NAACL 2019, arXiv:1810.04805; Z. Lan et al., "ALBERT", ICLR 2020, arXiv:1909.11942;
   B. Warner et al., "ModernBERT", 2024, arXiv:2412.13663; C. Raffel et al., "T5", JMLR 2020, arXiv:1910.10683;
   A. Radford et al., "Whisper", 2022, arXiv:2212.04356.
.. [2] huggingface/transformers 5.24.0, `models/<family>/modeling_<family>.py`, the constructors of each family.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from tonnage.model.hf.blocks import FULL, LAYER, RMS, SLIDING, assemble, stack
from tonnage.model.hf.fields import MOST_LAYERS, Fields
from tonnage.model.hf.towers import num_patches
from tonnage.model.types import Attention, Layer, Mlp, Model


def bidirectional(num_heads: int, hidden_size: int, *, has_bias: bool = True, extra_parameters: int = 0) -> Attention:
    """Return attention over a whole input, with as many key-value heads as heads, of equal shares of the width."""
    return Attention(
        num_heads=num_heads,
        num_kv_heads=num_heads,
        head_dim=hidden_size // num_heads,
        has_qkv_bias=has_bias,
        has_output_bias=has_bias,
        is_bidirectional=True,
        extra_parameters=extra_parameters,
    )


def encoder_model(
    f: Fields,
    layers: tuple[Layer, ...],
    *,
    hidden_size: int,
    other: Mapping[str, int],
    embedding_size: int | None = None,
    is_tied: bool | None = None,
    has_head_bias: bool = False,
) -> Model:
    """Return a model from its layers and its parameters outside them, the head's matrix added where it is not tied.

    Parameters
    ----------
    other : mapping
        Parameters outside the layers by component; those of the token table and of the head are added.
    embedding_size : int or None
        Width of the token table, where it is not the hidden size.
    is_tied : bool or None
        Whether the head is the token table; None reads `tie_word_embeddings`.
    has_head_bias : bool
        Whether a head that is not tied has a bias of its own beside the one that a tied head has (in `other`).
    """
    vocab_size = f.count("vocab_size")
    tied = f.flag("tie_word_embeddings") if is_tied is None else is_tied
    table = vocab_size * (embedding_size or hidden_size)
    counts = {**other, "embedding": other.get("embedding", 0) + table}
    if not tied:
        counts["lm_head"] = counts.get("lm_head", 0) + table + (vocab_size if has_head_bias else 0)
    return Model(
        name="",
        family=f.model_type,
        hidden_size=hidden_size,
        vocab_size=vocab_size,
        layers=layers,
        other_parameters={component: count for component, count in counts.items() if count},
        is_tied=tied,
        embedding_size=embedding_size,
        max_position_tokens=f.maybe_count("max_position_embeddings"),
        dtype=(f.word("dtype") or f.word("torch_dtype") or "bfloat16"),
    )


def bert_layer(f: Fields) -> Layer:
    """Return BERT's layer; the norm behind attention counts as attention, as it is part of that module."""
    hidden_size = f.count("hidden_size")
    mixer = bidirectional(f.count("num_attention_heads"), hidden_size, extra_parameters=LAYER * hidden_size)
    width = f.count("hidden_dim" if f.is_known("hidden_dim") else "intermediate_size")
    return Layer(mixers=(mixer,), feed_forwards=(plain_mlp(width),), norm_parameters=LAYER * hidden_size)


def with_tables(
    f: Fields,
    layers: tuple[Layer, ...],
    *,
    narrow: int | None = None,
    is_mapped: bool = False,
    head: str = "other",
    is_modular: bool = True,
) -> Model:
    """Return an encoder with tables of tokens, positions and segments, a norm behind them, and a head.

    The head guesses masked tokens: a matrix, a norm, a bias. In a model named `…Model`, as embedding models are, it is
    a pooler instead: a square matrix.

    Parameters
    ----------
    narrow : int or None
        Width of the tables, where it is not the hidden size.
    is_mapped : bool
        Whether a matrix leads from the tables' width to the hidden size.
    head : str
        The component that the head's matrix and bias count as.
    is_modular : bool
        Whether there is a pooler, and a head with a bias of its own where it is not tied.
    """
    hidden_size, vocab_size = f.count("hidden_size"), f.count("vocab_size")
    width = hidden_size if narrow is None else narrow
    num_segments = f.count("type_vocab_size", least=0) if f.is_known("type_vocab_size") else 0
    others = {
        "embedding": (f.count("max_position_embeddings") + num_segments) * width,
        "norm": LAYER * width,
        "other": (width + 1) * hidden_size if is_mapped else 0,
    }
    named = (f.words("architectures") or [""])[:1]
    has_pooler = bool(named) and named[0].endswith("Model")
    if has_pooler:
        others["other"] += (hidden_size + 1) * hidden_size if is_modular else 0
    else:
        others["norm"] += LAYER * width
        others[head] = others.get(head, 0) + (hidden_size + 1) * width + vocab_size
    return encoder_model(
        f,
        layers,
        hidden_size=hidden_size,
        embedding_size=narrow,
        other=others,
        is_tied=True if has_pooler else None,
        has_head_bias=is_modular,
    )


def bert(f: Fields, *, head: str = "other", is_modular: bool = True) -> Model:
    """BERT, RoBERTa and DistilBERT: post-norm layers with biases."""
    return with_tables(f, (bert_layer(f),) * f.num_layers(), head=head, is_modular=is_modular)


def electra(f: Fields) -> Model:
    """ELECTRA's generator: BERT with tables of their own width."""
    narrow = f.count("embedding_size")
    is_mapped = narrow != f.count("hidden_size")
    return with_tables(f, (bert_layer(f),) * f.num_layers(), narrow=narrow, is_mapped=is_mapped, is_modular=False)


def albert(f: Fields) -> Model:
    """ALBERT: narrow tables, and groups of layers that run several times with the same weights."""
    num_layers, num_groups, num_inner = f.num_layers(), f.count("num_hidden_groups"), f.num_layers("inner_group_num")
    if num_groups > num_layers or num_layers * num_inner > MOST_LAYERS:
        raise f.refuse("num_hidden_groups", "and inner_group_num do not go with num_hidden_layers")
    groups = [index * num_groups // num_layers for index in range(num_layers)]
    layers: list[Layer] = []
    for index, group in enumerate(groups):
        is_repeat = group in groups[:index]
        layers.extend([replace(bert_layer(f), is_repeat=is_repeat)] * num_inner)
    return with_tables(f, tuple(layers), narrow=f.count("embedding_size"), is_mapped=True)


def plain_mlp(intermediate_size: int, *, has_bias: bool = True) -> Mlp:
    """Return a feed-forward of two matrices."""
    return Mlp(intermediate_size=intermediate_size, is_gated=False, has_bias=has_bias)


def modernbert(f: Fields) -> Model:
    """ModernBERT: pre-norm layers without biases, a window in two of three, a gated feed-forward."""
    hidden_size, vocab_size = f.count("hidden_size"), f.count("vocab_size")
    num_heads, has_bias = f.count("num_attention_heads"), f.flag("attention_bias")
    norm = (LAYER if f.flag("norm_bias") else RMS) * hidden_size
    every = f.count_or("global_attn_every_n_layers", 3)
    num_layers = f.num_layers()
    kinds = f.layer_types(num_layers) or [SLIDING if index % every else FULL for index in range(num_layers)]
    feed_forward = Mlp(intermediate_size=f.count("intermediate_size"), has_bias=f.flag("mlp_bias"))

    def layer(spec: tuple[str, bool]) -> Layer:
        kind, is_first = spec
        window = f.count("local_attention") if kind == SLIDING else None
        mixer = replace(bidirectional(num_heads, hidden_size, has_bias=has_bias), window_tokens=window)
        # the first layer takes the normed embedding as it is
        return Layer(mixers=(mixer,), feed_forwards=(feed_forward,), norm_parameters=norm if is_first else 2 * norm)

    dense = hidden_size * hidden_size + (hidden_size if f.flag("classifier_bias") else 0)
    return encoder_model(
        f,
        stack([(kind, index == 0) for index, kind in enumerate(kinds)], layer),
        hidden_size=hidden_size,
        other={"norm": 3 * norm, "other": dense + (vocab_size if f.flag("decoder_bias") else 0)},
    )


def t5(f: Fields, *, shares_positions: bool = True) -> Model:
    """T5, mT5 and UMT5: no biases, RMSNorms, a table of relative positions for each stack, in UMT5 for each layer."""
    hidden_size, num_heads = f.count("d_model"), f.count("num_heads")
    num_layers = f.num_layers("num_layers")
    num_decoder_layers = f.num_layers("num_decoder_layers" if f.has("num_decoder_layers") else "num_layers")
    is_gated = (f.word("feed_forward_proj") or "").startswith("gated-")
    feed_forward = Mlp(intermediate_size=f.count("d_ff"), is_gated=is_gated)
    positions = f.count("relative_attention_num_buckets") * num_heads

    def mixer(extra: int = 0, *, is_bidirectional: bool = False, source: int | None = None) -> Attention:
        return Attention(
            num_heads=num_heads,
            num_kv_heads=num_heads,
            head_dim=f.count("d_kv"),
            source_width=source,
            is_bidirectional=is_bidirectional,
            extra_parameters=extra,
        )

    def encoder_layer(extra: int) -> Layer:
        mixers = (mixer(extra, is_bidirectional=True),)
        return Layer(mixers=mixers, feed_forwards=(feed_forward,), norm_parameters=2 * hidden_size)

    def decoder_layer(extra: int) -> Layer:
        mixers = (mixer(extra), mixer(source=hidden_size))
        return Layer(mixers=mixers, feed_forwards=(feed_forward,), norm_parameters=3 * hidden_size)

    def first(number: int) -> list[int]:
        return [positions if index == 0 or not shares_positions else 0 for index in range(number)]

    return encoder_model(
        f,
        (*stack(first(num_layers), encoder_layer), *stack(first(num_decoder_layers), decoder_layer)),
        hidden_size=hidden_size,
        other={"norm": 2 * hidden_size},
        is_tied=True,
    )


def bart(
    f: Fields, *, spare_positions: int | None = 0, has_table_norms: bool = False, has_last_norms: bool = True
) -> Model:
    """BART, mBART, Pegasus and M2M-100: biases everywhere, a norm behind or before each part.

    Parameters
    ----------
    spare_positions : int or None
        Rows that each of the two tables of positions has beyond the longest input; None: positions are not learned.
    has_table_norms : bool
        Whether a norm stands behind each stack's embedding.
    has_last_norms : bool
        Whether a norm stands behind each stack.
    """
    hidden_size = f.count("d_model")

    def mixer(heads: str, *, is_encoder: bool = False, source: int | None = None) -> Attention:
        made = bidirectional(f.count(heads), hidden_size)
        return replace(made, is_bidirectional=is_encoder, source_width=source)

    encoder_layer = Layer(
        mixers=(mixer("encoder_attention_heads", is_encoder=True),),
        feed_forwards=(plain_mlp(f.count("encoder_ffn_dim")),),
        norm_parameters=2 * LAYER * hidden_size,
    )
    decoder_layer = Layer(
        mixers=(mixer("decoder_attention_heads"), mixer("decoder_attention_heads", source=hidden_size)),
        feed_forwards=(plain_mlp(f.count("decoder_ffn_dim")),),
        norm_parameters=3 * LAYER * hidden_size,
    )
    rows = 0 if spare_positions is None else f.count("max_position_embeddings") + spare_positions
    num_norms = 2 * (has_table_norms + has_last_norms)
    # where the head is not tied to the token table, neither are encoder and decoder
    tables = 0 if f.flag("tie_word_embeddings") else 2 * f.count("vocab_size")
    return encoder_model(
        f,
        (encoder_layer,) * f.num_layers("encoder_layers") + (decoder_layer,) * f.num_layers("decoder_layers"),
        hidden_size=hidden_size,
        other={"embedding": (2 * rows + tables) * hidden_size, "norm": num_norms * LAYER * hidden_size},
    )


def whisper(f: Fields) -> Model:
    """Whisper: two convolutions and positions in front of the encoder, a decoder that reads the encoder's output."""
    hidden_size = f.count("d_model")
    source_tokens = f.count("max_source_positions")
    biases = 2 * hidden_size  # query and value; the key has none

    def mixer(heads: str, *, is_bidirectional: bool = False, is_cross: bool = False) -> Attention:
        num_heads = f.count(heads)
        return Attention(
            num_heads=num_heads,
            num_kv_heads=num_heads,
            head_dim=hidden_size // num_heads,
            has_output_bias=True,
            is_bidirectional=is_bidirectional,
            source_width=hidden_size if is_cross else None,
            source_tokens=source_tokens if is_cross else None,
            extra_parameters=biases,
        )

    encoder_layer = Layer(
        mixers=(mixer("encoder_attention_heads", is_bidirectional=True),),
        feed_forwards=(plain_mlp(f.count("encoder_ffn_dim")),),
        norm_parameters=2 * LAYER * hidden_size,
    )
    decoder_layer = Layer(
        mixers=(mixer("decoder_attention_heads"), mixer("decoder_attention_heads", is_cross=True)),
        feed_forwards=(plain_mlp(f.count("decoder_ffn_dim")),),
        norm_parameters=3 * LAYER * hidden_size,
    )
    convolutions = (3 * f.count("num_mel_bins") + 3 * hidden_size + 2) * hidden_size
    model = encoder_model(
        f,
        (encoder_layer,) * f.num_layers("encoder_layers") + (decoder_layer,) * f.num_layers("decoder_layers"),
        hidden_size=hidden_size,
        other={
            "embedding": (source_tokens + f.count("max_target_positions")) * hidden_size,
            "norm": 2 * LAYER * hidden_size,
            "other": convolutions,
        },
    )
    return replace(model, max_position_tokens=f.count("max_target_positions"))


def mllama(f: Fields) -> Model:
    """Llama 3.2 Vision: Llama's layers, and some that attend to the image's patches instead of the text."""
    return mllama_text(f.part("text_config"), f.part("vision_config"))


def mllama_text(f: Fields, vision: Fields | None = None) -> Model:
    """Return the text model; its token table has eight rows more than its head."""
    hidden_size, num_heads = f.count("hidden_size"), f.count("num_attention_heads")
    crossed = f.counts("cross_attention_layers")
    crossed = list(_MLLAMA_CROSS_ATTENTION_LAYERS) if crossed is None else crossed
    source_tokens = (num_patches(vision) + 1) * vision.count("max_num_tiles") if vision else None
    feed_forward = Mlp(intermediate_size=f.count("intermediate_size"))

    def layer(is_cross: bool) -> Layer:
        mixer = Attention(
            num_heads=num_heads,
            num_kv_heads=f.count("num_key_value_heads"),
            head_dim=hidden_size // num_heads,
            qk_norm="head" if is_cross else "none",
            source_width=hidden_size if is_cross else None,
            source_tokens=source_tokens if is_cross else None,
            extra_parameters=2 if is_cross else 0,  # one gate behind attention, one behind the feed-forward
        )
        return Layer(mixers=(mixer,), feed_forwards=(feed_forward,), norm_parameters=2 * hidden_size)

    layers = stack([index in crossed for index in range(f.num_layers())], layer)
    return assemble(f, layers, extra={"embedding": 8 * hidden_size}, is_tied=False)


# configuration_mllama.py, where the config leaves them out
_MLLAMA_CROSS_ATTENTION_LAYERS: Final = (3, 8, 13, 18, 23, 28, 33, 38)

ENCODERS: Final[dict[str, Callable[[Fields], Model]]] = {
    "albert": albert,
    "bart": partial(bart, spare_positions=2, has_table_norms=True, has_last_norms=False),
    "bert": bert,
    "camembert": partial(bert, head="lm_head"),
    "distilbert": partial(bert, is_modular=False),
    "electra": electra,
    "m2m_100": partial(bart, spare_positions=None),
    "mbart": partial(bart, spare_positions=2, has_table_norms=True),
    "mllama": mllama,
    "mllama_text_model": mllama_text,
    "modernbert": modernbert,
    "mt5": t5,
    "pegasus": bart,
    "roberta": partial(bert, head="lm_head"),
    "t5": t5,
    "umt5": partial(t5, shares_positions=False),
    "whisper": whisper,
    "xlm-roberta": partial(bert, head="lm_head"),
}
