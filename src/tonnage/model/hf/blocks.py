"""The blocks that most families are made of, and how a family is put together from them.

A family is one row of a table: `partial(build, mixer=…, dense=…, sparse=…)`. A trait given as text names the field of
the config that decides it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from tonnage.model.hf.fields import Fields
from tonnage.model.hf.numerics import as_computed
from tonnage.model.types import Attention, FeedForward, Layer, Mixer, Mlp, Model, Moe, Norms, QkNorm

Spec = TypeVar("Spec", bound=Hashable)
MakeMixer = Callable[[Fields, str], Mixer]
MakeFeedForward = Callable[[Fields], FeedForward]
Kinds = Callable[[Fields], list[str]]
Sparsity = Callable[[Fields], list[bool]]

FULL: Final = "full_attention"
SLIDING: Final = "sliding_attention"
CHUNKED: Final = "chunked_attention"
LINEAR: Final = "linear_attention"

# weights of one norm, in hidden sizes
RMS: Final = 1
LAYER: Final = 2
PLAIN: Final = 0
_FIELDS_OF_ACTIVATION: Final = ("hidden_act", "hidden_activation", "activation_function")


def chosen(f: Fields, choice: bool | str) -> bool:
    """Return a trait: fixed by the family, or the value of the field that decides it."""
    return f.flag(choice) if isinstance(choice, str) else choice


def window_of(f: Fields) -> int | None:
    """Return the length of the window; none where it is null, or 0 as some saved files have it."""
    return f.maybe_count("sliding_window", least=0) or None


def attention(
    f: Fields,
    kind: str = FULL,
    *,
    qkv_bias: bool | str = False,
    output_bias: bool | str = False,
    qk_norm: QkNorm = "none",
    qk_norm_if: bool | str = True,
    has_output_gate: bool = False,
    has_sinks: bool = False,
    can_set_head_dim: bool = True,
    is_fused_view: bool = False,
) -> Attention:
    """Return grouped attention from the usual fields.

    Parameters
    ----------
    kind : str
        The layer's kind: full, sliding or chunked.
    qk_norm_if : bool or str
        Whether the family's norm of queries and keys is there.
    can_set_head_dim : bool
        Whether a `head_dim` in the config counts; else a head is an equal share of the hidden size.
    is_fused_view : bool
        Whether transformers makes queries, keys and values by one product and rotates the first two.
    """
    hidden_size, heads = f.count("hidden_size"), f.count("num_attention_heads")
    share = hidden_size // heads
    return Attention(
        num_heads=heads,
        num_kv_heads=f.count_or("num_key_value_heads", heads),
        head_dim=f.count_or("head_dim", share) if can_set_head_dim else share,
        window_tokens=window_of(f) if kind == SLIDING else None,
        chunk_tokens=f.maybe_count("attention_chunk_size") if kind == CHUNKED else None,
        has_qkv_bias=chosen(f, qkv_bias),
        has_output_bias=chosen(f, output_bias),
        qk_norm=qk_norm if chosen(f, qk_norm_if) else "none",
        has_output_gate=has_output_gate,
        num_sinks=heads if has_sinks else 0,
        is_fused_view=is_fused_view,
        has_score_cap=f.get("attn_logit_softcapping") is not None,
    )


def activation_of(f: Fields) -> str:
    """Return the name of the activation, the family's own where the file names none."""
    named = (f.get(field) for field in _FIELDS_OF_ACTIVATION)
    return next((name for name in named if isinstance(name, str)), "silu")


def mlp(f: Fields, *, width: str = "intermediate_size", is_gated: bool = True, bias: bool | str = False) -> Mlp:
    """Return a dense feed-forward; `width` names the field of its inner width."""
    return Mlp(
        intermediate_size=f.count(width), is_gated=is_gated, has_bias=chosen(f, bias), activation=activation_of(f)
    )


