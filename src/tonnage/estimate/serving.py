"""The nouns between a serving candidate and its numbers: `ServingShape`, `ServingLoad`, `ServingMemory`, `ServingRates`.

A load's numeric fields may each be one number or a column of them; the same functions answer one estimate and a
search over many.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from tonnage.nouns import noun
from tonnage.units import Bytes, BytesPerS, Count, FlopPerS, Ratio, Seconds

__all__ = [
    "CacheGroup",
    "Held",
    "ServingLoad",
    "ServingMemory",
    "ServingPool",
    "ServingRates",
    "ServingShape",
    "StateGroup",
]


@noun
class CacheGroup:
    """Attention layers whose caches have one shape, and what one query costs against one cached token."""

    layers: tuple[int, ...]
    num_kv_heads: int
    num_elements_per_head: float  # key and value together; less than one where an entry stands for many tokens
    num_index_elements: int  # a sparse selector's own keys
    window_tokens: int | None
    is_latent: bool
    flop_per_pair: float  # a query token against a cached one, forward
    latent_flop_per_pair: float  # the same with the projections absorbed, as in decoding
    num_query_heads: int = 1
    num_selected_tokens: int | None = None  # a sparse selector reads only so many
    num_latent_values: int = 0  # elements of the latent that are values
    num_full_elements: int = 0  # keys and values of all heads, with the latent undone
    num_full_values: int = 0  # those of them that are values
    is_chunked: bool = False  # the window is a chunk that attention does not look over


@noun
class StateGroup:
    """Recurrent layers whose states have one shape, a sequence."""

    layers: tuple[int, ...]
    num_convolution_elements: int
    kernel_ratio: float  # the convolution's kernel less one, over the kernel: what an engine that shifts keeps
    num_state_elements: int
    flop_per_token: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServingShape:
    """A model in one weight format, cut the way that devices, hosts and stages share it.

    Tuples have one entry a layer. "Split" is what tensor parallelism divides, "replicated" what it does not.
    """

    name: str
    hidden_size: int
    vocab_size: int
    num_heads: int
    rotary_bytes: float  # table of rotary positions that engines build while they load, 2 bytes an element
    split_bytes: tuple[float, ...]
    replicated_bytes: tuple[float, ...]
    expert_bytes: tuple[float, ...]
    matrix_parameters: tuple[float, ...]  # that a token multiplies in a layer, routed experts left out
    expert_parameters: tuple[float, ...]  # that a token multiplies in a layer's routed experts
    embedding_bytes: float
    head_bytes: float  # the output matrix; with tied weights the embedding's bytes once more
    head_parameters: float
    is_tied: bool
    encoder_bytes: float
    other_bytes: float
    tensor_bytes: tuple[float, ...]  # of the tensors of all layers as engines fuse them, split ones before splitting
    latent_up_parameters: tuple[float, ...]  # that absorbed latent attention keeps a second time, in 16 bits
    num_experts: int
    top_k: int
    max_expert_size: int
    max_intermediate_size: int
    cache_groups: tuple[CacheGroup, ...]
    state_groups: tuple[StateGroup, ...]
    bytes_per_parameter: float  # of the matrices, over all
    family: str = ""
    cache: dict[Any, Any] = field(default_factory=dict[Any, Any])  # stages already worked out

    @property
    def num_layers(self) -> int:
        """Number of layers."""
        return len(self.split_bytes)

    @property
    def weights_bytes(self) -> float:
        """All weights as stored once: a tied output matrix is not counted again."""
        layers = sum(self.split_bytes) + sum(self.replicated_bytes) + sum(self.expert_bytes)
        head = 0.0 if self.is_tied else self.head_bytes
        return layers + self.embedding_bytes + head + self.encoder_bytes + self.other_bytes


@noun
class Held:
    """What the fullest device of one replica holds, before tensor parallelism divides it, and what the host holds."""

    num_layers: Count
    split_bytes: Bytes
    replicated_bytes: Bytes
    expert_bytes: Bytes
    embedding_bytes: Bytes
    head_bytes: Bytes
    latent_up_parameters: Count
    cache_layers: tuple[Count, ...]  # of each cache group
    state_layers: tuple[Count, ...]
    host_bytes: Bytes  # weights of layers and experts left on the host
    host_cache_layers: tuple[Count, ...]
    host_state_layers: tuple[Count, ...]
    total_device_layers: Count  # over all stages
    total_split_bytes: Bytes
    total_replicated_bytes: Bytes
    total_expert_bytes: Bytes
    host_dense_bytes: Bytes
    host_expert_bytes: Bytes
    device_matrix_parameters: Count
    device_expert_parameters: Count
    host_matrix_parameters: Count
    host_expert_parameters: Count
    device_expert_layers: Count
    host_expert_layers: Count
    total_cache_layers: tuple[Count, ...]  # on devices, over all stages
    total_state_layers: tuple[Count, ...]


@noun
class ServingLoad:
    """One serving set-up as numbers, or a column of them."""

    shape: ServingShape
    vendor: str
    architecture: str
    memory_bytes: Bytes  # of one device, as the driver reports it
    free_bytes: Bytes  # of one device, before the engine starts
    bandwidth_bytes_per_s: BytesPerS
    flop_per_s: FlopPerS  # dense, in the type that is computed in
    int8_flop_per_s: FlopPerS
    memory_type: str
    host_memory_bytes: Bytes
    host_bandwidth_bytes_per_s: BytesPerS
    host_flop_per_s: FlopPerS  # fp32 peak of all cores
    num_host_cores: Count
    pcie_bytes_per_s: BytesPerS
    link_bytes_per_s: BytesPerS
    link_latency_seconds: Seconds
    is_unified_memory: bool
    compute_capability: float = 0.0  # of NVIDIA's devices; 0 where it is not known
    is_switched: bool = False  # NVLink joins the devices
    tp: Count = 1
    pp: Count = 1
    dp: Count = 1
    ep: Count = 1
    num_cpu_layers: Count = 0
    num_cpu_expert_layers: Count = 0
    context_tokens: Count = 8192
    concurrency: Count = 1  # of one replica
    input_tokens: Count = 1024
    output_tokens: Count = 256
    cache_bytes_per_element: Ratio = 2.0  # keys and values alike
    key_over_value_bytes: Ratio = 0.0  # an element of keys less one of values
    compute_bytes_per_element: Ratio = 2.0
    max_num_seqs: Count = 16
    max_batched_tokens: Count = 2048
    utilization_ratio: Ratio = 0.9
    state_ratio: float = 0.0  # recurrent states over cache, where the engine divides by a share; 0: states as needed
    has_flash_attention: bool = True
    most_score_bytes: Bytes = math.inf  # scores of attention that are kept at once without flash attention
    library: str = ""  # the matrix library, where it matters: rocblas, hipblaslt
    backend: str = ""  # cuda, hip, vulkan, metal, cpu: what a program for several kinds of device runs on
    latent_cache: str = "latent"  # what MLA keeps: latent, latent_and_values, full
    has_packed_selector: bool = False  # a sparse selector's keys in 8 bits with scales, whatever the cache's own type
    num_draft_tokens: Count = 0  # guessed a step by a draft head or model, checked together
    num_draft_layers: Count = 0  # attention layers that the draft adds to the cache
    projector_bytes: Bytes = 0.0  # an encoder in a file of its own, where it is loaded beside the model
    has_draft_head: bool = False  # the checkpoint's own multi-token prediction drafts
    multiplied_in: str = "fp16"  # type of the numbers that matrices are multiplied in
    weights_format: str = "bf16"
    cache_format: str = "fp16"
    drive_bytes_per_s: BytesPerS = math.inf  # what experts that host memory does not hold are read at
    drive_miss_ratio: Ratio = 0.0  # of the experts on the host, those not in its memory
    version: str = ""


@noun
class ServingPool:
    """A named share of memory, as a number or a column."""

    name: str
    bytes: Bytes
    formula: str
    relative_error: float = 0.0
    is_on_host: bool = False


@noun
class ServingMemory:
    """What the load needs on the fullest device and on the host, and what the engine lets itself take."""

    pools: tuple[ServingPool, ...]
    capacity_bytes: Bytes  # the most that all the device's pools may take: the engine's limit, or what is free
    allocated_bytes: Bytes | None = None  # what it takes even when the load needs less; None: the sum of the pools
    cache_bytes: Bytes | None = None  # what it sets aside for cache and state; None: what the load needs
    cache_tokens: Count | None = None  # tokens that this holds, as the engine counts them
    total_cache_bytes: Bytes | None = None  # over all devices and the host, where the engine adds them up
    relative_error: float = 0.02  # half-width of the 80 % interval of the device's total
    warnings: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()  # whose constants, where they are not the engine's usual ones

    def device_bytes(self) -> Bytes:
        """Return the sum of the device's pools; derived from them."""
        return sum((pool.bytes for pool in self.pools if not pool.is_on_host), start=0.0)

    def host_bytes(self) -> Bytes:
        """Return the sum of the host's pools; derived from them."""
        return sum((pool.bytes for pool in self.pools if pool.is_on_host), start=0.0)


