"""Operations of a forward pass, per token: the matrices a token meets, and the tokens it attends to.

A multiplication and an addition count as two. Left out are norms, activations, rotations and the look-up of the
embedding, which are small; the softmax likewise.
"""

from __future__ import annotations

from tonnage.estimate.layer import Kind, layer_operations
from tonnage.model.matrices import EXPERTS, ROUTER, layer_matrices
from tonnage.model.types import Layer, Model, Moe
from tonnage.units import Count, Flop


def causal_pairs_per_token(num_tokens: Count, window_tokens: Count | None = None) -> Count:
    """Return how many tokens one attends to on average, itself included, in a causal sequence.

    Parameters
    ----------
    num_tokens : numeric
        Length of the sequence. [1]
    window_tokens : numeric
        How many tokens a token sees at most, itself included; None sees all before it. [1]

    Returns
    -------
    numeric
        Mean over the sequence. [1]

    References
    ----------
    .. [1] Derived: token i sees min(i, window) tokens, and the mean of i over 1…n is (n + 1)/2.

    Examples
    --------
    >>> causal_pairs_per_token(4096), causal_pairs_per_token(4096, 512)
    (2048.5, 480.0625)
    """
    if window_tokens is None or window_tokens >= num_tokens:
        return (num_tokens + 1) / 2
    first = window_tokens * (window_tokens + 1) / 2
    return (first + (num_tokens - window_tokens) * window_tokens) / num_tokens


def forward_flop_per_token(model: Model, num_tokens: Count) -> Flop:
    """Return the operations of a forward pass for one token, on average over a causal sequence.

    Parameters
    ----------
    model : Model
        The model; its encoder is left out.
    num_tokens : numeric
        Length of the sequence. [1]

    Returns
    -------
    numeric
        Operations a token. [flop]

    Notes
    -----
    Attention counts the pairs that are attended to: kernels that compute masked ones as well do about twice as many.
    A mixture counts the experts a token meets, its router and its shared experts.

    References
    ----------
    .. [1] J. Kaplan et al., "Scaling Laws for Neural Language Models", 2020, arXiv:2001.08361, section 2.1.
    .. [2] D. Narayanan et al., SC 2021, arXiv:2104.04473, appendix; causal attention halves its attention term.
    """
    total = 2.0 * model.vocab_size * (model.embedding_size or model.hidden_size)
    for layer, times in model.groups():
        total += times * (2 * matrix_weights_per_token(layer, model.hidden_size) + _beside(layer, model, num_tokens))
    return total


def matrix_weights_per_token(layer: Layer, hidden_size: int) -> int:
    """Return how many weights of a layer's matrices multiply one token.

    Parameters
    ----------
    layer : Layer
        The layer; one that runs with the weights of another is computed all the same.
    hidden_size : numeric
        Width of the residual stream. [1]

    Returns
    -------
    numeric
        Weights. [1]
    """
    total = 0
    share = {part.num_experts: part.top_k for part in layer.feed_forwards if isinstance(part, Moe)}
    for matrix in layer_matrices(layer, hidden_size):
        if matrix.component == EXPERTS:
            total += matrix.rows * matrix.columns * share.get(matrix.num, matrix.num)
        elif matrix.is_linear or matrix.component == ROUTER:
            total += matrix.num_parameters
    return total + sum(part.shared_gate_parameters for part in layer.feed_forwards if isinstance(part, Moe))


def _beside(layer: Layer, model: Model, num_tokens: Count) -> Flop:
    """Return what a layer computes beside its matrices: attention, scans, convolutions."""
    total = 0.0
    for operation in layer_operations(layer, model.hidden_size):
        if operation.kind is Kind.SCAN:
            total += operation.flop_per_token
        if operation.flop_per_pair:
            total += operation.flop_per_pair * causal_pairs_per_token(num_tokens, operation.window_tokens)
    return total
