"""Which checkpoints of a run folder can be trusted: every file of the manifest there, with its size and its hash.

`jobs/train.py` keeps the same rule, and a test holds the two to each other.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from tonnage.record.files import read_object
from tonnage.record.types import Checkpoint

__all__ = ["MANIFEST", "WRITING", "checkpoints", "fault_of", "newest", "read_checkpoint"]

MANIFEST: Final = "manifest.json"
WRITING: Final = ".writing-"
_NAME: Final = re.compile(r"step-(\d{8,})")
_BLOCK_BYTES: Final = 4 << 20
_THREADS: Final = 4


def checkpoints(folder: Path) -> tuple[Path, ...]:
    """Return the folders of completed checkpoints, the newest first; whether they are whole is not looked at."""
    if not folder.is_dir():
        return ()
    found = [(int(match[1]), p) for p in folder.iterdir() if (match := _NAME.fullmatch(p.name)) and p.is_dir()]
    return tuple(path for _, path in sorted(found, reverse=True))


def read_checkpoint(path: Path) -> Checkpoint | None:
    """Return what the manifest of a checkpoint says; None where there is none that can be read."""
    table = read_object(path / MANIFEST)
    if table is None or not isinstance(table.get("step"), int):
        return None
    size = sum(one["bytes"] for one in _entries(table) if isinstance(one.get("bytes"), int))
    world = table.get("world_size")
    return Checkpoint(
        name=path.name,
        step=table["step"],
        num_bytes=size,
        world_size=world if isinstance(world, int) else None,
        engine=str(table.get("engine") or ""),
    )


def fault_of(path: Path, *, is_hashed: bool = True) -> str | None:
    """Return why a checkpoint cannot be trusted; None where it can.

    Parameters
    ----------
    path : Path
        Its folder.
    is_hashed : bool
        Whether to read every file for its hash, or to look at sizes only.

    Returns
    -------
    str or None
        The first fault by the order of the manifest.
    """
    table = read_object(path / MANIFEST)
    if table is None:
        return f"{MANIFEST} is missing or broken"
    match = _NAME.fullmatch(path.name)
    if match is None or table.get("step") != int(match[1]):
        return f"{MANIFEST} is of step {table.get('step')}"
    entries = list(_entries(table))
    if not entries or len(entries) != len(table["files"]):
        return f"{MANIFEST} names no files"
    for entry in entries:
        wrong = _wrong_size(path, entry)
        if wrong:
            return wrong
    if not is_hashed:
        return None
    with ThreadPoolExecutor(_THREADS) as pool:
        hashes = pool.map(lambda entry: _sha256(path / entry["name"]), entries)
        for entry, found in zip(entries, hashes, strict=True):
            if found != entry["sha256"]:
                return f"{entry['name']} differs from its sha256"
    return None


def newest(folder: Path, *, is_hashed: bool = True) -> tuple[Path | None, tuple[tuple[Path, str], ...]]:
    """Return the newest checkpoint that can be trusted, and those newer ones that cannot, each with its fault."""
    faults: list[tuple[Path, str]] = []
    for path in checkpoints(folder):
        fault = fault_of(path, is_hashed=is_hashed)
        if fault is None:
            return path, tuple(faults)
        faults.append((path, fault))
    return None, tuple(faults)


def _entries(table: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the files of a manifest whose names stay inside its folder."""
    files = table.get("files")
    for one in files if isinstance(files, list) else ():
        if isinstance(one, dict) and isinstance(one.get("name"), str) and isinstance(one.get("sha256"), str):
            name = Path(one["name"])
            if not name.is_absolute() and ".." not in name.parts and name.parts:
                yield one


def _wrong_size(path: Path, entry: dict[str, Any]) -> str | None:
    try:
        size = (path / entry["name"]).stat().st_size
    except OSError:
        return f"{entry['name']} is missing"
    return None if size == entry.get("bytes") else f"{entry['name']} has {size} bytes, not {entry.get('bytes')}"


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
    except OSError:
        return ""
    return digest.hexdigest()
