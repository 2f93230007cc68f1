"""vLLM's memory: a fraction of the whole card, less weights and the profiled peak, is cut into blocks of cache.

The rule is vllm/v1/worker/gpu_worker.py `determine_available_memory`; the constants that it measures at start-up are
here by version, in data/engines/vllm.toml.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tonnage.engines.facts import constant, rates_of
from tonnage.estimate.serving import CacheGroup, ServingLoad, ServingMemory, ServingPool, ServingRates
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
from tonnage.units import GIB, Bytes, Count

BLOCK_TOKENS = 16
_HERE = "tonnage.engines.vllm.accounting"


class Accounting:
    """vLLM's rules."""

    name = "vllm"

    def with_defaults(self, load: ServingLoad, settings: EngineSettings) -> ServingLoad:
        """Fill in what the launch line will carry: `max_num_seqs` no larger than asked for, as it costs memory."""
        default = constant("vllm", "utilization_ratio", load.version)
        spare = math.floor(100 * load.free_bytes / load.memory_bytes) / 100
        return replace(
            load,
            max_num_seqs=settings.max_num_seqs or at_least(load.concurrency, 16),
            max_batched_tokens=settings.max_batched_tokens or default_limits(load)[1],
            utilization_ratio=settings.utilization_ratio or min(default, spare),
        )

    def with_concurrency(self, load: ServingLoad, concurrency: Count) -> ServingLoad:
        """Change the requests in flight; the scheduler's limit follows upwards."""
        return replace(load, concurrency=concurrency, max_num_seqs=at_least(load.max_num_seqs, concurrency))

    def memory(self, load: ServingLoad) -> ServingMemory:
        """Return the pools of the fullest device, and the cache that vLLM would set aside."""
        has = held(load.shape, load.pp, load.num_cpu_layers, load.num_cpu_expert_layers)
        weights = weights_per_device(load, has)
        activations = profiled_activation_bytes(load)
        outside_torch = non_torch_bytes(load)
        graphs = cuda_graph_bytes(load)
        is_counted = constant("vllm", "counts_cuda_graphs", load.version)
        limit = load.utilization_ratio * load.memory_bytes
        pool = at_least(limit - weights - activations - outside_torch - graphs * is_counted, 0.0)
        per_request = self.cache_bytes_per_request(load, load.context_tokens)
        needed = load.concurrency * per_request
        outside = graphs * (1 - is_counted)
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
                    formula=f"{_HERE}.profiled_activation_bytes",
                    relative_error=0.3,
                ),
                ServingPool(
                    name="context", bytes=outside_torch, formula=f"{_HERE}.non_torch_bytes", relative_error=0.5
                ),
                ServingPool(name="cuda_graphs", bytes=graphs, formula=f"{_HERE}.cuda_graph_bytes", relative_error=0.5),
            ),
            capacity_bytes=at_most(limit + outside, load.free_bytes),
            allocated_bytes=weights + activations + outside_torch + graphs + pool,
            cache_bytes=pool,
            cache_tokens=pool / at_least(per_request, 1.0) * load.context_tokens,
            relative_error=constant("vllm", "memory_relative_error", load.version),
        )

    def cache_bytes_per_request(self, load: ServingLoad, num_tokens: Count) -> Bytes:
        """Blocks of one request at a length, and its states.

        A window keeps its own length and the tokens of one step more
        (vllm/v1/kv_cache_interface.py, `SlidingWindowSpec.max_memory_usage_bytes`).
        """
        has = held(load.shape, load.pp, load.num_cpu_layers, load.num_cpu_expert_layers)
        total: Bytes = state_bytes_per_sequence(load, has.state_layers, load.compute_bytes_per_element, 4.0)
        for group, num_layers in zip(load.shape.cache_groups, has.cache_layers, strict=True):
            tokens = round_up(_kept_tokens(load, group, num_tokens), BLOCK_TOKENS)
            total = total + cache_bytes_of_group(group, num_layers, tokens, load.tp, load.cache_bytes_per_element)
        return total

    def rates(self, load: ServingLoad) -> ServingRates:
        """Return achieved fractions."""
        return rates_of("vllm", load)


def default_limits(load: ServingLoad) -> tuple[int, int]:
    """Return vLLM's own `max_num_seqs` and `max_num_batched_tokens` for an API server on this device.

    vllm/engine/arg_utils.py `get_batch_defaults`, vLLM 0.33.0: from 70 GiB on the larger pair, but not for an A100, which
    the name tells there and the Ampere architecture here.
    """
    if load.memory_bytes >= 160 * GIB:
        return 1024, 16384
    if load.memory_bytes >= 70 * GIB and load.architecture != "ampere" and not load.is_unified_memory:
        return 1024, 8192
    return 256, 2048


def _kept_tokens(load: ServingLoad, group: CacheGroup, num_tokens: Count) -> Count:
    if group.window_tokens is None:
        return num_tokens
    return at_most(num_tokens, group.window_tokens - 1 + load.max_batched_tokens)


def profiled_activation_bytes(load: ServingLoad) -> Bytes:
    """Return the peak of the start-up profile: the sampler on `max_num_seqs` rows of logits, or one step's activations."""
    per_logit = constant("vllm", "sampler_bytes_per_logit", load.version)
    fixed = constant("vllm", "sampler_fixed_bytes", load.version)
    per_hidden = constant("vllm", "activation_bytes_per_hidden", load.version)
    sampler = per_logit * load.max_num_seqs * load.shape.vocab_size + fixed
    return at_least(sampler, per_hidden * load.max_batched_tokens * load.shape.hidden_size)


def non_torch_bytes(load: ServingLoad) -> Bytes:
    """Return what the profile sees beside torch: context, libraries, and collectives' buffers when ranks talk."""
    alone = constant("vllm", "non_torch_bytes", load.version)
    parallel = constant("vllm", "non_torch_parallel_bytes", load.version)
    return alone + (load.tp > 1) * (parallel - alone)


def cuda_graph_bytes(load: ServingLoad) -> Bytes:
    """Return the captured decode graphs: a part a layer, and a part a captured size."""
    return (
        constant("vllm", "graph_bytes", load.version)
        + load.shape.num_layers * constant("vllm", "graph_bytes_per_layer", load.version) / load.pp
    )


ACCOUNTING = Accounting()
