"""vLLM's memory: a fraction of the whole card, less weights and the profiled peak, is cut into blocks of cache.

The rule is vllm/v1/worker/gpu_worker.py `determine_available_memory`; the constants that it measures at start-up are
here by version, in data/engines/vllm.toml.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tonnage.engines.facts import Constants, constants_of, rates_of, version_key
from tonnage.estimate.serving import (
    CacheGroup,
    Held,
    ServingLoad,
    ServingMemory,
    ServingPool,
    ServingRates,
    ServingShape,
)
from tonnage.estimate.serving_memory import (
    at_least,
    at_most,
    cache_bytes_of_group,
    round_up,
)
from tonnage.estimate.serving_shape import held
from tonnage.estimate.types import EngineSettings
from tonnage.units import GIB, MIB, Bytes, Count, Ratio

BLOCK_TOKENS = 16
_HERE = "tonnage.engines.vllm.accounting.Accounting"


class Accounting:
    """vLLM's rules."""

    name = "vllm"

    def __init__(self, constants: Constants) -> None:
        self.constants = constants

    def with_defaults(self, load: ServingLoad, settings: EngineSettings) -> ServingLoad:
        """Fill in what the launch line will carry: `max_num_seqs` no larger than asked for, as it costs memory."""
        default = self.constants.value("utilization_ratio", load.version)
        visible = self.visible_bytes(load)
        spare = math.floor(100 * (load.free_bytes - load.memory_bytes + visible) / at_least(visible, 1)) / 100
        return replace(
            load,
            max_num_seqs=settings.max_num_seqs or at_least(load.concurrency, 16),
            max_batched_tokens=settings.max_batched_tokens or default_limits(load)[1],
            utilization_ratio=settings.utilization_ratio or min(default, spare),
        )

    def with_concurrency(self, load: ServingLoad, concurrency: Count) -> ServingLoad:
        """Change the requests in flight; the scheduler's limit follows upwards."""
        return replace(load, concurrency=concurrency, max_num_seqs=at_least(load.max_num_seqs, concurrency))

    def visible_bytes(self, load: ServingLoad) -> Bytes:
        """Return the total that CUDA shows, of which the utilisation is a fraction: the driver keeps a share."""
        ratio = self.constants.value("driver_reserve_ratio", load.version)
        most = self.constants.value("driver_reserve_bytes", load.version)
        return load.memory_bytes - at_most(ratio * load.memory_bytes, most)

    def memory(self, load: ServingLoad) -> ServingMemory:
        """Return the pools of the fullest device, and the cache that vLLM would set aside."""
        has = held(load.shape, load.pp, load.num_cpu_layers, load.num_cpu_expert_layers)
        weights = self.weights_bytes(load, has)
        activations, outside_torch = self.activation_bytes(load), self.non_torch_bytes(load)
        graphs = self.graph_bytes(load)
        is_counted = self.constants.value("counts_cuda_graphs", load.version)
        limit = load.utilization_ratio * self.visible_bytes(load)
        pool = at_least(limit - weights - activations - outside_torch - graphs * is_counted, 0.0)
        cut = block_cut(load, has)
        blocks = cut.blocks_per_request(load, load.context_tokens)
        num_blocks = pool // at_least(cut.block_bytes, 1.0)
        if version_key(load.version)[:2] in ((0, 19), (0, 20)):
            tokens = num_blocks // at_least(cut.num_groups, 1) * cut.block_tokens
        else:
            tokens = num_blocks / at_least(blocks, 1) * load.context_tokens
        return ServingMemory(
            pools=(
                ServingPool(name="weights", bytes=weights, formula=f"{_HERE}.weights_bytes", relative_error=0.01),
                ServingPool(
                    name="kv_cache",
                    bytes=load.concurrency * blocks * cut.block_bytes,
                    formula="tonnage.engines.vllm.accounting.block_cut",
                ),
                ServingPool(
                    name="activations", bytes=activations, formula=f"{_HERE}.activation_bytes", relative_error=0.3
                ),
                ServingPool(
                    name="context", bytes=outside_torch, formula=f"{_HERE}.non_torch_bytes", relative_error=0.5
                ),
                ServingPool(name="cuda_graphs", bytes=graphs, formula=f"{_HERE}.graph_bytes", relative_error=0.5),
            ),
            capacity_bytes=at_most(limit + graphs * (1 - is_counted), load.free_bytes),
            allocated_bytes=at_most(
                weights + activations + outside_torch + graphs * is_counted + pool + self.unprofiled_bytes(load),
                load.memory_bytes,
            ),
            cache_bytes=pool,
            cache_tokens=tokens,
            relative_error=self.constants.value("memory_relative_error", load.version),
        )

    def weights_bytes(self, load: ServingLoad, has: Held) -> Bytes:
        """Return what loading leaves on the device: weights, the table of positions, latent up-projections undone.

        The encoder is split like the rest (vllm/model_executor/models, vision towers of parallel linear layers); absorbed
        latent attention keeps `W_UK` and `W_UV` beside `kv_b_proj`
        (vllm/model_executor/layers/attention/mla_attention.py, `process_weights_after_loading`).
        """
        shape = load.shape
        draft = load.num_draft_layers * (load.has_draft_head * shape.weights_bytes / shape.num_layers)
        shared = has.split_bytes + has.embedding_bytes + has.head_bytes + shape.encoder_bytes + draft
        rest = has.replicated_bytes + shape.other_bytes + shape.rotary_bytes
        rest = rest + rounding_bytes(shape, load.tp) * has.num_layers / shape.num_layers
        experts = has.expert_bytes / at_least(load.ep, load.tp) * padded_ratio(load)
        return (shared + 2.0 * has.latent_up_parameters) / load.tp + experts + rest

    def activation_bytes(self, load: ServingLoad) -> Bytes:
        """Return the peak of the start-up profile: the sampler on rows of logits, or one step's activations.

        A step holds, for each token, what goes into a feed-forward and comes out of its two halves (2 + 1 widths of 16
        bits), for each expert that takes it, and some hidden vectors.
        """
        per_logit = self.constants.value("sampler_bytes_per_logit", load.version)
        fixed = self.constants.value("sampler_fixed_bytes", load.version)
        per_hidden = self.constants.value("activation_bytes_per_hidden", load.version)
        shape, tp = load.shape, load.tp
        sampler = per_logit * load.max_num_seqs * shape.vocab_size + fixed
        width = per_hidden * shape.hidden_size + 6.0 * shape.max_intermediate_size / tp
        if shape.num_experts:
            routed = 6.0 * shape.max_expert_size / tp + 4.0 * shape.hidden_size
            width = at_least(width, per_hidden * shape.hidden_size + shape.top_k * routed)
        latent = self.constants.value("latent_workspace_bytes", load.version) * any(
            group.is_latent for group in shape.cache_groups
        )
        return at_least(sampler, width * load.max_batched_tokens) + latent

    def non_torch_bytes(self, load: ServingLoad) -> Bytes:
        """Return what the profile sees beside torch: context, libraries, and collectives' buffers when ranks talk."""
        alone = self.constants.value("non_torch_bytes", load.version)
        kind = "nvlink" if load.is_switched and load.architecture in ("hopper", "blackwell") else "pcie"
        return alone + (load.tp > 1) * self.constants.value("collective_bytes", load.version, link=kind)

    def graph_bytes(self, load: ServingLoad) -> Bytes:
        """Return the captured decode graphs: a fixed part, and a part a layer, for each captured size."""
        fixed = self.constants.value("graph_bytes", load.version)
        per_layer = load.shape.num_layers * self.constants.value("graph_bytes_per_layer", load.version) / load.pp
        return (fixed + per_layer) * num_capture_sizes(load.max_num_seqs) / num_capture_sizes(1024)

    def unprofiled_bytes(self, load: ServingLoad) -> Bytes:
        """Return what grows after the profile: warm-up of samplers and kernels, fragments, graphs not counted."""
        return self.constants.value("unprofiled_bytes", load.version)

    def rates(self, load: ServingLoad) -> ServingRates:
        """Return achieved fractions."""
        return rates_of(self.constants, load)


