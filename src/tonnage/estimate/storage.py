"""How fast disks must be read: weights at the start, data while training."""

from __future__ import annotations

from tonnage.units import Bytes, BytesPerS, Seconds, TokensPerS


def load_bytes_per_s(weights: Bytes, load: Seconds) -> BytesPerS:
    """Read rate that brings the weights in within a time.

    Parameters
    ----------
    weights : numeric
        Weights as they lie on disk. [B]
    load : numeric
        Time that loading may take. [s]

    Returns
    -------
    numeric
        Sequential read rate. [B/s]

    Notes
    -----
    Derived. A machine reads what it holds of them; a cache of the system makes a second start faster.

    Examples
    --------
    >>> load_bytes_per_s(60e9, 60.0)
    1000000000.0
    """
    return weights / load


def feed_bytes_per_s(tokens_per_s: TokensPerS, token: Bytes) -> BytesPerS:
    """Read rate that keeps a training job in tokens.

    Parameters
    ----------
    tokens_per_s : numeric
        Tokens of the whole job. [token/s]
    token : numeric
        A token as it lies on disk: 4 bytes where it was tokenised before. [B]

    Returns
    -------
    numeric
        Sequential read rate. [B/s]

    Notes
    -----
    Derived. Text alone; images and sound need far more.

    Examples
    --------
    >>> feed_bytes_per_s(1_000_000.0, 4)
    4000000.0
    """
    return tokens_per_s * token
