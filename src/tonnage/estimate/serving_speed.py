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
from tonnage.units import Bytes, Count, Ratio, Seconds, TokensPerS

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
    busy_token_seconds: Seconds  # in which all that run gain a token, prompts read meanwhile included
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
        busy_token_seconds=step,
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
    cache, pair_flop, by_heads = _cache_read(load, has.total_cache_layers, depth_tokens)
    host_cache, _, _ = _cache_read(load, has.host_cache_layers, depth_tokens)
    host_bytes = has.host_dense_bytes + has.host_expert_bytes * touched
    host_bytes = host_bytes + n * (host_cache + 2.0 * _state_bytes(load, has.host_state_layers))
    hidden = tokens * shape.hidden_size * _activation_bytes(load)
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
        cache_head_seconds=n * by_heads / bandwidth,
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
        head_bytes_seconds=shape.head_bytes / tp / bandwidth,
        head_flop_seconds=2.0 * tokens * shape.head_parameters / tp / rate,
        num_tokens=tokens,
        num_expert_tokens=tokens * sharing * shape.top_k / max(shape.num_experts, 1),
        touched_ratio=touched,
        num_stages=load.pp,
        stage_ratio=_stage_ratio(load.pp, shape.num_layers),
        drive_seconds=has.host_expert_bytes * touched * load.drive_miss_ratio / load.drive_bytes_per_s,
    )


