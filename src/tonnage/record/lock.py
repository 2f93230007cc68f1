"""One supervisor a run: a lock that its holder's death releases, whatever the death.

Source: flock(2): a lock belongs to the open file and goes when its last descriptor is closed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any, Final

__all__ = ["Lock", "holder", "is_held"]

_TRIES: Final = 10  # a reader holds the lock for an instant while it looks
_PAUSE_SECONDS: Final = 0.05


class Lock:
    """A held lock; the file tells who holds it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle = -1

    def take(self, owner: dict[str, Any]) -> bool:
        """Take the lock and write who holds it; False where another process does."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        for _ in range(_TRIES):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(_PAUSE_SECONDS)
            except OSError:  # a file system without locks
                os.close(handle)
                raise
        else:
            os.close(handle)
            return False
        with contextlib.suppress(OSError):  # a full disk: the lock holds all the same
            os.ftruncate(handle, 0)
            os.pwrite(handle, json.dumps(owner).encode(), 0)
        self._handle = handle
        return True

    def release(self) -> None:
        """Let another take it."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def is_held(path: Path) -> bool:
    """Whether a living process holds the lock."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(handle)
    return False


def holder(path: Path) -> dict[str, Any] | None:
    """Return who holds the lock, as its holder wrote; None where nobody does."""
    if not is_held(path):
        return None
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
