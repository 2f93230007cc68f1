"""Processes by what the kernel says of them: whether one is the one that was meant, and which belong to a run.

Source: proc(5): /proc/PID/stat fields 3 (state) and 22 (start time), /proc/PID/environ.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any, Final

__all__ = ["KEY", "end_leftovers", "is_same", "leftovers", "mark_of", "oom_kills", "state_of"]

KEY: Final = "TONNAGE_RUN_KEY"  # in the environment of all that a run starts
_PROC: Final = Path("/proc")
_PAUSE_SECONDS: Final = 0.02
_GROUPS: Final = ((r"/sys/fs/cgroup", "memory.events"), (r"/sys/fs/cgroup/memory", "memory.oom_control"))


def _stat(pid: int) -> list[str]:
    try:
        return (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def state_of(pid: int) -> str | None:
    """Return the state letter of a process: R, S, D, T (stopped), Z (ended, not yet collected); None where it is gone."""
    fields = _stat(pid)
    return fields[0] if fields else None


def mark_of(pid: int) -> dict[str, Any]:
    """Return what tells a process from a later one of the same number."""
    fields = _stat(pid)
    return {"pid": pid, "start_ticks": int(fields[19]) if len(fields) > 19 else None}


def is_same(mark: dict[str, Any]) -> bool:
    """Whether the process that a mark was taken of is alive."""
    pid = mark.get("pid")
    if not isinstance(pid, int) or pid <= 0:
        return False
    now = mark_of(pid)
    if now["start_ticks"] is None:
        return not _PROC.is_dir() and _answers(pid)
    return now["start_ticks"] == mark.get("start_ticks") and state_of(pid) not in ("Z", "X")


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def leftovers(key: str) -> tuple[int, ...]:
    """Return the living processes that a run started, whoever their parent is now."""
    wanted = f"{KEY}={key}".encode()
    ours, found = _line(), list[int]()
    for path in _PROC.iterdir() if _PROC.is_dir() else ():
        if path.name.isdigit() and int(path.name) not in ours:
            with contextlib.suppress(OSError):
                if wanted in (path / "environ").read_bytes().split(b"\0") and state_of(int(path.name)) not in (
                    "Z",
                    None,
                ):
                    found.append(int(path.name))
    return tuple(found)


def _line() -> set[int]:
    """Return this process and those that it comes of: a shell may have the mark in its environment."""
    found, pid = set[int](), os.getpid()
    while pid > 1 and pid not in found:
        found.add(pid)
        fields = _stat(pid)
        pid = int(fields[1]) if len(fields) > 1 else 0
    return found


def end_leftovers(key: str, wait_seconds: float, kill_seconds: float = 10.0) -> int:
    """Wait for a run's processes to end by themselves, then kill them; return how many had to be killed."""
    until = time.monotonic() + wait_seconds
    while leftovers(key) and time.monotonic() < until:
        time.sleep(5 * _PAUSE_SECONDS)
    killed: set[int] = set()
    until = time.monotonic() + kill_seconds
    while (alive := leftovers(key)) and time.monotonic() < until:
        for pid in alive:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        killed |= set(alive)
        time.sleep(_PAUSE_SECONDS)
        for pid in killed:  # those that became our children when their guard died
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
    return len(killed)


def oom_kills() -> tuple[int | None, int | None]:
    """Return how many processes the kernel killed for want of memory: in this control group, and on the machine.

    None where it does not say. Source: kernel.org cgroup-v2.rst (`memory.events`, `oom_kill`), cgroup-v1/memory.rst
    (`memory.oom_control`), mm/oom_kill.c (`OOM_KILL` of /proc/vmstat counts both kinds).
    """
    groups = (found for place, name in _own_groups() if (found := _oom_kill(Path(place) / name)) is not None)
    return next(groups, None), _oom_kill(_PROC / "vmstat")


def _oom_kill(path: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        for line in path.read_text().splitlines():
            word, _, number = line.partition(" ")
            if word == "oom_kill":
                return int(number)
    return None


def _own_groups() -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    with contextlib.suppress(OSError):
        for line in (_PROC / "self" / "cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                found.append((f"{_GROUPS[0][0]}{path}", _GROUPS[0][1]))
            elif "memory" in controllers.split(","):
                found.append((f"{_GROUPS[1][0]}{path}", _GROUPS[1][1]))
    return [*found, *_GROUPS]
