"""From a plan's estimate to a replica that can be replayed: whose scheduler, which tables, how much cache."""

from __future__ import annotations

from collections.abc import Callable

from tonnage.errors import RequestError
from tonnage.estimate.compose_serving import serving_load
from tonnage.estimate.serving import ServingLoad
from tonnage.estimate.types import Candidate, EngineAccounting
from tonnage.simulate.batching.prompts_first import PromptsFirst
from tonnage.simulate.batching.replica import Replica
from tonnage.simulate.batching.slots import Slots
from tonnage.simulate.batching.token_budget import TokenBudget
from tonnage.simulate.step_times import step_times
from tonnage.units import Seconds

__all__ = ["maker_of_load", "replica_maker"]

# Tokens of a block of the cache: vllm 0.33.0 vllm/config/cache.py, TensorRT-LLM llmapi/llm_args.py KvCacheConfig.
_BLOCK_TOKENS = {"vllm": 16, "tensorrt-llm": 32}
_SLOTS = ("llama.cpp", "ik_llama.cpp", "ollama")
_BATCH_TOKENS = 2048  # --batch-size of llama.cpp's server
_MOST_SEATS = 4096


def replica_maker(candidate: Candidate, accounting: EngineAccounting) -> Callable[[Seconds], Replica]:
    """Return what makes fresh copies of the server that a candidate describes, each with its clock at a moment.

    Parameters
    ----------
    candidate : Candidate
        A serving candidate that fits.
    accounting : EngineAccounting
        Its engine's rules: the cache that it has, and how fast it is.

    Returns
    -------
    callable
        From a moment [s] to a `Replica`: one data-parallel copy.

    Raises
    ------
    RequestError
        The engine serves one request at a time, or has no room for any.

    Notes
    -----
    Derived: seats, budget and cache are those of the engine's own accounting, which the launch line names too.
    """
    return maker_of_load(candidate.engine, serving_load(candidate, accounting), accounting)


def maker_of_load(engine: str, load: ServingLoad, accounting: EngineAccounting) -> Callable[[Seconds], Replica]:
    """Return what makes fresh copies of a server that runs a load; as `replica_maker`, of numbers.

    Parameters
    ----------
    engine : str
        Name of the engine, whose scheduler it is.
    load : ServingLoad
        Numbers, with the engine's defaults in.
    accounting : EngineAccounting
        The engine's rules.

    Returns
    -------
    callable
        From a moment [s] to a `Replica`.

    Raises
    ------
    RequestError
        As for `replica_maker`.

    Notes
    -----
    Derived.
    """
    needs, rates = accounting.memory(load), accounting.rates(load)
    seats, budget = min(int(load.max_num_seqs), _MOST_SEATS), int(load.max_batched_tokens)
    tokens = int(needs.cache_tokens or load.context_tokens * seats)
    if engine in _SLOTS:
        times = step_times(load, rates, seats, max(_BATCH_TOKENS, budget))
        return lambda start: Slots(
            times,
            num_slots=seats,
            slot_tokens=int(load.context_tokens),
            batch_tokens=max(_BATCH_TOKENS, budget),
            start_seconds=start,
        )
    if engine in _BLOCK_TOKENS:
        block = _BLOCK_TOKENS[engine]
        if tokens < block:
            raise RequestError("the cache holds no block", where=engine, fix="give a plan that fits")
        times = step_times(load, rates, seats, max(budget, seats))
        return lambda start: TokenBudget(
            times,
            num_blocks=tokens // block,
            block_tokens=block,
            max_num_seqs=seats,
            max_batched_tokens=max(budget, seats),
            keeps_room=engine == "tensorrt-llm",
            start_seconds=start,
        )
    if engine in ("sglang", "ktransformers"):
        times = step_times(load, rates, seats, budget)
        return lambda start: PromptsFirst(
            times, num_tokens=tokens, max_num_seqs=seats, chunk_tokens=budget, start_seconds=start
        )
    raise RequestError(
        f"{engine} has no scheduler that is known here",
        where="simulate",
        fix="give a plan for vllm, sglang or llama.cpp",
    )
