"""Dense decoders of today's usual shape: attention and a feed-forward, each behind a norm.

References
----------
.. [1] huggingface/transformers 5.24.0, `models/<family>/modeling_<family>.py`, the constructors of each family.
"""

from __future__ import annotations

from collections.abc import Callable

from tonnage.model.hf.blocks import FULL, RMS, SLIDING, assemble, attention, kinds_or, mlp, stack
from tonnage.model.hf.fields import Fields
from tonnage.model.types import Layer, Model, QkNorm

Kinds = Callable[[Fields], list[str]]


def all_full(f: Fields) -> list[str]:
    """Every layer sees everything."""
    return kinds_or(f, lambda _: FULL)


def all_windowed(f: Fields) -> list[str]:
    """Every layer has the window, where one is set (Mistral)."""
    kind = SLIDING if f.maybe_count("sliding_window") is not None else FULL
    return [kind] * f.num_layers()


def windowed_above(f: Fields) -> list[str]:
    """Layers from `max_window_layers` on have the window, where it is switched on (Qwen)."""
    first = f.count_or("max_window_layers", 0, least=0)
    is_on = f.flag("use_sliding_window") and f.maybe_count("sliding_window") is not None
    return kinds_or(f, lambda index: SLIDING if is_on and index >= first else FULL)


def decoder(
    f: Fields,
    *,
    qkv_bias: bool | str = False,
    output_bias: bool | str = False,
    mlp_bias: bool | str = False,
    qk_norm: QkNorm = "none",
    norm: int = RMS,
    norms_per_layer: int = 2,
    is_gated: bool = True,
    kinds: Kinds = all_full,
    head_bias: bool | str = False,
) -> Model:
    """Return a dense decoder with a family's traits; a trait given as text names the field that decides it."""
    feed_forward = mlp(f, is_gated=is_gated, bias=mlp_bias)
    norms = norms_per_layer * norm * f.count("hidden_size")

    def layer(kind: str) -> Layer:
        mixer = attention(f, kind=kind, qkv_bias=qkv_bias, output_bias=output_bias, qk_norm=qk_norm)
        return Layer(mixers=(mixer,), feed_forwards=(feed_forward,), norm_parameters=norms)

    return assemble(f, stack(kinds(f), layer), norm=norm, head_bias=head_bias)