def _stage_ratio(num_stages: Count, num_layers: int) -> Ratio:
    """Return by how much the stage with the most layers is longer than the average one."""
    return round_up(num_layers / num_stages, 1) * num_stages / num_layers


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
                work.expert_flop_seconds
                / rates.expert_compute_ratio
                * _tile_ratio(work.num_expert_tokens, work.touched_ratio, rates),
                work.expert_bytes_seconds / rates.expert_bandwidth_ratio,
            ),
        ),
        (
            "attention",
            longer_of(
                work.attention_flop_seconds / rates.attention_compute_ratio,
                at_least(
                    work.cache_bytes_seconds / rates.cache_bandwidth_ratio,
                    work.cache_head_seconds / rates.head_bandwidth_ratio,
                ),
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
        *((("drive", work.drive_seconds),) if _is_any(work.drive_seconds) else ()),
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


def _is_any(amount: Count) -> bool:
    """Whether a number, or any of a column, is more than nothing."""
    return bool(amount > 0) if isinstance(amount, int | float) else bool((amount > 0).any())


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
    that reading leaves; else, and for the only sequence, steps and prompts take turns. Prompts share a step up to its limit of tokens; beyond it,
    sequences gain their token in more than one step. Stages that work at the same time wait for the slowest.

    References
    ----------
    .. [1] G.-I. Yu et al., "Orca", OSDI 2022; A. Agrawal et al., "Sarathi-Serve", arXiv:2403.02310.
    """
    parts = dict(decode_parts(decode, rates))
    tokens = decode.num_tokens + num_prompts * prefill.num_tokens
    num_steps = at_least(tokens / prefill.most_tokens, 1.0)
    num_reading = at_most(num_prompts * prefill.num_chunks, num_steps)
    dense_flop, dense_bytes, _, expert_bytes = _matrix_seconds(prefill, rates)
    prompts = _apart_from_matrices(prefill, rates, num_prompts, num_reading)
    share = num_reading / num_steps
    read_tokens = decode.num_tokens + num_prompts * prefill.num_tokens / at_least(num_reading, 1e-9)
    filled = _tile_ratio(read_tokens * prefill.expert_tokens_ratio, prefill.touched_ratio, rates)
    alone = _tile_ratio(decode.num_expert_tokens, decode.touched_ratio, rates)
    step_flop = decode.expert_flop_seconds / rates.expert_compute_ratio * (share * filled + (1.0 - share) * alone)
    expert_flop = num_prompts * prefill.expert_flop_seconds / rates.expert_compute_ratio * filled
    read = num_reading / prefill.num_chunks
    apart = longer_of(num_prompts * dense_flop, read * dense_bytes) + longer_of(expert_flop, read * expert_bytes)
    turns = sum(parts.values(), start=0.0) * drafting_ratio + apart + prompts
    joint = longer_of(
        decode.dense_flop_seconds / rates.compute_ratio + num_prompts * dense_flop,
        num_steps * decode.dense_bytes_seconds / rates.bandwidth_ratio,
    ) + longer_of(
        step_flop + expert_flop,
        at_least(num_steps * decode.expert_bytes_seconds / rates.expert_bandwidth_ratio, read * expert_bytes),
    )
    started = (num_steps - 1.0) * (
        parts["overhead"]
        - rates.sequence_seconds * decode.num_sequences
        + decode.communication_latency_seconds * rates.latency_ratio
    )
    rest = sum((seconds for name, seconds in parts.items() if name not in ("weights", "experts")), start=0.0)
    mixed = rest * drafting_ratio + joint + started + prompts
    others = 1.0 - 1.0 / decode.num_sequences
    together = rates.mixes_prompts * others
    step = together * mixed + (1.0 - together) * turns
    whole = step * _longest_stage_ratio(decode, rates) + _last_stage_seconds(decode, rates)
    return whole * rates.batch_ratio**others


def _longest_stage_ratio(work: DecodeWork, rates: ServingRates) -> Ratio:
    return 1.0 + rates.is_pipelined * (work.stage_ratio - 1.0)


def _last_stage_seconds(work: DecodeWork, rates: ServingRates) -> Seconds:
    """Return what the other stages wait for the last, which has the output matrix and samples, and for the program.

    Stages that work at the same time all take as long as the slowest: what it alone does counts once a stage.
    """
    head = longer_of(work.head_flop_seconds / rates.compute_ratio, work.head_bytes_seconds / rates.bandwidth_ratio)
    alone = head + rates.step_seconds + rates.sequence_seconds * work.num_sequences
    return rates.is_pipelined * (work.num_stages - 1) * alone


def _apart_from_matrices(work: PrefillWork, rates: ServingRates, num_prompts: Count, num_reading: Count) -> Seconds:
    """Time of what prompts add to steps besides matrices; steps that read some of them pay for each layer once."""
    host = _host_seconds(work, rates, num_prompts, num_reading)
    return (
        num_prompts
        * (
            work.attention_flop_seconds / rates.attention_compute_ratio
            + work.activation_element_seconds * rates.activation_bytes
            + work.score_element_seconds * rates.score_bytes
            + work.communication_bytes_seconds / rates.link_ratio
        )
        + num_reading
        * (
            work.converted_seconds / work.num_chunks * rates.conversion_ratio
            + rates.prefill_layer_seconds * work.num_layers
            + rates.prefill_expert_layer_seconds * work.num_expert_layers
            + rates.expert_start_seconds * work.num_expert_starts
        )
        + host
    )


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


def _cache_read(load: ServingLoad, layers: tuple[Count, ...], depth_tokens: Count) -> tuple[Bytes, Count, Bytes]:
    """Bytes of cache that one sequence's step reads on one device, its operations, and the bytes if each head reads anew."""
    total, flop, by_heads = 0.0, 0.0, 0.0
    for group, num_layers in zip(load.shape.cache_groups, layers, strict=True):
        tokens = depth_tokens if group.window_tokens is None else at_most(depth_tokens, group.window_tokens)
        index = num_layers * tokens * group.num_index_elements
        if group.num_selected_tokens is not None:
            tokens = at_most(tokens, group.num_selected_tokens)
        elements = cache_elements_per_token(load, group) - group.num_index_elements
        read = (num_layers * tokens * elements + index) * load.cache_bytes_per_element
        total = total + read
        by_heads = by_heads + read * max(group.num_query_heads / max(group.num_kv_heads, 1), 1.0)
        flop = flop + num_layers * tokens * group.latent_flop_per_pair
    return total, flop, by_heads


def _state_bytes(load: ServingLoad, layers: tuple[Count, ...]) -> Bytes:
    return state_bytes_per_sequence(load, layers, _activation_bytes(load), 4.0)


def _activation_bytes(load: ServingLoad) -> Bytes:
    """Bytes of one element between matrices: 16 bits at least, whatever the matrices are multiplied in."""
    return at_least(load.compute_bytes_per_element, 2.0)


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
        load, chunk * shape.hidden_size * _activation_bytes(load), has.device_expert_layers
    )
    dense_bytes = has.total_split_bytes / load.tp + has.total_replicated_bytes
    return PrefillWork(
        dense_bytes_seconds=num_chunks * dense_bytes / bandwidth,
        dense_flop_seconds=2.0 * tokens * has.device_matrix_parameters / load.tp / rate,
        expert_bytes_seconds=num_chunks * has.total_expert_bytes * touched / ways / bandwidth,
        expert_flop_seconds=2.0 * tokens * sharing * has.device_expert_parameters / ways / rate,
        attention_flop_seconds=attention / load.tp / rate,
        converted_seconds=2.0
        * num_chunks
        * (
            has.device_matrix_parameters
            + has.device_expert_parameters * touched * shape.num_experts / max(shape.top_k, 1)
        )
        / load.tp
        / bandwidth,
        activation_element_seconds=tokens * has.total_device_layers * width / load.tp / bandwidth,
        score_element_seconds=pairs * shape.num_heads / load.tp / bandwidth,
        host_bytes_seconds=num_chunks * host_bytes / load.host_bandwidth_bytes_per_s,
        host_flop_seconds=2.0
        * tokens
        * (has.host_matrix_parameters + has.host_expert_parameters)
        / load.host_flop_per_s,
        copied_seconds=num_chunks * host_bytes / load.tp / load.pcie_bytes_per_s,
        streamed_flop_seconds=2.0 * tokens * (has.host_matrix_parameters + has.host_expert_parameters) / load.tp / rate,
        communication_bytes_seconds=num_chunks * moving,
        communication_latency_seconds=num_chunks * waiting,
        num_expert_tokens=chunk * sharing * shape.top_k / max(shape.num_experts, 1),
        expert_tokens_ratio=sharing * shape.top_k / max(shape.num_experts, 1),
        touched_ratio=touched,
        num_tokens=tokens,
        most_tokens=load.max_batched_tokens,
        num_chunks=num_chunks,
        num_layers=has.total_device_layers,
        num_expert_layers=has.device_expert_layers,
        num_expert_starts=has.device_expert_layers * touched * shape.num_experts / ways,
        num_host_layers=shape.num_layers - has.total_device_layers + has.host_expert_layers,
        num_stages=load.pp,
        drive_seconds=num_chunks * has.host_expert_bytes * touched * swept_miss_ratio(load) / load.drive_bytes_per_s,
    )


def swept_miss_ratio(load: ServingLoad) -> Ratio:
    """Part of the experts on the host that a prompt's chunk reads from the drive: all, where memory does not hold all.

    Parameters
    ----------
    load : ServingLoad
        The load, or a column of them.

    Returns
    -------
    numeric
        Part. [0-1]

    References
    ----------
    .. [1] Derived: a chunk touches nearly every expert, layer by layer; what is swept over in turn and is larger than a
       memory that drops the longest unused is gone when it is wanted again.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> swept_miss_ratio(SimpleNamespace(drive_miss_ratio=0.2)), swept_miss_ratio(SimpleNamespace(drive_miss_ratio=0))
    (1.0, 0.0)
    """
    return 1.0 * (load.drive_miss_ratio > 0)


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
    chunks at the same time as far as the engine does so and buffers and launch queues allow. Weights on the host are
    computed there, or copied for each chunk where that is faster.

    References
    ----------
    .. [1] R. Pope et al., arXiv:2211.05102; A. Agrawal et al., "Sarathi-Serve", arXiv:2403.02310 (chunks); ggml's
       scheduler, ggml-org/llama.cpp ggml/src/ggml-cuda/ggml-cuda.cu `offload_op` (copies of host weights),
       ggml/src/ggml-backend.cpp `GGML_SCHED_MAX_COPIES` (chunks in flight);
       forums.developer.nvidia.com/t/68937 (length of a stream's queue).
    """
    dense_flop, dense_bytes, expert_flop, expert_bytes = _matrix_seconds(work, rates)
    device = (
        longer_of(dense_flop, dense_bytes)
        + longer_of(expert_flop, expert_bytes)
        + work.attention_flop_seconds / rates.attention_compute_ratio
        + work.converted_seconds * rates.conversion_ratio
        + work.activation_element_seconds * rates.activation_bytes
        + work.score_element_seconds * rates.score_bytes
        + work.num_chunks * rates.prefill_layer_seconds * work.num_layers
        + work.num_chunks * rates.prefill_expert_layer_seconds * work.num_expert_layers
        + work.num_chunks * rates.expert_start_seconds * work.num_expert_starts
    )
    device = device * (1.0 + (work.num_chunks - 1) / _chunks_at_once(work, rates)) / work.num_chunks
    host = _host_seconds(work, rates, 1.0, work.num_chunks)
    moving = work.communication_bytes_seconds / rates.link_ratio
    return device + host + moving + work.communication_latency_seconds * rates.latency_ratio


def _host_seconds(work: PrefillWork, rates: ServingRates, num_prompts: Count, num_steps: Count) -> Seconds:
    """Time of what is on the host: computed there, or copied to the devices for each step where that is faster.

    Tensor-parallel devices copy each their share at the same time.
    """
    share = num_steps / work.num_chunks  # of the steps that the prompts would take alone
    there = longer_of(
        num_prompts * work.host_flop_seconds / rates.host_compute_ratio,
        share * work.host_bytes_seconds / rates.host_bandwidth_ratio,
    )
    num_copies = rates.copies_once * at_most(num_prompts, num_steps) / work.num_chunks + (1 - rates.copies_once) * share
    streamed = (
        num_copies * work.copied_seconds / rates.pcie_ratio
        + num_prompts * work.streamed_flop_seconds / rates.expert_compute_ratio
    )
    held = rates.copies_host_weights * at_most(there, streamed) + (1 - rates.copies_host_weights) * there
    return held + share * work.drive_seconds


def _chunks_at_once(work: PrefillWork, rates: ServingRates) -> Count:
    """Return how many chunks the stages work on at the same time.

    As many as there are stages, buffers, and room in the queues of launched kernels: one program fills the queues of
    all devices in turn, and waits at the first that is full (about a thousand kernels a stream).
    """
    queued = rates.queue_layers * work.num_stages / at_least(work.num_layers, 1)
    number = at_most(at_most(work.num_stages, rates.most_in_flight), at_least(queued, 1.0))
    return 1.0 + (number - 1.0) * rates.pipeline_ratio


def _matrix_seconds(work: PrefillWork, rates: ServingRates) -> tuple[Seconds, Seconds, Seconds, Seconds]:
    """Operations and reading of dense matrices, the same of experts; derived as `prefill_seconds` says."""
    filled = _tile_ratio(work.num_expert_tokens, work.touched_ratio, rates)
    return (
        work.dense_flop_seconds / rates.compute_ratio,
        work.dense_bytes_seconds / rates.bandwidth_ratio,
        work.expert_flop_seconds / rates.expert_compute_ratio * filled,
        work.expert_bytes_seconds / rates.expert_bandwidth_ratio,
    )


def _tile_ratio(num_expert_tokens: Count, touched_ratio: Ratio, rates: ServingRates) -> Ratio:
    """Return how much longer experts' matrices take whose tiles are filled badly: twice at `expert_tile_tokens` each."""
    return 1.0 + rates.expert_tile_tokens * touched_ratio / at_least(num_expert_tokens, 1e-9)