def routed(
    f: Fields,
    *,
    experts: str = "num_local_experts",
    width: str = "moe_intermediate_size",
    top_k: str = "num_experts_per_tok",
    shared: Callable[[Fields], Mlp | None] | None = None,
    has_shared_gate: bool = False,
    has_router_bias: bool = False,
    has_expert_bias: bool = False,
    activation: str | None = None,
) -> Moe:
    """Return a mixture of experts; `experts`, `width` and `top_k` name the fields."""
    num_experts, hidden_size = f.count(experts), f.count("hidden_size")
    return Moe(
        num_experts=num_experts,
        top_k=f.count_or(top_k, 1),
        expert_size=f.count(width),
        has_expert_bias=has_expert_bias,
        router_parameters=num_experts * (hidden_size + 1) if has_router_bias else None,
        shared=shared(f) if shared else None,
        shared_gate_parameters=hidden_size if has_shared_gate else 0,
        activation=activation or activation_of(f),
    )


def shared_experts(f: Fields, *, number: str = "n_shared_experts", bias: bool | str = False) -> Mlp | None:
    """Return shared experts as one feed-forward, as wide as all of them."""
    wide = f.count_or(number, 0, least=0) * f.count("moe_intermediate_size")
    return Mlp(intermediate_size=wide, has_bias=chosen(f, bias)) if wide else None


def layer_kinds(f: Fields, otherwise: Callable[[int], str]) -> list[str]:
    """Return the kind of each layer: as the file lists them, else by the family's rule for a layer's index."""
    num_layers = f.num_layers()
    return f.layer_types(num_layers) or [otherwise(index) for index in range(num_layers)]


def all_full(f: Fields) -> list[str]:
    """Every layer sees everything."""
    return layer_kinds(f, lambda _: FULL)


def all_windowed(f: Fields) -> list[str]:
    """Every layer has the window, where one is set (Mistral)."""
    kind = SLIDING if window_of(f) is not None else FULL
    return [kind] * f.num_layers()


def windowed_by_default(f: Fields) -> list[str]:
    """Every layer has the window, where one is set and no kinds are listed (Ministral)."""
    kind = SLIDING if window_of(f) is not None else FULL
    return layer_kinds(f, lambda _: kind)


def full_every(period: int, field: str | None = "sliding_window_pattern") -> Kinds:
    """Every `period`-th layer sees everything, the others have the window; a field may set the period."""

    def kinds(f: Fields) -> list[str]:
        every = f.count_or(field, period) if field else period
        return layer_kinds(f, lambda index: SLIDING if (index + 1) % every else FULL)

    return kinds


def all_sparse(f: Fields) -> list[bool]:
    """Every layer has experts."""
    return [True] * f.num_layers()


def all_dense(f: Fields) -> list[bool]:
    """No layer has experts."""
    return [False] * f.num_layers()


def sparse_after(field: str = "first_k_dense_replace", otherwise: int = 0) -> Sparsity:
    """Layers have experts from the one that a field gives; `mlp_layer_types`, where listed, decides instead."""

    def sparsity(f: Fields) -> list[bool]:
        num_layers = f.num_layers()
        listed = f.words("mlp_layer_types")
        if listed is not None:
            if len(listed) < num_layers:
                raise f.refuse("mlp_layer_types", f"names {len(listed)} of {num_layers} layers")
            return [kind == "sparse" for kind in listed[:num_layers]]
        first = f.count_or(field, otherwise, least=0)
        return [index >= first for index in range(num_layers)]

    return sparsity


def stack(specs: Iterable[Spec], make: Callable[[Spec], Layer]) -> tuple[Layer, ...]:
    """Return one layer a specification, equal ones made once."""
    made: dict[Spec, Layer] = {}
    layers: list[Layer] = []
    for spec in specs:
        if spec not in made:
            made[spec] = make(spec)
        layers.append(made[spec])
    return tuple(layers)


