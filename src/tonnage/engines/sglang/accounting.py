"""SGLang's memory: a static fraction of what was free at start holds weights and cache, the rest everything else.

The rule is sglang/srt/mem_cache/kv_cache_configurator.py of 0.5.23: cache = free after loading less
(1 - mem_fraction_static) of what was free before. Recurrent states are taken from it first, as many as the launch line
says, or by a share; what layers with a window keep follows by a share from what the others keep.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Final

from tonnage.engines.facts import Constants, constants_of, rates_of
from tonnage.estimate.serving import Held, ServingLoad, ServingMemory, ServingPool, ServingRates
from tonnage.estimate.serving_memory import (
    at_least,
    at_most,
    cache_bytes_of_group,
    state_bytes_per_sequence,
    weights_per_device,
)
from tonnage.estimate.serving_shape import held
from tonnage.estimate.types import EngineSettings
from tonnage.units import MIB, Bytes, Count, Ratio

_HERE = "tonnage.engines.sglang.accounting"


class Accounting:
    """SGLang's rules; `engine` names the data file, as KTransformers stands on them."""

    def __init__(self, name: str, constants: Constants) -> None:
        self.name = name
        self.constants = constants

    def with_defaults(self, load: ServingLoad, settings: EngineSettings) -> ServingLoad:
        """Fill in what the launch line will carry; the static fraction leaves room for activations and graphs.

        No more requests than asked for where each keeps states of its own.
        """
        fewest = 1 if load.shape.state_groups else 16
        filled = replace(
            load,
            has_packed_selector=True,
            max_num_seqs=settings.max_num_seqs or at_least(load.concurrency, fewest),
            max_batched_tokens=settings.max_batched_tokens
            or int(self.constants.value("max_batched_tokens", load.version)),
        )
        rest = max(self.activation_bytes(filled) + self.graph_bytes(filled), reserved_bytes(filled))
        ratio = math.floor(1000 * max(0.05, 1 - rest / at_most(load.free_bytes, self.visible_bytes(load)))) / 1000
        return replace(filled, utilization_ratio=settings.utilization_ratio or min(ratio, 0.95))

    def with_concurrency(self, load: ServingLoad, concurrency: Count) -> ServingLoad:
        """Change the requests in flight; the scheduler's limit follows upwards."""
        return replace(load, concurrency=concurrency, max_num_seqs=at_least(load.max_num_seqs, concurrency))

    def visible_bytes(self, load: ServingLoad) -> Bytes:
        """Return the total that CUDA shows: the driver keeps a share."""
        ratio = self.constants.value("driver_reserve_ratio", load.version)
        return load.memory_bytes - at_most(
            ratio * load.memory_bytes, self.constants.value("driver_reserve_bytes", load.version)
        )

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
        cell, draft = self.cache_bytes_per_token(load, has)
        activations, graphs = self.activation_bytes(load), self.graph_bytes(load)
        usable = at_most(load.free_bytes, self.visible_bytes(load)) - context
        rest = at_least(usable * load.utilization_ratio - weights, 0.0)
        state = self.state_bytes(load, has, rest)
        tokens = at_least(rest - state, 0.0) / at_least(cell + draft, 1.0)
        limit = usable * load.utilization_ratio + context + activations + graphs
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
                    bytes=load.concurrency * load.context_tokens * (cell + draft),
                    formula=f"{_HERE}.Accounting.cache_bytes_per_token",
                ),
                ServingPool(name="state", bytes=state, formula=f"{_HERE}.Accounting.state_bytes"),
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
            cache_bytes=tokens * cell,
            cache_tokens=tokens,
            relative_error=self.constants.value("memory_relative_error", load.version),
        )

    def cache_bytes_per_token(self, load: ServingLoad, has: Held) -> tuple[Bytes, Bytes]:
        """Cache of a token in the model's layers, and in those of a draft; pages are one token.

        Where some layers have a window, those keep a share of the tokens that the others keep
        (sglang/srt/model_executor/pool_configurator.py, `swa_full_tokens_ratio`).
        """
        groups = list(zip(load.shape.cache_groups, has.cache_layers, strict=True))
        ratio = self.window_ratio(load)
        total, draft = 0.0, 0.0
        for group, num_layers in groups:
            is_full = group.window_tokens is None
            total = total + cache_bytes_of_group(load, group, num_layers, 1) * (1.0 if is_full else ratio)
            if is_full and group.num_elements_per_head:
                draft = cache_bytes_of_group(load, group, load.num_draft_layers, 1)
        return total, draft

    def window_ratio(self, load: ServingLoad) -> Ratio:
        """Tokens that layers with a window keep, over those of the others: what the launch line says.

        As many as a window and one chunk of a prompt, and no more than the engine's own share.
        """
        windows = {group.window_tokens for group in load.shape.cache_groups}
        if windows == {None} or None not in windows:
            return 1.0
        most = self.constants.value("window_tokens_ratio", load.version)
        longest = max(window for window in windows if window is not None)
        needed = (longest + load.max_batched_tokens) / load.context_tokens
        return most if load.state_ratio else at_most(most, needed)

    def state_bytes(self, load: ServingLoad, has: Held, rest: Bytes) -> Bytes:
        """Return what recurrent states take: by their share of what is left, or three slots a request and one to pad.

        Three, as finished states stay for prompts that begin alike; drafting keeps one more for each guessed token
        (sglang/srt/mem_cache/kv_cache_configurator.py, `MAMBA_CACHE_SIZE_MAX_RUNNING_REQUESTS_RATIO`).
        """
        one = state_bytes_per_sequence(load, has.state_layers, load.compute_bytes_per_element, 4.0)
        if load.state_ratio:
            return (one > 0) * rest * load.state_ratio / (1.0 + load.state_ratio)
        return one * (num_state_slots(load) + 1 + (load.max_num_seqs + 1) * load.num_draft_tokens)

    def rates(self, load: ServingLoad) -> ServingRates:
        """Return achieved fractions."""
        return rates_of(self.constants, load)


