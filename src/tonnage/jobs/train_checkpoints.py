"""Checkpoints that can be trusted: written aside, hashed, flushed, renamed last, verified before they are loaded.

`step-00000100/` holds `tensors-<rank>.safetensors` (pieces), `random-<rank>.json`, `state.json`, `trainer_state.json`
and `manifest.json`, which names every other file with its size and SHA-256. A folder without a manifest is no
checkpoint: the manifest is written last, and the folder gets its name after that.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import train_pieces as pieces
from train_folder import plain, write_whole
from train_pieces import BadCheckpointError, FileRecord, Piece
from train_ranks import Ranks
from train_state import random_state, set_random_state

SCHEMA = 1
PREFIX, WRITING, OLD = "step-", ".writing-step-", ".old-step-"


@dataclass(kw_only=True)
class Pending:
    """A save that is being written beside the training."""

    step: int
    folder: Path
    started: float
    thread: threading.Thread | None = None
    records: list[FileRecord] = field(default_factory=list)
    error: str | None = None

    @property
    def is_done(self) -> bool:
        """Whether this rank's part is written, or failed."""
        return self.thread is None or not self.thread.is_alive()


class Checkpoints:
    """The checkpoints of a run, as all ranks agree on them."""

    def __init__(self, folder: Path, ranks: Ranks, *, keep: int, compression: str, is_async: bool) -> None:
        self.folder, self.ranks, self.keep = folder, ranks, keep
        self.compression, self.is_async = compression, is_async
        self.engine = ""  # told by the loop, once it runs
        self.pending: Pending | None = None
        self.last_step: int | None = None
        self.seconds_blocked = 0.0

    def clean(self) -> None:
        """Remove what a save that was cut off left behind."""
        if self.ranks.rank == 0:
            for path in self.folder.glob(f"{WRITING}*"):
                shutil.rmtree(path, ignore_errors=True)
            for path in self.folder.glob(f"{OLD}*"):
                shutil.rmtree(path, ignore_errors=True)
        self.ranks.wait()

    def steps(self) -> list[int]:
        """Return the steps that have a checkpoint, newest first; rank 0 looks."""
        found = [
            int(path.name.removeprefix(PREFIX))
            for path in self.folder.glob(f"{PREFIX}*")
            if path.name.removeprefix(PREFIX).isdigit()
        ]
        return self.ranks.from_first(sorted(found, reverse=True))

    def path(self, step: int) -> Path:
        """Return the folder of a step."""
        return self.folder / f"{PREFIX}{step:08d}"

    def newest_sound(self, on_skip: Callable[[int, str], None]) -> Path | None:
        """Return the newest checkpoint whose every byte is as it was written."""
        for step in self.steps():
            wrong = self.fault(self.path(step))
            if wrong is None:
                self.last_step = step
                return self.path(step)
            on_skip(step, wrong)
        return None

    def fault(self, path: Path) -> str | None:
        """Return what is wrong with a checkpoint; the ranks share the reading."""
        try:
            rows = read_manifest(path)["files"]
            wrong = next(
                (
                    found
                    for number, row in enumerate(rows)
                    if number % self.ranks.world_size == self.ranks.rank and (found := _fault_of_file(path, row))
                ),
                None,
            )
        except (OSError, BadCheckpointError) as error:
            wrong = str(error)
        return next((one for one in self.ranks.gather(wrong) if one), None)

    def save(self, step: int, parts: list[Piece], values: dict[str, Any]) -> Pending:
        """Begin a save; with `is_async` the pieces are copied and written by a thread."""
        started = time.perf_counter()
        folder = self.folder / f"{WRITING}{step:08d}"
        pending = Pending(step=step, folder=folder, started=started)
        try:
            if self.ranks.rank == 0:
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True)
        except OSError as error:
            pending.error = str(error)
        self.ranks.wait()
        texts = {f"random-{self.ranks.rank:05d}.json": json.dumps(random_state())}
        if self.ranks.rank == 0:
            texts |= {name: json.dumps(plain(value), indent=1) for name, value in values.items()}
        if self.is_async:
            parts = [
                Piece(key=one.key, shape=one.shape, start=one.start, data=one.data.detach().to("cpu", copy=True))
                for one in parts
            ]
        if pending.error is None:
            work = threading.Thread(target=self._write, args=(pending, parts, texts), name="checkpoint", daemon=True)
            if self.is_async:
                pending.thread = work
                work.start()
            else:
                self._write(pending, parts, texts)
        self.pending = pending
        self.seconds_blocked = time.perf_counter() - started
        return pending

    def _write(self, pending: Pending, parts: list[Piece], texts: dict[str, str]) -> None:
        try:
            name = f"tensors-{self.ranks.rank:05d}.safetensors" + ("" if self.compression == pieces.PLAIN else ".zst")
            pending.records.append(pieces.write(pending.folder / name, parts, self.compression))
            for text_name, text in texts.items():
                write_whole(pending.folder / text_name, text, durable=True)
                data = text.encode()
                digest = hashlib.sha256(data).hexdigest()
                pending.records.append(
                    FileRecord(name=text_name, num_bytes=len(data), sha256=digest, num_plain_bytes=len(data))
                )
        except Exception as error:  # noqa: BLE001  whatever it is, the training goes on with the former checkpoint
            pending.error = f"{type(error).__name__}: {error}"

    def finish(self, *, wait: bool) -> tuple[Pending, dict[str, Any] | None, str | None] | None:
        """Complete the save once all ranks have written: its facts, or why it failed; None where it is not done.

        All ranks have to call this at the same step.
        """
        pending = self.pending
        if pending is None:
            return None
        if wait and pending.thread is not None:
            pending.thread.join()
        if not all(self.ranks.gather(pending.is_done)):
            return None
        self.pending = None
        told = self.ranks.gather((pending.error, pending.records))
        wrong = next((error for error, _ in told if error), None)
        facts = None
        if wrong is None:
            records = [record for _, some in told for record in some]
            done = self._complete(pending, records) if self.ranks.rank == 0 else (None, None)
            facts, wrong = self.ranks.from_first(done)
        if wrong is not None and self.ranks.rank == 0:
            shutil.rmtree(pending.folder, ignore_errors=True)
        if facts is not None:
            self.last_step = pending.step
        self.ranks.wait()
        return pending, facts, wrong

    def _complete(self, pending: Pending, records: list[FileRecord]) -> tuple[dict[str, Any] | None, str | None]:
        manifest = {
            "schema": SCHEMA,
            "step": pending.step,
            "world_size": self.ranks.world_size,
            "engine": self.engine,
            "compression": self.compression,
            "files": [record.to_json() for record in records],
        }
        target = self.path(pending.step)
        try:
            write_whole(pending.folder / "manifest.json", json.dumps(manifest, indent=1) + "\n", durable=True)
            _flush_folder(pending.folder)
            if target.exists():  # a damaged one of the same step
                target.rename(self.folder / f"{OLD}{pending.step:08d}")
            pending.folder.rename(target)
            _flush_folder(self.folder)
        except OSError as error:
            return None, f"{type(error).__name__}: {error}"
        self._rotate(pending.step)
        num_bytes = sum(record.num_bytes for record in records)
        seconds = time.perf_counter() - pending.started
        facts = {"seconds": seconds, "bytes": num_bytes, "bytes_per_s": num_bytes / seconds if seconds else None}
        if self.compression != pieces.PLAIN:
            num_plain = sum(record.num_plain_bytes for record in records)
            facts |= {"compression": self.compression, "compression_ratio": num_plain / num_bytes}
        return facts, None

    def _rotate(self, newest: int) -> None:
        steps = sorted(int(path.name.removeprefix(PREFIX)) for path in self.folder.glob(f"{PREFIX}[0-9]*"))
        # A step beyond the newest belongs to a line of training that was given up.
        gone = [step for step in steps if step > newest] + [step for step in steps if step <= newest][
            : -self.keep or None
        ]
        for step in gone:
            # Renamed first, so that one half removed is never taken for a checkpoint.
            aside = self.folder / f"{OLD}{step:08d}"
            self.path(step).rename(aside)
        for path in self.folder.glob(f"{OLD}*"):
            shutil.rmtree(path, ignore_errors=True)

    def load(self, path: Path, state: Any) -> dict[str, Any]:
        """Put a checkpoint's tensors and values into a training; return the values of `state.json`."""
        manifest = read_manifest(path)
        compression = manifest.get("compression", pieces.PLAIN)
        files = [path / row["name"] for row in manifest["files"] if row["name"].startswith("tensors-")]
        entries = {entry.key: entry for file in files for entry in pieces.entries(file, compression)}
        values = json.loads((path / "state.json").read_text(encoding="utf-8"))
        wanted = state.to_fill(entries)
        with torch.no_grad():
            pieces.fill(wanted, files, compression)
        state.set_values(values["optimizer"])
        state.finish()
        return values

    def load_random_state(self, path: Path) -> bool:
        """Put this rank's random state back; False where another number of ranks wrote the checkpoint."""
        file = path / f"random-{self.ranks.rank:05d}.json"
        if not file.is_file() or read_manifest(path)["world_size"] != self.ranks.world_size:
            return False
        set_random_state(json.loads(file.read_text(encoding="utf-8")))
        return True


