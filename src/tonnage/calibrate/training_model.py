"""The model of a training row: a catalogue model of the same shape, or one built from the row's shape fields."""

from __future__ import annotations

import math
import re
from functools import cache
from typing import Final

from tonnage.calibrate.types import Row
from tonnage.estimate import parameters
from tonnage.model import catalogue
from tonnage.model.types import Attention, LatentAttention, Layer, Mamba2, Mlp, Model, Moe

_MEGATRON_HEAD: Final = 64  # Mamba-2 head width, state, groups and expansion that Megatron takes unless told
_MEGATRON_STATE: Final = 128
_MEGATRON_GROUPS: Final = 8
_CLOSE: Final = 0.03


@cache
def _catalogue_shapes() -> dict[tuple[int, int, int], tuple[str, ...]]:
    shapes: dict[tuple[int, int, int], list[str]] = {}
    for name in catalogue.names():
        model = catalogue.find(name)
        shapes.setdefault((model.hidden_size, model.num_layers, model.vocab_size), []).append(name)
    return {shape: tuple(found) for shape, found in shapes.items()}


def _catalogue_model(row: Row) -> Model | None:
    """Return a catalogue model that has every shape figure of the row."""
    try:
        shape = (int(row["hidden"]), int(row["layers"]), int(row["vocab"]))
    except (KeyError, TypeError, ValueError):
        return None
    for name in _catalogue_shapes().get(shape, ()):
        model = catalogue.find(name)
        if model.encoder is None and _same_heads(model, row) and model.is_moe == bool(row.get("experts")):
            return model
    return None


def _same_heads(model: Model, row: Row) -> bool:
    layer = model.layers[-1]
    heads = [m.num_heads for m in layer.mixers if isinstance(m, (Attention, LatentAttention))]
    widths = [f.intermediate_size for f in layer.feed_forwards if isinstance(f, Mlp)]
    same_heads = not heads or not row.get("heads") or heads[0] == row["heads"]
    return same_heads and (not widths or not row.get("ffn") or widths[0] == row["ffn"])


