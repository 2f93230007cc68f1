"""The nouns of an estimate: `Candidate` in, `Footprint`, `StepTime`, `Performance`, `Cost` = `Estimate` out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from tonnage.hardware.types import Cluster
from tonnage.model.types import Model
from tonnage.nouns import noun
from tonnage.workload.precision import Precision
from tonnage.workload.types import Workload

if TYPE_CHECKING:
    from tonnage.estimate.serving import ServingLoad, ServingMemory, ServingRates
    from tonnage.units import Count


class Recompute(StrEnum):
    """Which activations are computed again in the backward pass."""

    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"


@noun
class Layout:
    """How many ways the work is split: data, tensor, pipeline, context and expert parallel; ZeRO stage (FSDP2 = 3)."""

    dp: int = 1
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    zero_stage: int = 0
    num_virtual_stages: int = 1
    has_sequence_parallel: bool = False
    etp: int | None = None  # tensor-parallel ranks of one expert; None: tp, or 1 when experts are spread
    first_stage_layers: int | None = None  # None: an equal share
    last_stage_layers: int | None = None

    @property
    def num_devices(self) -> int:
        """Devices the layout needs; experts are split inside the data-parallel group."""
        return self.dp * self.tp * self.pp * self.cp


@noun
class Offload:
    """What lives in host memory instead of on the device."""

    optimizer: bool = False
    parameters: bool = False
    activations: bool = False
    num_cpu_expert_layers: int = 0  # layers whose routed experts stay on the host
    num_cpu_layers: int = 0  # layers that run on the host whole
    optimizer_nvme: bool = False  # the optimizer passes through host memory from an NVMe drive
    parameters_nvme: bool = False  # so do the weights
    experts_nvme: bool = (
        False  # routed experts that host memory does not hold are read from the drive as they are chosen
    )

    @property
    def is_any(self) -> bool:
        """Whether anything lives on the host."""
        return bool(
            self.optimizer or self.parameters or self.activations or self.num_cpu_expert_layers or self.num_cpu_layers
        )


@noun
class EngineSettings:
    """The engine's own knobs that memory depends on; None leaves the engine's default for this device."""

    max_num_seqs: int | None = None
    max_batched_tokens: int | None = None
    utilization_ratio: float | None = None
    has_flash_attention: bool = True
    has_fused_loss: bool = False
    has_compile: bool = False
    has_dropout: bool = False
    has_cuda_graphs: bool = False  # training software launches each layer as one graph
    steps_in_backward: bool = (
        False  # the optimizer steps each layer inside backward, so gradients never lie side by side
    )
    recompute_modules: tuple[str, ...] = ()  # what selective recomputation covers, as Megatron names it
    version: str | None = None
    release_year: float | None = None  # of training software, 2024.5 = mid 2024; what it keeps changed with time
    extra: Mapping[str, str] = field(default_factory=dict[str, str])


@noun
class Candidate:
    """One way to do it, complete enough to be estimated and launched."""

    model: Model
    workload: Workload
    cluster: Cluster
    engine: str
    layout: Layout = field(default_factory=Layout)
    precision: Precision = field(default_factory=Precision)
    recompute: Recompute = Recompute.NONE
    recompute_every: int = 1
    offload: Offload = field(default_factory=Offload)
    micro_batch_size: int = 1
    optimizer: str = "adamw"
    settings: EngineSettings = field(default_factory=EngineSettings)


@noun
class Interval:
    """A best value with the bounds of an 80 % interval."""

    best: float
    low: float
    high: float

    @staticmethod
    def exact(value: float) -> Interval:
        """Return an interval of no width."""
        return Interval(best=value, low=value, high=value)

    @staticmethod
    def around(value: float, relative: float) -> Interval:
        """Return an interval of a relative half-width, never below zero."""
        return Interval(best=value, low=max(0.0, value * (1 - relative)), high=value * (1 + relative))


@noun
class Pool:
    """A named share of one device's or the host's memory."""

    name: str
    bytes: float
    formula: str  # dotted name of the function that computed it, under tonnage.estimate or tonnage.engines
    detail: str = ""  # the formula with its numbers put in
    is_on_host: bool = False
    relative_error: float = 0.0  # half-width of the 80 % interval


@noun
class Footprint:
    """Memory of the fullest device, and of the host, by pool."""

    capacity_bytes: int  # usable: reported by the driver less what is reserved
    pools: tuple[Pool, ...]
    total: Interval
    host_capacity_bytes: int
    host_total: Interval
    allocated_bytes: float | None = None  # what the engine takes though the load needs less; None: the total
    least_bytes: float | None = (
        None  # what is left once a full device is given its cached segments back; None: the total
    )
    is_shared: bool = False  # device and host have one memory: what lies on the host takes room from the device

    @property
    def taken(self) -> Interval:
        """Return what is taken of the device's memory, with the host's share where both have one.

        Cached segments, the total less the least, go before the memory is full.
        """
        host = self.host_total.best
        if not self.is_shared or not host:
            return self.total
        least = self.total.best if self.least_bytes is None else self.least_bytes
        best = min(self.total.best + host, max(float(self.capacity_bytes), least + host))
        low, high = (bound / self.total.best for bound in (self.total.low, self.total.high))
        return Interval(best=best, low=best * low, high=best * high)

    @property
    def short_by_bytes(self) -> int:
        """Bytes missing on the device or the host at the best estimate; 0 when it fits."""
        return max(
            0, round(self.taken.best - self.capacity_bytes), round(self.host_total.best - self.host_capacity_bytes)
        )

    @property
    def fits(self) -> bool:
        """Whether the best estimate fits."""
        return self.short_by_bytes == 0

    @property
    def fits_surely(self) -> bool:
        """Whether the upper end of the interval fits as well."""
        return self.taken.high <= self.capacity_bytes and self.host_total.high <= self.host_capacity_bytes


class EngineAccounting(Protocol):
    """What an engine reserves and allocates, and how near it comes to the hardware. Numbers or columns alike."""

    name: str

    @property
    def constants(self) -> Any:
        """What the engine's rules and rates are computed with, an `engines.facts.Constants`."""
        ...

    def with_defaults(self, load: ServingLoad, settings: EngineSettings) -> ServingLoad:
        """Return the load with the engine's own defaults where a setting is not given."""
        ...

    def with_concurrency(self, load: ServingLoad, concurrency: Count) -> ServingLoad:
        """Return the load for another number of requests in flight."""
        ...

    def memory(self, load: ServingLoad) -> ServingMemory:
        """Return the pools that the load needs, and what the engine lets itself take."""
        ...

    def rates(self, load: ServingLoad) -> ServingRates:
        """Return achieved fractions of the hardware's rates, and fixed costs."""
        ...


