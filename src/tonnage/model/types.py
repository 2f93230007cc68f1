"""The noun `Model`: a network as an ordered tuple of layers, each a few mixers and feed-forwards with exact sizes.

Counts, cache sizes, operations and bytes are all computed from these values; no formula looks at a family's name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Final, Literal

from tonnage.nouns import noun

QkNorm = Literal["none", "head", "row"]
NormKind = Literal["rms", "rms_fp32", "layer", "layer_fp32"]


@noun
class Indexer:
    """A selector of the tokens that sparse attention looks at (DSA, MiniMax-M3, DeepSeek-V4)."""

    num_heads: int
    head_dim: int
    top_k: int  # tokens or, where `block_tokens` is more than 1, blocks of tokens
    block_tokens: int = 1
    parameters: int | None = None  # None: those of DSA beside a latent attention


@noun
class Attention:
    """Softmax attention with grouped heads: MHA, GQA and MQA, full, sliding-window or chunked."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    value_head_dim: int | None = None
    window_tokens: int | None = None
    chunk_tokens: int | None = None
    has_qkv_bias: bool = False
    has_output_bias: bool = False
    qk_norm: QkNorm = "none"
    has_output_gate: bool = False  # queries twice as wide, one half a gate for each channel of the output
    num_head_gates: int = 0  # outputs of a projection of their own that gates heads (or channels)
    num_sinks: int = 0
    has_fp32_softmax: bool = True
    has_score_cap: bool = False  # scores go through a tanh
    is_fused_view: bool = False  # rotated, and its values are a view of one product of queries, keys and values
    stores_cache: bool = True  # False: reads the cache of an earlier layer, has no key and value projection
    key_is_value: bool = False  # True: no value projection
    is_bidirectional: bool = False  # an encoder's: sees its whole input at once and keeps no cache
    indexer: Indexer | None = None
    source_width: int | None = None  # cross-attention: width of the sequence that keys and values are made of
    source_tokens: int | None = None  # cross-attention: length of that sequence, where the model fixes it
    input_size: int | None = None  # width of what the queries are made of, where it is not the hidden size
    extra_parameters: int = 0  # derived per family in model/hf.py, with its reason there


@noun
class LatentAttention:
    """Multi-head latent attention (MLA): keys and values compressed to one vector of `kv_lora_rank + rope` a token."""

    num_heads: int
    q_lora_rank: int | None
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    has_bias: bool = False
    num_head_gates: int = 0
    indexer: Indexer | None = None
    window_tokens: int | None = None
    extra_parameters: int = 0


@noun
class GatedDeltaNet:
    """Linear attention with a gated delta rule; Kimi's KDA decays each channel and has gates of low rank."""

    num_key_heads: int
    num_value_heads: int
    key_head_dim: int
    value_head_dim: int
    conv_kernel: int
    has_channel_decay: bool = False  # True: a decay for each key channel, not for each head
    decay_rank: int | None = None  # None: the decay is projected at full rank
    gate_rank: int | None = None  # None: the output gate is projected at full rank
    extra_parameters: int = 0


@noun
class Mamba1:
    """Selective state space with a per-channel state."""

    inner_size: int
    state_size: int
    conv_kernel: int
    dt_rank: int
    has_conv_bias: bool = True
    has_projection_bias: bool = False
    extra_parameters: int = 0


@noun
class Mamba2:
    """State space with heads (SSD)."""

    num_heads: int
    head_dim: int
    num_groups: int
    state_size: int
    conv_kernel: int
    inner_size: int | None = None  # None: heads x head_dim
    has_conv_bias: bool = True
    has_projection_bias: bool = False
    has_norm: bool = True
    extra_parameters: int = 0


@noun
class ShortConvolution:
    """LFM2's gated short convolution."""

    channels: int
    conv_kernel: int
    has_bias: bool = False


@noun
class LightningAttention:
    """MiniMax's linear attention with a fixed matrix state a head."""

    num_heads: int
    head_dim: int
    extra_parameters: int = 0


@noun
class CompressedAttention:
    """DeepSeek-V4's attention: one shared key-value head in a window, and beyond it one entry for many tokens."""

    num_heads: int
    head_dim: int
    q_lora_rank: int
    num_output_groups: int
    o_lora_rank: int
    window_tokens: int
    compress_tokens: int | None = None  # tokens to one compressed entry; None: the window is all
    has_overlap: bool = False  # compressed entries made of two overlapping halves
    indexer: Indexer | None = None
    extra_parameters: int = 0


Mixer = (
    Attention
    | LatentAttention
    | CompressedAttention
    | GatedDeltaNet
    | Mamba1
    | Mamba2
    | ShortConvolution
    | LightningAttention
)


@noun
class Mlp:
    """A dense feed-forward."""

    intermediate_size: int
    is_gated: bool = True
    has_bias: bool = False
    input_size: int | None = None  # width of its input, where it is not the hidden size
    activation: str = "silu"
    extra_parameters: int = 0


