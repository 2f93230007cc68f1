"""vLLM's memory: a fraction of the whole card, less weights and the profiled peak, is cut into blocks of cache.

The rule is vllm/v1/worker/gpu_worker.py `determine_available_memory`; the constants that it measures at start-up are
here by version, in data/engines/vllm.toml.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

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
_GB10 = 12.1  # compute capability
_HERE = "tonnage.engines.vllm.accounting.Accounting"


class Accounting:
    """vLLM's rules."""

    name = "vllm"

    def __init__(self, constants: Constants) -> None:
        self.constants = constants

    def with_defaults(self, load: ServingLoad, settings: EngineSettings) -> ServingLoad:
        """Fill in what the launch line will carry: `max_num_seqs` no larger than asked for, as it costs memory.

        Most where each request may need a state.
        """
        default = self.constants.value("utilization_ratio", load.version)
        visible = self.visible_bytes(load)
        spare = math.floor(100 * (load.free_bytes - load.memory_bytes + visible) / at_least(visible, 1)) / 100
        return replace(
            load,
            has_packed_selector=True,
            max_num_seqs=settings.max_num_seqs or at_least(load.concurrency, 1 if load.shape.state_groups else 16),
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
        cut = block_cut(load, has, self.constants)
        in_flight = load.max_batched_tokens * self.constants.value("batches_in_flight", load.version)
        blocks = cut.blocks_per_request(load.context_tokens, in_flight)
        num_blocks = pool // at_least(cut.block_bytes, 1.0)
        at = version_key(load.version or self.constants.version)
        tokens = cut.printed_tokens(num_blocks, blocks, load.context_tokens, at)
        needed = at_least(load.concurrency * blocks, self.least_blocks(load)) * cut.block_bytes
        capacity = at_most(limit + graphs * (1 - is_counted), load.free_bytes)
        return ServingMemory(
            pools=(
                ServingPool(name="weights", bytes=weights, formula=f"{_HERE}.weights_bytes", relative_error=0.01),
                ServingPool(
                    name="kv_cache",
                    bytes=needed,
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
            capacity_bytes=at_most(
                capacity, self.startable_bytes(load, limit, weights + needed + activations + outside_torch + graphs)
            ),
            allocated_bytes=at_most(
                weights + activations + outside_torch + graphs * is_counted + pool + self.unprofiled_bytes(load),
                load.memory_bytes,
            ),
            cache_bytes=pool,
            cache_tokens=tokens,
            relative_error=self.constants.value("memory_relative_error", load.version),
        )

    def startable_bytes(self, load: ServingLoad, limit_bytes: Bytes, needed_bytes: Bytes) -> Bytes:
        """Return what may be needed so that the server starts: as much less as its share is more than what is free.

        A share of the whole device that others hold a part of is refused (vllm/v1/worker/utils.py, `request_memory`).
        """
        asked = limit_bytes - at_most(load.free_bytes, self.visible_bytes(load))
        is_refused = (asked > 0) * self.constants.value("refuses_above_free", load.version)
        return needed_bytes - asked + (1.0 - is_refused) * (2.0 * load.memory_bytes + asked)

    def least_blocks(self, load: ServingLoad) -> Count:
        """Return the blocks without which the server does not start: one for each sequence where there are states.

        vllm/config/compilation.py, `max_num_seqs … exceeds available Mamba cache blocks`, vLLM 0.20.0 to 0.33.0.
        """
        return (
            load.max_num_seqs * self.constants.value("needs_state_blocks", load.version) * bool(load.shape.state_groups)
        )

    def weights_bytes(self, load: ServingLoad, has: Held) -> Bytes:
        """Return what loading leaves on the device: weights, the table of positions, latent up-projections undone.

        The encoder is split like the rest (vllm/model_executor/models, vision towers of parallel linear layers); absorbed
        latent attention keeps `W_UK` and `W_UV` beside `kv_b_proj`
        (vllm/model_executor/layers/attention/mla_attention.py, `process_weights_after_loading`).
        """
        shape = load.shape
        draft = load.num_draft_layers * _draft_layer_bytes(load)
        shared = has.split_bytes + has.embedding_bytes + has.head_bytes + shape.encoder_bytes + draft
        rest = has.replicated_bytes + shape.other_bytes + shape.rotary_bytes
        rest = rest + rounding_bytes(shape, load.tp) * has.num_layers / shape.num_layers
        experts = has.expert_bytes / at_least(load.ep, load.tp) * padded_ratio(load)
        return (shared + 2.0 * has.latent_up_parameters) / load.tp + experts + rest

    def activation_bytes(self, load: ServingLoad) -> Bytes:
        """Return the peak of the start-up profile: the sampler on rows of logits, or one step's activations.

        A step holds, for each token, what goes into a feed-forward and comes out of its two halves (2 + 1 widths of 16
        bits), for each expert that takes it, and some hidden vectors. What the encoder made of one step's images stays
        meanwhile (vllm/v1/worker/gpu_model_runner.py, `profile_run`).
        """
        element = 4.0 if load.weights_format == "fp32" else 2.0
        per_logit = self.constants.value("sampler_bytes_per_logit", load.version) + element - 2.0
        fixed = self.constants.value("sampler_fixed_bytes", load.version)
        per_hidden = self.constants.value("activation_bytes_per_hidden", load.version)
        shape, tp = load.shape, load.tp
        per_logit = per_logit + (load.num_draft_tokens > 0) * self.constants.value(
            "rejection_bytes_per_logit", load.version
        )
        sampler = per_logit * load.max_num_seqs * shape.vocab_size + fixed
        width = per_hidden * shape.hidden_size + 6.0 * shape.max_intermediate_size / tp
        if shape.num_experts:
            routed = 6.0 * shape.max_expert_size / tp + 4.0 * shape.hidden_size
            width = at_least(width, per_hidden * shape.hidden_size + shape.top_k * routed)
        latent = self.constants.value("latent_workspace_bytes", load.version) * any(
            group.is_latent for group in shape.cache_groups
        )
        encoded = element * load.max_batched_tokens * shape.hidden_size * (shape.encoder_bytes > 0)
        return at_least(sampler, element / 2.0 * width * load.max_batched_tokens) + latent + encoded

    def non_torch_bytes(self, load: ServingLoad) -> Bytes:
        """Return what the profile sees beside torch: context, libraries, and collectives' buffers when ranks talk."""
        alone = self.constants.value("non_torch_bytes", load.version)
        kind = "nvlink" if load.is_switched and load.architecture in ("hopper", "blackwell") else "pcie"
        return alone + (load.tp > 1) * self.constants.value("collective_bytes", load.version, link=kind)

    def graph_bytes(self, load: ServingLoad) -> Bytes:
        """Return the captured decode graphs: a fixed part and a part a layer.

        All sizes share the buffers of the largest; the rest grows with the number of sizes.
        """
        fixed = self.constants.value("graph_bytes", load.version)
        per_layer = load.shape.num_layers * self.constants.value("graph_bytes_per_layer", load.version) / load.pp
        shared = self.constants.value("graph_shared_ratio", load.version)
        captured = num_capture_sizes(load.max_num_seqs * (1 + load.num_draft_tokens)) / num_capture_sizes(1024)
        return (fixed + per_layer) * (shared + (1.0 - shared) * captured)

    def unprofiled_bytes(self, load: ServingLoad) -> Bytes:
        """Return what grows after the profile: warm-up of samplers and kernels, fragments, graphs not counted."""
        return self.constants.value("unprofiled_bytes", load.version)

    def rates(self, load: ServingLoad) -> ServingRates:
        """Return achieved fractions."""
        return rates_of(self.constants, load)


def _draft_layer_bytes(load: ServingLoad) -> Bytes:
    """Return one layer of the draft: as those of the checkpoint for its own head, else a dense one of the model's width.

    A draft of another model shares embedding and output with the one it drafts for; its feed-forward is taken as 3.5
    times the width, its heads as a quarter of keys and values to queries, in 16 bits.
    """
    shape = load.shape
    if load.has_draft_head:
        return shape.weights_bytes / shape.num_layers
    width = shape.max_intermediate_size or 3.5 * shape.hidden_size
    return 2.0 * shape.hidden_size * (3.0 * width + 2.5 * shape.hidden_size)


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


def num_capture_sizes(num_tokens: Count) -> Count:
    """Return how many batch sizes are captured: 1, 2, 4, then every 8th to 256, every 16th to 512.

    The largest is twice the tokens of a full decode step (vllm/config/vllm.py, `max_cudagraph_capture_size`, vLLM 0.33.0).
    """
    largest = at_most(2 * num_tokens, 512)
    return 3 + at_most(largest, 256) // 8 + at_least(largest - 256, 0) // 16


def default_limits(load: ServingLoad) -> tuple[int, int]:
    """Return vLLM's own `max_num_seqs` and `max_num_batched_tokens` for an API server on this device.

    vllm/engine/arg_utils.py `get_batch_defaults`: from 70 GiB on the larger pair, but not for an A100, which the name
    tells there and the Ampere architecture here, nor from 0.33 on for GB10; from 0.28 on more from 160 GiB. Before 0.8 a
    step took a whole prompt.
    """
    at = version_key(load.version) if load.version else version_key(accounting().constants.version)
    if at < (0, 8):
        return 256, int(load.context_tokens) if load.context_tokens <= 32768 else 2048
    if load.memory_bytes >= 160 * GIB and at >= (0, 28):
        return 1024, 16384
    is_gb10 = load.compute_capability == _GB10 and at >= (0, 33)
    if load.memory_bytes >= 70 * GIB and load.architecture != "ampere" and not is_gb10:
        return 1024, 8192
    return 256, 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheKind:
    """Attention layers with one cache: how many groups they make, and the tokens that one of their pages holds."""

    num_groups: Count
    page_tokens: Count
    window_tokens: int | None
    is_chunked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockCut:
    """How the pool is cut: bytes of a block, and what the groups that share the blocks hold."""

    block_bytes: Bytes
    block_tokens: Count  # of the kind whose pages hold fewest
    num_groups: Count
    kinds: tuple[CacheKind, ...]
    num_state_groups: Count
    state_blocks: Count  # that a request takes of each group of states

    def blocks_per_request(self, num_tokens: Count, num_in_flight: Count) -> Count:
        """Return the blocks that one request of a length takes at most.

        A window keeps its own length, the tokens in flight, and a block that it enters in the middle; an attention chunk
        its own length and the tokens in flight (vllm/v1/kv_cache_interface.py, `max_memory_usage_bytes` of each kind).
        """
        total: Count = 0
        for kind in self.kinds:
            kept, spare = num_tokens, 0
            if kind.window_tokens is not None:
                spare = 0 if kind.is_chunked else 1
                kept = at_most(num_tokens, kind.window_tokens - spare + num_in_flight)
            total = total + kind.num_groups * (-(-kept // kind.page_tokens) + spare)
        return total + self.num_state_groups * self.state_blocks

    def printed_tokens(
        self, num_blocks: Count, blocks_per_request: Count, num_tokens: Count, at: tuple[int, ...]
    ) -> Count:
        """Return what the log calls the cache's size: before 0.21 a group's share of blocks, then requests times length.

        vllm/v1/core/kv_cache_utils.py, `_report_kv_cache_config` of 0.9 to 0.20 and `get_kv_cache_capacity` of later ones.
        """
        if at < (0, 21):
            return num_blocks // at_least(self.num_groups, 1) * self.block_tokens
        return num_blocks / at_least(blocks_per_request, 1) * num_tokens // 1


def block_cut(load: ServingLoad, has: Held, constants: Constants) -> BlockCut:
    """Cut the pool into blocks that every kind of layer can use.

    Full attention alone makes one group, whatever its layers' sizes. Else layers of one kind form groups of equal size,
    the smallest kind's number of layers (or, since 0.18, the largest's where both are near); a block holds one page of
    each layer of a group, and pages are as large as the largest: smaller ones take more tokens where those fit without
    rest. Where there are states, a page is as large as a state, and the attention block grows to fill it, in steps of 16
    tokens. The checkpoint's own draft layers are layers more of full attention; those of another model are a kind of
    their own (vllm/v1/core/kv_cache_planning.py, `get_kv_cache_groups`, `unify_kv_cache_spec_page_size`,
    `_get_kv_cache_groups_uniform_page_size`; vllm/platforms/interface.py, `_align_hybrid_block_size`; vLLM 0.33.0).
    """
    token_bytes, counts, groups = _kinds(load, has)
    is_full = not load.shape.state_groups and all(group.window_tokens is None for group in groups)
    if is_full:
        layers = sum((one * count for one, count in zip(token_bytes, counts, strict=True)), start=0.0)
        kind = CacheKind(num_groups=1, page_tokens=BLOCK_TOKENS, window_tokens=None, is_chunked=False)
        return BlockCut(
            block_bytes=BLOCK_TOKENS * at_least(layers, 1.0), block_tokens=BLOCK_TOKENS, num_groups=1, kinds=(kind,),
            num_state_groups=0, state_blocks=0,
        )  # fmt: skip
    first_tokens: Count = BLOCK_TOKENS
    state_layers = sum(has.state_layers) if load.shape.state_groups else 0
    state_page = _state_page_bytes(load, constants) if load.shape.state_groups else 0.0
    if load.shape.state_groups and groups:
        first_tokens = round_up(-(-state_page // token_bytes[0]), BLOCK_TOKENS)
    page: Bytes = first_tokens * token_bytes[0] if groups else state_page
    for one in token_bytes[1:]:
        page = at_least(page, BLOCK_TOKENS * one)
    numbers = [*counts, state_layers] if load.shape.state_groups else counts
    ratio = constants.value("near_kinds_ratio", load.version)
    smallest, largest = numbers[0], numbers[0]
    for number in numbers[1:]:
        smallest, largest = at_most(smallest, number), at_least(largest, number)
    smallest = at_least(smallest, 1)
    largest = at_least(largest, smallest)
    group_size = smallest + (largest - smallest) * (largest < ratio * smallest)
    kinds = tuple(
        CacheKind(
            num_groups=-(-count // group_size),
            page_tokens=_page_tokens(page, one, first_tokens if i == 0 else BLOCK_TOKENS),
            window_tokens=group.window_tokens,
            is_chunked=group.is_chunked,
        )
        for i, (one, count, group) in enumerate(zip(token_bytes, counts, groups, strict=True))
    )
    fewest: Count = kinds[0].page_tokens if kinds else BLOCK_TOKENS
    for kind in kinds[1:]:
        fewest = at_most(fewest, kind.page_tokens)
    num_state_groups = -(-state_layers // group_size) if load.shape.state_groups else 0
    return BlockCut(
        block_bytes=page * group_size,
        block_tokens=fewest,
        num_groups=sum((kind.num_groups for kind in kinds), start=0) + num_state_groups,
        kinds=kinds,
        num_state_groups=num_state_groups,
        state_blocks=constants.value("state_blocks", load.version) + load.num_draft_tokens,
    )


def _kinds(load: ServingLoad, has: Held) -> tuple[list[Bytes], list[Count], list[CacheGroup]]:
    """Return bytes a token, number of layers, and one group for each kind of cache on the device, full attention first."""
    found: dict[tuple[object, ...], tuple[CacheGroup, Count]] = {}
    for group, num_layers in zip(load.shape.cache_groups, has.cache_layers, strict=True):
        if group.num_elements_per_head:
            key = (group.num_kv_heads, group.num_elements_per_head, group.num_index_elements, group.window_tokens)
            before = found.get(key, (group, 0))
            found[key] = before[0], before[1] + num_layers
    kinds = sorted(found.values(), key=lambda kind: kind[0].window_tokens is not None)
    token_bytes = [cache_bytes_of_group(load, group, 1, 1) for group, _ in kinds]
    counts, groups = [count for _, count in kinds], [group for group, _ in kinds]
    if load.num_draft_layers and groups and groups[0].window_tokens is None:
        if load.has_draft_head:
            counts[0] = counts[0] + load.num_draft_layers
        else:
            token_bytes, counts, groups = (
                [*token_bytes, token_bytes[0]],
                [*counts, load.num_draft_layers],
                [*groups, groups[0]],
            )
    return token_bytes, counts, groups


def _page_tokens(page: Bytes, token_bytes: Bytes, least: Count) -> Count:
    """Return the tokens that a page holds: a whole multiple of the least that fits it exactly, else the least, padded."""
    times = page / (least * token_bytes)
    return least * (times // 1 * (times == times // 1) + 1 * (times != times // 1))


def _state_page_bytes(load: ServingLoad, constants: Constants) -> Bytes:
    """Return one layer's state: the convolution's last inputs in 16 bits, and the recurrent state.

    The convolution keeps one input less than its kernel's width, and one more for each token that is guessed ahead
    (vllm/model_executor/layers/mamba/mamba_utils.py, `gated_delta_net_state_shape`).
    """
    most: Bytes = 0.0
    element_bytes = constants.value("state_bytes_per_element", load.version, family=load.shape.family)
    for group in load.shape.state_groups:
        inputs = group.kernel_ratio + load.num_draft_tokens * (1.0 - group.kernel_ratio)
        convolution = 2.0 * group.num_convolution_elements * inputs
        most = at_least(most, (convolution + element_bytes * group.num_state_elements) / load.tp)
    return most


@cache
def accounting() -> Accounting:
    """Return the rules, their constants read at the first use."""
    return Accounting(constants_of("vllm"))
