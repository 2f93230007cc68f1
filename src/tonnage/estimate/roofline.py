"""Time of one operation: the slower of arithmetic and memory traffic, and never less than a launch."""

from __future__ import annotations

import numpy as np

from tonnage.estimate.branch import softer_max
from tonnage.units import Bytes, BytesPerS, Count, Flop, FlopPerS, Seconds


def roofline_seconds(flop: Flop, moved: Bytes, flop_rate: FlopPerS, bandwidth: BytesPerS) -> Seconds:
    """Time of an operation at the achieved rates of a device.

    Parameters
    ----------
    flop : numeric
        Arithmetic. [flop]
    moved : numeric
        Bytes read and written in device memory. [B]
    flop_rate : numeric
        Achieved arithmetic rate. [flop/s]
    bandwidth : numeric
        Achieved memory rate. [B/s]

    Returns
    -------
    numeric
        Time. [s]

    References
    ----------
    .. [1] S. Williams, A. Waterman, D. Patterson, "Roofline", CACM 2009.

    Examples
    --------
    >>> float(roofline_seconds(1e12, 1e9, 5e14, 2e12))
    0.002
    """
    return np.maximum(flop / flop_rate, moved / bandwidth)


def launched_seconds(busy: Seconds, num_kernels: Count, launch: Seconds) -> Seconds:
    """Time of a run of kernels: the device's own, or that of the host which launches them if it is slower.

    Parameters
    ----------
    busy : numeric
        Time the device needs. [s]
    num_kernels : numeric
        Kernels launched. [1]
    launch : numeric
        Host time of one launch. [s]

    Returns
    -------
    numeric
        Time. [s]

    References
    ----------
    .. [1] Derived: launches run ahead of the device, so the slower of the two shows; kernels are of uneven length, so
       that neither hides wholly behind the other where they are equal.

    Examples
    --------
    >>> round(float(launched_seconds(1e-3, 60, 5e-6)), 6), round(float(launched_seconds(1e-3, 200, 5e-6)), 6)
    (0.001002, 0.001189)
    """
    return softer_max(busy, num_kernels * launch)


def matmul_bytes(num_rows: Count, num_inputs: Count, num_outputs: Count, bytes_per_element: Bytes) -> Bytes:
    """Device memory traffic of one matrix product: both factors and the result once.

    Parameters
    ----------
    num_rows : numeric
        Rows, the tokens. [1]
    num_inputs : numeric
        Inner width. [1]
    num_outputs : numeric
        Outer width. [1]
    bytes_per_element : numeric
        Bytes of an element. [B]

    Returns
    -------
    numeric
        Traffic. [B]

    References
    ----------
    .. [1] S. Williams et al., "Roofline", CACM 2009: compulsory traffic.

    Examples
    --------
    >>> matmul_bytes(1024, 4096, 4096, 2)
    50331648
    """
    return (num_rows * num_inputs + num_inputs * num_outputs + num_rows * num_outputs) * bytes_per_element
