"""What a run leaves behind: metrics, events, heartbeats and errors of one rank, in one folder.

Unknown is null. JSON has no NaN: a value that is not finite is written as the text "NaN", "Infinity" or "-Infinity".
A disk that is full must not end a training: what cannot be written is dropped and counted.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
from pathlib import Path
from typing import Any, TextIO


class BadJobError(Exception):
    """The job or its text is wrong; one line that says what, where and how to mend it."""


def plain(value: Any) -> Any:
    """Return a value that JSON can hold."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return value


def write_whole(path: Path, text: str, *, durable: bool = False) -> None:
    """Replace a file at once: a reader sees the old text or the new."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with beside.open("w", encoding="utf-8") as file:
        file.write(text)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    beside.replace(path)


class RunFolder:
    """One rank's view of the folder."""

    def __init__(self, root: Path, *, attempt: int, rank: int) -> None:
        self.root, self.attempt, self.rank = root, attempt, rank
        self.num_lost_lines = 0
        for name in ("metrics", "heartbeat", "checkpoints", "errors", "dumps"):
            (root / name).mkdir(parents=True, exist_ok=True)
        self._files: dict[Path, TextIO] = {}
        self.heart = Heart(root / "heartbeat" / f"rank-{rank:05d}.json")

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return self.root / "checkpoints"

    def dump(self, suffix: str) -> Path:
        """Return where a dump of this rank goes."""
        return self.root / "dumps" / f"attempt-{self.attempt:03d}-rank-{self.rank:05d}.{suffix}"

    def began(self) -> float:
        """Return when the run's first attempt began."""
        with (self.root / "events.jsonl").open(encoding="utf-8") as lines:
            return float(json.loads(lines.readline())["time"])

    def metric(self, **values: Any) -> None:
        """Append one line about one step."""
        self._append(self.root / "metrics" / f"rank-{self.rank:05d}.jsonl", values)

    def event(self, name: str, *, step: int | None = None, **values: Any) -> None:
        """Append one line about something that happened."""
        line = {"time": time.time(), "event": name, "attempt": self.attempt, "rank": self.rank, "step": step, **values}
        self._append(self.root / "events.jsonl", line)

    def error(self, error: BaseException, *, step: int | None, phase: str) -> None:
        """Write what ended this rank."""
        table = {"type": type(error).__name__, "message": str(error), "step": step, "phase": phase, "time": time.time()}
        self.event("error", step=step, type=table["type"], message=table["message"], phase=phase)
        path = self.root / "errors" / f"attempt-{self.attempt:03d}-rank-{self.rank:05d}.json"
        try:
            write_whole(path, json.dumps(plain(table)) + "\n")
        except OSError:
            self.num_lost_lines += 1

    def _append(self, path: Path, values: dict[str, Any]) -> None:
        line = json.dumps(plain(values), allow_nan=False) + "\n"
        try:
            if path not in self._files:
                # One write a line, at the end of the file: ranks that share a file do not cut each other's lines.
                self._files[path] = path.open("a", encoding="utf-8")
            self._files[path].write(line)
            self._files[path].flush()
        except OSError:
            self.num_lost_lines += 1
            self._reopen(path)

    def _reopen(self, path: Path) -> None:
        file = self._files.pop(path, None)
        try:
            if file is not None:
                file.close()
        except OSError:
            pass

    def close(self) -> None:
        """Write the last heartbeat and close every file."""
        self.heart.stop()
        for path in list(self._files):
            self._reopen(path)


class Heart:
    """Where the training is, written by a thread, so that the training itself only sets two values.

    `time` is when the phase began, not when the file was written: a training that hangs grows old here.
    """

    INTERVAL_SECONDS = 0.2

    def __init__(self, path: Path) -> None:
        self._path = path
        self._now: tuple[int | None, str, float] = (None, "starting", time.time())
        self._written: tuple[int | None, str, float] | None = None
        self._stop = threading.Event()
        self._write()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._thread.start()

    @property
    def step(self) -> int | None:
        """Steps done."""
        return self._now[0]

    @property
    def phase(self) -> str:
        """What is being done."""
        return self._now[1]

    def at(self, phase: str, step: int | None = None) -> None:
        """Note that a phase begins."""
        self._now = (self._now[0] if step is None else step, phase, time.time())

    def stop(self) -> None:
        """Write once more and end the thread."""
        self._stop.set()
        self._thread.join(timeout=2)
        self._write()

    def _beat(self) -> None:
        while not self._stop.wait(self.INTERVAL_SECONDS):
            self._write()

    def _write(self) -> None:
        now = self._now
        if now == self._written:
            return
        table = {"step": now[0], "phase": now[1], "time": now[2], "pid": os.getpid()}
        try:
            write_whole(self._path, json.dumps(table) + "\n")
            self._written = now
        except OSError:
            return
