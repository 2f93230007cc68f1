"""Files that stay whole when a writer dies: texts replaced by renaming, and lines appended one write each.

A reader takes what is complete: the last line may be half written, and a line that is no JSON object is passed over.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

__all__ = ["append_line", "end_line", "read_lines", "read_object", "replace_text", "tail"]

LARGEST_BYTES: Final = 64 << 20  # of a file that is read whole
_BLOCK_BYTES: Final = 1 << 20


def replace_text(path: Path, text: str) -> None:
    """Put a text in a file's place at once: a reader sees the old text or the new one, at any instant.

    Raises
    ------
    OSError
        It cannot be written; the old text stays.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with aside.open("w", encoding="utf-8", errors="surrogateescape", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            aside.unlink()
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make a renaming last through a power cut, where the file system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def append_line(path: Path, value: Mapping[str, Any]) -> None:
    """Append one JSON object as a line; after a line that a dead writer left half, on a new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        end = os.fstat(handle).st_size
        if end and os.pread(handle, 1, end - 1) != b"\n":
            line = b"\n" + line
        os.write(handle, line)
    finally:
        os.close(handle)


def end_line(path: Path) -> None:
    """End the last line of a file that a dead writer left half."""
    with path.open("rb+") as file:
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")


def read_object(path: Path) -> dict[str, Any] | None:
    """Return the JSON object that a file holds; None where there is none."""
    try:
        with path.open("rb") as file:
            value = json.loads(file.read(LARGEST_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file of JSON lines; half lines and what is no object are passed over."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        for line in file:
            value = _object(line)
            if value is not None:
                yield value


def tail(path: Path, offset: int) -> tuple[list[dict[str, Any]], int]:
    """Return the objects whose lines were completed since an offset, and the offset to go on from.

    A file that is shorter than before was begun anew and is read from its start.
    """
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            offset = offset if offset <= end else 0
            file.seek(offset)
            data = file.read(min(end - offset, 16 * _BLOCK_BYTES))
    except OSError:
        return [], offset
    whole = data.rfind(b"\n") + 1
    found = [value for line in data[:whole].splitlines() if (value := _object(line)) is not None]
    return found, offset + whole


def _object(line: bytes) -> dict[str, Any] | None:
    """Return the object of a line; NaN and infinities, which JSON lacks and trainers write, are read as floats."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