def padded_ratio(load: ServingLoad) -> Ratio:
    """Experts as padded for their kernels over experts as stored.

    MXFP4 experts are padded to multiples of 128 in their own width on a rank and of 256 in the hidden one
    (vllm/model_executor/layers/fused_moe/oracle/mxfp4.py, `mxfp4_round_up_hidden_size_and_intermediate_size`, Marlin).
    """
    if load.weights_format != "mxfp4" or not load.shape.num_experts:
        return 1.0
    width = load.shape.max_expert_size / (1 + (load.tp - 1) * (load.ep <= 1))
    return round_up(width, 128) / width * round_up(load.shape.hidden_size, 256) / load.shape.hidden_size


def rounding_bytes(shape: ServingShape, tp: Count) -> Bytes:
    """Return what torch's allocator adds: a tensor above 10 MiB takes whole steps of 2 MiB, unless over 1 MiB is left.

    c10/cuda/CUDACachingAllocator.cpp, `kMinLargeAlloc`, `kRoundLarge`, `should_split` (`kSmallSize`).
    """

    def one(ways: int) -> float:
        key = "rounding", ways
        if key not in shape.cache:
            rests = [-t / ways % (2 * MIB) for t in shape.tensor_bytes if t / ways > 10 * MIB]
            shape.cache[key] = float(sum(rest for rest in rests if rest <= MIB))
        return shape.cache[key]

    if isinstance(tp, int):
        return one(tp)
    import numpy as np  # noqa: PLC0415  only columns need it

    ways, inverse = np.unique(np.asarray(tp), return_inverse=True)
    return np.array([one(int(way)) for way in ways])[inverse.reshape(np.shape(tp))]


def num_capture_sizes(max_num_seqs: Count) -> Count:
    """Return how many batch sizes are captured: 1, 2, 4, then every 8th to 256, every 16th to 512.

    The largest is twice `max_num_seqs` at most (vllm/config/compilation.py, `max_cudagraph_capture_size`, vLLM 0.33.0).
    """
    largest = at_most(2 * max_num_seqs, 512)
    return 3 + at_most(largest, 256) // 8 + at_least(largest - 256, 0) // 16


