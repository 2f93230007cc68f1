"""Bytes that serving needs, from a `ServingLoad`: weights a device, cache and state of the sequences in flight.

Engines' accounting modules call these with their own rounding; numbers or columns alike.
"""

from __future__ import annotations

from tonnage.estimate.serving import CacheGroup, Held, ServingLoad
from tonnage.units import Bytes, Count

__all__ = [
    "at_least",
    "at_most",
    "cache_bytes_of_group",
    "cache_elements_per_token",
    "round_up",
    "state_bytes_per_sequence",
    "weights_per_device",
]


def round_up(amount: Count, step: Count) -> Count:
    """Smallest multiple of a step that is at least the amount.

    Parameters
    ----------
    amount : numeric
        What is to be held. [1]
    step : numeric
        Granularity. [1]

    Returns
    -------
    numeric
        The multiple. [1]

    References
    ----------
    .. [1] Derived.

    Examples
    --------
    >>> int(round_up(1000, 256))
    1024
    """
    return -(-amount // step) * step


def at_least(amount: Count, floor: Count) -> Count:
    """Return the larger of two numbers or columns, without numpy's overhead for plain numbers.

    Parameters
    ----------
    amount : numeric
        First. [1]
    floor : numeric
        Second. [1]

    Returns
    -------
    numeric
        The larger. [1]

    Notes
    -----
    Derived.
    """
    if isinstance(amount, int | float) and isinstance(floor, int | float):
        return max(amount, floor)
    import numpy as np  # noqa: PLC0415  only columns need it

    return np.maximum(amount, floor)


def at_most(amount: Count, ceiling: Count) -> Count:
    """Return the smaller of two numbers or columns, without numpy's overhead for plain numbers.

    Parameters
    ----------
    amount : numeric
        First. [1]
    ceiling : numeric
        Second. [1]

    Returns
    -------
    numeric
        The smaller. [1]

    Notes
    -----
    Derived.
    """
    if isinstance(amount, int | float) and isinstance(ceiling, int | float):
        return min(amount, ceiling)
    import numpy as np  # noqa: PLC0415  only columns need it

    return np.minimum(amount, ceiling)


def weights_per_device(load: ServingLoad, held: Held) -> Bytes:
    """Weights of the fullest device: tensor parallelism divides matrices, expert parallelism the routed experts.

    Parameters
    ----------
    load : ServingLoad
        The load, or a column of them.
    held : Held
        What the fullest stage holds.

    Returns
    -------
    numeric
        Resident weights. [B]

    References
    ----------
    .. [1] M. Shoeybi et al., "Megatron-LM", arXiv:1909.08053, section 3.
    """
    expert_ways = at_least(load.ep, load.tp)
    shared = held.split_bytes + held.embedding_bytes + held.head_bytes
    rest = load.shape.encoder_bytes + load.shape.other_bytes
    return shared / load.tp + held.replicated_bytes + held.expert_bytes / expert_ways + rest


def cache_elements_per_token(load: ServingLoad, group: CacheGroup) -> Count:
    """Elements that one layer of a group keeps a token on one device; a latent cache is whole on every device.

    Parameters
    ----------
    load : ServingLoad
        Its tensor-parallel ways (with more ways than heads, heads are repeated) and its kind of latent cache.
    group : CacheGroup
        The layers' common shape.

    Returns
    -------
    numeric
        Elements. [1]

    Notes
    -----
    Derived from the head counts. A latent cache may be kept with a transposed copy of its values, or be undone into
    the keys and values of all heads, as engines without absorbed attention do.
    """
    if not group.is_latent:
        return -(-group.num_kv_heads // load.tp) * group.num_elements_per_head
    if load.latent_cache == "full":
        return group.num_full_elements / load.tp
    extra = group.num_latent_values if load.latent_cache == "latent_and_values" else 0
    return group.num_elements_per_head + group.num_index_elements + extra


def cache_bytes_of_group(load: ServingLoad, group: CacheGroup, num_layers: Count, num_tokens: Count) -> Bytes:
    """Cache of a number of tokens in some layers of a group, on one device.

    Parameters
    ----------
    load : ServingLoad
        Its parallelism and cache format.
    group : CacheGroup
        The layers' common shape.
    num_layers : numeric
        Layers of the group on the device. [1]
    num_tokens : numeric
        Tokens kept. [1]

    Returns
    -------
    numeric
        Cache. [B]

    Notes
    -----
    Derived: as many keys as values, unless a latent is kept or undone.
    """
    if group.num_index_elements and load.has_packed_selector:
        return num_layers * num_tokens * _packed_bytes_per_token(load, group)
    element_bytes = load.cache_bytes_per_element
    if group.is_latent and load.key_over_value_bytes:
        element_bytes = element_bytes + (0.5 - _values_ratio(load, group)) * load.key_over_value_bytes
    return num_layers * num_tokens * cache_elements_per_token(load, group) * element_bytes


def _packed_bytes_per_token(load: ServingLoad, group: CacheGroup) -> Bytes:
    """Return a token of sparse latent attention: selector keys in 8 bits, and a scale of 4 bytes for each 128.

    An 8-bit latent has such scales too, and its rotary part in 16 bits: 656 bytes for 512 and 64 elements
    (vllm/v1/kv_cache_interface.py, `fp8_ds_mla`, and vllm/model_executor/models/deepseek_v2.py, `DeepseekV32IndexerCache`,
    vLLM 0.27.1; sglang/srt/mem_cache/kv_cache_configurator.py, `calculate_mla_kv_cache_dim`, 0.5.23).
    """
    keys = group.num_index_elements * (1 + 4 / 128)
    values, rotary = group.num_latent_values, group.num_elements_per_head - group.num_latent_values
    is_small = 1.0 * (load.cache_bytes_per_element <= 1)
    packed = values * (1 + 4 / 128) + 2.0 * rotary
    plain = group.num_elements_per_head * load.cache_bytes_per_element
    return keys + is_small * packed + (1.0 - is_small) * plain


def _values_ratio(load: ServingLoad, group: CacheGroup) -> float:
    """Return the share of a latent layer's cache that is kept in the values' type."""
    if load.latent_cache == "full":
        return group.num_full_values / group.num_full_elements
    if load.latent_cache == "latent_and_values":
        return group.num_latent_values / (group.num_elements_per_head + group.num_latent_values)
    return 0.0


def state_bytes_per_sequence(
    load: ServingLoad,
    state_layers: tuple[Count, ...],
    convolution_bytes_per_element: float,
    state_bytes_per_element: float,
) -> Bytes:
    """Return the fixed state of one sequence on one device; tensor parallelism divides its heads.

    Parameters
    ----------
    load : ServingLoad
        The load, or a column of them.
    state_layers : tuple
        Layers of each state group. [1]
    convolution_bytes_per_element : float
        Size of an element of the convolution's state.
    state_bytes_per_element : float
        Size of an element of the recurrent state.

    Returns
    -------
    numeric
        State. [B]

    References
    ----------
    .. [1] A. Gu, T. Dao, "Mamba", arXiv:2312.00752; S. Yang et al., "Gated Delta Networks", arXiv:2412.06464.
    """
    total: Bytes = 0.0
    for group, num_layers in zip(load.shape.state_groups, state_layers, strict=True):
        one = (
            group.num_convolution_elements * convolution_bytes_per_element
            + group.num_state_elements * state_bytes_per_element
        )
        total = total + num_layers * one / load.tp
    return total