@noun
class TimePart:
    """A named share of a step's time."""

    name: str
    seconds: float
    formula: str
    detail: str = ""


@noun
class StepTime:
    """Time of one optimizer step (training) or one decode step (serving), by part; hidden parts are left out."""

    parts: tuple[TimePart, ...]
    total: Interval


@noun
class Performance:
    """What comes out, of the whole job; unknown is None."""

    tokens_per_s: Interval | None = None
    tokens_per_s_per_gpu: Interval | None = None
    step_seconds: Interval | None = None
    mfu_ratio: Interval | None = None
    hfu_ratio: Interval | None = None
    prefill_tokens_per_s: Interval | None = None
    ttft_seconds: Interval | None = None
    tpot_seconds: Interval | None = None
    ttft_p99_seconds: Interval | None = None
    tpot_p99_seconds: Interval | None = None
    requests_per_s: Interval | None = None
    goodput_requests_per_s: Interval | None = None  # of these, those that keep the limits on latency
    max_concurrency: Interval | None = None
    max_context_tokens: Interval | None = None
    job_seconds: Interval | None = None


@noun
class CostPart:
    """A named share of what a machine costs to buy: devices, host, memory, supply, adapter."""

    name: str
    usd: Interval


@noun
class OwnCost:
    """What it costs to own the machines, over a horizon and for an hour in use."""

    parts: tuple[CostPart, ...]  # of all machines; they sum to `Cost.purchase_usd`
    lost_usd: Interval  # value lost and repairs over the horizon
    draw_watts: Interval  # of the machines at work
    electricity_usd_per_hour: Interval
    usd_per_hour: Interval  # of an hour in use
    horizon_seconds: float
    used_seconds: float  # of the horizon
    usd_per_million_tokens: Interval | None = None
    break_even_hours: Interval | None = None  # in use, against renting the same; None: nobody on record rents it


@noun
class SpotCost:
    """What it costs on machines that may be taken away."""

    usd_per_hour: Interval
    stops_per_hour: Interval  # of the whole job
    save_every_seconds: Interval | None = None  # work between two checkpoints that loses least
    held_seconds: Interval | None = None  # paid for
    wall_seconds: Interval | None = None  # from start to end, waiting for machines included
    usd_per_million_tokens: Interval | None = None
    usd_total: Interval | None = None
    saved_ratio: Interval | None = None  # of what the job or a token costs on demand; below 0: dearer


@noun
class JobCost:
    """What a whole job takes: time, energy and money to a number of tokens."""

    num_tokens: int
    work_seconds: Interval
    held_seconds: Interval  # with the stops that hardware brings, checkpoints and restarts
    joules: Interval | None = (
        None  # of all machines while they are held, cooling in; None: a device's draw is not known
    )
    electricity_usd: Interval | None = None
    own_usd: Interval | None = None  # value lost, repairs and electricity of machines of one's own


@noun
class Cost:
    """Money, where a price is known."""

    usd_per_hour: Interval | None = None  # rent: on demand, or spot where `is_spot`
    usd_per_million_tokens: Interval | None = None
    purchase_usd: Interval | None = None  # the whole machines
    usd_total: Interval | None = None  # the job, rented
    is_spot: bool = False
    spot: SpotCost | None = None
    own: OwnCost | None = None
    job: JobCost | None = None
    num_rented: int | None = None  # devices of the machines rented, where they are more than the plan uses
    notes: tuple[str, ...] = ()  # whose prices, of which day, and what was assumed


@noun
class Storage:
    """Disk: sizes, and the sequential read rates that loading and feeding ask for."""

    weights_bytes: float
    data_bytes: float | None = None
    checkpoints_bytes: float | None = None
    read_bytes_per_s: float | None = None  # of one machine, that loads its weights in time
    feed_bytes_per_s: float | None = None  # of the data of a whole training job
    offload_bytes: float | None = None  # of one machine, on the drive that training swaps with


@noun
class Provenance:
    """Where the numbers come from."""

    formulae: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    is_calibrated: bool = False
    assumptions: tuple[str, ...] = ()  # each says what was assumed and the flag that sets it
    measured: tuple[str, ...] = ()  # what a measured run corrected, and by how much
    modelled_ratio: float = 1.0  # factor that it put on memory that is modelled
    warnings: tuple[str, ...] = ()


@noun
class Estimate:
    """All that is predicted of one candidate."""

    candidate: Candidate
    footprint: Footprint
    step_time: StepTime
    performance: Performance
    cost: Cost
    storage: Storage
    provenance: Provenance

    def with_cost(self, cost: Cost) -> Estimate:
        """Return the same estimate with a cost."""
        return replace(self, cost=cost)
