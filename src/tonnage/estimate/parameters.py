"""How many parameters a model has, by component, and how many of them a token touches.

Components are `embedding`, `attention`, `linear_attn_ssm`, `router`, `experts`, `shared_experts`,
`shared_expert_gate`, `mlp`, `norm`, `lm_head`, `vision_audio` and `other`. Tied weights count once, towers count in
the total, heads for multi-token prediction do not count: this is what transformers keeps resident.

References
----------
.. [1] huggingface/transformers 5.24.0, the constructors in `models/<family>/modeling_<family>.py`.
"""

from __future__ import annotations

from typing import Final

from tonnage.model.types import (
    Attention,
    CompressedAttention,
    FeedForward,
    GatedDeltaNet,
    Indexer,
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
from tonnage.nouns import noun
from tonnage.units import Count

COMPONENTS: Final[tuple[str, ...]] = (
    "embedding",
    "attention",
    "linear_attn_ssm",
    "router",
    "experts",
    "shared_experts",
    "shared_expert_gate",
    "mlp",
    "norm",
    "lm_head",
    "vision_audio",
    "other",
)


@noun
class ParameterCounts:
    """Counts of one model."""

    by_component: dict[str, int]
    total: int
    text: int
    active: int
    active_without_embedding: int


def count(model: Model) -> ParameterCounts:
    """Return the parameters of a model.

    Parameters
    ----------
    model : Model
        The model.

    Returns
    -------
    ParameterCounts
        By component, in all, in the text model alone, and those of the text model that one token touches.
    """
    found: dict[str, int] = dict.fromkeys(COMPONENTS, 0)
    idle = 0
    for layer, times in model.groups():
        for component, number in layer_parameters(layer, model.hidden_size).items():
            found[component] += times * number
        idle += times * idle_expert_parameters(layer, model.hidden_size)
    for component, number in model.other_parameters.items():
        found[component] += number
    if model.stored_parameters:  # the header's own count
        found = dict.fromkeys(COMPONENTS, 0) | dict(model.stored_parameters)
    text = sum(found.values()) - found["vision_audio"]
    if model.encoder is not None:
        found["vision_audio"] += model.encoder.num_parameters
    return ParameterCounts(
        by_component={component: number for component, number in found.items() if number},
        total=sum(found.values()),
        text=text,
        active=text - idle,
        active_without_embedding=text - idle - (found["embedding"] - model.per_layer_embedding_parameters),
    )


def layer_parameters(layer: Layer, hidden_size: int) -> dict[str, int]:
    """Return the parameters of one layer by component.

    Parameters
    ----------
    layer : Layer
        The layer; one that runs with the weights of another has none of its own but its `other_parameters`.
    hidden_size : numeric
        Width of the residual stream. [1]

    Returns
    -------
    dict
        Component to count.
    """
    found: dict[str, int] = {}

    def add(component: str, number: int) -> None:
        found[component] = found.get(component, 0) + number

    if not layer.is_repeat:
        for mixer in layer.mixers:
            add(layer.mixer_component or component_of(mixer), mixer_parameters(mixer, hidden_size))
        for feed_forward in layer.feed_forwards:
            for component, number in feed_forward_parameters(feed_forward, hidden_size).items():
                add(layer.mlp_component if component == "mlp" else component, number)
        add("norm", layer.norm_parameters)
    add("other", layer.other_parameters)
    return found


def component_of(mixer: Mixer) -> str:
    """Return the component that a mixer's weights belong to."""
    is_softmax = isinstance(mixer, Attention | LatentAttention | CompressedAttention)
    return "attention" if is_softmax or isinstance(mixer, LightningAttention) else "linear_attn_ssm"


def mixer_parameters(mixer: Mixer, hidden_size: int) -> int:
    """Return the parameters of a mixer of any kind.

    Parameters
    ----------
    mixer : Mixer
        The mixer.
    hidden_size : numeric
        Width of the residual stream. [1]

    Returns
    -------
    numeric
        Parameters. [1]
    """
    match mixer:
        case Attention():
            return attention_parameters(mixer, hidden_size)
        case LatentAttention():
            return latent_attention_parameters(mixer, hidden_size)
        case CompressedAttention():
            return compressed_attention_parameters(mixer, hidden_size)
        case GatedDeltaNet():
            return gated_delta_net_parameters(mixer, hidden_size)
        case Mamba1():
            return mamba1_parameters(mixer, hidden_size)
        case Mamba2():
            return mamba2_parameters(mixer, hidden_size)
        case ShortConvolution():
            return short_convolution_parameters(mixer, hidden_size)
        case LightningAttention():
            return lightning_attention_parameters(mixer, hidden_size)


def attention_parameters(mixer: Attention, hidden_size: Count) -> Count:
    """Return the parameters of grouped attention: projections, biases, norms of queries and keys, sinks.

    Parameters
    ----------
    mixer : Attention
        The mixer.
    hidden_size : numeric
        Width of the residual stream. [1]

    Returns
    -------
    numeric
        Parameters. [1]

    References
    ----------
    .. [1] Derived from the shapes of the weights, as constructed in huggingface/transformers 5.24.0, `models/llama`.

    Examples
    --------
    Llama-3-8B:

    >>> attention_parameters(Attention(num_heads=32, num_kv_heads=8, head_dim=128), 4096)
    41943040
    """
    source = mixer.source_width or mixer.input_size or hidden_size
    value_dim = mixer.value_head_dim or mixer.head_dim
    query = mixer.num_heads * mixer.head_dim * (2 if mixer.has_output_gate else 1)
    key = mixer.num_kv_heads * mixer.head_dim if mixer.stores_cache else 0
    value = mixer.num_kv_heads * value_dim if mixer.stores_cache and not mixer.key_is_value else 0
    out = mixer.num_heads * value_dim
    total = (mixer.input_size or hidden_size) * query + source * (key + value) + out * hidden_size
    if mixer.has_qkv_bias:
        total += query + key + value
    if mixer.has_output_bias:
        total += hidden_size
    if mixer.qk_norm == "head":
        total += mixer.head_dim * (2 if mixer.stores_cache else 1)
    elif mixer.qk_norm == "row":
        total += mixer.num_heads * mixer.head_dim + key
    if mixer.indexer is not None:
        total += mixer.indexer.parameters or 0
    total += hidden_size * mixer.num_head_gates
    return total + mixer.num_sinks + mixer.extra_parameters


def latent_attention_parameters(mixer: LatentAttention, hidden_size: Count) -> Count:
    """Return the parameters of multi-head latent attention, with its token selector where it has one.

    Parameters
    ----------
    mixer : LatentAttention
        The mixer.
    hidden_size : numeric
        Width of the residual stream. [1]

    Returns
    -------
    numeric
        Parameters. [1]

    References
    ----------
    .. [1] DeepSeek-AI, "DeepSeek-V2", 2024, arXiv:2405.04434, section 2.1.

    Examples
    --------
    DeepSeek-V3:

    >>> latent_attention_parameters(
    ...     LatentAttention(num_heads=128, q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128,
    ...                     qk_rope_head_dim=64, v_head_dim=128), 7168)
    187107328
    """
    heads, rank, rope = mixer.num_heads, mixer.kv_lora_rank, mixer.qk_rope_head_dim
    query = heads * (mixer.qk_nope_head_dim + rope)
    down = mixer.q_lora_rank
    total = hidden_size * query if down is None else (hidden_size + 1 + query) * down
    total += hidden_size * (rank + rope) + rank + rank * heads * (mixer.qk_nope_head_dim + mixer.v_head_dim)
    total += heads * mixer.v_head_dim * hidden_size
    if mixer.has_bias:
        total += (mixer.q_lora_rank or 0) + rank + rope + hidden_size
    if mixer.indexer is not None:
        total += indexer_parameters(mixer.indexer, hidden_size, mixer.q_lora_rank or hidden_size)
    return total + hidden_size * mixer.num_head_gates + mixer.extra_parameters


def indexer_parameters(indexer: Indexer, hidden_size: Count, query_rank: Count) -> Count:
    """Return the parameters of DSA's token selector: queries, one key with its norm, a weight for each head.

    Parameters
    ----------
    indexer : Indexer
        The selector.
    hidden_size : numeric
        Width of the residual stream. [1]
    query_rank : numeric
        Width of what its queries are made of. [1]

    Returns
    -------
    numeric
        Parameters. [1]

    References
    ----------
    .. [1] DeepSeek-AI, "DeepSeek-V3.2", 2025, arXiv:2512.02556, section 2.

    Examples
    --------
    DeepSeek-V3.2:

    >>> indexer_parameters(Indexer(num_heads=64, head_dim=128, top_k=2048), 7168, 1536)
    13959424
    """
    width = indexer.num_heads * indexer.head_dim
    return query_rank * width + hidden_size * indexer.head_dim + 2 * indexer.head_dim + hidden_size * indexer.num_heads


def compressed_attention_parameters(mixer: CompressedAttention, hidden_size: Count) -> Count:
    """Return the parameters of DeepSeek-V4's attention with its compressor and token selector.

    Parameters
    ----------
    mixer : CompressedAttention
        The mixer.
    hidden_size : numeric
        Width of the residual stream. [1]

    Returns
    -------
    numeric
        Parameters. [1]

    References
    ----------
    .. [1] Derived from the shapes of the weights in huggingface/transformers 5.24.0, `models/deepseek_v4`: low-rank
       queries and outputs, one head that is key and value, sinks; a compressor has a value, a gate and a table of
       positions, twice as wide where its windows overlap, and a norm.
    """
    width, rank, groups = mixer.num_heads * mixer.head_dim, mixer.q_lora_rank, mixer.num_output_groups
    total = hidden_size * rank + rank + rank * width + (hidden_size + 1) * mixer.head_dim + mixer.num_heads
    total += groups * mixer.o_lora_rank * (width // groups + hidden_size)
    if mixer.compress_tokens is not None:
        series = 2 if mixer.has_overlap else 1
        total += compressor_parameters(hidden_size, mixer.head_dim, series, mixer.compress_tokens)
        if mixer.indexer is not None:
            index = mixer.indexer
            total += compressor_parameters(hidden_size, index.head_dim, series, mixer.compress_tokens)
            total += rank * index.num_heads * index.head_dim + hidden_size * index.num_heads
    return total + mixer.extra_parameters


def compressor_parameters(hidden_size: Count, head_dim: Count, num_series: Count, num_tokens: Count) -> Count:
    """Return the parameters of what turns several tokens into one entry of the cache.

    Parameters
    ----------
    hidden_size : numeric
        Width of the residual stream. [1]
    head_dim : numeric
        Width of an entry. [1]
    num_series : numeric
        2 where windows overlap, else 1. [1]
    num_tokens : numeric
        Tokens to an entry. [1]

    Returns
    -------
    numeric
        Parameters. [1]

    References
    ----------
    .. [1] Derived from `DeepseekV4CSACompressor` and `DeepseekV4HCACompressor` of huggingface/transformers 5.24.0.
    """
    return (2 * hidden_size + num_tokens) * num_series * head_dim + head_dim


def gated_delta_net_parameters(mixer: GatedDeltaNet, hidden_size: Count) -> Count:
    """Return the parameters of a gated delta net: projections, write strength, decay, output gate, convolution, norm.

    Parameters
    ----------
    mixer : GatedDeltaNet
        The mixer.
    hidden_size : numeric
        Width of the residual stream. [1]

    Returns
    -------
    numeric
        Parameters. [1]

    References
    ----------
    .. [1] S. Yang et al., "Gated Delta Networks", ICLR 2025, arXiv:2412.06464.
    .. [2] Moonshot AI, "Kimi Linear", 2025, arXiv:2510.26692, with a decay for each channel.

    Examples
    --------
    Qwen3.5-27B:

    >>> gated_delta_net_parameters(
    ...     GatedDeltaNet(num_key_heads=16, num_value_heads=48, key_head_dim=128, value_head_dim=128, conv_kernel=4),
    ...     5120)
    115876064
    """
    heads, key = mixer.num_value_heads, mixer.num_key_heads * mixer.key_head_dim
    value = heads * mixer.value_head_dim
    decay = key if mixer.has_channel_decay else heads
    total = hidden_size * (2 * key + 2 * value + heads) + (2 * key + value) * mixer.conv_kernel
    total += low_rank_parameters(hidden_size, decay, mixer.decay_rank) + decay + heads
    total += low_rank_parameters(hidden_size, value, mixer.gate_rank) + mixer.value_head_dim
    return total + mixer.extra_parameters


def low_rank_parameters(input_size: Count, output_size: Count, rank: Count | None) -> Count:
    """Return the parameters of a projection, or of two with a narrow middle.

    Parameters
    ----------
    input_size : numeric
        Width of the input. [1]
    output_size : numeric
        Width of the output. [1]
    rank : numeric or None
        Width of the middle; None for one projection. [1]

    Returns
    -------
    numeric
        Parameters. [1]

    References
    ----------
    .. [1] Derived: one matrix of input x output, or input x rank and rank x output.
    """
    return input_size * output_size if rank is None else rank * (input_size + output_size)


def mamba1_parameters(mixer: Mamba1, hidden_size: Count) -> Count:
    """Return the parameters of a selective state space.

    Parameters
    ----------
    mixer : Mamba1
        The mixer.
    hidden_size : numeric
        Width of the residual stream. [1]

    Returns
    -------
    numeric
        Parameters. [1]

    References
    ----------
    .. [1] A. Gu and T. Dao, "Mamba", 2023, arXiv:2312.00752.
    """
    inner, state, rank = mixer.inner_size, mixer.state_size, mixer.dt_rank
    total = hidden_size * 2 * inner + inner * mixer.conv_kernel + inner * (rank + 2 * state)
    total += rank * inner + inner + inner * state + inner + inner * hidden_size
    if mixer.has_conv_bias:
        total += inner
    if mixer.has_projection_bias:
        total += 2 * inner + hidden_size
    return total + mixer.extra_parameters


def mamba2_parameters(mixer: Mamba2, hidden_size: Count) -> Count:
    """Return the parameters of a state space with heads.

    Parameters
    ----------
    mixer : Mamba2
        The mixer.
    hidden_size : numeric
        Width of the residual stream. [1]

    Returns
    -------
    numeric
        Parameters. [1]

    References
    ----------
    .. [1] T. Dao and A. Gu, "Transformers are SSMs", ICML 2024, arXiv:2405.21060.
    """
    inner = mixer.inner_size or mixer.num_heads * mixer.head_dim
    channels = inner + 2 * mixer.num_groups * mixer.state_size
    projected = inner + channels + mixer.num_heads
    total = hidden_size * projected + channels * mixer.conv_kernel + 3 * mixer.num_heads + inner * hidden_size
    if mixer.has_norm:
        total += inner
    if mixer.has_conv_bias:
        total += channels
    if mixer.has_projection_bias:
        total += projected + hidden_size
    return total + mixer.extra_parameters


def short_convolution_parameters(mixer: ShortConvolution, hidden_size: Count) -> Count:
    """Return the parameters of a gated short convolution.

    Parameters
    ----------
    mixer : ShortConvolution
        The mixer.
    hidden_size : numeric
        Width of the residual stream. [1]

    Returns
    -------
    numeric
        Parameters. [1]

    References
    ----------
    .. [1] Derived from the shapes of the weights, as constructed in huggingface/transformers 5.24.0, `models/lfm2`.
    """
    width = mixer.channels
    bias = 3 * width + width + hidden_size if mixer.has_bias else 0
    return hidden_size * 3 * width + width * mixer.conv_kernel + width * hidden_size + bias


def lightning_attention_parameters(mixer: LightningAttention, hidden_size: Count) -> Count:
    """Return the parameters of lightning attention: queries, keys, values, output, gate and norm.

    Parameters
    ----------
    mixer : LightningAttention
        The mixer.
    hidden_size : numeric
        Width of the residual stream. [1]

    Returns
    -------
    numeric
        Parameters. [1]

    References
    ----------
    .. [1] MiniMax, "MiniMax-01", 2025, arXiv:2501.08313.
    """
    width = mixer.num_heads * mixer.head_dim
    return 5 * hidden_size * width + width + mixer.extra_parameters


def mlp_parameters(feed_forward: Mlp, hidden_size: Count) -> Count:
    """Return the parameters of a dense feed-forward.

    Parameters
    ----------
    feed_forward : Mlp
        The feed-forward.
    hidden_size : numeric
        Width of the residual stream. [1]

    Returns
    -------
    numeric
        Parameters. [1]

    References
    ----------
    .. [1] Derived from the shapes of the weights, as constructed in huggingface/transformers 5.24.0, `models/llama`.

    Examples
    --------
    >>> mlp_parameters(Mlp(intermediate_size=14336), 4096)
    176160768
    """
    width, inputs = feed_forward.intermediate_size, (2 if feed_forward.is_gated else 1)
    bias = inputs * width + hidden_size if feed_forward.has_bias else 0
    return (
        (feed_forward.input_size or hidden_size) * inputs * width
        + width * hidden_size
        + bias
        + (feed_forward.extra_parameters)
    )


def expert_parameters(feed_forward: Moe, hidden_size: Count) -> Count:
    """Return the parameters of one routed expert.

    Parameters
    ----------
    feed_forward : Moe
        The mixture.
    hidden_size : numeric
        Width of the residual stream. [1]

    Returns
    -------
    numeric
        Parameters. [1]

    References
    ----------
    .. [1] Derived from the shapes of the weights, as constructed in huggingface/transformers 5.24.0, `models/qwen3_moe`.
    """
    expert = Mlp(
        intermediate_size=feed_forward.expert_size,
        is_gated=feed_forward.is_gated,
        has_bias=feed_forward.has_expert_bias,
    )
    return mlp_parameters(expert, feed_forward.expert_input_size or hidden_size)


def feed_forward_parameters(feed_forward: FeedForward, hidden_size: int) -> dict[str, int]:
    """Return the parameters of a feed-forward by component.

    Parameters
    ----------
    feed_forward : FeedForward
        Dense or a mixture.
    hidden_size : numeric
        Width of the residual stream. [1]

    Returns
    -------
    dict
        Component to count.
    """
    if isinstance(feed_forward, Mlp):
        return {"mlp": mlp_parameters(feed_forward, hidden_size)}
    router = feed_forward.router_parameters
    return {
        "router": hidden_size * feed_forward.num_experts if router is None else router,
        "experts": feed_forward.num_experts * expert_parameters(feed_forward, hidden_size)
        + feed_forward.num_identity_experts * feed_forward.identity_expert_parameters,
        "shared_experts": mlp_parameters(feed_forward.shared, hidden_size) if feed_forward.shared else 0,
        "shared_expert_gate": feed_forward.shared_gate_parameters,
        "mlp": feed_forward.extra_parameters,
    }


def idle_expert_parameters(layer: Layer, hidden_size: int) -> int:
    """Return the parameters of a layer's routed experts that a token does not touch.

    Parameters
    ----------
    layer : Layer
        The layer.
    hidden_size : numeric
        Width of the residual stream. [1]

    Returns
    -------
    numeric
        Parameters. [1]
    """
    return sum(
        max(0, part.num_experts - part.top_k) * expert_parameters(part, hidden_size)
        for part in layer.feed_forwards
        if isinstance(part, Moe)
    )
