"""How long a token takes: prefill, decode, batching; from the bytes really read and the operations really done.

Every function takes numbers or numpy arrays that broadcast; nothing here knows a model's or an engine's name.
"""

from __future__ import annotations

from tonnage.units import Count, Ratio, Seconds

__all__ = [
    "distinct_experts_ratio",
    "longer_of",
]


def distinct_experts_ratio(num_tokens: Count, top_k: Count, num_experts: Count) -> Ratio:
    """Share of a layer's routed experts that at least one of the tokens of a step selects.

    Parameters
    ----------
    num_tokens : numeric
        Tokens that pass the layer in one step. [1]
    top_k : numeric
        Experts that one token selects. [1]
    num_experts : numeric
        Routed experts of the layer. [1]

    Returns
    -------
    numeric
        Expected distinct experts over all experts. [0-1]

    Notes
    -----
    Each token selects `top_k` of `num_experts` without repetition, independently of the others: one expert is missed
    by all with probability (1 - k/E)^n. Real routers are less even, so this is an upper end.

    References
    ----------
    .. [1] Derived: expectation of the union of n uniform k-subsets.

    Examples
    --------
    >>> float(distinct_experts_ratio(1, 8, 128))
    0.0625
    """
    return 1.0 - (1.0 - top_k / num_experts) ** num_tokens


def longer_of(one_seconds: Seconds, other_seconds: Seconds, exponent: float = 4.0) -> Seconds:
    """Time of an operation that computes and moves memory at once.

    Parameters
    ----------
    one_seconds : numeric
        Time of the one alone. [s]
    other_seconds : numeric
        Time of the other alone. [s]
    exponent : float
        Norm that joins the two times: infinity is the textbook roofline, 1 is no overlap.

    Returns
    -------
    numeric
        Time of both. [s]

    References
    ----------
    .. [1] S. Williams et al., "Roofline", CACM 52(4), 2009; the smooth maximum is derived.

    Examples
    --------
    >>> longer_of(2.0, 0.0), round(longer_of(1.0, 1.0), 3)
    (2.0, 1.189)
    """
    return (one_seconds**exponent + other_seconds**exponent) ** (1.0 / exponent)
