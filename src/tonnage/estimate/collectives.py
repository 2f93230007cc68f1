"""Time of collectives: latency plus volume over bandwidth (α–β), by algorithm."""

from __future__ import annotations

import numpy as np

from tonnage.estimate.branch import softer_min, where
from tonnage.units import Bytes, BytesPerS, Count, Ratio, Seconds


def all_gather_seconds(total: Bytes, num_ranks: Count, bandwidth: BytesPerS, latency: Seconds) -> Seconds:
    """Time of an all-gather, or of a reduce-scatter of the same total.

    Parameters
    ----------
    total : numeric
        Size of the gathered tensor. [B]
    num_ranks : numeric
        Ranks. [1]
    bandwidth : numeric
        Achieved rate of one rank in one direction. [B/s]
    latency : numeric
        Time of one doubling without data. [s]

    Returns
    -------
    numeric
        Time. [s]

    References
    ----------
    .. [1] R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH",
       IJHPCA 2005: recursive doubling, log₂ n steps and the volume of a ring.

    Examples
    --------
    >>> round(float(all_gather_seconds(8e9, 8, 2e11, 5e-6)), 6)
    0.035015
    """
    steps = np.log2(np.maximum(num_ranks, 1))
    return total * (num_ranks - 1) / num_ranks / bandwidth + steps * latency


def all_reduce_seconds(total: Bytes, num_ranks: Count, bandwidth: BytesPerS, latency: Seconds) -> Seconds:
    """Time of an all-reduce: a reduce-scatter and an all-gather.

    Parameters
    ----------
    total : numeric
        Size of the reduced tensor. [B]
    num_ranks : numeric
        Ranks. [1]
    bandwidth : numeric
        Achieved rate of one rank in one direction. [B/s]
    latency : numeric
        Time of one doubling without data. [s]

    Returns
    -------
    numeric
        Time. [s]

    References
    ----------
    .. [1] P. Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms", JPDC 2009.

    Examples
    --------
    >>> round(float(all_reduce_seconds(8e9, 8, 2e11, 5e-6)), 5)
    0.07003
    """
    return 2 * all_gather_seconds(total, num_ranks, bandwidth, latency)


def all_to_all_seconds(sent: Bytes, num_ranks: Count, bandwidth: BytesPerS, latency: Seconds) -> Seconds:
    """Time of an all-to-all in which each rank sends to every other.

    Parameters
    ----------
    sent : numeric
        Bytes one rank holds for all ranks together, itself included. [B]
    num_ranks : numeric
        Ranks. [1]
    bandwidth : numeric
        Achieved rate of one rank in one direction. [B/s]
    latency : numeric
        Time of one message without data. [s]

    Returns
    -------
    numeric
        Time. [s]

    References
    ----------
    .. [1] Derived: a rank keeps 1/n of its bytes and sends the rest at its own rate.

    Examples
    --------
    >>> float(all_to_all_seconds(8e9, 8, 1e11, 0))
    0.07
    """
    return where(num_ranks > 1, sent * (num_ranks - 1) / num_ranks / bandwidth + latency, 0.0)


def group_bandwidth(
    num_ranks: Count, ranks_per_node: Count, intra: BytesPerS, inter_per_device: BytesPerS
) -> BytesPerS:
    """Achieved rate of one rank of a group: the slower of the link inside a node and its share of the network.

    Parameters
    ----------
    num_ranks : numeric
        Ranks of the group. [1]
    ranks_per_node : numeric
        Ranks of the group that share a node; their network interfaces work together. [1]
    intra : numeric
        Link between devices of a node, one direction. [B/s]
    inter_per_device : numeric
        Network of a node divided by its devices, one direction. [B/s]

    Returns
    -------
    numeric
        Rate. [B/s]

    References
    ----------
    .. [1] Derived: a ring that enters and leaves a node once per interface moves its total over all of them.

    Examples
    --------
    >>> float(group_bandwidth(64, 8, 4e11, 5e10)), float(group_bandwidth(8, 1, 4e11, 5e10))
    (400000000000.0, 50000000000.0)
    """
    crossing = np.minimum(intra, inter_per_device * np.maximum(ranks_per_node, 1))
    return where(num_ranks > ranks_per_node, crossing, intra)


def exposed_seconds(communication: Seconds, cover: Seconds, overlap_ratio: Ratio) -> Seconds:
    """Time of communication that computation does not hide.

    Parameters
    ----------
    communication : numeric
        Time of the communication alone. [s]
    cover : numeric
        Computation that may run beside it. [s]
    overlap_ratio : numeric
        Share of the communication that may be hidden at all. [0-1]

    Returns
    -------
    numeric
        Time added. [s]

    References
    ----------
    .. [1] Derived: what may be hidden is hidden while there is computation to hide it; both come in uneven pieces, so
       that a fifth less is hidden where they are equally long.

    Examples
    --------
    >>> round(float(exposed_seconds(2.0, 1.0, 1.0)), 3), round(float(exposed_seconds(2.0, 10.0, 0.75)), 3)
    (1.015, 0.5)
    """
    return communication - softer_min(communication * overlap_ratio, cover)
