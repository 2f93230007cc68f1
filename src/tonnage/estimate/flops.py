"""Operations of a forward pass, per token: the matrices a token meets, and the tokens it attends to.

A multiplication and an addition count as two. Left out are norms, activations, rotations and the look-up of the
embedding, which are small; the softmax likewise.
"""

from __future__ import annotations

from dataclasses import replace

from tonnage.estimate.layer import Kind, layer_operations
from tonnage.model.matrices import EXPERTS, ROUTER, SHARED_EXPERT_GATE, layer_matrices
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
        Operations a token, the sum of `forward_flop_by_part`. [flop]

    References
    ----------
    .. [1] J. Kaplan et al., "Scaling Laws for Neural Language Models", 2020, arXiv:2001.08361, section 2.1.
    .. [2] D. Narayanan et al., SC 2021, arXiv:2104.04473, appendix; causal attention halves its attention term.

    Examples
    --------
    Llama-3.1-8B at 4,096 tokens: twice its weights but the embedding's, and attention:

    >>> from tonnage.model.catalogue import find
    >>> round(forward_flop_per_token(find("Llama-3.1-8B"), 4096) / 1e9, 2)
    16.08
    """
    return sum(forward_flop_by_part(model, num_tokens).values())


def forward_flop_by_part(model: Model, num_tokens: Count) -> dict[str, Flop]:
    """Return the operations of a forward pass for one token by what does them, on average over a causal sequence.

    Parameters
    ----------
    model : Model
        The model; its encoder is left out.
    num_tokens : numeric
        Length of the sequence. [1]

    Returns
    -------
    dict
        Operations a token: of each component's matrices under the component's name, of the pairs that attention scores
        and sums (`attention_scores`), of recurrences and convolutions (`state`). [flop]

    Notes
    -----
    Attention counts the pairs that are attended to: kernels that compute masked ones as well do about twice as many.
    Latent attention counts the expanded form, as in a prefill. A mixture counts the experts a token meets, its router
    and its shared experts. A layer that runs with another's weights counts like the other. Linear attention counts its
    chunked form. Residual streams that are mixed before each part (DeepSeek-V4) are left out.

    References
    ----------
    .. [1] J. Kaplan et al., "Scaling Laws for Neural Language Models", 2020, arXiv:2001.08361, section 2.1.
    .. [2] S. Yang et al., "Gated Delta Networks", ICLR 2025, arXiv:2412.06464, the chunked form.
    """
    found: dict[str, Flop] = {"lm_head": 2.0 * model.vocab_size * (model.embedding_size or model.hidden_size)}
    found["other"] = 2.0 * model.other_parameters.get("other", 0)
    for layer, times in model.groups():
        parts = _matrices_by_component(layer, model.hidden_size) | {"other": 2.0 * layer.other_parameters}
        for part, flop in (*parts.items(), *_beside(layer, model.hidden_size, num_tokens)):
            found[part] = found.get(part, 0.0) + times * flop
    return {part: flop for part, flop in found.items() if part != "other" or flop}


def matrix_weights_per_token(layer: Layer, hidden_size: int) -> int:
    """Return how many weights of a layer's matrices multiply one token.

    Parameters
    ----------
    layer : Layer
        The layer; one that runs with the weights of another is computed all the same.
    hidden_size : int
        Width of the residual stream. [1]

    Returns
    -------
    int
        Weights. [1]
    """
    return round(sum(_matrices_by_component(layer, hidden_size).values()) / 2) + layer.other_parameters


def _matrices_by_component(layer: Layer, hidden_size: int) -> dict[str, float]:
    """Return the operations of a layer's matrices for one token."""
    found: dict[str, float] = {}
    own = replace(layer, is_repeat=False)
    chosen = {part.num_experts: part.top_k for part in layer.feed_forwards if isinstance(part, Moe)}
    for matrix in layer_matrices(own, hidden_size):
        if matrix.component == EXPERTS:
            num = chosen.get(matrix.num, matrix.num)
        elif matrix.is_linear or matrix.component == ROUTER:
            num = matrix.num
        else:
            continue
        found[matrix.component] = found.get(matrix.component, 0.0) + 2.0 * num * matrix.rows * matrix.columns
    gate = sum(part.shared_gate_parameters for part in layer.feed_forwards if isinstance(part, Moe))
    return found | ({SHARED_EXPERT_GATE: 2.0 * gate} if gate else {})


def _beside(layer: Layer, hidden_size: int, num_tokens: Count) -> list[tuple[str, Flop]]:
    """Return what a layer computes beside its matrices: attention, scans, convolutions."""
    found: list[tuple[str, Flop]] = []
    for operation in layer_operations(layer, hidden_size):
        if operation.kind is Kind.SCAN:
            found.append(("state", operation.flop_per_token))
        if operation.flop_per_pair:
            pairs = causal_pairs_per_token(num_tokens, operation.window_tokens)
            found.append(("attention_scores", operation.flop_per_pair * pairs))
    return found