def _attention(row: Row, hidden: int, head_dim: int | None = None) -> Attention | LatentAttention:
    heads = int(row.get("heads") or max(1, hidden // 128))
    if row.get("kv_lora_rank"):
        return LatentAttention(
            num_heads=heads,
            q_lora_rank=row.get("q_lora_rank"),
            kv_lora_rank=int(row["kv_lora_rank"]),
            qk_nope_head_dim=128,
            qk_rope_head_dim=64,
            v_head_dim=128,
        )
    return Attention(
        num_heads=heads, num_kv_heads=int(row.get("kv_heads") or heads), head_dim=head_dim or hidden // heads
    )


def _pattern_layers(row: Row, hidden: int) -> tuple[Layer, ...]:
    """Return the layers of a hybrid pattern: M state space, * attention, - feed-forward, E experts."""
    inner = 2 * hidden
    shared = (
        Mlp(intermediate_size=int(row["shared_expert_ffn"]), is_gated=False) if row.get("shared_expert_ffn") else None
    )
    parts = {
        "M": Layer(
            mixers=(
                Mamba2(
                    num_heads=inner // _MEGATRON_HEAD,
                    head_dim=_MEGATRON_HEAD,
                    num_groups=_MEGATRON_GROUPS,
                    state_size=_MEGATRON_STATE,
                    conv_kernel=4,
                ),
            ),
            norm_parameters=hidden,
        ),
        "*": Layer(mixers=(_attention(row, hidden),), norm_parameters=hidden),
        "-": Layer(feed_forwards=(Mlp(intermediate_size=int(row["ffn"]), is_gated=False),), norm_parameters=hidden),
        "E": Layer(
            feed_forwards=(
                Moe(
                    num_experts=int(row.get("experts") or 1),
                    top_k=int(row.get("active_experts") or 1),
                    expert_size=int(row.get("moe_ffn") or row["ffn"]),
                    is_gated=False,
                    shared=shared,
                ),
            ),
            norm_parameters=hidden,
        ),
    }
    return tuple(parts[c] for c in str(row["hybrid_pattern"]) if c in parts)


def _dense_first(row: Row, num_layers: int) -> int:
    """Return how many layers before the experts are dense, as `([0]*3+[1]*11)` says."""
    match = re.search(r"\[0\]\s*\*\s*(\d+)", str(row.get("moe_layer_freq") or ""))
    return min(num_layers, int(match[1])) if match else 0


def _uniform(row: Row, hidden: int, *, is_gated: bool, head_dim: int | None) -> Model:
    num_layers = int(row["layers"])
    attention = _attention(row, hidden, head_dim)
    dense = Layer(
        mixers=(attention,),
        feed_forwards=(Mlp(intermediate_size=int(row["ffn"]), is_gated=is_gated, has_bias=not is_gated),),
        norm_parameters=2 * hidden if is_gated else 4 * hidden,
    )
    layers = (dense,) * num_layers
    if row.get("experts"):
        gated = True
        shared = Mlp(intermediate_size=int(row["shared_expert_ffn"])) if row.get("shared_expert_ffn") else None
        experts = Moe(
            num_experts=int(row["experts"]),
            top_k=int(row.get("active_experts") or 2),
            expert_size=_expert_width(row, hidden, num_layers),
            is_gated=gated,
            shared=shared,
        )
        routed = Layer(mixers=(attention,), feed_forwards=(experts,), norm_parameters=2 * hidden)
        first = _dense_first(row, num_layers)
        layers = (dense,) * first + (routed,) * (num_layers - first)
    return _named(row, hidden, layers)


def _expert_width(row: Row, hidden: int, num_layers: int) -> int:
    """Return the width of one expert: as told, or what the difference of total and active parameters leaves for it."""
    if row.get("moe_ffn"):
        return int(row["moe_ffn"])
    total, active = row.get("params_total_b"), row.get("params_active_b")
    num_idle = int(row["experts"]) - int(row.get("active_experts") or 2)
    if total and active and num_idle > 0:
        width = (total - active) * 1e9 / (num_idle * 3 * hidden * num_layers)
        if abs(width / row["ffn"] - 1) > 0.1:
            return max(64, round(width / 64) * 64)
    return int(row["ffn"])


def _named(row: Row, hidden: int, layers: tuple[Layer, ...]) -> Model:
    vocab = int(row.get("vocab") or 50257)
    is_tied = bool(row.get("tied_embeddings"))
    other = {"embedding": vocab * hidden, "norm": hidden} | ({} if is_tied else {"lm_head": vocab * hidden})
    return Model(
        name=str(row.get("model") or row["id"]),
        family="",
        hidden_size=hidden,
        vocab_size=vocab,
        layers=layers,
        other_parameters=other,
        is_tied=is_tied,
        source=str(row.get("source") or ""),
        status="row",
    )


def _guessed_shape(row: Row) -> dict[str, int] | None:
    """Return a usual dense shape of a stated size: twelve h² a layer, and h about 128 times the depth."""
    billions = row.get("params_total_b")
    if not billions:
        return None
    depth = max(2, round((billions * 1e9 / (12 * 128**2)) ** (1 / 3)))
    hidden = max(128, round(math.sqrt(billions * 1e9 / 12 / depth) / 128) * 128)
    return {"hidden": hidden, "layers": depth, "heads": max(1, hidden // 128), "ffn": 4 * hidden}


def model_of(row: Row) -> tuple[Model | None, set[str]]:
    """Return a row's model and which of its traits had to be guessed; None when its shape is not known at all."""
    unknown: set[str] = set()
    if known := _catalogue_model(row):
        return known, unknown
    needed = ("hidden", "layers", "heads", "ffn")
    if any(not row.get(name) for name in needed if not (name == "layers" and row.get("hybrid_pattern"))):
        guess = _guessed_shape(row)
        if guess is None:
            name = str(row.get("model") or "")
            return (catalogue.find(name), unknown) if catalogue.has(name) else (None, {"shape"})
        row = {**guess, **{k: v for k, v in row.items() if v is not None}}
        unknown.add("shape")
    if not row.get("vocab"):
        unknown.add("vocab")
    hidden = int(row["hidden"])
    if row.get("hybrid_pattern"):
        return _named(row, hidden, _pattern_layers(row, hidden)), unknown
    return _closest(row, hidden), unknown


def _closest(row: Row, hidden: int) -> Model:
    """Return the variant (gated or not, head width) whose parameters come nearest to the total the row states."""
    usual_gated = int(row["ffn"]) != 4 * hidden or bool(row.get("experts"))
    if "swiglu" in str(row.get("model", "")).lower():
        usual_gated = True
    usual = _uniform(row, hidden, is_gated=usual_gated, head_dim=None)
    stated = row.get("params_total_b")
    if not stated:
        return usual
    variants = [usual]
    variants += [
        _uniform(row, hidden, is_gated=is_gated, head_dim=head_dim)
        for is_gated in (usual_gated, not usual_gated)
        for head_dim in (None, 128, 256, 64)
    ]

    def distance(model: Model) -> float:
        return abs(math.log(parameters.count(model).total / (stated * 1e9)))

    best = min(variants, key=distance)
    return usual if distance(usual) - distance(best) < _CLOSE else best