def read_manifest(path: Path) -> dict[str, Any]:
    """Return a checkpoint's manifest.

    Raises
    ------
    BadCheckpointError
        It is absent, cut off or of another kind.
    """
    try:
        manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadCheckpointError(f"{path.name}: has no manifest.json, so it was not completed") from None
    except (OSError, ValueError) as error:
        raise BadCheckpointError(f"{path.name}/manifest.json: {error}") from None
    if (
        not isinstance(manifest, dict)
        or manifest.get("schema") != SCHEMA
        or not isinstance(manifest.get("files"), list)
    ):
        raise BadCheckpointError(f"{path.name}/manifest.json: is not a manifest of schema {SCHEMA}")
    return manifest


def _fault_of_file(path: Path, row: dict[str, Any]) -> str | None:
    file = path / str(row["name"])
    if not file.is_file():
        return f"{path.name}/{row['name']}: is missing"
    if file.stat().st_size != row["bytes"]:
        return f"{path.name}/{row['name']}: has {file.stat().st_size} bytes, was written with {row['bytes']}"
    digest = hashlib.sha256()
    with file.open("rb") as opened:
        while chunk := opened.read(8 << 20):
            digest.update(chunk)
    return None if digest.hexdigest() == row["sha256"] else f"{path.name}/{row['name']}: is not what was written"


def _flush_folder(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
