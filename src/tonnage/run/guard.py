"""Stands between the supervisor and a launcher, so that no process outlives them; run by its path, alone.

    python guard.py FOLDER LOGS GRACE_SECONDS RANKS -- COMMAND…      standard input: the supervisor's end of a pipe

The supervisor writes T to the pipe to end the ranks gently, D to have their stacks, K to end all at once. When the pipe
closes the supervisor is dead: the ranks are ended gently, with GRACE_SECONDS to write a checkpoint. Whatever the
launcher started is a descendant for ever (PR_SET_CHILD_SUBREAPER, prctl(2)) and is killed before the guard ends. What is
printed goes into LOGS, a file a rank, with the values of secret variables masked.

Standard library only, and little of it: it starts in milliseconds and holds nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any, Final

SUBREAPER: Final = 36  # PR_SET_CHILD_SUBREAPER
PDEATHSIG: Final = 1  # PR_SET_PDEATHSIG
_SECRET: Final = re.compile(
    r"TOKEN(?!IZER)|SECRET|PASSW|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE|AUTH|COOKIE", re.IGNORECASE
)
_RANK: Final = re.compile(rb"\[(?:rank|[a-zA-Z_]*?)(\d{1,6})\]:\s?")
_BLOCK_BYTES: Final = 1 << 16
_LONGEST_LINE_BYTES: Final = 1 << 20
_KILL_SECONDS: Final = 10.0


def prctl(option: int, value: int) -> bool:
    """Set an attribute of this process; False where the system has none such."""
    try:
        return ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) == 0
    except (OSError, AttributeError):
        return False


def descendants(root: int) -> list[int]:
    """Return all processes below one, by /proc; the nearest first."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():  # noqa: PTH112, PTH208  pathlib costs a start
        if name.isdigit():
            parent = _parent(int(name))
            if parent is not None:
                children.setdefault(parent, []).append(int(name))
    found, level = [], [root]
    while level:
        level = [child for parent in level for child in children.get(parent, ())]
        found += level
    return found