@noun
class DecodeWork:
    """What one decode step does, as seconds at the hardware's full rates, and how many layers it passes."""

    dense_bytes_seconds: Seconds
    dense_flop_seconds: Seconds
    expert_bytes_seconds: Seconds
    expert_flop_seconds: Seconds
    cache_bytes_seconds: Seconds
    cache_head_seconds: Seconds  # the same where each query head reads the cache that its group shares anew
    attention_flop_seconds: Seconds
    state_bytes_seconds: Seconds
    host_bytes_seconds: Seconds
    host_flop_seconds: Seconds
    crossing_seconds: Seconds  # activations between host and device
    communication_bytes_seconds: Seconds
    communication_latency_seconds: Seconds
    num_layers: Count  # on devices
    num_expert_layers: Count
    num_state_layers: Count
    num_latent_layers: Count
    num_host_layers: Count
    num_thread_layers: Count  # layers on the host times threads that meet after each operation
    num_hand_overs: Count  # between devices that work one after the other
    num_sequences: Count
    head_bytes_seconds: Seconds  # of the dense share, what the output matrix takes
    head_flop_seconds: Seconds
    num_tokens: Count  # of the step: one a sequence, and those guessed
    num_expert_tokens: Count  # that one expert gets on average
    touched_ratio: Ratio  # of the experts, those that get any
    num_stages: Count
    stage_ratio: Ratio  # layers of the longest stage over those of an even cut
    drive_seconds: Seconds = 0.0  # reading experts that host memory does not hold


