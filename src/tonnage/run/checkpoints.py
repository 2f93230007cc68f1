"""Puts a run folder in order before an attempt: half-written saves and texts go, damaged checkpoints are set aside."""

from __future__ import annotations

import contextlib
import shutil
import time
from pathlib import Path

from tonnage.nouns import noun
from tonnage.record.checkpoints import WRITING, newest, read_checkpoint
from tonnage.record.files import end_line
from tonnage.record.folder import Folder
from tonnage.record.types import Event

__all__ = ["Ready", "make_ready"]


@noun
class Ready:
    """From where the next attempt goes on, and what was set aside."""

    step: int | None  # None: from the start
    name: str | None
    damaged: tuple[tuple[str, str], ...] = ()  # name and fault


def make_ready(folder: Folder, attempt: int) -> Ready:
    """Return the checkpoint that an attempt resumes from, the newest that every hash agrees with.

    No process of the run may be alive. A newer one that is damaged is renamed `damaged-…`, so that the job does not
    meet it, and an event says so; what a dead process left half written is removed.
    """
    _clear_halves(folder)
    place = folder.checkpoints
    if place.is_dir():
        for path in place.glob(f"{WRITING}*"):
            shutil.rmtree(path, ignore_errors=True)
    good, faults = newest(place)
    for path, fault in faults:
        name = _set_aside(path)
        with contextlib.suppress(OSError):
            folder.tell(
                Event(
                    time=time.time(), event="checkpoint_skipped", attempt=attempt,
                    step=_step(path.name), more={"name": path.name, "why": fault, "set_aside": name},
                )
            )  # fmt: skip
    held = None if good is None else read_checkpoint(good)
    return Ready(
        step=None if held is None else held.step,
        name=None if held is None else held.name,
        damaged=tuple((path.name, fault) for path, fault in faults),
    )


def _clear_halves(folder: Folder) -> None:
    """Remove texts that a dead process left aside, and end lines that it left half: the next one begins on its own."""
    for path in folder.path.glob(".*.part"):
        with contextlib.suppress(OSError):
            path.unlink()
    for path in (folder.events_file, *folder.metrics().parent.glob("rank-*.jsonl")):
        with contextlib.suppress(OSError):
            end_line(path)


def _set_aside(path: Path) -> str | None:
    """Rename a damaged checkpoint; of one step the last damaged one is kept."""
    aside = path.with_name(f"damaged-{path.name}")
    shutil.rmtree(aside, ignore_errors=True)
    try:
        path.rename(aside)
    except OSError:
        return None
    return aside.name


def _step(name: str) -> int | None:
    tail = name.rpartition("-")[2]
    return int(tail) if tail.isdigit() else None
