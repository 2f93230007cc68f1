"""Where everything lies in a run folder, and its reading and writing."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final, TypeVar

from tonnage.errors import BadFileError, RequestError
from tonnage.nouns import noun
from tonnage.record.files import append_line, read_lines, read_object, replace_text
from tonnage.record.lock import is_held
from tonnage.record.types import SCHEMA, Attempt, Event, Fault, Heartbeat, Predicted, Run, Status, Step

__all__ = ["Folder", "find_runs", "summary"]

RUN: Final = "run.json"
_RANK: Final = re.compile(r"rank-(\d{1,7})")
_ATTEMPT: Final = re.compile(r"attempt-(\d{1,7})")
_NOT_FINITE: Final = ("NaN", "Infinity", "-Infinity")
_DEPTH: Final = 3  # folders that are looked into for runs
Noun = TypeVar("Noun")


@noun
class Folder:
    """A run folder."""

    path: Path

    @property
    def run_file(self) -> Path:
        """The state of the run."""
        return self.path / RUN

    @property
    def plan_file(self) -> Path:
        """The plan that is carried out."""
        return self.path / "plan.toml"

    @property
    def environment_file(self) -> Path:
        """What of the environment may be told."""
        return self.path / "environment.json"

    @property
    def bundle(self) -> Path:
        """The files that start the plan; the job runs here."""
        return self.path / "bundle"

    @property
    def checkpoints(self) -> Path:
        """Saved states."""
        return self.path / "checkpoints"

    @property
    def events_file(self) -> Path:
        """What happened, a line each."""
        return self.path / "events.jsonl"

    @property
    def heartbeats(self) -> Path:
        """What each rank does now."""
        return self.path / "heartbeat"

    @property
    def errors(self) -> Path:
        """What ranks ended of."""
        return self.path / "errors"

    @property
    def dumps(self) -> Path:
        """Stacks, flight recorders, memory snapshots."""
        return self.path / "dumps"

    @property
    def scratch(self) -> Path:
        """What an attempt needs while it runs; nobody reads it, and it goes with the attempt."""
        return self.path / "scratch"

    @property
    def lock_file(self) -> Path:
        """Locked as long as a supervisor is alive."""
        return self.path / "supervisor.lock"

    def logs(self, attempt: int) -> Path:
        """Return the folder of what an attempt's processes printed."""
        return self.path / "logs" / f"attempt-{attempt:03d}"

    def log(self, attempt: int, rank: int) -> Path:
        """Return the file of what one rank printed."""
        return self.logs(attempt) / f"rank-{rank:05d}.log"

    def metrics(self, rank: int = 0) -> Path:
        """Figures of each step of a rank."""
        return self.path / "metrics" / f"rank-{rank:05d}.jsonl"

    @property
    def is_run(self) -> bool:
        """Whether a run lies here."""
        return self.run_file.is_file()

    @property
    def is_supervised(self) -> bool:
        """Whether a supervisor is alive."""
        return is_held(self.lock_file)

    def read(self) -> Run:
        """Return the state of the run.

        Raises
        ------
        RequestError
            No run lies here.
        BadFileError
            `run.json` is broken, or of a later version.
        """
        where = str(self.run_file)
        if not self.is_run:
            raise RequestError("no run lies here", where=str(self.path)[:200], fix="tonnage runs lists runs")
        table = read_object(self.run_file)
        if table is None:
            raise BadFileError("not a JSON object", where=where, fix="start a run in another folder with --to")
        schema = table.get("schema")
        if not isinstance(schema, int):
            raise BadFileError("has no schema: not a run", where=where, fix="name a folder that tonnage run made")
        if schema > SCHEMA:
            raise BadFileError(f"schema {schema} is newer than this tonnage knows", where=where, fix="upgrade tonnage")
        try:
            return run_of(table)
        except (KeyError, TypeError, ValueError):
            raise BadFileError("not a run", where=where, fix="name a folder that tonnage run made") from None

    def write(self, run: Run) -> None:
        """Put the state of the run in the place of what was there, at once."""
        replace_text(self.run_file, run_text(run))

    def tell(self, event: Event) -> None:
        """Append an event."""
        table = {name: value for name, value in plain(event).items() if name != "more" and value is not None}
        append_line(self.events_file, {**table, **event.more})

    def events(self) -> Iterator[Event]:
        """Yield what happened, in the order of writing."""
        for line in read_lines(self.events_file):
            yield event_of(line)

    def steps(self, rank: int = 0) -> tuple[Step, ...]:
        """Return the figures of a rank by step; of a step that was done again, the last."""
        found = {step.step: step for line in read_lines(self.metrics(rank)) if (step := step_of(line)) is not None}
        return tuple(found[number] for number in sorted(found))

    def heartbeat(self) -> tuple[Heartbeat, ...]:
        """Return what each rank does, as far as it has told."""
        paths = sorted(self.heartbeats.glob("rank-*.json")) if self.heartbeats.is_dir() else []
        return tuple(beat for path in paths if (beat := heartbeat_of(path)) is not None)

    def faults(self, attempt: int | None = None) -> tuple[Fault, ...]:
        """Return what ranks ended of, the earliest first; of one attempt or of all."""
        paths = sorted(self.errors.glob("attempt-*-rank-*.json")) if self.errors.is_dir() else []
        found = [fault for path in paths if (fault := fault_of(path)) is not None]
        found = [fault for fault in found if attempt is None or fault.attempt == attempt]
        return tuple(sorted(found, key=lambda fault: (fault.attempt, fault.time or math.inf, fault.rank)))

    def ranks(self) -> tuple[int, ...]:
        """Return the ranks that wrote figures."""
        folder = self.metrics().parent
        paths = folder.glob("rank-*.jsonl") if folder.is_dir() else ()
        return tuple(sorted(int(match[1]) for path in paths if (match := _RANK.search(path.name))))


