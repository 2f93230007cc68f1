"""The blocks that most families are made of, read from a config's fields."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Final, TypeVar

from tonnage.model.hf.fields import Fields
from tonnage.model.types import Attention, Layer, Mlp, Model, QkNorm

Spec = TypeVar("Spec", bound=Hashable)

FULL: Final = "full_attention"
SLIDING: Final = "sliding_attention"
CHUNKED: Final = "chunked_attention"
LINEAR: Final = "linear_attention"

# weights of one norm, in hidden sizes
RMS: Final = 1
LAYER: Final = 2
PLAIN: Final = 0


def chosen(f: Fields, choice: bool | str) -> bool:
    """Return a trait: fixed by the family, or the value of the field that decides it."""
    return f.flag(choice) if isinstance(choice, str) else choice


def head_dim(f: Fields, num_heads: int, hidden_size: int) -> int:
    """Return the width of a head: as given, else an equal share of the hidden size."""
    return f.count_or("head_dim", hidden_size // num_heads)


def num_kv_heads(f: Fields, num_heads: int) -> int:
    """Return the number of key-value heads: as given, else one a query head."""
    return f.count_or("num_key_value_heads", num_heads)


def attention(
    f: Fields,
    *,
    kind: str = FULL,
    qkv_bias: bool | str = False,
    output_bias: bool | str = False,
    qk_norm: QkNorm = "none",
    has_output_gate: bool = False,
    extra_parameters: int = 0,
) -> Attention:
    """Return grouped attention from the usual fields."""
    hidden_size, heads = f.count("hidden_size"), f.count("num_attention_heads")
    return Attention(
        num_heads=heads,
        num_kv_heads=num_kv_heads(f, heads),
        head_dim=head_dim(f, heads, hidden_size),
        window_tokens=f.maybe_count("sliding_window") if kind == SLIDING else None,
        chunk_tokens=f.maybe_count("attention_chunk_size") if kind == CHUNKED else None,
        has_qkv_bias=chosen(f, qkv_bias),
        has_output_bias=chosen(f, output_bias),
        qk_norm=qk_norm,
        has_output_gate=has_output_gate,
        extra_parameters=extra_parameters,
    )


def mlp(f: Fields, *, is_gated: bool = True, bias: bool | str = False, field: str = "intermediate_size") -> Mlp:
    """Return a dense feed-forward from the usual fields."""
    return Mlp(intermediate_size=f.count(field), is_gated=is_gated, has_bias=chosen(f, bias))


def stack(specs: Iterable[Spec], make: Callable[[Spec], Layer]) -> tuple[Layer, ...]:
    """Return one layer a specification, equal ones made once."""
    made: dict[Spec, Layer] = {}
    layers: list[Layer] = []
    for spec in specs:
        if spec not in made:
            made[spec] = make(spec)
        layers.append(made[spec])
    return tuple(layers)


def kinds_or(f: Fields, otherwise: Callable[[int], str]) -> list[str]:
    """Return the kind of each layer: as the file lists them, else by the family's rule for a layer's index."""
    num_layers = f.num_layers()
    return f.layer_types(num_layers) or [otherwise(index) for index in range(num_layers)]


def assemble(
    f: Fields,
    layers: tuple[Layer, ...],
    *,
    norm: int = RMS,
    is_tied: bool | None = None,
    head_bias: bool | str = False,
    extra: Mapping[str, int] | None = None,
) -> Model:
    """Return a decoder with token embedding, final norm and head around its layers.

    Parameters
    ----------
    norm : int
        Weights of the final norm in hidden sizes.
    is_tied : bool or None
        Whether the head is the embedding; None reads `tie_word_embeddings`.
    extra : mapping
        Further parameters by component.
    """
    hidden_size, vocab_size = f.count("hidden_size"), f.count("vocab_size")
    tied = f.flag("tie_word_embeddings") if is_tied is None else is_tied
    head = (0 if tied else vocab_size * hidden_size) + (vocab_size if chosen(f, head_bias) else 0)
    other = {"embedding": vocab_size * hidden_size, "norm": norm * hidden_size, "lm_head": head}
    for component, count in (extra or {}).items():
        other[component] = other.get(component, 0) + count
    return Model(
        name="",
        family=f.model_type,
        hidden_size=hidden_size,
        vocab_size=vocab_size,
        layers=layers,
        other_parameters={component: count for component, count in other.items() if count},
        is_tied=tied,
        max_position_tokens=f.maybe_count("max_position_embeddings"),
        dtype=(f.word("dtype") or f.word("torch_dtype") or "bfloat16"),
    )