def build(
    f: Fields,
    *,
    mixer: MakeMixer = attention,
    kinds: Kinds = all_full,
    dense: MakeFeedForward = mlp,
    sparse: MakeFeedForward = routed,
    sparsity: Sparsity = all_dense,
    norm: int = RMS,
    num_norms: int = 2,
    is_parallel: bool = False,
    mixer_components: Mapping[str, str] | None = None,
    is_tied: bool | None = None,
    head_bias: bool | str = False,
) -> Model:
    """Return a decoder: each layer a mixer and a feed-forward, each behind a norm.

    Parameters
    ----------
    mixer : callable
        Makes a layer's mixer from its kind.
    kinds : callable
        Lists the kinds of the layers.
    dense, sparse : callable
        Make a layer's feed-forward, without and with experts.
    sparsity : callable
        Lists which layers have experts.
    norm : int
        Weights of one norm in hidden sizes.
    num_norms : int
        Norms of a layer, those inside the mixer left out.
    is_parallel : bool
        Whether feed-forward and mixer read the same residual.
    mixer_components : mapping
        The component a kind's weights count under, where it is not the mixer's own.
    is_tied : bool or None
        Whether the head is the embedding; None reads `tie_word_embeddings`.
    """
    overrides = f.layer_overrides()
    norm_parameters = num_norms * norm * f.count("hidden_size")
    components = mixer_components or {}
    norms = Norms(count=num_norms, kind="rms" if norm == RMS else "layer")

    def layer(spec: tuple[str, bool, int | None]) -> Layer:
        kind, is_sparse, index = spec
        own = f if index is None else f.with_fields(overrides[index])
        feed_forward = sparse(own) if is_sparse else dense(own)
        return Layer(
            mixers=(mixer(own, kind),),
            feed_forwards=(feed_forward,),
            norm_parameters=norm_parameters,
            norms=norms,
            is_parallel=is_parallel,
            mixer_component=components.get(kind),
        )

    num_layers, listed_kinds, listed_sparse = f.num_layers(), kinds(f), sparsity(f)
    for listed in (listed_kinds, listed_sparse):
        if len(listed) != num_layers:
            raise f.refuse("num_hidden_layers", f"is {num_layers}, but lists name {len(listed)} layers")
    specs = [
        (kind, is_sparse, index if index in overrides else None)
        for index, (kind, is_sparse) in enumerate(zip(listed_kinds, listed_sparse, strict=True))
    ]
    return assemble(f, stack(specs, layer), norm=norm, is_tied=is_tied, head_bias=head_bias)


def assemble(
    f: Fields,
    layers: Sequence[Layer],
    *,
    norm: int = RMS,
    is_tied: bool | None = None,
    head_bias: bool | str = False,
    extra: Mapping[str, int] | None = None,
    per_layer_embedding_parameters: int = 0,
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
    per_layer_embedding_parameters : int
        Further parameters of the embedding, a row of which every layer reads.
    """
    hidden_size, vocab_size = f.count("hidden_size"), f.count("vocab_size")
    tied = f.flag("tie_word_embeddings") if is_tied is None else is_tied
    other = {
        "embedding": vocab_size * hidden_size + per_layer_embedding_parameters,
        "norm": norm * hidden_size,
        "lm_head": (0 if tied else vocab_size * hidden_size) + (vocab_size if chosen(f, head_bias) else 0),
    }
    for component, count in (extra or {}).items():
        other[component] = other.get(component, 0) + count
    return Model(
        name="",
        family=f.model_type,
        hidden_size=hidden_size,
        vocab_size=vocab_size,
        layers=as_computed(f.model_type, layers),
        other_parameters={component: count for component, count in other.items() if count},
        per_layer_embedding_parameters=per_layer_embedding_parameters,
        is_tied=tied,
        max_position_tokens=f.maybe_count("max_position_embeddings"),
        warnings=taken_for_granted(f),
    )


def taken_for_granted(f: Fields) -> tuple[str, ...]:
    """Return a warning where the file leaves out a size that shapes the whole model."""
    missing = [name for name in ("hidden_size", "num_hidden_layers", "vocab_size") if f.is_left_out(name)]
    if not missing:
        return ()
    return (f"the config leaves out {', '.join(missing)}: taken as usual in the family {f.model_type}",)