def run_text(run: Run) -> str:
    """Return the text of `run.json`."""
    import json  # noqa: PLC0415

    table = plain(run)
    for name in ("request", "measured"):  # there or not there: other readers look for them
        if table[name] is None or table["measured"] is None:
            del table[name]
    return json.dumps({"schema": SCHEMA, **table}, indent=2, ensure_ascii=False) + "\n"


def run_of(table: Mapping[str, Any]) -> Run:
    """Return the run that a `run.json` holds; fields of later versions are passed over."""
    values = _known(Run, table)
    values |= {"status": Status(table["status"]), "predicted": Predicted(**_known(Predicted, table["predicted"]))}
    values |= {"attempts": tuple(Attempt(**_known(Attempt, one)) for one in table["attempts"])}
    return Run(**values)


def event_of(line: Mapping[str, Any]) -> Event:
    """Return the event of a line; what is missing is unknown."""
    names = {one.name for one in fields(Event)}
    more = {name: value for name, value in line.items() if name not in names}
    return Event(
        time=_float(line.get("time")) or 0.0,
        event=str(line.get("event", "")),
        attempt=_int(line.get("attempt")),
        rank=_int(line.get("rank")),
        step=_int(line.get("step")),
        more=more,
    )


def step_of(line: Mapping[str, Any]) -> Step | None:
    """Return the figures of a line; None where it names no step."""
    number = _int(line.get("step"))
    if number is None:
        return None
    names = {one.name for one in fields(Step)} - {"step", "parameter_checksum"}
    checksum = line.get("parameter_checksum")
    return Step(
        step=number,
        parameter_checksum=checksum if isinstance(checksum, str | int | float) else None,
        **{name: _float(line.get(name)) for name in names},
    )


def heartbeat_of(path: Path) -> Heartbeat | None:
    """Return the heartbeat that a file holds."""
    table, match = read_object(path), _RANK.search(path.name)
    if table is None or match is None:
        return None
    return Heartbeat(
        rank=int(match[1]),
        step=_int(table.get("step")),
        phase=str(table.get("phase") or ""),
        time=_float(table.get("time")),
        pid=_int(table.get("pid")),
    )


def fault_of(path: Path) -> Fault | None:
    """Return what a rank ended of, as it told."""
    table, rank, attempt = read_object(path), _RANK.search(path.name), _ATTEMPT.search(path.name)
    if table is None or rank is None or attempt is None:
        return None
    return Fault(
        attempt=int(attempt[1]),
        rank=int(rank[1]),
        type=str(table.get("type") or ""),
        message=str(table.get("message") or ""),
        step=_int(table.get("step")),
        phase=str(table.get("phase") or ""),
        time=_float(table.get("time")),
    )


def plain(value: Any) -> dict[str, Any]:
    """Return a noun as a table of JSON's own kinds."""
    return asdict(value)


def find_runs(place: Path) -> tuple[Folder, ...]:
    """Return the run folders at a place and a few folders below it, the newest first."""
    found: list[Folder] = []
    level = [place]
    for _ in range(_DEPTH + 1):
        below: list[Path] = []
        for path in level:
            folder = Folder(path=path)
            if folder.is_run:
                found.append(folder)
            else:
                below += _folders(path)
        level = below
    return tuple(sorted(found, key=lambda folder: -folder.run_file.stat().st_mtime))


def summary(folder: Folder) -> dict[str, Any] | None:
    """Return what a list of runs says of one; None where `run.json` is broken."""
    try:
        run = folder.read()
    except (BadFileError, RequestError):
        return None
    is_lost = not run.status.is_over and not folder.is_supervised
    return {
        "path": str(folder.path),
        "name": run.name,
        "kind": run.kind,
        "status": "lost" if is_lost else str(run.status),
        "engine": run.engine,
        "created": run.created,
        "num_attempts": len(run.attempts),
        "last_step": run.last_step,
        "num_steps": run.num_steps,
        "last_checkpoint": run.last_checkpoint,
        "message": run.message,
    }


def _folders(path: Path) -> list[Path]:
    try:
        return [p for p in path.iterdir() if not p.name.startswith(".") and p.is_dir() and not p.is_symlink()]
    except OSError:
        return []


def _known(kind: type, table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries that a noun has fields for."""
    names = {one.name for one in fields(kind)}
    return {name: value for name, value in table.items() if name in names}


def _float(value: Any) -> float | None:
    """Return a number; JSON has no NaN, so that a writer says it in words."""
    if isinstance(value, str) and value in _NOT_FINITE:
        return float(value)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _int(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
