"""The world that the doctor reads: files below a root, answers of programs, sizes of file systems. Tests give a recorded one."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tonnage.nouns import noun

__all__ = ["Said", "World", "here"]

_LARGEST_BYTES: Final = 1 << 22
_TIMEOUT_SECONDS: Final = 4.0


@noun
class Said:
    """What a program answered."""

    code: int
    out: str
    err: str = ""


@noun
class World:
    """Where readings come from; nothing of it changes anything."""

    root: Path
    run: Callable[[Sequence[str]], Said | None]  # None: there is no such program, or it did not answer
    space: Callable[[Path], tuple[int, int] | None]  # a file system's bytes, all and free

    def read(self, path: str) -> str | None:
        """Return a file's text, None where there is none."""
        try:
            with (self.root / path).open("rb") as file:
                return file.read(_LARGEST_BYTES).decode("utf-8", "replace")
        except OSError:
            return None

    def raw(self, path: str) -> bytes | None:
        """Return a small file's bytes."""
        try:
            with (self.root / path).open("rb") as file:
                return file.read(4096)
        except OSError:
            return None

    def whole(self, path: str) -> int | None:
        """Return a file that holds one whole number."""
        text = (self.read(path) or "").strip()
        return int(text) if text.lstrip("-").isdigit() and len(text) < 25 else None

    def names(self, path: str) -> tuple[str, ...]:
        """Return what a folder holds."""
        try:
            return tuple(sorted(entry.name for entry in (self.root / path).iterdir()))
        except OSError:
            return ()


def here() -> World:
    """Return this machine."""
    return World(root=Path("/"), run=_run, space=_space)


def _run(arguments: Sequence[str]) -> Said | None:
    program = shutil.which(arguments[0])
    if program is None:
        return None
    try:
        ended = subprocess.run(  # noqa: S603  our own arguments
            [program, *arguments[1:]], capture_output=True, text=True, check=False, timeout=_TIMEOUT_SECONDS,
            env={**os.environ, "LC_ALL": "C"}, stdin=subprocess.DEVNULL, errors="replace",
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Said(code=124, out="", err=f"{arguments[0]} does not answer within {_TIMEOUT_SECONDS:g} s")
    except OSError:
        return None
    return Said(code=ended.returncode, out=ended.stdout, err=ended.stderr)


def _space(path: Path) -> tuple[int, int] | None:
    try:
        held = os.statvfs(path)
    except OSError:
        return None
    return held.f_frsize * held.f_blocks, held.f_frsize * held.f_bavail
