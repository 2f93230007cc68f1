"""What a sequence keeps on the device: keys and values that grow with it, windows that fill up, states of fixed size.

References
----------
.. [1] J. Ainslie et al., "GQA", EMNLP 2023, arXiv:2305.13245.
.. [2] DeepSeek-AI, "DeepSeek-V2", 2024, arXiv:2405.04434, section 2.1.
.. [3] huggingface/transformers 5.24.0, `cache_utils.py`: after a step a sliding layer keeps the window less one token;
   recurrent states are fp32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tonnage.model.types import (
    Attention,
    CompressedAttention,
    GatedDeltaNet,
    LatentAttention,
    LightningAttention,
    Mamba1,
    Mamba2,
    Mixer,
    Model,
    ShortConvolution,
)
from tonnage.units import Bytes, Count

STATE_BYTES_PER_ELEMENT: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """What one sequence needs: bytes a token without end, bytes a token up to a window's length, bytes once."""

    bytes_per_token: float
    window_bytes_per_token: Mapping[int, float]
    state_bytes_per_sequence: float

    def bytes_at(self, num_tokens: Count) -> Bytes:
        """Return the bytes of one sequence of a length, a window kept less one token."""
        windows = sum(kept * _smaller(num_tokens, window - 1) for window, kept in self.window_bytes_per_token.items())
        return self.bytes_per_token * num_tokens + windows + self.state_bytes_per_sequence


def cache(model: Model, kv_bytes_per_element: float = 2, state_dtype_bytes: float = 2) -> Cache:
    """Return what one sequence of a model keeps.

    Parameters
    ----------
    model : Model
        The model.
    kv_bytes_per_element : float
        Bytes of one number of a key or value: 2 for fp16 and bf16, 1 for fp8. [B]
    state_dtype_bytes : float
        Bytes of one number of a convolution's state, which stays in the model's own type. [B]

    Returns
    -------
    Cache
        Bytes a token, by window, and once a sequence.
    """
    growing, once = 0.0, 0.0
    windows: dict[int, float] = {}
    for layer, times in model.groups():
        for mixer in layer.mixers:
            per_token = times * mixer_bytes_per_token(mixer, kv_bytes_per_element)
            once += times * mixer_state_bytes(mixer, state_dtype_bytes)
            window = _window(mixer)
            if isinstance(mixer, Attention) and mixer.source_width is not None:
                once += per_token * (mixer.source_tokens or 0)
            elif window is not None:
                windows[window] = windows.get(window, 0.0) + per_token
            else:
                growing += per_token
            if isinstance(mixer, CompressedAttention):
                growing += times * compressed_entry_bytes_per_token(mixer, kv_bytes_per_element)
    return Cache(bytes_per_token=growing, window_bytes_per_token=windows, state_bytes_per_sequence=once)


def mixer_bytes_per_token(mixer: Mixer, kv_bytes_per_element: float) -> float:
    """Return what a mixer adds to the cache for each token it keeps.

    Parameters
    ----------
    mixer : Mixer
        The mixer; one that reads another layer's cache, or has a state, adds nothing.
    kv_bytes_per_element : numeric
        Bytes of one number. [B]

    Returns
    -------
    numeric
        Bytes a token. [B]
    """
    match mixer:
        case Attention(stores_cache=True, is_bidirectional=False):
            value_dim = mixer.value_head_dim or mixer.head_dim
            index_dim = mixer.indexer.head_dim if mixer.indexer else 0
            keys = kv_bytes_per_token(mixer.num_kv_heads, mixer.head_dim, value_dim, kv_bytes_per_element)
            return keys + index_dim * kv_bytes_per_element
        case CompressedAttention():
            # one head is key and value at once; transformers keeps it twice where there is nothing but the window
            return mixer.head_dim * kv_bytes_per_element * (2 if mixer.compress_tokens is None else 1)
        case LatentAttention():
            index_dim = mixer.indexer.head_dim if mixer.indexer else 0
            return latent_bytes_per_token(mixer.kv_lora_rank, mixer.qk_rope_head_dim, index_dim, kv_bytes_per_element)
        case _:
            return 0


def mixer_state_bytes(mixer: Mixer, state_dtype_bytes: float = 2) -> float:
    """Return the fixed state of a mixer for one sequence.

    Parameters
    ----------
    mixer : Mixer
        The mixer; attention has none.
    state_dtype_bytes : numeric
        Bytes of one number of a convolution's state. [B]

    Returns
    -------
    numeric
        Bytes a sequence. [B]
    """
    match mixer:
        case GatedDeltaNet():
            channels = 2 * mixer.num_key_heads * mixer.key_head_dim + mixer.num_value_heads * mixer.value_head_dim
            elements = mixer.num_value_heads * mixer.key_head_dim * mixer.value_head_dim
            return state_bytes(channels, mixer.conv_kernel, elements, state_dtype_bytes)
        case Mamba1():
            elements = mixer.inner_size * mixer.state_size
            return state_bytes(mixer.inner_size, mixer.conv_kernel, elements, state_dtype_bytes)
        case Mamba2():
            channels = (mixer.inner_size or mixer.num_heads * mixer.head_dim) + 2 * mixer.num_groups * mixer.state_size
            elements = mixer.num_heads * mixer.head_dim * mixer.state_size
            return state_bytes(channels, mixer.conv_kernel, elements, state_dtype_bytes)
        case ShortConvolution():
            return state_bytes(mixer.channels, mixer.conv_kernel, 0, state_dtype_bytes)
        case LightningAttention():
            return mixer.num_heads * mixer.head_dim**2 * state_dtype_bytes
        case CompressedAttention():
            return compressor_state_bytes(mixer, state_dtype_bytes)
        case _:
            return 0


