"""TensorRT-LLM's memory: weights and activations first, then a fraction of what is still free becomes cache.

The rule is tensorrt_llm/_torch/pyexecutor/_util.py (`_cal_max_memory`): the fraction is of free memory after loading
and a profiled forward pass, not of the whole card.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from tonnage.engines.facts import Constants, constants_of, rates_of
from tonnage.estimate.serving import ServingLoad, ServingMemory, ServingPool, ServingRates
from tonnage.estimate.serving_memory import (
    at_least,
    at_most,
    cache_bytes_of_group,
    round_up,
    state_bytes_per_sequence,
    weights_per_device,
)
from tonnage.estimate.serving_shape import held
from tonnage.estimate.types import EngineSettings
from tonnage.units import Bytes, Count

BLOCK_TOKENS = 32
_HERE = "tonnage.engines.tensorrt_llm.accounting"


class Accounting:
    """TensorRT-LLM's rules."""

    name = "tensorrt-llm"

    def __init__(self, constants: Constants) -> None:
        self.constants = constants

    def with_defaults(self, load: ServingLoad, settings: EngineSettings) -> ServingLoad:
        """Fill in what the launch line will carry."""
        return replace(
            load,
            max_num_seqs=settings.max_num_seqs or at_least(load.concurrency, 1 if load.shape.state_groups else 16),
            max_batched_tokens=settings.max_batched_tokens
            or int(self.constants.value("max_batched_tokens", load.version)),
            utilization_ratio=settings.utilization_ratio or self.constants.value("utilization_ratio", load.version),
        )

    def with_concurrency(self, load: ServingLoad, concurrency: Count) -> ServingLoad:
        """Change the requests in flight; the scheduler's limit follows upwards."""
        return replace(load, concurrency=concurrency, max_num_seqs=at_least(load.max_num_seqs, concurrency))

    def memory(self, load: ServingLoad) -> ServingMemory:
        """Return the pools of the fullest device, and the cache that TensorRT-LLM would set aside."""
        has = held(load.shape, load.pp, load.num_cpu_layers, load.num_cpu_expert_layers)
        weights = weights_per_device(load, has)
        activations = (
            self.constants.value("activation_bytes_per_hidden", load.version)
            * load.max_batched_tokens
            * load.shape.hidden_size
            + 4.0 * load.max_num_seqs * load.shape.vocab_size
        )
        context = self.constants.value("context_bytes", load.version) + (load.tp > 1) * self.constants.value(
            "communication_bytes", load.version
        )
        state = self.state_bytes(load)
        left = at_least(load.free_bytes - weights - activations - context - state, 0.0)
        per_request = self.cache_bytes_per_request(load, load.context_tokens)
        pool = left * load.utilization_ratio
        return ServingMemory(
            pools=(
                ServingPool(
                    name="weights",
                    bytes=weights,
                    formula="tonnage.estimate.serving_memory.weights_per_device",
                    relative_error=0.01,
                ),
                ServingPool(
                    name="kv_cache",
                    bytes=load.concurrency * per_request,
                    formula=f"{_HERE}.Accounting.cache_bytes_per_request",
                ),
                ServingPool(name="state", bytes=state, formula=f"{_HERE}.Accounting.state_bytes"),
                ServingPool(
                    name="activations", bytes=activations, formula=f"{_HERE}.Accounting.memory", relative_error=0.4
                ),
                ServingPool(name="context", bytes=context, formula=f"{_HERE}.Accounting.memory", relative_error=0.4),
            ),
            capacity_bytes=at_most(weights + activations + context + state + pool, load.free_bytes),
            allocated_bytes=weights + activations + context + state + pool,
            cache_bytes=pool,
            cache_tokens=pool / at_least(per_request, 1.0) * load.context_tokens,
            relative_error=self.constants.value("memory_relative_error", load.version),
        )

    def cache_bytes_per_request(self, load: ServingLoad, num_tokens: Count) -> Bytes:
        """Blocks of one request at a length; windows keep their own length."""
        has = held(load.shape, load.pp, load.num_cpu_layers, load.num_cpu_expert_layers)
        total: Bytes = 0.0
        for group, num_layers in zip(load.shape.cache_groups, has.cache_layers, strict=True):
            kept = num_tokens if group.window_tokens is None else at_most(num_tokens, group.window_tokens)
            total = total + cache_bytes_of_group(load, group, num_layers, round_up(kept, BLOCK_TOKENS))
        return total

    def state_bytes(self, load: ServingLoad) -> Bytes:
        """Recurrent states: set aside for all sequences that the scheduler may take, on each stage.

        tensorrt_llm/_torch/pyexecutor/mamba_cache_manager.py, `max_num_sequences = max_batch_size * pp_size`.
        """
        has = held(load.shape, load.pp, load.num_cpu_layers, load.num_cpu_expert_layers)
        one = state_bytes_per_sequence(load, has.state_layers, load.compute_bytes_per_element, 4.0)
        return load.max_num_seqs * load.pp * one

    def rates(self, load: ServingLoad) -> ServingRates:
        """Return achieved fractions."""
        return rates_of(self.constants, load)


@cache
def accounting() -> Accounting:
    """Return the rules, their constants read at the first use."""
    return Accounting(constants_of("tensorrt_llm"))