@noun
class PrefillWork:
    """What reading one prompt does, as seconds at the hardware's full rates, and in how many chunks."""

    dense_bytes_seconds: Seconds
    dense_flop_seconds: Seconds
    expert_bytes_seconds: Seconds
    expert_flop_seconds: Seconds
    attention_flop_seconds: Seconds
    converted_seconds: Seconds  # matrices written once as 16-bit numbers for each chunk
    activation_element_seconds: Seconds  # one byte for each element of hidden and feed-forward vectors
    score_element_seconds: Seconds  # one byte for each pair of tokens and head
    host_bytes_seconds: Seconds
    host_flop_seconds: Seconds
    copied_seconds: Seconds  # host weights copied to the devices for each chunk
    streamed_flop_seconds: Seconds  # what the devices then do with them
    communication_bytes_seconds: Seconds
    communication_latency_seconds: Seconds
    num_expert_tokens: Count  # of a chunk that one expert gets on average
    expert_tokens_ratio: Ratio  # of a step's tokens, those that one expert gets on average
    touched_ratio: Ratio  # of the experts, those that get any
    num_tokens: Count
    most_tokens: Count  # of a step
    num_chunks: Count
    num_layers: Count
    num_expert_layers: Count
    num_expert_starts: Count  # experts that get tokens, over layers
    num_host_layers: Count
    num_stages: Count
    drive_seconds: Seconds = 0.0  # reading experts that host memory does not hold


@noun
class ServingRates:
    """Achieved fractions and fixed costs of an engine on a kind of device; from its data file."""

    bandwidth_ratio: Ratio  # weights of dense matrices in a decode step
    expert_bandwidth_ratio: Ratio
    cache_bandwidth_ratio: Ratio
    head_bandwidth_ratio: Ratio  # of reading by query heads, mostly from the chip's own cache, over memory bandwidth
    layer_seconds: Seconds  # fixed cost of a layer in a decode step, and what kinds of layers add
    expert_layer_seconds: Seconds
    state_layer_seconds: Seconds
    latent_layer_seconds: Seconds
    hand_over_seconds: Seconds
    step_seconds: Seconds
    sequence_seconds: Seconds  # of each sequence in a step
    compute_ratio: Ratio  # matrices of a prefill
    expert_compute_ratio: Ratio
    expert_tile_tokens: Count  # tokens of an expert at which its matrices reach half their rate
    attention_compute_ratio: Ratio
    conversion_ratio: Ratio  # of a 16-bit matrix, what is moved to make it from a quantised one for each chunk
    activation_bytes: Count  # moved for each element of hidden and feed-forward vectors
    score_bytes: Count  # moved for each pair of tokens and head; 0 with flash attention
    prefill_layer_seconds: Seconds
    prefill_expert_layer_seconds: Seconds
    expert_start_seconds: Seconds  # of each expert that gets tokens in a chunk
    pipeline_ratio: Ratio  # of a stage's work, what each further chunk in flight hides; 0: stages wait for each other
    most_in_flight: Count  # chunks that have buffers of their own
    queue_layers: Count  # layers whose kernels fit into a device's queue before the program that fills it waits
    link_ratio: Ratio
    latency_ratio: Ratio
    host_bandwidth_ratio: Ratio
    host_compute_ratio: Ratio
    host_layer_seconds: Seconds
    thread_layer_seconds: Seconds  # what each thread adds to it: all wait for each other
    pcie_ratio: Ratio
    copies_host_weights: bool  # for a prefill, over PCIe, where that is faster
    copies_once: bool  # for a whole prompt, layer by layer, not for each chunk
    is_pipelined: bool  # stages decode parts of the batch at the same time
    mixes_prompts: bool  # chunks of prompts ride in the steps that decode
    batch_ratio: Ratio  # of the time of steps and prompts alone, what a steady load takes
    draft_acceptance_ratio: Ratio  # of the tokens guessed ahead, those kept
    draft_cost_ratio: Ratio  # of a step, what guessing and checking one token adds
    relative_error: float  # half-widths of the 80 % intervals: one request's decode, prefill, many requests
    prefill_relative_error: float
    batch_relative_error: float
    is_calibrated: bool = False
