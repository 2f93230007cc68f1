"""The figures of a run folder as samples: the last step of each rank, counts of what happened, and the plan's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tonnage import metric_names as names
from tonnage.monitor.exposition import Sample
from tonnage.record.files import tail
from tonnage.record.folder import Folder, step_of
from tonnage.record.types import Run, Status, Step

__all__ = ["Collector"]

_FIRST_LOOK_BYTES: Final = 1 << 18  # of a long file only the end is read
_FAILED_SAVES: Final = ("checkpoint_failed", "checkpoint_skipped")
_GOOD_ENDS: Final = ("finished", "stopped", "left", "")


class Collector:
    """Reads a run folder again and again; of files that grow, only what is new."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._steps: dict[int, Step] = {}
        self._offsets: dict[Path, int] = {}
        self._counts: Counter[str] = Counter()
        self._saved: tuple[float, int | None] | None = None

    def samples(self, label: str | None = None) -> tuple[Sample, ...]:
        """Return the samples as they are now; `label` names the run, by default as it calls itself."""
        run = self._folder.read()
        self._read_steps()
        self._read_events()
        name = {"run": label or run.name}
        return (
            *self._of_steps(name), *self._of_heartbeats(name), *self._of_run(run, name), *_of_plan(run, name)
        )  # fmt: skip

    def _read_steps(self) -> None:
        for rank in self._folder.ranks():
            for line in self._new(self._folder.metrics(rank), _FIRST_LOOK_BYTES):
                step = step_of(line)
                if step is not None:
                    self._steps[rank] = step

    def _read_events(self) -> None:
        for line in self._new(self._folder.events_file, None):
            event = str(line.get("event"))
            self._counts[event] += 1
            if event == "nonfinite" and line.get("rank") not in (0, None):
                self._counts[event] -= 1  # every rank tells of the same step
            if event == "checkpoint_saved" and isinstance(line.get("time"), int | float):
                self._saved = (float(line["time"]), line.get("step") if isinstance(line.get("step"), int) else None)

    def _new(self, path: Path, first_look_bytes: int | None) -> list[dict[str, Any]]:
        offset = self._offsets.get(path)
        if offset is None:
            try:
                size = path.stat().st_size
            except OSError:
                return []
            offset = 0 if first_look_bytes is None else max(0, size - first_look_bytes)
        found: list[dict[str, Any]] = []
        while True:
            lines, reached = tail(path, offset)
            found += lines
            if reached == offset:
                break
            offset = reached
        self._offsets[path] = offset
        return found

    def _of_steps(self, name: dict[str, str]) -> Iterator[Sample]:
        for metric in names.STEP:
            for rank, step in sorted(self._steps.items()):
                value = getattr(step, metric.field)
                if value is not None:
                    yield Sample(name=metric.name, value=float(value), labels={**name, "rank": str(rank)})

    def _of_heartbeats(self, name: dict[str, str]) -> Iterator[Sample]:
        (metric,) = names.RANK
        for beat in self._folder.heartbeat():
            if beat.time is not None:
                labels = {**name, "rank": str(beat.rank), "phase": beat.phase}
                yield Sample(name=metric.name, value=beat.time, labels=labels)

    def _of_run(self, run: Run, name: dict[str, str]) -> Iterator[Sample]:
        def one(metric: str, value: float, **labels: str) -> Sample:
            return Sample(name=f"tonnage_{metric}", value=value, labels={**name, **labels})

        if run.num_steps is not None:
            yield one("train_num_steps", run.num_steps)
        yield one("train_nonfinite_total", self._counts["nonfinite"])
        for status in Status:
            yield one("run_status", float(status is run.status), status=str(status))
        yield one("run_attempts_total", len(run.attempts))
        reasons = Counter(attempt.reason for attempt in run.attempts if attempt.reason not in _GOOD_ENDS)
        for reason, number in sorted(reasons.items()):
            yield one("run_failures_total", number, reason=reason)
        if self._saved is not None:
            when, step = self._saved
            yield one("checkpoint_last_success_timestamp_seconds", when)
            if step is not None:
                yield one("checkpoint_step", step)
        yield one("checkpoint_failures_total", sum(self._counts[event] for event in _FAILED_SAVES))


def _of_plan(run: Run, name: dict[str, str]) -> Iterator[Sample]:
    for metric in names.PREDICTED:
        value = getattr(run.predicted, metric.field)
        if value is not None:
            yield Sample(name=metric.name, value=value, labels=name)
