"""One start of the launcher: begun behind a guard, watched for signs of life, ended."""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import signal
import stat
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from tonnage.messages import say
from tonnage.record.files import tail
from tonnage.record.folder import Folder, step_of
from tonnage.record.types import Event, Fault, Heartbeat, Step
from tonnage.run.health import is_healthy
from tonnage.run.processes import oom_kills, state_of
from tonnage.run.types import End, EndKind, Launch, Settings

__all__ = ["PIPE", "Running", "Stop"]

_EXIT: Final = re.compile(r"failed \(exitcode: (-?\d+)\) local_rank: (\d+)")
_RANK: Final = re.compile(r"^\[rank\d+\]:\s*")
PIPE: Final = "flight-recorder-"  # in the attempt's scratch folder
_GUARD: Final = Path(__file__).with_name("guard.py")
_TAIL_BYTES: Final = 1 << 18
_HEALTH_SECONDS: Final = 2.0  # between two looks at a server
_MEDIAN_STEPS: Final = 50
_LEAST_STEPS: Final = 5  # before their median counts
_SLOW_PHASES: Final = re.compile(r"start|load|compil|init|resum|prepar|warm|eval", re.IGNORECASE)
_SAVE_PHASES: Final = re.compile(r"sav|checkpoint|stop|done", re.IGNORECASE)


class Stop:
    """Whether the run was asked to stop, and how: set by signals and by notices, read by whoever waits."""

    def __init__(self) -> None:
        self.reason = ""
        self.is_urgent = False
        self.grace_seconds: float | None = None
        self._reader, self._writer = os.pipe()
        for end in (self._reader, self._writer):
            os.set_blocking(end, False)

    def ask(self, reason: str, grace_seconds: float | None = None) -> None:
        """Ask to stop; with a second Ctrl-C, at once."""
        self.is_urgent = self.is_urgent or (reason == "SIGINT" == self.reason)
        self.reason = self.reason or reason
        self.grace_seconds = grace_seconds if self.grace_seconds is None else self.grace_seconds
        with contextlib.suppress(OSError):
            os.write(self._writer, b".")

    def wait(self, seconds: float, *others: int) -> None:
        """Sleep until asked, until one of the other descriptors is ready, or until the time is over."""
        ready, _, _ = select.select([self._reader, *others], [], [], max(0.0, seconds))
        if self._reader in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._reader, 64)

    def close(self) -> None:
        """Give the pipe back."""
        os.close(self._reader)
        os.close(self._writer)


