"""How fast a serving load is: what a decode step and a prefill do, how long each takes, and both together under load."""

from __future__ import annotations

from dataclasses import dataclass

from tonnage.estimate.latency import distinct_experts_ratio, longer_of
from tonnage.estimate.serving import DecodeWork, PrefillWork, ServingLoad, ServingRates
from tonnage.estimate.serving_memory import (
    at_least,
    at_most,
    cache_elements_per_token,
    round_up,
    state_bytes_per_sequence,
)
from tonnage.estimate.serving_shape import held
from tonnage.units import Bytes, Count, Seconds, TokensPerS

__all__ = [
    "ServingTimes",
    "batch_of_step",
    "busy_step_seconds",
    "decode_parts",
    "decode_seconds",
    "decode_work",
    "prefill_seconds",
    "prefill_work",
    "serving_times",
    "tokens_per_step",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingTimes:
    """Seconds of one prefill and one decode step by part, and the rates that follow."""

    decode_parts: tuple[tuple[str, Seconds], ...]
    tpot_seconds: Seconds  # at the load's concurrency
    single_tpot_seconds: Seconds
    prefill_seconds: Seconds
    ttft_seconds: Seconds
    prefill_tokens_per_s: TokensPerS
    throughput_tokens_per_s: TokensPerS
    num_running: Count


def serving_times(load: ServingLoad, rates: ServingRates, cache_tokens: Count | None = None) -> ServingTimes:
    """Seconds of a prefill and of a decode step by part, and the rates that follow; numbers or columns.

    Parameters
    ----------
    load : ServingLoad
        The load, or a column of them.
    rates : ServingRates
        Achieved fractions and fixed costs.
    cache_tokens : numeric, optional
        Tokens that the engine's cache holds: they limit how many requests run together. [1]

    Returns
    -------
    ServingTimes
        Seconds and rates.

    Notes
    -----
    Derived: a step is the sum of its parts, each the longer of its operations and its bytes.
    """
    depth = load.input_tokens + load.output_tokens / 2
    drafted = tokens_per_step(load.num_draft_tokens, rates) if _is_drafted(load) else 1.0
    slower = 1.0 + load.num_draft_tokens * rates.draft_cost_ratio
    running = at_most(load.concurrency, load.max_num_seqs)
    if cache_tokens is not None:
        running = at_least(at_most(running, cache_tokens / (load.input_tokens + load.output_tokens)), 1)
    micro = batch_of_step(load, running, rates)
    single = decode_parts(decode_work(load, 1, depth), rates)
    is_single = isinstance(micro, int | float) and micro == 1
    batch = decode_work(load, micro, depth)
    parts = single if is_single else decode_parts(batch, rates)
    tpot, single_tpot = _sum(parts) * slower / drafted, _sum(single) * slower / drafted
    reading = prefill_work(load)
    prefill = prefill_seconds(reading, rates)
    step = busy_step_seconds(batch, reading, rates, micro / load.output_tokens, slower / drafted)
    return ServingTimes(
        decode_parts=parts,
        tpot_seconds=tpot,
        single_tpot_seconds=single_tpot,
        prefill_seconds=prefill,
        ttft_seconds=prefill + single_tpot,
        prefill_tokens_per_s=load.input_tokens / prefill,
        throughput_tokens_per_s=running / step,
        num_running=running,
    )


def _is_drafted(load: ServingLoad) -> bool:
    return not (isinstance(load.num_draft_tokens, int | float) and load.num_draft_tokens == 0)


def _sum(parts: tuple[tuple[str, Seconds], ...]) -> Seconds:
    return sum((seconds for _, seconds in parts), start=0.0)


def decode_work(load: ServingLoad, num_sequences: Count, depth_tokens: Count) -> DecodeWork:
    """Work out what one decode step reads and computes, as seconds at the hardware's full rates.

    Parameters
    ----------
    load : ServingLoad
        The load, or a column of them.
    num_sequences : numeric
        Sequences that step together. [1]
    depth_tokens : numeric
        Tokens already in each one's cache. [1]

    Returns
    -------
    DecodeWork
        Seconds and counts.

    Notes
    -----
    Derived: weights are read once a step, experts as far as they are selected, caches once a sequence, states read and
    written; nothing is read of the token embedding but a row. Guessed tokens are checked with the sequence's own in one
    pass: they select experts of their own, and read the cache with it.
    """
    has = held(load.shape, load.pp, load.num_cpu_layers, load.num_cpu_expert_layers)
    shape, tp, n = load.shape, load.tp, num_sequences
    tokens = n * (1 + load.num_draft_tokens)
    bandwidth, rate = load.bandwidth_bytes_per_s, load.flop_per_s
    sharing = 1 + (load.dp - 1) * (load.ep > tp)  # replicas whose tokens meet at the same experts
    touched = distinct_experts_ratio(tokens * sharing, shape.top_k, shape.num_experts) if shape.num_experts else 0.0
    ways = at_least(load.ep, tp)
    cache, pair_flop = _cache_read(load, has.total_cache_layers, depth_tokens)
    host_cache, _ = _cache_read(load, has.host_cache_layers, depth_tokens)
    host_bytes = has.host_dense_bytes + has.host_expert_bytes * touched
    host_bytes = host_bytes + n * (host_cache + 2.0 * _state_bytes(load, has.host_state_layers))
    hidden = tokens * shape.hidden_size * load.compute_bytes_per_element
    moving, waiting = _communication(load, hidden, has.device_expert_layers)
    num_host_layers = shape.num_layers - has.total_device_layers + has.host_expert_layers
    latent = sum(
        (num for group, num in zip(shape.cache_groups, has.total_cache_layers, strict=True) if group.is_latent), start=0
    )
    return DecodeWork(
        dense_bytes_seconds=((has.total_split_bytes + shape.head_bytes) / tp + has.total_replicated_bytes) / bandwidth,
        dense_flop_seconds=2.0 * tokens * (has.device_matrix_parameters + shape.head_parameters) / tp / rate,
        expert_bytes_seconds=has.total_expert_bytes * touched / ways / bandwidth,
        expert_flop_seconds=2.0 * tokens * sharing * has.device_expert_parameters / ways / rate,
        cache_bytes_seconds=n * cache / bandwidth,
        attention_flop_seconds=tokens * pair_flop / tp / rate,
        state_bytes_seconds=2.0 * n * _state_bytes(load, has.total_state_layers) / bandwidth,
        host_bytes_seconds=host_bytes / load.host_bandwidth_bytes_per_s,
        host_flop_seconds=2.0
        * tokens
        * (has.host_matrix_parameters + has.host_expert_parameters)
        / load.host_flop_per_s,
        crossing_seconds=2.0 * (has.host_expert_layers + (has.host_dense_bytes > 0)) * hidden / load.pcie_bytes_per_s,
        communication_bytes_seconds=moving,
        communication_latency_seconds=waiting,
        num_layers=has.total_device_layers,
        num_expert_layers=has.device_expert_layers,
        num_state_layers=sum(has.total_state_layers),
        num_latent_layers=latent,
        num_host_layers=num_host_layers,
        num_thread_layers=load.num_host_cores * (num_host_layers + (load.backend == "cpu") * has.total_device_layers),
        num_hand_overs=load.pp - 1,
        num_sequences=n,
    )


def decode_parts(work: DecodeWork, rates: ServingRates) -> tuple[tuple[str, Seconds], ...]:
    """Seconds of one decode step by named part.

    Parameters
    ----------
    work : DecodeWork
        What the step does.
    rates : ServingRates
        Achieved fractions and fixed costs.

    Returns
    -------
    tuple
        Names, and time of each. [s]

    Notes
    -----
    Derived: device and host work one after the other.
    """
    return (
        (
            "weights",
            longer_of(work.dense_flop_seconds / rates.compute_ratio, work.dense_bytes_seconds / rates.bandwidth_ratio),
        ),
        (
            "experts",
            longer_of(
                work.expert_flop_seconds / rates.expert_compute_ratio,
                work.expert_bytes_seconds / rates.expert_bandwidth_ratio,
            ),
        ),
        (
            "attention",
            longer_of(
                work.attention_flop_seconds / rates.attention_compute_ratio,
                work.cache_bytes_seconds / rates.cache_bandwidth_ratio,
            ),
        ),
        ("state", work.state_bytes_seconds / rates.bandwidth_ratio),
        (
            "host",
            longer_of(
                work.host_flop_seconds / rates.host_compute_ratio, work.host_bytes_seconds / rates.host_bandwidth_ratio
            )
            + work.crossing_seconds / rates.pcie_ratio
            + work.num_host_layers * rates.host_layer_seconds
            + work.num_thread_layers * rates.thread_layer_seconds,
        ),
        (
            "communication",
            work.communication_bytes_seconds / rates.link_ratio
            + work.communication_latency_seconds * rates.latency_ratio
            + work.num_hand_overs * rates.hand_over_seconds,
        ),
        (
            "overhead",
            rates.step_seconds
            + rates.layer_seconds * work.num_layers
            + rates.expert_layer_seconds * work.num_expert_layers
            + rates.state_layer_seconds * work.num_state_layers
            + rates.latent_layer_seconds * work.num_latent_layers
            + rates.sequence_seconds * work.num_sequences,
        ),
    )


def decode_seconds(work: DecodeWork, rates: ServingRates) -> Seconds:
    """Time of one decode step.

    Parameters
    ----------
    work : DecodeWork
        What the step does.
    rates : ServingRates
        Achieved fractions and fixed costs.

    Returns
    -------
    numeric
        Time. [s]

    Notes
    -----
    Derived: the sum of its parts.
    """
    return _sum(decode_parts(work, rates))


def batch_of_step(load: ServingLoad, num_running: Count, rates: ServingRates) -> Count:
    """Sequences of a replica that pass one stage together.

    Parameters
    ----------
    load : ServingLoad
        With the number of stages.
    num_running : numeric
        Sequences in flight. [1]
    rates : ServingRates
        Whether stages work on parts of the batch at the same time.

    Returns
    -------
    numeric
        Sequences. [1]

    Notes
    -----
    Derived: as many parts as stages, so that none waits.
    """
    return at_least(num_running / load.pp, 1) if rates.is_pipelined else num_running


def busy_step_seconds(
    decode: DecodeWork, prefill: PrefillWork, rates: ServingRates, num_prompts: Count, drafting_ratio: Count = 1.0
) -> Seconds:
    """Time in which every sequence of a full server gains a token, with the prompts that are read meanwhile.

    Parameters
    ----------
    decode : DecodeWork
        What a step does for the sequences that run.
    prefill : PrefillWork
        What reading one prompt does.
    rates : ServingRates
        Achieved fractions and fixed costs.
    num_prompts : numeric
        Prompts read a step: sequences of the step over the tokens that each generates. [1]
    drafting_ratio : numeric
        Time of a token over that of a step without drafting. [1]

    Returns
    -------
    numeric
        Time. [s]

    Notes
    -----
    Derived: where prompts ride in the steps that decode, weights are read once for both and operations fill the time
    that reading leaves; else steps and prompts take turns.

    References
    ----------
    .. [1] G.-I. Yu et al., "Orca", OSDI 2022; A. Agrawal et al., "Sarathi-Serve", arXiv:2403.02310.
    """
    step = decode_seconds(decode, rates) * drafting_ratio
    turns = step + num_prompts * prefill_seconds(prefill, rates)
    dense_flop, dense_bytes, expert_flop, expert_bytes = _matrix_seconds(prefill, rates)
    apart = longer_of(dense_flop, dense_bytes) + longer_of(expert_flop, expert_bytes)
    parts = dict(decode_parts(decode, rates))
    joint = longer_of(
        decode.dense_flop_seconds / rates.compute_ratio + num_prompts * dense_flop,
        decode.dense_bytes_seconds / rates.bandwidth_ratio,
    ) + longer_of(
        decode.expert_flop_seconds / rates.expert_compute_ratio + num_prompts * expert_flop,
        at_least(
            decode.expert_bytes_seconds / rates.expert_bandwidth_ratio,
            at_most(num_prompts * prefill.num_chunks, 1.0) * expert_bytes / prefill.num_chunks,
        ),
    )
    mixed = turns - num_prompts * apart + joint - parts["weights"] - parts["experts"]
    return (rates.mixes_prompts * mixed + (1 - rates.mixes_prompts) * turns) * rates.batch_ratio


def tokens_per_step(num_draft_tokens: Count, rates: ServingRates) -> Count:
    """Tokens that one step of one sequence yields on average with drafting.

    Parameters
    ----------
    num_draft_tokens : numeric
        Tokens guessed a step; none leaves one. [1]
    rates : ServingRates
        With the share of guesses that are kept.

    Returns
    -------
    numeric
        Tokens. [1]

    References
    ----------
    .. [1] Y. Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", ICML 2023,
       arXiv:2211.17192, equation 1.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> round(tokens_per_step(3, SimpleNamespace(draft_acceptance_ratio=0.5)), 3)
    1.875
    """
    kept = rates.draft_acceptance_ratio
    return (1.0 - kept ** (num_draft_tokens + 1)) / (1.0 - kept)


def _communication(load: ServingLoad, hidden_bytes: Bytes, num_expert_layers: Count) -> tuple[Seconds, Seconds]:
    """Two all-reduces a layer for tensor parallelism, one hand-over between stages: moving, and waiting.

    Replicas that share experts send each token to the ranks of its experts, and back.
    """
    times = 2.0 * load.shape.num_layers * (load.tp > 1)
    moved = 2.0 * (load.tp - 1) / load.tp * hidden_bytes * times + (load.pp - 1) * hidden_bytes
    sent = 2.0 * num_expert_layers * (load.ep > load.tp) * (load.dp > 1)
    moved = moved + sent * hidden_bytes * (load.dp - 1) * distinct_experts_ratio(load.shape.top_k, 1, load.dp)
    waits = times + sent + load.pp - 1
    return moved / load.link_bytes_per_s, waits * load.link_latency_seconds


def _cache_read(load: ServingLoad, layers: tuple[Count, ...], depth_tokens: Count) -> tuple[Bytes, Count]:
    """Bytes of cache that one sequence's step reads on one device, and its operations over all heads."""
    total, flop = 0.0, 0.0
    for group, num_layers in zip(load.shape.cache_groups, layers, strict=True):
        tokens = depth_tokens if group.window_tokens is None else at_most(depth_tokens, group.window_tokens)
        index = num_layers * tokens * group.num_index_elements
        if group.num_selected_tokens is not None:
            tokens = at_most(tokens, group.num_selected_tokens)
        elements = cache_elements_per_token(load, group) - group.num_index_elements
        total = total + (num_layers * tokens * elements + index) * load.cache_bytes_per_element
        flop = flop + num_layers * tokens * group.latent_flop_per_pair
    return total, flop


def _state_bytes(load: ServingLoad, layers: tuple[Count, ...]) -> Bytes:
    return state_bytes_per_sequence(load, layers, load.compute_bytes_per_element, 4.0)


def prefill_work(load: ServingLoad) -> PrefillWork:
    """Work out what reading one prompt of the load's length does, as seconds at the hardware's full rates.

    Parameters
    ----------
    load : ServingLoad
        The load, or a column of them.

    Returns
    -------
    PrefillWork
        Seconds and counts.

    Notes
    -----
    Derived: matrices by tokens, attention by pairs of tokens (half of all, as later tokens are not seen), weights once
    a chunk; the output matrix only for the last token.
    """
    has = held(load.shape, load.pp, load.num_cpu_layers, load.num_cpu_expert_layers)
    shape, tokens = load.shape, load.input_tokens
    bandwidth, rate, ways = load.bandwidth_bytes_per_s, load.flop_per_s, at_least(load.ep, load.tp)
    chunk = at_most(load.max_batched_tokens, tokens)
    num_chunks = round_up(tokens / chunk, 1)
    sharing = 1 + (load.dp - 1) * (load.ep > load.tp)
    touched = distinct_experts_ratio(chunk * sharing, shape.top_k, shape.num_experts) if shape.num_experts else 0.0
    attention, pairs = 0.0, 0.0
    for group, num_layers in zip(shape.cache_groups, has.total_cache_layers, strict=True):
        mean = tokens / 2 if group.window_tokens is None else at_most(tokens / 2, group.window_tokens)
        attention = attention + num_layers * tokens * mean * group.flop_per_pair
        pairs = pairs + num_layers * tokens * mean
    for group, num_layers in zip(shape.state_groups, has.total_state_layers, strict=True):
        attention = attention + num_layers * tokens * group.flop_per_token
    width = shape.hidden_size + at_least(
        shape.max_intermediate_size * (shape.num_experts == 0), shape.top_k * shape.max_expert_size
    )
    host_bytes = has.host_dense_bytes + has.host_expert_bytes * touched
    moving, waiting = _communication(
        load, chunk * shape.hidden_size * load.compute_bytes_per_element, has.device_expert_layers
    )
    dense_bytes = has.total_split_bytes / load.tp + has.total_replicated_bytes
    return PrefillWork(
        dense_bytes_seconds=num_chunks * dense_bytes / bandwidth,
        dense_flop_seconds=2.0 * tokens * has.device_matrix_parameters / load.tp / rate,
        expert_bytes_seconds=num_chunks * has.total_expert_bytes * touched / ways / bandwidth,
        expert_flop_seconds=2.0 * tokens * sharing * has.device_expert_parameters / ways / rate,
        attention_flop_seconds=attention / load.tp / rate,
        activation_element_seconds=tokens * has.total_device_layers * width / load.tp / bandwidth,
        score_element_seconds=pairs * shape.num_heads / load.tp / bandwidth,
        host_bytes_seconds=num_chunks * host_bytes / load.host_bandwidth_bytes_per_s,
        host_flop_seconds=2.0
        * tokens
        * (has.host_matrix_parameters + has.host_expert_parameters)
        / load.host_flop_per_s,
        copied_seconds=num_chunks * host_bytes / load.pcie_bytes_per_s,
        communication_bytes_seconds=num_chunks * moving,
        communication_latency_seconds=num_chunks * waiting,
        num_expert_tokens=chunk * sharing * shape.top_k / max(shape.num_experts, 1),
        num_chunks=num_chunks,
        num_layers=has.total_device_layers,
        num_expert_layers=has.device_expert_layers,
        num_host_layers=shape.num_layers - has.total_device_layers + has.host_expert_layers,
        num_stages=load.pp,
    )


def prefill_seconds(work: PrefillWork, rates: ServingRates) -> Seconds:
    """Time to read one prompt in chunks.

    Parameters
    ----------
    work : PrefillWork
        What it does.
    rates : ServingRates
        Achieved fractions and fixed costs.

    Returns
    -------
    numeric
        Time. [s]

    Notes
    -----
    Experts with few tokens fill their tiles badly: half the rate at `expert_tile_tokens`. Stages work on successive
    chunks at the same time as far as the engine does so. Weights on the host are computed there, or copied for each
    chunk where that is faster.

    References
    ----------
    .. [1] R. Pope et al., arXiv:2211.05102; A. Agrawal et al., "Sarathi-Serve", arXiv:2403.02310 (chunks); ggml's
       scheduler, ggml-org/llama.cpp ggml/src/ggml-cuda/ggml-cuda.cu `offload_op` (copies of host weights).
    """
    dense_flop, dense_bytes, expert_flop, expert_bytes = _matrix_seconds(work, rates)
    device = (
        longer_of(dense_flop, dense_bytes)
        + longer_of(expert_flop, expert_bytes)
        + work.attention_flop_seconds / rates.attention_compute_ratio
        + work.activation_element_seconds * rates.activation_bytes
        + work.score_element_seconds * rates.score_bytes
        + work.num_chunks * rates.prefill_layer_seconds * work.num_layers
        + work.num_chunks * rates.prefill_expert_layer_seconds * work.num_expert_layers
    )
    later = (work.num_chunks - 1) * work.num_stages**-rates.pipeline_exponent
    device = device * (1.0 + later) / work.num_chunks
    host = longer_of(
        work.host_flop_seconds / rates.host_compute_ratio, work.host_bytes_seconds / rates.host_bandwidth_ratio
    )
    if rates.copies_host_weights:
        host = at_most(host, work.copied_seconds / rates.pcie_ratio)
    moving = work.communication_bytes_seconds / rates.link_ratio
    return device + host + moving + work.communication_latency_seconds * rates.latency_ratio


def _matrix_seconds(work: PrefillWork, rates: ServingRates) -> tuple[Seconds, Seconds, Seconds, Seconds]:
    """Operations and reading of dense matrices, the same of experts; derived as `prefill_seconds` says."""
    filled = at_least(work.num_expert_tokens, 1e-9)
    return (
        work.dense_flop_seconds / rates.compute_ratio,
        work.dense_bytes_seconds / rates.bandwidth_ratio,
        work.expert_flop_seconds / rates.expert_compute_ratio * (1.0 + rates.expert_tile_tokens / filled),
        work.expert_bytes_seconds / rates.expert_bandwidth_ratio,
    )
