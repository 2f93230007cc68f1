"""SGLang's memory: a static fraction of what was free at start holds weights and cache, the rest everything else.

The rule is sglang/srt/model_executor/model_runner.py (`profile_max_num_token`): cache = free after loading less
(1 - mem_fraction_static) of what was free before.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tonnage.engines.facts import Constants, constants_of, rates_of
from tonnage.estimate.serving import ServingLoad, ServingMemory, ServingPool, ServingRates
from tonnage.estimate.serving_memory import (
    at_least,
    at_most,
    cache_bytes_of_group,
    state_bytes_per_sequence,
    weights_per_device,
)
from tonnage.estimate.serving_shape import held
from tonnage.estimate.types import EngineSettings
from tonnage.units import Bytes, Count

_HERE = "tonnage.engines.sglang.accounting"


class Accounting:
    """SGLang's rules; `engine` names the data file, as KTransformers stands on them."""

    def __init__(self, name: str, constants: Constants) -> None:
        self.name = name
        self.constants = constants

    def with_defaults(self, load: ServingLoad, settings: EngineSettings) -> ServingLoad:
        """Fill in what the launch line will carry; the static fraction leaves room for activations and graphs."""
        filled = replace(
            load,
            max_num_seqs=settings.max_num_seqs or at_least(load.concurrency, 16),
            max_batched_tokens=settings.max_batched_tokens
            or int(self.constants.value("max_batched_tokens", load.version)),
        )
        rest = self.activation_bytes(filled) + self.graph_bytes(filled)
        ratio = math.floor(1000 * max(0.05, 1 - rest / load.free_bytes)) / 1000
        return replace(filled, utilization_ratio=settings.utilization_ratio or min(ratio, 0.95))

    def with_concurrency(self, load: ServingLoad, concurrency: Count) -> ServingLoad:
        """Change the requests in flight; the scheduler's limit follows upwards."""
        return replace(load, concurrency=concurrency, max_num_seqs=at_least(load.max_num_seqs, concurrency))

    def activation_bytes(self, load: ServingLoad) -> Bytes:
        """Return the peak of one step of a chunked prefill, with its logits."""
        per_hidden = self.constants.value("activation_bytes_per_hidden", load.version)
        return (
            per_hidden * load.max_batched_tokens * load.shape.hidden_size
            + 4.0 * load.max_num_seqs * load.shape.vocab_size
        )

    def graph_bytes(self, load: ServingLoad) -> Bytes:
        """Return the captured decode graphs, by the largest captured batch."""
        return self.constants.value("graph_bytes", load.version) + load.max_num_seqs * self.constants.value(
            "graph_bytes_per_seq", load.version
        )

    def memory(self, load: ServingLoad) -> ServingMemory:
        """Return the pools of the fullest device and of the host, and the cache that SGLang would set aside."""
        has = held(load.shape, load.pp, load.num_cpu_layers, load.num_cpu_expert_layers)
        weights = weights_per_device(load, has)
        context = self.constants.value("context_bytes", load.version)
        per_request = self.cache_bytes_per_request(load, load.context_tokens)
        needed = load.concurrency * per_request
        activations, graphs = self.activation_bytes(load), self.graph_bytes(load)
        usable = load.free_bytes - context
        pool = at_least(usable * load.utilization_ratio - weights, 0.0)
        limit = usable * load.utilization_ratio + context + activations + graphs
        return ServingMemory(
            pools=(
                ServingPool(
                    name="weights",
                    bytes=weights,
                    formula="tonnage.estimate.serving_memory.weights_per_device",
                    relative_error=0.01,
                ),
                ServingPool(name="kv_cache", bytes=needed, formula=f"{_HERE}.Accounting.cache_bytes_per_request"),
                ServingPool(
                    name="activations",
                    bytes=activations,
                    formula=f"{_HERE}.Accounting.activation_bytes",
                    relative_error=0.4,
                ),
                ServingPool(
                    name="cuda_graphs", bytes=graphs, formula=f"{_HERE}.Accounting.graph_bytes", relative_error=0.5
                ),
                ServingPool(name="context", bytes=context, formula=f"{_HERE}.Accounting.memory", relative_error=0.3),
                ServingPool(
                    name="host_weights",
                    bytes=has.host_bytes,
                    formula="tonnage.estimate.serving_shape.held",
                    is_on_host=True,
                ),
            ),
            capacity_bytes=at_most(limit, load.free_bytes),
            allocated_bytes=at_least(usable * load.utilization_ratio, weights) + context + activations + graphs,
            cache_bytes=pool,
            cache_tokens=pool / at_least(per_request, 1.0) * load.context_tokens,
            relative_error=self.constants.value("memory_relative_error", load.version),
        )

    def cache_bytes_per_request(self, load: ServingLoad, num_tokens: Count) -> Bytes:
        """Cache slots of one request at a length, and its states; pages are one token."""
        has = held(load.shape, load.pp, load.num_cpu_layers, load.num_cpu_expert_layers)
        total: Bytes = state_bytes_per_sequence(load, has.state_layers, load.compute_bytes_per_element, 4.0)
        for group, num_layers in zip(load.shape.cache_groups, has.cache_layers, strict=True):
            total = total + cache_bytes_of_group(load, group, num_layers, num_tokens)
        return total

    def rates(self, load: ServingLoad) -> ServingRates:
        """Return achieved fractions."""
        return rates_of(self.constants, load)


ACCOUNTING = Accounting("sglang", constants_of("sglang"))