def num_state_slots(load: ServingLoad) -> Count:
    """Return how many recurrent states are kept, as the launch line says."""
    return 3 * load.max_num_seqs


# Capacity below which a pair holds [MiB], default chunk of a prefill, and largest captured batch below and from TP 4 on
# (sglang 0.5.23, sglang/srt/arg_groups/memory_hook.py, `_handle_gpu_memory_settings`).
_TIERS: Final = (
    (20 * 1024, 2048, 8, 8), (35 * 1024, 4096, 48, 160), (60 * 1024, 4096, 32, 160), (160 * 1024, 8192, 256, 512),
    (math.inf, 16384, 512, 512),
)  # fmt: skip


def reserved_bytes(load: ServingLoad) -> Bytes:
    """Return what SGLang's own rule keeps free beside weights and cache, for the load's chunk and sequences.

    1.5 MiB for each token of a chunk, 2 MiB for each sequence of the largest captured batch, 128 MiB a rank, and half a
    GiB (sglang 0.5.23, sglang/srt/arg_groups/memory_hook.py, `_handle_gpu_memory_settings`).
    """
    chunk = at_least(load.max_batched_tokens, 2048)
    return MIB * (512 + 1.5 * chunk + 128.0 * load.tp * load.pp + 2.0 * load.max_num_seqs)


def default_limits(load: ServingLoad) -> tuple[float, int, float]:
    """Return SGLang's own static fraction, chunk of a prefill, and share of states to cache, on this device.

    The fraction leaves what `reserved_bytes` says; at least 10 GiB from 60 GiB on; models with an encoder get less (sglang
    0.5.23, sglang/srt/arg_groups/memory_hook.py, `_handle_gpu_memory_settings`, `adjust_mem_fraction_for_vlm` for an
    encoder of 24 layers and a width of 1,152; sglang/srt/arg_groups/fields/schedule.py, `mamba_full_memory_ratio`).
    """
    capacity = float(load.memory_bytes) / MIB
    _, chunk, few, many = next(tier for tier in _TIERS if capacity < tier[0])
    batch = few if load.tp < 4 else many
    reserved = float(reserved_bytes(replace(load, max_batched_tokens=chunk, max_num_seqs=batch))) / MIB
    if capacity > 60 * 1024:
        reserved = max(reserved, 10 * 1024)
    ratio = (capacity - reserved) / capacity
    if load.shape.encoder_bytes:
        ratio *= 0.95 * (1 - 0.1 * ((1152 / 1024) ** 2 - 1))
    return round(ratio, 3), chunk, 0.9


@cache
def accounting() -> Accounting:
    """Return the rules, their constants read at the first use."""
    return Accounting("sglang", constants_of("sglang"))
