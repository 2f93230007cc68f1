"""Measured fractions of a device's peak: by operation, size and shape."""

from __future__ import annotations

import numpy as np

from tonnage.estimate.branch import where
from tonnage.units import Count, Flop, FlopPerS, Ratio, Seconds


def size_ratio(flop: Flop, peak: FlopPerS, half: Seconds) -> Ratio:
    """Share of its best rate that a matrix product reaches, by how long it would run at peak.

    Parameters
    ----------
    flop : numeric
        Arithmetic of one product. [flop]
    peak : numeric
        Dense peak rate. [flop/s]
    half : numeric
        Time at peak at which half of the best rate is reached: filling and draining of the device. [s]

    Returns
    -------
    numeric
        Share. [0-1]

    References
    ----------
    .. [1] R. Hockney, "Performance parameters and benchmarking of supercomputers": r∞ and n½.

    Examples
    --------
    >>> size_ratio(1e12, 1e15, 1e-4)
    0.9090909090909091
    """
    return flop / (flop + peak * half)


def wave_ratio(rows: Count, columns: Count, num_multiprocessors: Count) -> Ratio:
    """Share of its best rate that a product keeps when its result is cut into tiles, one for each multiprocessor at once.

    Tiles are 128 by 256, or 128 by 128 at nine tenths of the rate, whichever is faster.

    Parameters
    ----------
    rows, columns : numeric
        Shape of the result on this device. [1]
    num_multiprocessors : numeric
        Multiprocessors of the device. [1]

    Returns
    -------
    numeric
        Share. [0-1]

    References
    ----------
    .. [1] NVIDIA, "Matrix Multiplication Background User's Guide", tile and wave quantization.

    Examples
    --------
    >>> round(float(wave_ratio(2048, 5376, 108)), 3), round(float(wave_ratio(8192, 5376, 108)), 3)
    (0.8, 0.957)
    """
    down = np.ceil(rows / 128.0)
    wide = down * np.ceil(columns / 256.0) / num_multiprocessors
    narrow = down * np.ceil(columns / 128.0) / num_multiprocessors
    share = rows * columns / (128.0 * 256.0 * num_multiprocessors)  # waves of the work itself
    return np.maximum(share / np.ceil(wide), 0.9 * 2.0 * share / np.ceil(narrow))


def aligned_ratio(width: Count, step: Count, penalty: Ratio) -> Ratio:
    """Share of its rate that a product keeps when a width is no multiple of what the loads want.

    Parameters
    ----------
    width : numeric
        Width on this device. [1]
    step : numeric
        Multiple that runs at full rate. [1]
    penalty : numeric
        Rate lost otherwise. [0-1]

    Returns
    -------
    numeric
        Share. [0-1]

    References
    ----------
    .. [1] NVIDIA, "Matrix Multiplication Background User's Guide", tensor-core alignment.

    Examples
    --------
    >>> float(aligned_ratio(1728, 128, 0.25))
    0.75
    """
    return where(np.mod(width, step) == 0, 1.0, 1.0 - penalty)


def maturity_ratio(age: Count, loss: Ratio, years: Count) -> Ratio:
    """Share of an architecture's final rate that kernels reach some time after its launch.

    Parameters
    ----------
    age : numeric
        Years between the launch of the device and the release of the software. [1]
    loss : numeric
        Rate missing at the launch. [0-1]
    years : numeric
        Time in which what is missing falls to a third. [1]

    Returns
    -------
    numeric
        Share. [0-1]

    References
    ----------
    .. [1] Derived: kernels written for older architectures run first and are replaced one by one.

    Examples
    --------
    >>> round(float(maturity_ratio(1.0, 0.3, 1.0)), 3)
    0.89
    """
    return 1.0 - loss * np.exp(-age / years)


def power_ratio(share: Ratio, exponent: Count) -> Ratio:
    """Share of its rate that a device keeps with less power for each unit of peak than its architecture's flagship.

    Parameters
    ----------
    share : numeric
        Power limit over peak rate, in units of the flagship's. [0-1]
    exponent : numeric
        1/3 when voltage follows the clock (power grows with its cube), 0 when power limits nothing. [1]

    Returns
    -------
    numeric
        Share. [0-1]

    References
    ----------
    .. [1] Derived: dynamic power of CMOS is C·V²·f with V proportional to f.

    Examples
    --------
    >>> round(float(power_ratio(0.5, 1 / 3)), 3)
    0.794
    """
    return np.minimum(share, 1.0) ** exponent
