"""Gemma 3n and 4: wide heads in some layers, keys and values taken over from earlier ones, embeddings for each layer.

References
----------
.. [1] huggingface/transformers 5.24.0, `models/gemma4/modeling_gemma4.py`, `models/gemma3n/modeling_gemma3n.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tonnage.model.hf.blocks import FULL, SLIDING, assemble, full_every, layer_kinds, mlp, stack
from tonnage.model.hf.decoder import biased
from tonnage.model.hf.fields import Fields
from tonnage.model.types import Attention, FeedForward, Layer, Mlp, Model, Moe, Norms


def gemma4_kinds(f: Fields) -> list[str]:
    """Every sixth layer and the last see everything."""
    kinds = full_every(6, field=None)(f)
    return [*kinds[:-1], FULL] if kinds else kinds


def gemma4_overrides(f: Fields, kinds: list[str]) -> list[Fields]:
    """Return the config as each layer sees it: full layers have wider heads, and perhaps fewer of keys and values."""
    if f.config.get("per_layer_config") is not None:
        given = f.layer_overrides()
        return [f.with_fields(given.get(index, {})) for index in range(len(kinds))]
    wide: dict[str, int] = {"head_dim": f.count_or("global_head_dim", 512)}
    num_kv_heads = f.maybe_count("num_global_key_value_heads") if f.flag("attention_k_eq_v") else None
    if num_kv_heads is not None:
        wide["num_key_value_heads"] = num_kv_heads
    full = f.with_fields(wide)
    return [full if kind == FULL else f for kind in kinds]


def gemma_attention(f: Fields, kind: str, *, is_shared: bool, key_is_value: bool = False) -> Attention:
    """Return Gemma's attention; a shared layer takes keys and values over."""
    mixer = biased(f, kind, qk_norm="head")
    window = mixer.window_tokens
    if window is not None and f.get("use_bidirectional_attention") == "all":
        window = window // 2 + 1
    return replace(mixer, window_tokens=window, stores_cache=not is_shared, key_is_value=key_is_value)


def gemma4_experts(f: Fields) -> Moe:
    """Return Gemma 4's experts, which run beside the dense feed-forward; the router scales its input and its output."""
    num_experts, hidden_size = f.count("num_experts"), f.count("hidden_size")
    return Moe(
        num_experts=num_experts,
        top_k=f.count("top_k_experts"),
        expert_size=f.count("moe_intermediate_size"),
        router_parameters=num_experts * hidden_size + hidden_size + num_experts,
    )


def gemma4(f: Fields) -> Model:
    """Return the text model of Gemma 4."""
    hidden_size, num_layers = f.count("hidden_size"), f.num_layers()
    kinds = gemma4_kinds(f)
    first_shared = num_layers - f.count_or("num_kv_shared_layers", 0, least=0)
    own = gemma4_overrides(f, kinds)
    slot = f.count_or("hidden_size_per_layer_input", 0, least=0)
    has_experts = f.flag("enable_moe_block")
    norms = (4 + (1 if slot else 0) + (3 if has_experts else 0)) * hidden_size
    experts = (gemma4_experts(f),) if has_experts else ()
    dense = mlp(f)
    double = replace(dense, intermediate_size=2 * dense.intermediate_size) if f.flag("use_double_wide_mlp") else dense

    def layer(spec: tuple[str, bool, int]) -> Layer:
        kind, is_shared, index = spec
        is_same = f.flag("attention_k_eq_v") and kind != SLIDING
        feed_forward: tuple[FeedForward, ...] = (double if is_shared else dense, *experts)
        return Layer(
            mixers=(gemma_attention(own[index], kind, is_shared=is_shared, key_is_value=is_same),),
            feed_forwards=feed_forward,
            norm_parameters=norms,
            norms=Norms(count=norms // hidden_size),
            other_parameters=2 * hidden_size * slot,
        )

    # layers that see the same config are made once, by the first index that does
    firsts: dict[tuple[str, int], int] = {}
    specs = [
        (kind, index >= first_shared, firsts.setdefault((kind, id(own[index])), index))
        for index, kind in enumerate(kinds)
    ]
    return assemble(
        f,
        stack(specs, layer),
        extra={"other": hidden_size * num_layers * slot, "norm": slot},
        per_layer_embedding_parameters=f.count("vocab_size_per_layer_input") * num_layers * slot if slot else 0,
    )


def gemma3n(f: Fields) -> Model:
    """Return the text model of Gemma 3n: four streams mixed by a small router (AltUp), a low-rank path (LAuReL)."""
    hidden_size, num_layers, slot = f.count("hidden_size"), f.num_layers(), f.count("hidden_size_per_layer_input")
    streams, rank = f.count("altup_num_inputs"), f.count("laurel_rank")
    kinds = layer_kinds(f, lambda index: FULL if (index + 1) % 5 == 0 else SLIDING)
    first_shared = num_layers - f.count_or("num_kv_shared_layers", 0, least=0)
    if isinstance(f.get("intermediate_size"), list):
        widths = f.counts("intermediate_size", least=1) or []
    else:
        widths = [f.count("intermediate_size")] * num_layers
    if len(widths) != num_layers:
        raise f.refuse("intermediate_size", f"gives {len(widths)} widths for {num_layers} layers")
    mixing = hidden_size + streams * streams + streams**3 + hidden_size * streams
    beside = mixing + 2 * hidden_size * rank + 2 * hidden_size * slot

    def layer(spec: tuple[str, bool, int]) -> Layer:
        kind, is_shared, width = spec
        return Layer(
            mixers=(gemma_attention(f, kind, is_shared=is_shared),),
            feed_forwards=(Mlp(intermediate_size=width),),
            norm_parameters=7 * hidden_size,
            norms=Norms(count=7),
            other_parameters=beside,
        )

    specs = [(kind, index >= first_shared, widths[index]) for index, kind in enumerate(kinds)]
    outside = hidden_size * num_layers * slot + 2 * (streams - 1) * hidden_size * hidden_size
    return assemble(
        f,
        stack(specs, layer),
        extra={"other": outside, "norm": slot},
        per_layer_embedding_parameters=f.count("vocab_size_per_layer_input") * num_layers * slot,
    )


GEMMA: Final[dict[str, Callable[[Fields], Model]]] = {"gemma3n_text": gemma3n, "gemma4_text": gemma4}
