"""The nouns of supervision: `Settings`, `Launch`, `End`, `Decision`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from pathlib import Path

from tonnage.nouns import noun

__all__ = ["Decision", "End", "EndKind", "Launch", "Settings", "Verdict"]


@noun
class Settings:
    """How patient the supervisor is."""

    grace_seconds: float = 120.0  # to write a checkpoint when it is stopped
    start_seconds: float = 900.0  # from the start, or within the first step, to a sign of life
    least_step_seconds: float = 120.0  # no step is called hung before
    step_factor: float = 10.0  # of the expected or measured time of a step
    save_seconds: float = 600.0  # while a checkpoint is written
    dump_seconds: float = 5.0  # for stacks, before a hung attempt is killed
    backoff_seconds: float = 1.0  # before the first restart; doubled while nothing comes of it
    longest_backoff_seconds: float = 60.0
    patience: int = 5  # attempts that get no further, one after another
    tick_seconds: float = 0.25
    notice: str = "off"  # of run.notices.CLOUDS, auto or off
    notice_url: str | None = None  # in place of the cloud's own address
    notice_seconds: float = 5.0  # between two looks, as Amazon recommends
    textfile: Path | None = None  # written for Prometheus' textfile collector
    textfile_seconds: float = 15.0  # between two writings


@noun
class Launch:
    """What an attempt starts."""

    command: tuple[str, ...]
    folder: Path  # it runs there
    env: Mapping[str, str] = field(default_factory=dict[str, str])  # added to this process's own
    ranks: int = 0  # processes that print; 0: not known
    is_server: bool = False
    health_url: str | None = None  # of a server
    has_heartbeat: bool = True  # the job tells what it does; of others only the end is seen


class EndKind(StrEnum):
    """How an attempt ended."""

    FINISHED = "finished"
    STOPPED = "stopped"  # after it was asked to
    LEFT = "left"  # with a checkpoint, though we did not ask: somebody else did
    ERROR = "error"
    KILLED = "killed"  # by a signal
    HANG = "hang"
    REQUEST = "request"  # the job refuses what it is asked
    MISSING = "missing"  # a program or package is not there
    LOST = "lost"  # with its supervisor


@noun
class End:
    """What is known of an attempt's end."""

    kind: EndKind
    exit_code: int | None = None
    exit_codes: Mapping[str, int] = field(default_factory=dict[str, int])
    step: int | None = None  # that it was at
    reached: int | None = None  # last step whose figures were written
    rank: int | None = None  # the one that ended first
    type: str = ""
    message: str = ""

    @property
    def detail(self) -> str:
        """In one line."""
        what = ": ".join(part for part in (self.type, " ".join(self.message.split())) if part)
        who = "" if self.rank is None else f"rank {self.rank}"
        where = "" if self.step is None else f"step {self.step}"
        place = ", ".join(part for part in (who, where) if part)
        return f"{what} ({place})" if what and place else what or place


class Verdict(StrEnum):
    """What is to be done after an attempt."""

    FINISH = "finish"
    STOP = "stop"
    RESTART = "restart"
    GIVE_UP = "give up"
    FAIL = "fail"


@noun
class Decision:
    """What is to be done, why, and after what pause."""

    verdict: Verdict
    why: str = ""
    exit_code: int = 0
    wait_seconds: float = 0.0
