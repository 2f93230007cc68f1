"""Bytes that serving needs, from a `ServingLoad`: weights a device, cache and state of the sequences in flight.

Engines' accounting modules call these with their own rounding; numbers or columns alike.
"""

from __future__ import annotations

import numpy as np

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


def cache_elements_per_token(group: CacheGroup, tp: Count) -> Count:
    """Elements that one layer of a group keeps a token on one device; a latent cache is whole on every device.

    Parameters
    ----------
    group : CacheGroup
        The layers' common shape.
    tp : numeric
        Tensor-parallel ways; with more ways than heads, heads are repeated. [1]

    Returns
    -------
    numeric
        Elements. [1]

    Notes
    -----
    Derived from the head counts.
    """
    if group.is_latent:
        return group.num_elements_per_head + group.num_index_elements
    return -(-group.num_kv_heads // tp) * group.num_elements_per_head


def cache_bytes_of_group(
    group: CacheGroup, num_layers: Count, num_tokens: Count, tp: Count, bytes_per_element: Bytes
) -> Bytes:
    """Cache of a number of tokens in some layers of a group, on one device.

    Parameters
    ----------
    group : CacheGroup
        The layers' common shape.
    num_layers : numeric
        Layers of the group on the device. [1]
    num_tokens : numeric
        Tokens kept. [1]
    tp : numeric
        Tensor-parallel ways. [1]
    bytes_per_element : numeric
        Size of an element. [B]

    Returns
    -------
    numeric
        Cache. [B]

    Notes
    -----
    Derived.
    """
    return num_layers * num_tokens * cache_elements_per_token(group, tp) * bytes_per_element


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