class Running:
    """An attempt that runs."""

    def __init__(self, folder: Folder, number: int, launch: Launch, settings: Settings) -> None:
        self.folder, self.number, self._launch, self._settings = folder, number, launch, settings
        self.steps: list[Step] = []  # of rank 0 in this attempt, the last ones
        self.new_steps: tuple[Step, ...] = ()  # since the look before
        self.last_step: int | None = None
        self._offset = _size(folder.metrics(0))
        self._beats: dict[int, tuple[Heartbeat, float]] = {}
        self._moved: set[int] = set()  # ranks that did a step in this attempt
        self._begun = time.monotonic()
        self._oom_kills = oom_kills()
        self._expected_seconds: float | None = None
        self._healthy: float | None = None  # when a server answered last
        self._next_health = 0.0
        self._clear_heartbeats()
        self._make_scratch()
        self._guard = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        launch, logs = self._launch, self.folder.logs(self.number)
        grace = self._settings.grace_seconds
        words = [str(self.folder.path), str(logs), str(grace), str(launch.ranks), "--", *launch.command]
        return subprocess.Popen(  # noqa: S603  the command of the bundle, as given
            [sys.executable, "-I", "-S", str(_GUARD), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=launch.folder,
            env={**os.environ, **launch.env},
            start_new_session=True,
        )

    def _clear_heartbeats(self) -> None:
        """Take away what an earlier attempt's ranks wrote: their numbers may be other processes by now."""
        if self.folder.heartbeats.is_dir():
            for path in self.folder.heartbeats.iterdir():
                with contextlib.suppress(OSError):
                    path.unlink()

    def _make_scratch(self) -> None:
        """Make an empty folder for what torch's launcher keeps meanwhile; only this user may read it."""
        self._clear_scratch()
        self.folder.scratch.mkdir(mode=0o700)

    def _clear_scratch(self) -> None:
        shutil.rmtree(self.folder.scratch, ignore_errors=True)

    @property
    def guard_pid(self) -> int:
        """Number of the guard's process."""
        return self._guard.pid

    def expect(self, step_seconds: float | None) -> None:
        """Say how long the plan expects a step to take."""
        self._expected_seconds = step_seconds

    def watch(self, stop: Stop, tell: Callable[[Running], None]) -> End:
        """Wait for the end, whatever it is; `tell` hears of every look."""
        handle = os.pidfd_open(self._guard.pid) if hasattr(os, "pidfd_open") else None
        others = () if handle is None else (handle,)
        hung: Heartbeat | None = None
        ordered_until: float | None = None
        try:
            while self._guard.poll() is None:
                stop.wait(self._settings.tick_seconds, *others)
                self._look()
                tell(self)
                if stop.reason and ordered_until is None:
                    ordered_until = time.monotonic() + self._grace(stop)
                    self._order(b"T")
                elif ordered_until is not None and (stop.is_urgent or time.monotonic() > ordered_until):
                    self._order(b"K")
                elif ordered_until is None and hung is None and (hung := self._hung()) is not None:
                    self._end_hung(hung)
        finally:
            if handle is not None:
                os.close(handle)
        self._clear_scratch()
        if self._guard.stdin is not None:
            with contextlib.suppress(OSError):
                self._guard.stdin.close()
        self._look()
        tell(self)
        return self._end(stop, hung)

    def kill(self) -> None:
        """End everything now."""
        self._order(b"K")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._guard.wait(15)
        if self._guard.poll() is None:
            self._guard.kill()

    def _grace(self, stop: Stop) -> float:
        own = self._settings.grace_seconds
        return own if stop.grace_seconds is None else min(own, stop.grace_seconds)

    def _order(self, letter: bytes) -> None:
        assert self._guard.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # it has ended, or was told all
            self._guard.stdin.write(letter)
            self._guard.stdin.flush()

    def _look(self) -> None:
        """Read what is new in the run folder."""
        now = time.monotonic()
        if self._launch.health_url is not None and now >= self._next_health:
            self._next_health = now + _HEALTH_SECONDS
            if is_healthy(self._launch.health_url):
                self._healthy = time.monotonic()
        for beat in self.folder.heartbeat():
            known = self._beats.get(beat.rank)
            if known is None or known[0] != beat:
                if known is not None and known[0].step != beat.step and known[0].step is not None:
                    self._moved.add(beat.rank)
                self._beats[beat.rank] = (beat, now)
        lines, self._offset = tail(self.folder.metrics(0), self._offset)
        found = [step for line in lines if (step := step_of(line)) is not None]
        self.new_steps = tuple(found)
        self.steps = [*self.steps, *found][-_MEDIAN_STEPS:]
        if found:
            self.last_step = found[-1].step

    @property
    def is_moving(self) -> bool:
        """Whether the job is beyond its start, as far as it tells."""
        if self._launch.health_url is not None:
            return self._healthy is not None
        return bool(self.steps) or bool(self._moved) or self._launch.is_server or not self._launch.has_heartbeat

    def beats(self) -> tuple[Heartbeat, ...]:
        """Return what each rank did last."""
        return tuple(beat for _, (beat, _) in sorted(self._beats.items()))

    def step_deadline_seconds(self) -> float:
        """Return after what silence a step counts as hung."""
        taken = [step.step_seconds for step in self.steps if step.step_seconds is not None]
        measured = statistics.median(taken) if len(taken) >= _LEAST_STEPS else None
        expected = measured if measured is not None else self._expected_seconds
        return max(self._settings.least_step_seconds, self._settings.step_factor * (expected or 0.0))

    def _deadline_seconds(self, beat: Heartbeat) -> float:
        step = self.step_deadline_seconds()
        if _SAVE_PHASES.search(beat.phase):
            return max(self._settings.save_seconds, step)
        if beat.rank not in self._moved or _SLOW_PHASES.search(beat.phase):
            return max(self._settings.start_seconds, step)
        return step

    def _hung(self) -> Heartbeat | None:
        """Return the rank that all wait for, once none gives a sign of life: one that is stopped, else the one behind.

        As long as one rank works – it encodes text, or writes the model – the others may have to wait for it.
        """
        now = time.monotonic()
        if self._launch.is_server:
            return self._silent_server(now)
        if not self._launch.has_heartbeat:
            return None
        if not self._beats:
            silent = now - self._begun > self._settings.start_seconds
            return Heartbeat(rank=0, step=None, phase="starting", time=None, pid=None) if silent else None
        late = [beat for beat, seen in self._beats.values() if now - seen > self._deadline_seconds(beat)]
        if len(late) < len(self._beats):
            return None
        return min(late, key=lambda beat: (not _is_stopped(beat), -1 if beat.step is None else beat.step, beat.rank))

    def _silent_server(self, now: float) -> Heartbeat | None:
        """Return a server that does not answer in the time it is given to start, or for as long as a step may take."""
        if self._launch.health_url is None:
            return None
        since = self._begun if self._healthy is None else self._healthy
        patience = self._settings.start_seconds if self._healthy is None else self._settings.least_step_seconds
        phase = "starting" if self._healthy is None else "serving"
        return Heartbeat(rank=0, step=None, phase=phase, time=None, pid=None) if now - since > patience else None

    def _end_hung(self, hung: Heartbeat) -> None:
        """Save what tells why, then kill."""
        known = self._beats.get(hung.rank)
        silent = time.monotonic() - (known[1] if known else self._begun)
        self.tell(
            "hang", rank=hung.rank, step=hung.step, phase=hung.phase, silent_seconds=round(silent, 3),
            states={str(beat.rank): state_of(beat.pid) for beat in self.beats() if beat.pid is not None},
        )  # fmt: skip
        before = _sizes(self.folder.dumps)
        self._order(b"D")
        num_asked = self._ask_for_flight_recorders()
        until = time.monotonic() + self._settings.dump_seconds
        able = num_asked + sum(not _is_stopped(beat) for beat in self.beats())
        while time.monotonic() < until and self._guard.poll() is None:
            if able and len(_sizes(self.folder.dumps) - before) >= able:
                break
            time.sleep(min(0.05, self._settings.dump_seconds))
        self.tell("dumps_saved", files=sorted({name for name, _ in _sizes(self.folder.dumps) - before}))
        self._order(b"K")

    def _ask_for_flight_recorders(self) -> int:
        """Have each NCCL rank write its flight recorder; return how many were asked.

        Source: pytorch torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp (`DumpPipe`): anything written to the named pipe
        `TORCH_NCCL_DEBUG_INFO_PIPE_FILE` + rank + `.pipe`.
        """
        num_asked = 0
        for path in self.folder.scratch.glob(f"{PIPE}*.pipe"):
            with contextlib.suppress(OSError):
                handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
                try:
                    if stat.S_ISFIFO(os.fstat(handle).st_mode):
                        os.write(handle, b"1")
                        num_asked += 1
                finally:
                    os.close(handle)
        return num_asked

    def tell(self, event: str, *, rank: int | None = None, step: int | None = None, **more: object) -> None:
        """Write an event; a full disk is no reason to stop."""
        with contextlib.suppress(OSError):
            self.folder.tell(Event(time=time.time(), event=event, attempt=self.number, rank=rank, step=step, more=more))

    def _end(self, stop: Stop, hung: Heartbeat | None) -> End:
        code = self._guard.returncode
        code = 128 - code if code < 0 else code
        codes = self._exit_codes(code)
        fault = next(iter(self.folder.faults(self.number)), None)
        step, rank = self._place(fault, codes)
        known: dict[str, Any] = {
            "exit_code": code,
            "exit_codes": codes,
            "step": step,
            "reached": self.last_step,
            "rank": rank,
        }
        if hung is not None:
            words = say("run.hang", phase=hung.phase or "?")
            if _is_stopped(hung):
                words = say("run.hang_stopped")
            return End(kind=EndKind.HANG, type="hang", message=words, **{**known, "step": hung.step, "rank": hung.rank})
        if code == 0 and not (stop.reason and self._launch.is_server):
            return End(kind=EndKind.FINISHED, **known)
        if stop.reason:
            return End(kind=EndKind.STOPPED, type="", message=stop.reason, **known)
        first = next((one for one in codes.values() if one), code)
        return _judge(fault, first, self._words(code, codes), known, oom=self._oom())

    def _oom(self) -> str:
        """Return what the kernel says of processes that it killed for want of memory in this attempt's time."""
        for name, before, now in zip(("run.oom_group", "run.oom_machine"), self._oom_kills, oom_kills(), strict=True):
            if now is not None and before is not None and now > before:
                return say(name)
        return ""

    def _place(self, fault: Fault | None, codes: Mapping[str, int]) -> tuple[int | None, int | None]:
        """Return at which step and rank it ended: that of the rank a signal ended, for the others only lost it."""
        first = next((int(rank) for rank, code in codes.items() if code), None)
        if first is not None and codes[str(first)] < 0:
            return (self._beats[first][0].step if first in self._beats else self.last_step), first
        if fault is not None:
            return fault.step, fault.rank
        done = [beat.step for beat in self.beats() if beat.step is not None]
        return (min(done) if done else self.last_step), None

    def _exit_codes(self, code: int) -> dict[str, int]:
        """Return the codes of ranks that torch's launcher names, else that of the only rank."""
        text = "".join(_end_of(path) for path in (self.folder.logs(self.number) / "launcher.log",
                                                   self.folder.log(self.number, 0)))  # fmt: skip
        found = {rank: int(number) for number, rank in _EXIT.findall(text)}
        if code == 0:
            return {str(beat.rank): 0 for beat in self.beats()} or {"0": 0}
        return found or ({"0": code} if self._launch.ranks == 1 else {})

    def _words(self, code: int, codes: Mapping[str, int]) -> str:
        """Return the last line that was printed by whoever failed first, where no rank told what it ended of."""
        ranks = [int(rank) for rank, one in codes.items() if one]
        paths = [self.folder.log(self.number, rank) for rank in ranks[:1]]
        for path in (*paths, self.folder.logs(self.number) / "launcher.log", self.folder.log(self.number, 0)):
            lines = [line for line in _end_of(path).splitlines() if line.strip() and not _EXIT.search(line)]
            if lines:
                return _RANK.sub("", lines[-1].strip())[:300]
        return say("run.code", code=code)


def _judge(fault: Fault | None, first: int, words: str, known: Mapping[str, Any], *, oom: str) -> End:
    """Return what kind of end it was, by the code of the process that ended first."""
    told = {"type": "" if fault is None else fault.type, "message": words if fault is None else fault.message}
    if first == 75:
        return End(kind=EndKind.LEFT, message=say("run.left"), **known)
    if first < 0 or first > 128:
        number = -first if first < 0 else first - 128
        name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
        message = oom if number == signal.SIGKILL else ""
        return End(kind=EndKind.KILLED, type=name, message=message, **known)
    if first in (4, 126, 127):
        return End(kind=EndKind.MISSING, **told, **known)
    return End(kind=EndKind.REQUEST if first == 2 else EndKind.ERROR, **told, **known)


def _is_stopped(beat: Heartbeat) -> bool:
    return beat.pid is not None and state_of(beat.pid) in ("T", "t")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _sizes(folder: Path) -> set[tuple[str, int]]:
    """Return the files of a folder with their sizes: one that grew is another."""
    try:
        return {(path.name, _size(path)) for path in folder.iterdir() if not path.name.startswith(".")}
    except OSError:
        return set()


def _end_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, _size(path) - _TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
