"""What `tonnage run` shows while it waits: a line that changes on a terminal, lines elsewhere, JSON lines for programs."""

from __future__ import annotations

import shutil
import statistics
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from tonnage.cli.options import write_json
from tonnage.cli.tables import printable
from tonnage.messages import knows, say
from tonnage.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from tonnage.record.types import Event, Run, Step
    from tonnage.run.supervise import Update

_EVERY_SECONDS: Final = 10.0  # a line, where it cannot be written over
_STEPS: Final = 50  # whose median the time left is told by


class Progress:
    """Called with each update."""

    def __init__(self, *, is_json: bool, is_quiet: bool) -> None:
        self._is_json, self._is_quiet = is_json, is_quiet
        self._is_terminal = sys.stderr.isatty()
        self._next = 0.0
        self._taken: list[float] = []
        self._open = False  # a line that is to be written over
        self._last: Step | None = None
        self._num_ranks = 1

    def __call__(self, update: Update) -> None:
        """Show what is new; once nobody reads it any more, nothing: a training does not end with its terminal."""
        try:
            self._hear(update)
        except OSError:
            self._is_json, self._is_quiet = False, True

    def _hear(self, update: Update) -> None:
        if update.step is not None:
            self._last = update.step
            self._num_ranks = max(1, len(update.beats))
            if update.step.step_seconds is not None:
                self._taken = [*self._taken, update.step.step_seconds][-_STEPS:]
        if self._is_json:
            self._tell(update)
        if self._is_quiet:
            return
        if update.event is not None:
            self._show_event(update.event)
        elif update.step is not None and (self._is_terminal or time.monotonic() >= self._next):
            self._next = time.monotonic() + _EVERY_SECONDS
            self._show(step_line(update.run, update.step, self._taken, self._num_ranks))

    def end(self, run: Run) -> None:
        """Show how it ended."""
        if self._is_json:
            write_json({"schema": 1, "line": "run", **finite(asdict(run))})
        if self._is_quiet:
            return
        if self._last is not None:
            self._show(step_line(run, self._last, self._taken, self._num_ranks))
        message = f": {printable(run.message)}" if run.message else ""
        self._print(say("run.ended", path=run.name, status=say(f"run.status_{run.status}"), message=message))

    def _tell(self, update: Update) -> None:
        if update.step is not None:
            write_json({"schema": 1, "line": "step", **finite(asdict(update.step))})
        if update.event is not None:
            told = asdict(update.event)
            more = told.pop("more")
            write_json({"schema": 1, "line": "event", **finite(told), **finite(more)})
        sys.stdout.flush()

    def _show_event(self, event: Event) -> None:
        text = event_line(event)
        if text:
            self._print(text)

    def _show(self, line: str) -> None:
        if not self._is_terminal:
            self._print(line)
            return
        columns = shutil.get_terminal_size().columns - 1
        print("\r" + line[:columns].ljust(columns), end="", file=sys.stderr, flush=True)
        self._open = True

    def _print(self, line: str) -> None:
        if self._open:
            print(file=sys.stderr)
        self._open = False
        print(line, file=sys.stderr, flush=True)


def step_line(run: Run, step: Step, taken: list[float], num_ranks: int = 1) -> str:
    """Return the line that a step is shown by; what is not known is left out. A rank tells its own share of the rate."""
    parts = [
        say("run.step", step=step.step)
        if run.num_steps is None
        else say("run.step_of", step=step.step, num=run.num_steps)
    ]
    if step.loss is not None:
        parts.append(say("run.loss", loss=step.loss))
    if step.tokens_per_s:
        rate = step.tokens_per_s * num_ranks
        predicted = run.predicted.tokens_per_s
        if predicted:
            parts.append(say("run.rate_of", rate=rate, percent=100 * rate / predicted))
        else:
            parts.append(say("run.rate", rate=rate))
    if step.memory_allocated_bytes:
        parts.append(say("run.device_memory", amount=format_bytes(step.memory_allocated_bytes)))
    elif step.host_memory_bytes:
        parts.append(say("run.host_memory", amount=format_bytes(step.host_memory_bytes)))
    if run.num_steps is not None and taken and step.step < run.num_steps:
        left = (run.num_steps - step.step) * statistics.median(taken)
        parts.append(say("run.left_time", time=format_seconds(left)))
    return "  ".join(parts)


def event_line(event: Event) -> str:
    """Return the line that an event is shown by; none for what only the record needs."""
    name = f"run.event_{event.event}"
    if not knows(name):
        return ""
    more = {key: printable(str(value)) if isinstance(value, str) else value for key, value in event.more.items()}
    words = {"step": event.step, "rank": event.rank, "why": "", "phase": "", "wait": more.get("wait_seconds") or 0.0}
    return say(name, **{**words, **more})


def finite(value: Any) -> Any:
    """Return a value that JSON can hold: what is not finite becomes null."""
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):  # noqa: PLR0124
        return None
    return value
