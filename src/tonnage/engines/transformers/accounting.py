"""Plain transformers: weights, a growing cache, eager activations, and torch's context; nothing is set aside."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from tonnage.engines.facts import Constants, constants_of, rates_of
from tonnage.estimate.serving import ServingLoad, ServingMemory, ServingPool, ServingRates
from tonnage.estimate.serving_memory import at_most, cache_bytes_of_group, state_bytes_per_sequence, weights_per_device
from tonnage.estimate.serving_shape import held
from tonnage.estimate.types import EngineSettings
from tonnage.units import Bytes, Count

_HERE = "tonnage.engines.transformers.accounting"


class Accounting:
    """The rules of `generate`."""

    name = "transformers"

    def __init__(self, constants: Constants) -> None:
        self.constants = constants

    def with_defaults(self, load: ServingLoad, settings: EngineSettings) -> ServingLoad:
        """Take the batch as it is: there is no scheduler, and a prompt passes in one piece."""
        return replace(
            load,
            max_num_seqs=settings.max_num_seqs or load.concurrency,
            max_batched_tokens=settings.max_batched_tokens or load.input_tokens,
            utilization_ratio=1.0,
        )

    def with_concurrency(self, load: ServingLoad, concurrency: Count) -> ServingLoad:
        """Change the batch."""
        return replace(load, concurrency=concurrency, max_num_seqs=concurrency)

    def memory(self, load: ServingLoad) -> ServingMemory:
        """Return the pools of the fullest device."""
        has = held(load.shape, load.pp, load.num_cpu_layers, load.num_cpu_expert_layers)
        weights = weights_per_device(load, has)
        per_hidden = self.constants.value("activation_bytes_per_hidden")
        prompt = load.concurrency * load.max_batched_tokens
        activations = per_hidden * prompt * load.shape.hidden_size + 4.0 * load.concurrency * load.shape.vocab_size
        context = self.constants.value("context_bytes")
        cache = load.concurrency * self.cache_bytes_per_request(load, load.context_tokens)
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
                    bytes=cache,
                    formula=f"{_HERE}.Accounting.cache_bytes_per_request",
                ),
                ServingPool(
                    name="activations", bytes=activations, formula=f"{_HERE}.Accounting.memory", relative_error=0.5
                ),
                ServingPool(name="context", bytes=context, formula=f"{_HERE}.Accounting.memory", relative_error=0.3),
                ServingPool(
                    name="host_weights",
                    bytes=has.host_bytes,
                    formula="tonnage.estimate.serving_shape.held",
                    is_on_host=True,
                ),
            ),
            capacity_bytes=load.free_bytes,
            total_cache_bytes=cache,
            relative_error=self.constants.value("memory_relative_error"),
        )

    def cache_bytes_per_request(self, load: ServingLoad, num_tokens: Count) -> Bytes:
        """Cache of one sequence: a window keeps one token less than its length after a step.

        Layers on the host lend their weights to the device, which computes with them: their cache lies on the device
        (accelerate 1.15, `hooks.py`, `AlignDevicesHook`).
        """
        has = held(load.shape, load.pp, 0, 0)
        total: Bytes = state_bytes_per_sequence(load, has.state_layers, load.compute_bytes_per_element, 4.0)
        for group, num_layers in zip(load.shape.cache_groups, has.cache_layers, strict=True):
            kept = num_tokens if group.window_tokens is None else at_most(num_tokens, group.window_tokens - 1)
            total = total + cache_bytes_of_group(load, group, num_layers, kept)
        return total

    def rates(self, load: ServingLoad) -> ServingRates:
        """Return achieved fractions."""
        return rates_of(self.constants, load)


@cache
def accounting() -> Accounting:
    """Return the rules, their constants read at the first use."""
    return Accounting(constants_of("transformers"))
