"""The nouns of a trace: the `Job` asked for, the `Timeline` of its allocations, `Traced` what comes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from tonnage.estimate.caching_allocator import Replay
from tonnage.nouns import noun
from tonnage.workload.types import TrainingKind

AttentionCode = Literal["flash", "sdpa", "eager"]
Step = Literal["none", "adamw", "adamw_fused", "sgd"]


@noun
class Job:
    """One training step of a whole model on one device."""

    config: Mapping[str, Any]  # a config.json
    kind: TrainingKind = TrainingKind.FULL
    seq_len: int = 2048
    micro_batch_size: int = 1
    attention: AttentionCode = "flash"
    recomputes: bool = False  # each layer again in backward
    weights: str = "bf16"
    compute: str = "bf16"  # differs from `weights` under autocast
    step: Step = "adamw"
    lora_rank: int = 16
    lora_targets: tuple[str, ...] = ("all-linear",)
    has_dropout: bool = False
    trains_with_loss: bool = True  # False: the head's output alone, summed


@noun
class Snapshot:
    """Bytes alive at one moment, by pool."""

    pools: Mapping[str, float]

    @property
    def total_bytes(self) -> float:
        """All pools together."""
        return sum(self.pools.values())


@noun
class Timeline:
    """Allocations in order.

    `events` are (tensor, bytes): above zero where it is allocated, below where it is freed. `pools` says what a tensor
    is, `marks` where a part of the step begins.
    """

    events: tuple[tuple[int, int], ...]
    pools: Mapping[int, str]
    marks: tuple[tuple[int, str], ...]
    num_parameters: int = 0
    num_trained_parameters: int = 0
    attention: AttentionCode = "flash"  # that ran: not every family's code takes the one asked for


@noun
class KindKept:
    """What one layer of a kind holds, and keeps for backward."""

    first_layer: int
    num_layers: int
    kept_bytes: float
    weights_bytes: float


@noun
class Traced:
    """What a trace says of one step of the whole model.

    `kept` is what forward leaves for backward, `phases` the fullest moment of each part of a step, in order. `replay`
    is what PyTorch's allocator would have made of it; None where the depth was extrapolated.
    """

    kept: Snapshot
    phases: Mapping[str, Snapshot]
    num_parameters: int
    num_trained_parameters: int
    num_layers: int
    kept_by_kind: tuple[KindKept, ...]  # of the kinds that occur more than twice
    traced_layers: tuple[int, ...]  # depths that were run
    attention: AttentionCode = "flash"
    replay: Replay | None = None
    expandable: Replay | None = None  # the same with expandable segments
    versions: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def peak(self) -> Snapshot:
        """The fullest moment."""
        return max(self.phases.values(), key=lambda moment: moment.total_bytes)

    @property
    def peak_phase(self) -> str:
        """Name of the part of the step in which it falls."""
        return max(self.phases, key=lambda name: self.phases[name].total_bytes)
