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


def tile_ratio(width: Count, tile: Count) -> Ratio:
    """Share of the work in a matrix product that is not padding, when a width is cut into tiles.

    Parameters
    ----------
    width : numeric
        Width of the result or of the inner sum on this device. [1]
    tile : numeric
        Width of a tile. [1]

    Returns
    -------
    numeric
        Useful share. [0-1]

    References
    ----------
    .. [1] NVIDIA, "Matrix Multiplication Background User's Guide", tile quantization.

    Examples
    --------
    >>> float(tile_ratio(192, 128)), float(tile_ratio(256, 128))
    (0.75, 1.0)
    """
    return width / (np.ceil(width / tile) * tile)


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