def default_limits(load: ServingLoad) -> tuple[int, int]:
    """Return vLLM's own `max_num_seqs` and `max_num_batched_tokens` for an API server on this device.

    vllm/engine/arg_utils.py `get_batch_defaults`, vLLM 0.33.0: from 70 GiB on the larger pair, but not for an A100, which
    the name tells there and the Ampere architecture here.
    """
    if load.version and version_key(load.version) < (0, 8):  # before chunked prefill a step takes a whole prompt
        return 256, int(load.context_tokens) if load.context_tokens <= 32768 else 2048
    if load.memory_bytes >= 160 * GIB:
        return 1024, 16384
    if load.memory_bytes >= 70 * GIB and load.architecture != "ampere" and not load.is_unified_memory:
        return 1024, 8192
    return 256, 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockCut:
    """How the pool is cut: bytes of a block, tokens it holds, and the layers of each kind on the device."""

    block_bytes: Bytes
    block_tokens: Count
    group_size: Count  # layers that share one block
    num_groups: Count
    cache_kinds: tuple[tuple[CacheGroup, Count], ...]  # layers with equal caches, and groups they make
    num_state_groups: Count

    def blocks_per_request(self, load: ServingLoad, num_tokens: Count) -> Count:
        """Return the blocks that one request of a length takes at most.

        A window keeps its own length and the tokens of one step, an attention chunk likewise; a state two blocks, and one
        for each token that is guessed ahead (vllm/v1/kv_cache_interface.py, `max_memory_usage_bytes` of each kind).
        """
        total: Count = 0
        for group, num_groups in self.cache_kinds:
            kept, spare = num_tokens, 0
            if group.window_tokens is not None:
                longest = group.window_tokens - 1 + load.max_batched_tokens
                kept, spare = at_most(num_tokens, longest), 1 * (num_tokens > longest)
            total = total + num_groups * (-(-kept // self.block_tokens) + spare)
        return total + self.num_state_groups * (2 + load.num_draft_tokens)


def block_cut(load: ServingLoad, has: Held) -> BlockCut:
    """Cut the pool into blocks that every kind of layer can use.

    Layers of one kind form groups of equal size, the smallest kind's number of layers (or the largest's where both are
    near); a block holds one page of each layer of a group. Where there are states, a page is as large as a state, and the
    attention block grows to fill it, in steps of 16 tokens (vllm/v1/core/kv_cache_planning.py,
    `_get_kv_cache_groups_uniform_page_size`; vllm/model_executor/models/config.py, hybrid models).
    """
    kinds = [
        (group, num_layers + (load.num_draft_layers if group.window_tokens is None else 0))
        for group, num_layers in zip(load.shape.cache_groups, has.cache_layers, strict=True)
        if group.num_elements_per_head
    ]
    num_states = sum(has.state_layers)
    per_token = [cache_bytes_of_group(load, group, 1, 1) for group, _ in kinds]
    page_token_bytes = max(per_token, default=1.0) if all(_is_plain(b) for b in per_token) else per_token[0]
    state = _state_page_bytes(load)
    block_tokens: Count = BLOCK_TOKENS
    if load.shape.state_groups:
        block_tokens = round_up(-(-state // page_token_bytes), BLOCK_TOKENS) if kinds else BLOCK_TOKENS
    counts = [num_layers for _, num_layers in kinds] + ([num_states] if load.shape.state_groups else [])
    smallest, largest = counts[0], counts[0]
    for number in counts[1:]:
        smallest, largest = at_most(smallest, number), at_least(largest, number)
    smallest = at_least(smallest, 1)
    largest = at_least(largest, smallest)
    group_size = smallest + (largest - smallest) * (largest < 1.5 * smallest)
    cache_kinds = tuple((group, -(-num_layers // group_size)) for group, num_layers in kinds)
    num_state_groups = -(-num_states // group_size) if load.shape.state_groups else 0
    return BlockCut(
        block_bytes=block_tokens * page_token_bytes * group_size,
        block_tokens=block_tokens,
        group_size=group_size,
        num_groups=sum((number for _, number in cache_kinds), start=0) + num_state_groups,
        cache_kinds=cache_kinds,
        num_state_groups=num_state_groups,
    )


def _is_plain(value: object) -> bool:
    return isinstance(value, int | float)


def _state_page_bytes(load: ServingLoad) -> Bytes:
    """Return one layer's state: the convolution's last inputs in 16 bits, the recurrent state in fp32.

    The convolution keeps one input less than its kernel's width.
    """
    most: Bytes = 0.0
    for group in load.shape.state_groups:
        convolution = 2.0 * group.num_convolution_elements * group.kernel_ratio
        most = at_least(most, (convolution + 4.0 * group.num_state_elements) / load.tp)
    return most


ACCOUNTING = Accounting(constants_of("vllm"))