def _parent(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None


def send(pids: list[int], number: int) -> None:
    """Send a signal to processes; those that have gone are no matter."""
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


class Logs:
    """Splits what is printed into a file a rank, and masks secrets."""

    def __init__(self, folder: Path, ranks: int) -> None:
        self._folder = folder
        self._sole = ranks == 1
        self._rest = b""
        self._files: dict[str, int] = {}
        values = {value for name, value in os.environ.items() if _SECRET.search(name) and len(value) >= 8}
        self._secrets = sorted((value.encode() for value in values), key=len, reverse=True)

    def take(self, data: bytes) -> None:
        """Write the lines that are complete."""
        lines = (self._rest + data).splitlines(keepends=True)
        self._rest = b""
        if lines and lines[-1][-1:] not in (b"\n", b"\r") and len(lines[-1]) < _LONGEST_LINE_BYTES:
            self._rest = lines.pop()
        for line in lines:
            self._write(line)

    def end(self) -> None:
        """Write what is left."""
        if self._rest:
            self._write(self._rest + b"\n")
        self._rest = b""

    def _write(self, line: bytes) -> None:
        for secret in self._secrets:
            line = line.replace(secret, b"***")
        match = _RANK.match(line)
        whole = "rank-00000.log" if self._sole else "launcher.log"
        name = f"rank-{int(match[1]):05d}.log" if match else whole
        with contextlib.suppress(OSError):  # a full disk must not stop the guard
            if name not in self._files:
                self._files[name] = os.open(self._folder / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            os.write(self._files[name], line)


class Guard:
    """One launcher and all that comes of it."""

    def __init__(self, folder: Path, logs: Logs, grace_seconds: float) -> None:
        self._folder = folder
        self._logs = logs
        self._grace_seconds = grace_seconds
        self._deadline: float | None = None
        self._launcher = 0

    def run(self, command: list[str]) -> int:
        """Run a command to its end and return its code; 128 + n where signal n ended it."""
        prctl(SUBREAPER, 1)
        waker, wake = os.pipe()
        for end in (waker, wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, self._asked)
        reader, writer = os.pipe()
        self._launcher = self._start(command, writer)
        os.close(writer)
        inputs = [0, waker, reader]
        code: int | None = None
        while code is None:
            ready, _, _ = select.select(inputs, [], [], 0.25 if self._deadline else 5.0)
            if waker in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(waker, 4096)
            if reader in ready:
                self._read(reader, inputs)
            if 0 in ready:
                self._obey(inputs)
            code = self._reap()
            if code is None and self._deadline is not None and time.monotonic() > self._deadline:
                self._kill()
        self._kill()
        self._drain(reader)
        self._logs.end()
        return code

    def _start(self, command: list[str], writer: int) -> int:
        pid = os.fork()
        if pid:
            return pid
        try:
            nothing = os.open(os.devnull, os.O_RDONLY)
            os.dup2(nothing, 0)
            os.dup2(writer, 1)
            os.dup2(writer, 2)
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD,
                           signal.SIGPIPE, signal.SIGXFSZ):  # fmt: skip
                signal.signal(number, signal.SIG_DFL)
            prctl(PDEATHSIG, signal.SIGKILL)
            os.execvp(command[0], command)  # noqa: S606  the command of the bundle, as given
        except OSError as error:
            os.write(2, f"{command[0]}: {error.strerror}\n".encode())
        os._exit(127)

    def _read(self, reader: int, inputs: list[int]) -> None:
        data = os.read(reader, _BLOCK_BYTES)
        if data:
            self._logs.take(data)
        else:
            inputs.remove(reader)

    def _drain(self, reader: int) -> None:
        """Take what is still in the pipe; nobody writes to it any more."""
        os.set_blocking(reader, False)
        with contextlib.suppress(BlockingIOError):
            while data := os.read(reader, _BLOCK_BYTES):
                self._logs.take(data)

    def _obey(self, inputs: list[int]) -> None:
        for order in os.read(0, 64) or b"E":
            if order == ord("K"):
                self._kill()
            elif order == ord("D"):
                send(self._ranks(), signal.SIGUSR1)
            elif order == ord("T"):
                self._end_gently()
            else:  # the supervisor is dead
                inputs.remove(0)
                self._end_gently()

    def _asked(self, *_: Any) -> None:
        self._end_gently()

    def _end_gently(self) -> None:
        if self._deadline is None:
            self._deadline = time.monotonic() + self._grace_seconds
            send(self._ranks() or [self._launcher], signal.SIGTERM)

    def _ranks(self) -> list[int]:
        """Return the processes of the ranks: those that wrote a heartbeat and are our descendants."""
        ours = set(descendants(os.getpid()))
        found: list[int] = []
        with contextlib.suppress(OSError):
            for name in os.listdir(self._folder / "heartbeat"):  # noqa: PTH208
                with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
                    if name.startswith("rank-"):
                        found.append(json.loads((self._folder / "heartbeat" / name).read_bytes())["pid"])
        return [pid for pid in found if pid in ours]

    def _reap(self) -> int | None:
        """Collect what has ended; return the launcher's code once it is among them."""
        code = None
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return code
            if pid == 0:
                return code
            if pid == self._launcher:
                code = os.waitstatus_to_exitcode(status)
                code = 128 - code if code < 0 else code

    def _kill(self) -> None:
        """Kill all descendants until none is left; those that a dying process started just before as well."""
        until = time.monotonic() + _KILL_SECONDS
        while (alive := self._alive()) and time.monotonic() < until:
            send(alive, signal.SIGKILL)
            time.sleep(0.005)
            self._reap_others()

    def _alive(self) -> list[int]:
        return [pid for pid in descendants(os.getpid()) if not _is_dead(pid)]

    def _reap_others(self) -> None:
        for pid in descendants(os.getpid()):
            if pid != self._launcher:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)


def _is_dead(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            return file.read().rpartition(b")")[2].split()[0] in (b"Z", b"X")
    except (OSError, IndexError):
        return True


def main(arguments: list[str]) -> int:
    """Guard a command as the words before `--` say."""
    folder, logs, grace, ranks = arguments[: arguments.index("--")]
    command = arguments[arguments.index("--") + 1 :]
    Path(logs).mkdir(parents=True, exist_ok=True)
    return Guard(Path(folder), Logs(Path(logs), int(ranks)), float(grace)).run(command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
