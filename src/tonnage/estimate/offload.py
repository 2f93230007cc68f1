"""What lives in host memory instead: its size there, its traffic, and the time of the host's own optimizer step."""

from __future__ import annotations

from tonnage.units import Bytes, BytesPerS, Count, Seconds


def pinned_bytes(total: Bytes, overhead: Count) -> Bytes:
    """Host memory of offloaded tensors in pinned buffers.

    Parameters
    ----------
    total : numeric
        Bytes of the tensors of all devices of a node. [B]
    overhead : numeric
        Factor of pinned buffers and copies over them. [1]

    Returns
    -------
    numeric
        Host memory. [B]

    References
    ----------
    .. [1] deepspeed/runtime/zero/stage3.py of DeepSpeed 0.19.8, `estimate_zero3_model_states_mem_needs`: factor 1.5.

    Examples
    --------
    >>> pinned_bytes(1e9, 1.5)
    1500000000.0
    """
    return total * overhead


def transfer_seconds(total: Bytes, bandwidth: BytesPerS) -> Seconds:
    """Time to move bytes between host and device.

    Parameters
    ----------
    total : numeric
        Bytes. [B]
    bandwidth : numeric
        Achieved rate of one device's host link. [B/s]

    Returns
    -------
    numeric
        Time. [s]

    References
    ----------
    .. [1] Derived: volume over rate.

    Examples
    --------
    >>> transfer_seconds(2.5e10, 2.5e10)
    1.0
    """
    return total / bandwidth


def host_step_seconds(num_parameters: Count, bytes_per_parameter: Bytes, bandwidth: BytesPerS) -> Seconds:
    """Time of an optimizer step that the host runs, bound by its memory.

    Parameters
    ----------
    num_parameters : numeric
        Parameters stepped by one node. [1]
    bytes_per_parameter : numeric
        Bytes read and written a parameter: gradient, master and two moments, both ways. [B]
    bandwidth : numeric
        Achieved rate of the host's memory. [B/s]

    Returns
    -------
    numeric
        Time. [s]

    References
    ----------
    .. [1] J. Ren et al., "ZeRO-Offload", ATC 2021, arXiv:2101.06840.

    Examples
    --------
    >>> host_step_seconds(1e9, 28, 1e11)
    0.28
    """
    return num_parameters * bytes_per_parameter / bandwidth
