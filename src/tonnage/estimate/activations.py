"""Bytes that a forward pass keeps for the backward pass, by recomputation mode and pipeline rank; logits and loss."""

from __future__ import annotations

import numpy as np

from tonnage.estimate.branch import where
from tonnage.units import Bytes, Count


def kept_layer_bytes(
    num_tokens: Count,
    tensor_bytes_per_token: Bytes,
    sequence_bytes_per_token: Bytes,
    expert_bytes_per_token: Bytes,
    routed_bytes_per_token: Bytes,
    tp: Count,
    has_sequence_parallel: Count,
    etp: Count,
) -> Bytes:
    """Memory that one layer keeps for backward, without attention scores.

    Parameters
    ----------
    num_tokens : numeric
        Tokens of one micro-batch on this device, after context parallelism. [1]
    tensor_bytes_per_token : numeric
        Tensors whose width tensor parallelism divides. [B]
    sequence_bytes_per_token : numeric
        Tensors that are whole on each rank unless sequence parallelism cuts their tokens. [B]
    expert_bytes_per_token : numeric
        Tensors inside experts; expert parallelism moves them but does not make them fewer. [B]
    routed_bytes_per_token : numeric
        Tensors of routed tokens at full width, gathered by all ranks that share an expert. [B]
    tp : numeric
        Tensor-parallel ranks. [1]
    has_sequence_parallel : numeric
        1 with sequence parallelism, else 0. [1]
    etp : numeric
        Tensor-parallel ranks of an expert. [1]

    Returns
    -------
    numeric
        Memory of one device. [B]

    Notes
    -----
    Routed tokens are those of this rank times top-k: with experts spread over `ep` ranks each rank receives as many as
    it sends on average. With tensor parallelism and no sequence parallelism all ranks hold the same tokens.

    References
    ----------
    .. [1] V. Korthikanti et al., arXiv:2205.05198, equations 2 and 4.
    .. [2] NVIDIA/Megatron-LM pull request 6782 on routed activations.

    Examples
    --------
    >>> float(kept_layer_bytes(2048, 24 * 6144, 10 * 6144, 0, 0, 8, 1, 1)) / 2048 / 6144
    4.25
    """
    cut = where(has_sequence_parallel, tp, 1)
    dense = tensor_bytes_per_token / tp + sequence_bytes_per_token / cut
    return num_tokens * (dense + (expert_bytes_per_token + routed_bytes_per_token * etp) / cut)


def attention_score_bytes(
    num_sequences: Count, num_queries: Count, num_keys: Count, num_heads: Count, bytes_per_score: Bytes, tp: Count
) -> Bytes:
    """Memory of the probability matrices that attention keeps when it is not fused.

    Parameters
    ----------
    num_sequences : numeric
        Sequences of a micro-batch. [1]
    num_queries : numeric
        Queries of a sequence on this device. [1]
    num_keys : numeric
        Keys each meets; unfused code does not skip masked ones. [1]
    num_heads : numeric
        Attention heads of the layer. [1]
    bytes_per_score : numeric
        Bytes kept of one pair: 5 with dropout in 16 bit, 6 for an fp32 softmax and its 16-bit copy. [B]
    tp : numeric
        Tensor-parallel ranks. [1]

    Returns
    -------
    numeric
        Memory of one device and layer. [B]

    References
    ----------
    .. [1] V. Korthikanti et al., arXiv:2205.05198, section 4.1: 5·a·s²·b.

    Examples
    --------
    >>> attention_score_bytes(1, 2048, 2048, 96, 5, 8) / 2**20
    240.0
    """
    return num_sequences * num_queries * num_keys * num_heads * bytes_per_score / tp


def layers_in_flight(
    num_layers: Count, pp: Count, num_virtual_stages: Count, stage: Count, num_micro_batches: Count
) -> Count:
    """Layers, each times its micro-batches, whose activations a pipeline rank holds at its fullest.

    Parameters
    ----------
    num_layers : numeric
        Layers of this rank. [1]
    pp : numeric
        Pipeline ranks. [1]
    num_virtual_stages : numeric
        Model chunks a rank holds; 1 is plain 1F1B. [1]
    stage : numeric
        Rank in the pipeline, 0 the first. [1]
    num_micro_batches : numeric
        Micro-batches of a step. [1]

    Returns
    -------
    numeric
        Layer activations alive at once. [1]

    References
    ----------
    .. [1] D. Narayanan et al., arXiv:2104.04473, section 2.2; `get_pp_rank_microbatches` in
       megatron/core/pipeline_parallel/schedules.py: warm-up chunks = 2·(pp − rank − 1) + (v − 1)·pp, one more in work.

    Examples
    --------
    >>> float(layers_in_flight(12, 8, 1, 0, 64)), float(layers_in_flight(12, 8, 3, 0, 64))
    (96.0, 124.0)
    """
    plain = np.minimum(pp - stage, num_micro_batches)
    chunks = 2 * (pp - stage - 1) + (num_virtual_stages - 1) * pp + 1
    chunks = np.minimum(chunks, num_micro_batches * num_virtual_stages)
    in_flight = where(num_virtual_stages > 1, chunks / num_virtual_stages, plain)
    return num_layers * where(pp > 1, in_flight, 1)


def checkpointed_layer_bytes(num_tokens: Count, hidden_size: Count, bytes_per_element: Bytes, cut: Count) -> Bytes:
    """Memory of one layer's input, kept when the layer is recomputed.

    Parameters
    ----------
    num_tokens : numeric
        Tokens of one micro-batch on this device. [1]
    hidden_size : numeric
        Width of the residual stream. [1]
    bytes_per_element : numeric
        Bytes of an element of the residual stream. [B]
    cut : numeric
        Ranks the input is cut over: tensor parallel with sequence parallelism, else 1. [1]

    Returns
    -------
    numeric
        Memory of one device and layer. [B]

    References
    ----------
    .. [1] T. Chen et al., "Training Deep Nets with Sublinear Memory Cost", arXiv:1604.06174.

    Examples
    --------
    >>> checkpointed_layer_bytes(4096, 4096, 2, 1)
    33554432.0
    """
    return num_tokens * hidden_size * bytes_per_element / cut


def logits_bytes(num_tokens: Count, vocab_size: Count, bytes_per_logit: Bytes, tp: Count) -> Bytes:
    """Memory of logits and loss at the end of the forward pass.

    Parameters
    ----------
    num_tokens : numeric
        Tokens whose logits exist at once. [1]
    vocab_size : numeric
        Vocabulary. [1]
    bytes_per_logit : numeric
        All copies of one logit: 16 bit, fp32, softmax, gradient. [B]
    tp : numeric
        Ranks that split the vocabulary. [1]

    Returns
    -------
    numeric
        Memory of one device. [B]

    References
    ----------
    .. [1] Derived: transformers 5.24.0 `ForCausalLMLoss` upcasts the logits (4 B) beside the 16-bit ones (2 B),
       cross-entropy keeps the log-softmax (4 B) and backward makes gradients (4 B + 2 B).

    Examples
    --------
    >>> logits_bytes(4096, 128256, 14, 1) / 2**30
    6.8
    """
    return num_tokens * vocab_size * bytes_per_logit / tp
