"""llama.cpp's memory: three kinds of buffers on each device (model, cache, compute), and what stays on the host.

The token embedding stays on the host; each slot has its cache, padded to 256 cells; windows keep their length and one
micro-batch more; recurrent state is kept once a slot.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

from tonnage.engines.facts import Constants, constants_of, rates_of
from tonnage.estimate.serving import CacheGroup, Held, ServingLoad, ServingMemory, ServingPool, ServingRates
from tonnage.estimate.serving_memory import (
    at_least,
    at_most,
    cache_bytes_of_group,
    cache_elements_per_token,
    round_up,
    state_bytes_per_sequence,
)
from tonnage.estimate.serving_shape import held
from tonnage.estimate.types import EngineSettings
from tonnage.units import MIB, Bytes, Count

LATENT_SCORE_BYTES = 512 * MIB  # `-amb 512`
CELL_PADDING = 256  # src/llama-kv-cache.cpp, `get_padding`, with flash attention; kept for all
_HERE = "tonnage.engines.llama_cpp.accounting"


class Accounting:
    """llama.cpp's rules; `engine` names the data file, as ik_llama.cpp and Ollama stand on them."""

    def __init__(self, name: str, constants: Constants) -> None:
        self.name = name
        self.constants = constants

    def with_defaults(self, load: ServingLoad, settings: EngineSettings) -> ServingLoad:
        """Fill in what the launch line will carry: slots, and the micro-batch that passes the model at once."""
        return replace(
            load,
            max_num_seqs=settings.max_num_seqs or load.concurrency,
            max_batched_tokens=settings.max_batched_tokens
            or int(self.constants.value("max_batched_tokens", load.version)),
            utilization_ratio=1.0,
            most_score_bytes=self._most_score_bytes(load),
            # CUDA kernels multiply quantised weights as int8, and 16-bit ones with 16-bit sums: half the int8 rate is both.
            flop_per_s=load.int8_flop_per_s / 2 if load.backend == "cuda" else load.flop_per_s,
        )

    def _most_score_bytes(self, load: ServingLoad) -> Bytes:
        """Return the scores that are kept at once: without a word for it, what the launch line allows."""
        is_open = load.has_flash_attention and load.most_score_bytes == math.inf
        is_limited = is_open and self.constants.value("unpacks_latents", load.version)
        return LATENT_SCORE_BYTES if is_limited else load.most_score_bytes

    def with_concurrency(self, load: ServingLoad, concurrency: Count) -> ServingLoad:
        """Change the requests in flight: one slot each."""
        return replace(load, concurrency=concurrency, max_num_seqs=concurrency)

    def memory(self, load: ServingLoad) -> ServingMemory:
        """Return the buffers of the fullest device and of the host."""
        has = held(load.shape, load.pp, load.num_cpu_layers, load.num_cpu_expert_layers, counts_output=True)
        shape = load.shape
        rest = shape.encoder_bytes + shape.other_bytes + self.draft_bytes(load)
        weights = (has.split_bytes + has.expert_bytes + has.head_bytes) / load.tp + has.replicated_bytes + rest
        cache = self.cache_bytes(load, has.cache_layers)
        state = load.max_num_seqs * state_bytes_per_sequence(load, has.state_layers, 4.0, 4.0)
        compute = self.compute_buffer_bytes(load, has) + self.pool_bytes(load) + self.copied_bytes(load)
        mapped = (load.is_unified_memory and load.backend == "vulkan") * shape.embedding_bytes
        host_cache = self.cache_bytes(load, has.host_cache_layers)
        host_state = load.max_num_seqs * state_bytes_per_sequence(load, has.host_state_layers, 4.0, 4.0)
        hidden = load.max_batched_tokens * shape.hidden_size * 4.0
        return ServingMemory(
            pools=(
                ServingPool(
                    name="weights", bytes=weights + mapped, formula=f"{_HERE}.Accounting.memory", relative_error=0.01
                ),
                ServingPool(name="kv_cache", bytes=cache, formula=f"{_HERE}.Accounting.cache_bytes"),
                ServingPool(
                    name="state", bytes=state, formula="tonnage.estimate.serving_memory.state_bytes_per_sequence"
                ),
                ServingPool(
                    name="projector",
                    bytes=load.projector_bytes,
                    formula="tonnage.estimate.weights.weights_bytes",
                    relative_error=0.02,
                ),
                ServingPool(
                    name="compute_buffer",
                    bytes=compute,
                    formula=f"{_HERE}.Accounting.compute_buffer_bytes",
                    relative_error=0.3,
                ),
                ServingPool(
                    name="context",
                    bytes=self.constants.value("context_bytes", load.version, backend=load.backend),
                    formula=f"{_HERE}.Accounting.memory",
                    relative_error=0.4,
                ),
                ServingPool(
                    name="host_weights",
                    bytes=has.host_bytes + shape.embedding_bytes,
                    formula="tonnage.estimate.serving_shape.held",
                    is_on_host=True,
                ),
                ServingPool(
                    name="host_kv_cache",
                    bytes=host_cache + host_state,
                    formula=f"{_HERE}.Accounting.cache_bytes",
                    is_on_host=True,
                ),
                ServingPool(
                    name="host_compute_buffer",
                    bytes=2.0 * hidden,
                    formula=f"{_HERE}.Accounting.memory",
                    is_on_host=True,
                ),
            ),
            capacity_bytes=load.free_bytes,
            cache_tokens=load.context_tokens * load.max_num_seqs,
            total_cache_bytes=self.cache_bytes(load, has.total_cache_layers) + host_cache,
            relative_error=self.constants.value("memory_relative_error", load.version),
        )

    def cache_bytes(self, load: ServingLoad, layers: tuple[Count, ...]) -> Bytes:
        """Cache of all slots in some layers of each group."""
        total: Bytes = 0.0
        for group, num_layers in zip(load.shape.cache_groups, layers, strict=True):
            total = total + cache_bytes_of_group(load, group, num_layers, self.num_cells(load, group))
        return total

    def draft_bytes(self, load: ServingLoad) -> Bytes:
        """Weights of the checkpoint's own draft layers, and their cache of 16 bits: as long as all slots' contexts.

        common/speculative.cpp, `common_base_params_to_speculative` (ggml-org/llama.cpp#28433).
        """
        full = next((g for g in load.shape.cache_groups if g.window_tokens is None and g.num_elements_per_head), None)
        if not load.has_draft_head or full is None:
            return 0.0
        elements = (
            cache_elements_per_token(load, full) * load.max_num_seqs * round_up(load.context_tokens, CELL_PADDING)
        )
        return load.num_draft_layers * (load.shape.weights_bytes / load.shape.num_layers + 2.0 * elements)

    def num_cells(self, load: ServingLoad, group: CacheGroup) -> Count:
        """Cells of a group's cache: for each slot its context, or its window and one micro-batch.

        Slots that are asked for by number have caches of their own (src/llama-kv-cache-iswa.cpp @02c28f53, `size_swa`);
        ik_llama.cpp, and llama.cpp before May 2025, keep the whole context in every layer.
        """
        cells = round_up(load.context_tokens, CELL_PADDING)
        if group.window_tokens is not None and self.constants.value("keeps_windows", load.version):
            cells = at_most(cells, round_up(group.window_tokens + load.max_batched_tokens, CELL_PADDING))
        return load.max_num_seqs * cells

    def compute_buffer_bytes(self, load: ServingLoad, has: Held) -> Bytes:
        """Return the scratch of the largest graph: the logits of a micro-batch, or one layer with its scores.

        Reserved for whole micro-batches, or the context where that is shorter (src/llama-context.cpp,
        `graph_reserve`). Kernels that multiply in 16 bits on HIP keep one matrix unpacked beside.
        """
        shape, heads = load.shape, load.shape.num_heads
        tokens = at_most(load.max_batched_tokens, load.context_tokens * load.max_num_seqs)
        width = at_least(shape.max_intermediate_size, shape.max_expert_size * shape.top_k)
        logits = 4.0 * tokens * (shape.vocab_size + shape.hidden_size) * (has.head_bytes > 0)
        scores = 0.0 if load.has_flash_attention else 4.0 * tokens * load.context_tokens * load.max_num_seqs * heads
        scores = at_most(scores, load.most_score_bytes)
        layer = 4.0 * tokens * (2 * shape.hidden_size + width) + scores
        return at_least(logits, layer + self.latent_bytes(load))

    def latent_bytes(self, load: ServingLoad) -> Bytes:
        """Return what flash attention over a latent cache unpacks in ik_llama.cpp: keys and values of the whole context.

        In 16 bits for all heads, 6 bytes for each pair of a cell and a token of the micro-batch, and scores of a byte,
        cut to what `-amb` allows (start-up logs in ikawrakow/ik_llama.cpp @8337e4cd github-data/: 84,992 B a cell at
        micro-batches of 512).
        """
        if not load.has_flash_attention or load.latent_cache == "full":
            return 0.0
        total: Bytes = 0.0
        for group in load.shape.cache_groups:
            if group.is_latent and group.num_full_elements:
                cells = self.num_cells(load, group)
                pairs = cells * load.max_batched_tokens
                kept = at_most(load.most_score_bytes, 1.0 * pairs * load.shape.num_heads)
                total = at_least(total, 2.0 * cells * group.num_full_elements + 6.0 * pairs + kept)
        return total * self.constants.value("unpacks_latents", load.version)

    def copied_bytes(self, load: ServingLoad) -> Bytes:
        """Return room for one matrix of experts that lie on the host, where prompts are multiplied on the device.

        ggml/src/ggml-cuda/ggml-cuda.cu, `offload_op`: from `offload_tokens` of a micro-batch on; a log with experts on the
        host has 3,285 MiB on the first device and 788 on the others.
        """
        shape = load.shape
        if not shape.num_experts or load.backend == "cpu":
            return 0.0
        is_copied = load.max_batched_tokens >= self.constants.value("offload_tokens", load.version)
        return (load.num_cpu_expert_layers > 0) * is_copied * max(shape.expert_bytes) / 3.0

    def pool_bytes(self, load: ServingLoad) -> Bytes:
        """Return the kernels' own scratch: a matrix unpacked to 16 bits where a prompt is multiplied so."""
        shape = load.shape
        width = at_least(shape.max_intermediate_size, shape.max_expert_size)
        is_unpacked = (load.backend == "hip") * (load.max_batched_tokens > 1) * (load.input_tokens > 1)
        matrix = 2.0 * shape.hidden_size * width + 6.0 * load.max_batched_tokens * (width + shape.hidden_size)
        return is_unpacked * matrix

    def rates(self, load: ServingLoad) -> ServingRates:
        """Return achieved fractions."""
        return rates_of(self.constants, load)


@cache
def accounting() -> Accounting:
    """Return the rules, their constants read at the first use."""
    return Accounting("llama.cpp", constants_of("llama_cpp"))
