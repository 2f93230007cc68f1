"""Memory beside the tensors of a model: CUDA context, collectives' buffers, libraries, allocator."""

from __future__ import annotations

import numpy as np

from tonnage.units import Bytes, Count, Ratio


def gathered_units_bytes(
    unit_parameters: Count, root_parameters: Count, bytes_per_parameter: Bytes, num_units: Count, is_sharded: Count
) -> Bytes:
    """Memory of parameters that a sharded data-parallel run holds gathered.

    Parameters
    ----------
    unit_parameters : numeric
        Parameters of one wrapped unit, a layer. [1]
    root_parameters : numeric
        Parameters outside the units (embedding, head), gathered through the whole step. [1]
    bytes_per_parameter : numeric
        Bytes of a gathered parameter. [B]
    num_units : numeric
        Units alive at once: the one at work and those prefetched. [1]
    is_sharded : numeric
        1 when parameters are sharded (ZeRO 3, FSDP), else 0. [1]

    Returns
    -------
    numeric
        Memory of one device. [B]

    References
    ----------
    .. [1] Y. Zhao et al., "PyTorch FSDP", VLDB 2023, arXiv:2304.11277, section 3.3.

    Examples
    --------
    >>> gathered_units_bytes(218e6, 1050e6, 2, 2, 1)
    2972000000.0
    """
    return (unit_parameters * num_units + root_parameters) * bytes_per_parameter * is_sharded


def reserved_bytes(allocated: Bytes, fragmentation_ratio: Ratio, floor_bytes: Bytes) -> Bytes:
    """Memory that the caching allocator holds for tensors of some peak size.

    Parameters
    ----------
    allocated : numeric
        Peak of the bytes in tensors. [B]
    fragmentation_ratio : numeric
        Share of it that rounding to segments and holes add. [0-1]
    floor_bytes : numeric
        Segments held whatever the size. [B]

    Returns
    -------
    numeric
        Reserved memory. [B]

    Notes
    -----
    On a full card the allocator gives cached segments back before it fails, so fragmentation shrinks as memory fills.

    References
    ----------
    .. [1] torch 2.13.0 c10/cuda/CUDACachingAllocator.cpp: blocks of 512 B in segments of 2 MiB and 20 MiB.

    Examples
    --------
    >>> reserved_bytes(10e9, 0.05, 1e8)
    10600000000.0
    """
    return allocated * (1 + fragmentation_ratio) + floor_bytes


def collective_buffer_bytes(num_communicators: Count, bytes_per_communicator: Bytes) -> Bytes:
    """Device memory of NCCL's communicators, outside the allocator.

    Parameters
    ----------
    num_communicators : numeric
        Process groups with more than one rank. [1]
    bytes_per_communicator : numeric
        Buffers of one. [B]

    Returns
    -------
    numeric
        Memory of one device. [B]

    References
    ----------
    .. [1] NCCL documentation, NCCL_BUFFSIZE: 4 MiB a channel and peer direction.

    Examples
    --------
    >>> collective_buffer_bytes(3, 2e8)
    600000000.0
    """
    return num_communicators * bytes_per_communicator


def usable_bytes(capacity: Bytes, context: Bytes) -> Bytes:
    """Memory left to the allocator once a context exists.

    Parameters
    ----------
    capacity : numeric
        What the driver reports, less what other processes hold. [B]
    context : numeric
        Context and libraries. [B]

    Returns
    -------
    numeric
        Memory for tensors. [B]

    References
    ----------
    .. [1] Derived: what is left.

    Examples
    --------
    >>> float(usable_bytes(24e9, 5e8))
    23500000000.0
    """
    return np.maximum(capacity - context, 0)