@noun
class Moe:
    """A mixture of experts: a router, routed experts of which `top_k` touch a token, and shared experts."""

    num_experts: int
    top_k: int
    expert_size: int
    is_gated: bool = True
    has_expert_bias: bool = False
    expert_input_size: int | None = None  # width the experts work in, where it is not the hidden size
    num_identity_experts: int = 0  # experts that pass a token through
    identity_expert_parameters: int = 0  # allocated for each of them all the same
    router_parameters: int | None = None  # None: hidden_size x num_experts
    has_fp32_router: bool = False  # its input is cast to fp32
    activation: str = "silu"
    shared: Mlp | None = None
    shared_gate_parameters: int = 0
    extra_parameters: int = 0


FeedForward = Mlp | Moe


@noun
class Norms:
    """The normalisations of a layer outside its mixers.

    RMS weighed in 16 bit or in fp32; mean and variance in one kernel, or in fp32 one operator after another.
    """

    count: int
    kind: NormKind = "rms"


@noun
class Layer:
    """One layer: its mixers (several run in parallel), its feed-forwards, and the weights of its norms."""

    mixers: tuple[Mixer, ...] = ()
    feed_forwards: tuple[FeedForward, ...] = ()
    norm_parameters: int = 0
    norms: Norms | None = None  # None: one RMS before its mixers, one before its feed-forwards
    is_parallel: bool = False  # mixers and feed-forwards read the same residual
    other_parameters: int = 0
    mixer_component: str | None = None  # component the mixers count under; None: by their kind
    mlp_component: str = "mlp"  # component dense feed-forwards count under
    is_repeat: bool = False  # runs with the weights of an earlier layer; only `other_parameters` are its own


@noun
class Encoder:
    """A tower beside the text model (vision or audio): its exact count, and its shape for the operations it runs."""

    num_parameters: int
    hidden_size: int
    num_layers: int
    num_heads: int
    intermediate_size: int
    patch_size: int | None = None
    tokens_per_patch_group: int = 1  # patches merged into one text token
    kind: str = "vision"


@noun
class Quantization:
    """What a checkpoint's own `quantization_config` says."""

    scheme: str  # name in estimate.weights.FORMATS
    unquantized: tuple[str, ...] = ()  # components or module patterns kept in the model's dtype
    group_size: int | None = None
    other_schemes: tuple[tuple[str, str], ...] = ()  # components in another format, and which


@noun
class Model:
    """A language model, all that any estimate needs to know of it.

    `other_parameters` beyond the layers are given by component: embedding, lm_head (absent when tied), norm, other.
    """

    name: str
    family: str
    hidden_size: int
    vocab_size: int
    layers: tuple[Layer, ...]
    other_parameters: Mapping[str, int] = field(default_factory=dict[str, int])
    embedding_size: int | None = None  # width of the token table, where it is not the hidden size
    per_layer_embedding_parameters: int = 0  # share of the embedding that every layer reads a row of
    is_tied: bool = False
    max_position_tokens: int | None = None
    dtype: str = "bfloat16"
    quantization: Quantization | None = None
    encoder: Encoder | None = None
    source: str = ""
    status: str = "config"  # config, header, catalogue, reconstructed
    default_num_image_tokens: int = 0
    warnings: tuple[str, ...] = ()
    stored_parameters: Mapping[str, int] = field(default_factory=dict[str, int])  # by component, from a weights header
    stored_bytes: Mapping[str, int] = field(default_factory=dict[str, int])  # by component, from a weights header

    @property
    def num_layers(self) -> int:
        """Number of layers."""
        return len(self.layers)

    def groups(self) -> tuple[tuple[Layer, int], ...]:
        """Return each distinct layer with how often it occurs, in order of first occurrence."""
        known = _GROUPS.get(id(self.layers))
        if known is None or known[0] is not self.layers:
            if len(_GROUPS) >= _MOST_GROUPS:
                _GROUPS.clear()
            known = _GROUPS[id(self.layers)] = self.layers, count_equal(self.layers)
        return known[1]

    @property
    def is_moe(self) -> bool:
        """Whether any layer routes its tokens."""
        return any(
            isinstance(part, Moe) and part.num_experts > 0 for layer, _ in self.groups() for part in layer.feed_forwards
        )


# Counted once a model: an estimate asks ten times. A tuple that is kept cannot give its identity to another.
_GROUPS: dict[int, tuple[tuple[Layer, ...], tuple[tuple[Layer, int], ...]]] = {}
_MOST_GROUPS: Final = 64


def count_equal(layers: Iterable[Layer]) -> tuple[tuple[Layer, int], ...]:
    """Return each distinct layer with how often it occurs, in order of first occurrence."""
    kept = tuple(layers)
    by_identity = Counter(map(id, kept))  # most models repeat a few objects, and comparing those is costly
    found = {id(layer): layer for layer in kept}
    counts: dict[Layer, int] = {}
    for identity, times in by_identity.items():
        counts[found[identity]] = counts.get(found[identity], 0) + times
    return tuple(counts.items())
