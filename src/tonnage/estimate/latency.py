"""How long a token takes: prefill, decode, batching; from the bytes really read and the operations really done.

Every function takes numbers or numpy arrays that broadcast; nothing here knows a model's or an engine's name.
"""

from __future__ import annotations

import math

import numpy as np

from tonnage.units import Bytes, BytesPerS, Count, Flop, FlopPerS, Ratio, Seconds, TokensPerS

__all__ = [
    "all_reduce_seconds",
    "distinct_experts_ratio",
    "offloaded_prefill_seconds",
    "prefill_seconds",
    "roofline_seconds",
    "steady_throughput_tokens_per_s",
    "transfer_seconds",
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
    return 1.0 - (1.0 - top_k / np.maximum(num_experts, 1)) ** num_tokens


def roofline_seconds(
    num_flop: Flop, num_bytes: Bytes, flop_per_s: FlopPerS, bytes_per_s: BytesPerS, exponent: float = 4.0
) -> Seconds:
    """Time of an operation that computes and moves memory at once.

    Parameters
    ----------
    num_flop : numeric
        Operations. [flop]
    num_bytes : numeric
        Bytes moved to and from memory. [B]
    flop_per_s : numeric
        Achieved rate of computing. [flop/s]
    bytes_per_s : numeric
        Achieved memory bandwidth. [B/s]
    exponent : float
        Norm that joins the two times: infinity is the textbook roofline, 1 is no overlap.

    Returns
    -------
    numeric
        Seconds. [s]

    References
    ----------
    .. [1] S. Williams et al., "Roofline", CACM 52(4), 2009; the smooth maximum is derived.

    Examples
    --------
    >>> round(float(roofline_seconds(0, 2e12, 1e12, 1e12)), 6)
    2.0
    """
    computing = np.asarray(num_flop / flop_per_s, dtype=float)
    moving = np.asarray(num_bytes / bytes_per_s, dtype=float)
    longer = np.maximum(computing, moving)
    shorter = np.minimum(computing, moving)
    ratio = np.divide(shorter, longer, out=np.zeros(np.shape(longer)), where=longer > 0)
    return longer * (1.0 + ratio**exponent) ** (1.0 / exponent)


def all_reduce_seconds(
    num_bytes: Bytes, num_devices: Count, bytes_per_s: BytesPerS, latency_seconds: Seconds
) -> Seconds:
    """Time of one ring all-reduce.

    Parameters
    ----------
    num_bytes : numeric
        Bytes of the tensor on each device. [B]
    num_devices : numeric
        Devices that take part; one costs nothing. [1]
    bytes_per_s : numeric
        Achieved rate of one device's link, one direction. [B/s]
    latency_seconds : numeric
        Start-up time of the collective. [s]

    Returns
    -------
    numeric
        Seconds. [s]

    References
    ----------
    .. [1] R. Thakur et al., "Optimization of Collective Communication Operations in MPICH", IJHPCA 19(1), 2005.

    Examples
    --------
    >>> float(all_reduce_seconds(8e6, 2, 1e9, 0.0))
    0.008
    """
    moved = 2.0 * (num_devices - 1) / num_devices * num_bytes
    return np.where(num_devices > 1, latency_seconds + moved / bytes_per_s, 0.0)


def transfer_seconds(num_bytes: Bytes, bytes_per_s: BytesPerS, latency_seconds: Seconds) -> Seconds:
    """Time to move a tensor over one link.

    Parameters
    ----------
    num_bytes : numeric
        Bytes moved. [B]
    bytes_per_s : numeric
        Achieved rate of the link. [B/s]
    latency_seconds : numeric
        Start-up time. [s]

    Returns
    -------
    numeric
        Seconds. [s]

    References
    ----------
    .. [1] R. Hockney, "The communication challenge for MPP", Parallel Computing 20(3), 1994.

    Examples
    --------
    >>> transfer_seconds(1e9, 1e9, 0.5)
    1.5
    """
    return latency_seconds + num_bytes / bytes_per_s


def prefill_seconds(
    num_tokens: Count,
    chunk_tokens: Count,
    flop_per_token: Flop,
    attention_flop: Flop,
    chunk_bytes: Bytes,
    flop_per_s: FlopPerS,
    attention_flop_per_s: FlopPerS,
    bytes_per_s: BytesPerS,
    chunk_overhead_seconds: Seconds,
) -> Seconds:
    """Time to read a prompt in chunks.

    Parameters
    ----------
    num_tokens : numeric
        Tokens of the prompt. [1]
    chunk_tokens : numeric
        Tokens that pass the model at once. [1]
    flop_per_token : numeric
        Operations of the matrices for one token, of one device. [flop]
    attention_flop : numeric
        Operations of attention for the whole prompt, of one device. [flop]
    chunk_bytes : numeric
        Weights that each chunk reads. [B]
    flop_per_s : numeric
        Achieved rate of the matrices. [flop/s]
    attention_flop_per_s : numeric
        Achieved rate of attention. [flop/s]
    bytes_per_s : numeric
        Achieved memory bandwidth. [B/s]
    chunk_overhead_seconds : numeric
        Fixed cost of a chunk. [s]

    Returns
    -------
    numeric
        Seconds. [s]

    References
    ----------
    .. [1] R. Pope et al., arXiv:2211.05102; A. Agrawal et al., "Sarathi-Serve", arXiv:2403.02310 (chunks).

    Examples
    --------
    >>> round(float(prefill_seconds(1000, 500, 1e9, 0, 0, 1e12, 1e12, 1e12, 0.0)), 6)
    1.0
    """
    num_chunks = np.ceil(num_tokens / chunk_tokens)
    matrices = roofline_seconds(flop_per_token * num_tokens / num_chunks, chunk_bytes, flop_per_s, bytes_per_s)
    return num_chunks * (matrices + chunk_overhead_seconds) + attention_flop / attention_flop_per_s


def offloaded_prefill_seconds(
    num_tokens: Count,
    chunk_tokens: Count,
    host_bytes: Bytes,
    host_flop_per_token: Flop,
    link_bytes_per_s: BytesPerS,
    host_flop_per_s: FlopPerS,
    host_bytes_per_s: BytesPerS,
) -> Seconds:
    """Extra time of a prompt for the weights that live on the host: copied for each chunk or computed there.

    Parameters
    ----------
    num_tokens : numeric
        Tokens of the prompt. [1]
    chunk_tokens : numeric
        Tokens that pass the model at once. [1]
    host_bytes : numeric
        Weights on the host that a chunk touches. [B]
    host_flop_per_token : numeric
        Operations of those weights for a token. [flop]
    link_bytes_per_s : numeric
        Achieved rate between host and device; 0 when they are computed on the host. [B/s]
    host_flop_per_s : numeric
        Achieved rate of the host's processor. [flop/s]
    host_bytes_per_s : numeric
        Achieved memory bandwidth of the host. [B/s]

    Returns
    -------
    numeric
        Seconds. [s]

    Notes
    -----
    The faster of the two ways is taken, as engines do above a number of tokens.

    References
    ----------
    .. [1] Derived from ggml's scheduler, which copies host weights to the device for batches
       (ggml-org/llama.cpp ggml/src/ggml-cuda/ggml-cuda.cu, `offload_op`).

    Examples
    --------
    >>> float(offloaded_prefill_seconds(1024, 512, 1e9, 1e6, 1e10, 1e9, 5e10))
    0.2
    """
    num_chunks = np.ceil(num_tokens / chunk_tokens)
    on_host = roofline_seconds(
        host_flop_per_token * num_tokens, host_bytes * num_chunks, host_flop_per_s, host_bytes_per_s
    )
    copied = np.divide(
        num_chunks * host_bytes,
        link_bytes_per_s,
        out=np.full(np.broadcast(num_chunks, host_bytes, link_bytes_per_s).shape, math.inf),
        where=np.asarray(link_bytes_per_s) > 0,
    )
    return np.minimum(on_host, copied)


def steady_throughput_tokens_per_s(
    num_running: Count, output_tokens: Count, decode_step_seconds: Seconds, prefill_seconds_per_request: Seconds
) -> TokensPerS:
    """Output rate of a server kept full: each request pays its prompt, and all running ones wait for it.

    Parameters
    ----------
    num_running : numeric
        Requests that run together. [1]
    output_tokens : numeric
        Tokens that a request generates. [1]
    decode_step_seconds : numeric
        Time of one decode step of the running batch. [s]
    prefill_seconds_per_request : numeric
        Time to read one prompt. [s]

    Returns
    -------
    numeric
        Output tokens a second. [token/s]

    References
    ----------
    .. [1] Derived: in the time that one request needs for `output_tokens` steps, `num_running` prompts are read.

    Examples
    --------
    >>> steady_throughput_tokens_per_s(10, 100, 0.01, 0.1)
    500.0
    """
    cycle = output_tokens * decode_step_seconds + num_running * prefill_seconds_per_request
    return num_running * output_tokens / cycle