def compressed_entry_bytes_per_token(mixer: CompressedAttention, kv_bytes_per_element: float) -> float:
    """Return what DeepSeek-V4's compressed entries add for each token: one entry, and index key, for several tokens.

    Parameters
    ----------
    mixer : CompressedAttention
        The mixer; one that has a window only adds nothing.
    kv_bytes_per_element : float
        Bytes of one number. [B]

    Returns
    -------
    float
        Bytes a token. [B]
    """
    if mixer.compress_tokens is None:
        return 0
    index_dim = mixer.indexer.head_dim if mixer.indexer else 0
    return (mixer.head_dim + index_dim) * kv_bytes_per_element / mixer.compress_tokens


def compressor_state_bytes(mixer: CompressedAttention, state_dtype_bytes: float = 2) -> float:
    """Return what DeepSeek-V4's compressors hold back: values and gates of tokens that do not fill an entry yet.

    Parameters
    ----------
    mixer : CompressedAttention
        The mixer.
    state_dtype_bytes : float
        Bytes of one number. [B]

    Returns
    -------
    float
        Bytes a sequence at most: a whole entry's tokens, and where entries overlap the half that the next one needs. [B]
    """
    if mixer.compress_tokens is None:
        return 0
    widths = mixer.head_dim + (mixer.indexer.head_dim if mixer.indexer else 0)
    series = 2 if mixer.has_overlap else 1
    overlap = 1 if mixer.has_overlap else 0
    return 2 * (series + overlap) * widths * mixer.compress_tokens * state_dtype_bytes


def kv_bytes_per_token(num_kv_heads: Count, key_dim: Count, value_dim: Count, bytes_per_element: Bytes) -> Bytes:
    """Return the keys and values of one token in one layer of MHA, GQA or MQA.

    Parameters
    ----------
    num_kv_heads : numeric
        Heads of keys and values. [1]
    key_dim : numeric
        Width of a key head. [1]
    value_dim : numeric
        Width of a value head. [1]
    bytes_per_element : numeric
        Bytes of one number. [B]

    Returns
    -------
    numeric
        Bytes a token. [B]

    References
    ----------
    .. [1] J. Ainslie et al., "GQA", EMNLP 2023, arXiv:2305.13245.

    Examples
    --------
    >>> 32 * kv_bytes_per_token(8, 128, 128, 2)
    131072
    """
    return num_kv_heads * (key_dim + value_dim) * bytes_per_element


def latent_bytes_per_token(kv_lora_rank: Count, rope_dim: Count, index_dim: Count, bytes_per_element: Bytes) -> Bytes:
    """Return the compressed vector of one token in one layer of MLA, with its index key where there is one.

    Parameters
    ----------
    kv_lora_rank : numeric
        Width of the compressed keys and values. [1]
    rope_dim : numeric
        Width of the shared rotated key. [1]
    index_dim : numeric
        Width of the index key of a sparse layer; 0 without one. [1]
    bytes_per_element : numeric
        Bytes of one number. [B]

    Returns
    -------
    numeric
        Bytes a token. [B]

    References
    ----------
    .. [1] DeepSeek-AI, "DeepSeek-V2", 2024, arXiv:2405.04434, section 2.1.

    Examples
    --------
    >>> 61 * latent_bytes_per_token(512, 64, 0, 2)
    70272
    """
    return (kv_lora_rank + rope_dim + index_dim) * bytes_per_element


def state_bytes(channels: Count, conv_kernel: Count, num_elements: Count, conv_bytes_per_element: Bytes) -> Bytes:
    """Return a recurrent layer's state: the convolution's last inputs, and the state itself in fp32.

    Parameters
    ----------
    channels : numeric
        Channels that the convolution runs over. [1]
    conv_kernel : numeric
        Length of the convolution. [1]
    num_elements : numeric
        Numbers in the recurrent state. [1]
    conv_bytes_per_element : numeric
        Bytes of one number that the convolution keeps. [B]

    Returns
    -------
    numeric
        Bytes a sequence. [B]

    References
    ----------
    .. [1] huggingface/transformers 5.24.0, `cache_utils.py`, the linear-attention cache layer.

    Examples
    --------
    One gated delta net of Qwen3.5-27B:

    >>> state_bytes(2 * 16 * 128 + 48 * 128, 4, 48 * 128 * 128, 2)
    3227648
    """
    return channels * conv_kernel * conv_bytes_per_element + num_elements * STATE_BYTES_PER_ELEMENT


def _window(mixer: Mixer) -> int | None:
    """Return how many tokens a mixer looks back at most, or None."""
    match mixer:
        case Attention():
            return mixer.window_tokens or mixer.chunk_tokens
        case LatentAttention() | CompressedAttention():
            return mixer.window_tokens
        case _:
            return None


def _smaller(left: Count, right: Count) -> Count:
    """Return the smaller of two numbers, or of an array's elements and a number."""
    if isinstance(left, int | float):
        return min(left, right)
    return left.clip(max=right)
