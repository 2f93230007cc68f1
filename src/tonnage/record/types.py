"""The nouns of a run folder: `Run`, `Attempt`, `Predicted`, `Step`, `Heartbeat`, `Event`, `Fault`, `Checkpoint`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any, Final

from tonnage.nouns import noun

__all__ = ["SCHEMA", "Attempt", "Checkpoint", "Event", "Fault", "Heartbeat", "Predicted", "Run", "Status", "Step"]

SCHEMA: Final = 1


class Status(StrEnum):
    """Where a run stands. A file that says starting or running and has no supervisor is a run whose supervisor died."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPED = "stopped"  # asked to; goes on when it is started again
    FINISHED = "finished"
    FAILED = "failed"  # the request is wrong, or something outside is missing
    GIVEN_UP = "given_up"  # starting again cannot help

    @property
    def is_over(self) -> bool:
        """Whether no supervisor is at work, by what it wrote last."""
        return self not in (Status.STARTING, Status.RUNNING)


@noun
class Attempt:
    """One start of the launcher, to its end."""

    number: int
    started: float  # seconds since 1970, as every time in a run folder
    ended: float | None = None
    exit_code: int | None = None  # of the launcher; -9: by signal 9
    exit_codes: Mapping[str, int] = field(default_factory=dict[str, int])  # by rank, as far as they are known
    reason: str = ""  # why it ended: finished, stopped, error, killed, hang …
    detail: str = ""
    resumed_from_step: int | None = None
    last_step: int | None = None


@noun
class Predicted:
    """What the plan expects; unknown is None."""

    step_seconds: float | None = None
    step_seconds_high: float | None = None
    tokens_per_s: float | None = None
    mfu_ratio: float | None = None
    memory_bytes: float | None = None  # of the fullest device
    host_memory_bytes: float | None = None
    checkpoint_bytes: float | None = None


@noun
class Run:
    """What `run.json` says."""

    name: str
    key: str  # marks the run's processes, so that leftovers are found
    kind: str  # training or serving
    status: Status
    engine: str
    place: str
    created: float
    plan: str | None = None  # file in the folder
    attempts: tuple[Attempt, ...] = ()
    num_steps: int | None = None  # to the end
    last_step: int | None = None
    last_checkpoint: str | None = None  # folder in `checkpoints`
    predicted: Predicted = field(default_factory=Predicted)
    code: Mapping[str, str] = field(default_factory=dict[str, str])  # versions and hashes
    request: Mapping[str, Any] | None = None  # of a training plan, as `tonnage plan --from` reads it
    measured: Mapping[str, Any] | None = None  # what its steps took, once some are done
    message: str = ""  # of the end, in one line
    exit_code: int | None = None  # that `tonnage run` ended with


@noun
class Step:
    """One line of a rank's metrics; unknown is None."""

    step: int
    time: float | None = None
    loss: float | None = None
    grad_norm: float | None = None
    learning_rate: float | None = None
    tokens: float | None = None
    tokens_per_s: float | None = None
    mfu_ratio: float | None = None
    step_seconds: float | None = None
    data_seconds: float | None = None
    forward_seconds: float | None = None
    backward_seconds: float | None = None
    optimizer_seconds: float | None = None
    communication_seconds: float | None = None
    memory_allocated_bytes: float | None = None
    memory_reserved_bytes: float | None = None
    memory_inactive_split_bytes: float | None = None
    num_alloc_retries: float | None = None
    num_ooms: float | None = None
    host_memory_bytes: float | None = None
    parameter_checksum: str | float | None = None


@noun
class Heartbeat:
    """What a rank does now."""

    rank: int
    step: int | None
    phase: str
    time: float | None
    pid: int | None


@noun
class Event:
    """One line of `events.jsonl`: a thing that happened; `more` holds what only this kind of event has."""

    time: float
    event: str
    attempt: int | None = None
    rank: int | None = None
    step: int | None = None
    more: Mapping[str, Any] = field(default_factory=dict[str, Any])


@noun
class Fault:
    """What a rank says it ended of."""

    attempt: int
    rank: int
    type: str
    message: str
    step: int | None = None
    phase: str = ""
    time: float | None = None


@noun
class Checkpoint:
    """A saved state with the sizes and hashes of its files."""

    name: str
    step: int
    num_bytes: int
    world_size: int | None = None
    engine: str = ""
