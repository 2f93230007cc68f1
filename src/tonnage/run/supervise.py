"""Brings a run to its end: one attempt after another as long as that helps, with `run.json` true at every instant."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tonnage.errors import OutsideError, RequestError
from tonnage.messages import say
from tonnage.monitor.exposition import exposition
from tonnage.plan.types import Plan
from tonnage.record.checkpoints import checkpoints
from tonnage.record.environment import hide, hide_in_files, secrets
from tonnage.record.files import replace_text
from tonnage.record.folder import Folder
from tonnage.record.lock import Lock, holder
from tonnage.record.metrics import Collector
from tonnage.record.types import Attempt, Event, Heartbeat, Run, Status, Step
from tonnage.run.attempt import PIPE, Running, Stop
from tonnage.run.checkpoints import make_ready
from tonnage.run.guard import SUBREAPER, prctl
from tonnage.run.measured import measured_of, request_of
from tonnage.run.notices import watch_notices
from tonnage.run.policy import decide
from tonnage.run.processes import KEY, end_leftovers, leftovers, mark_of
from tonnage.run.types import Decision, End, EndKind, Launch, Settings, Verdict

__all__ = ["Update", "held", "ignore", "supervise", "writing"]

_SERVED_SECONDS: Final = 300.0  # what does not tell its steps and ran so long starts with a clean sheet
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # as far as they are not ignored: nohup(1)
# torch 2.13 libtorch_cpu.so, and the name that older ones read; torch adds the rank
_FLIGHT: Final = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_STATUS: Final = {
    Verdict.FINISH: Status.FINISHED,
    Verdict.STOP: Status.STOPPED,
    Verdict.GIVE_UP: Status.GIVEN_UP,
    Verdict.FAIL: Status.FAILED,
}


class Update:
    """What whoever watches is told: the run, and the figures of a step or an event where there is one."""

    __slots__ = ("beats", "event", "run", "step")

    def __init__(
        self, run: Run, *, step: Step | None = None, event: Event | None = None, beats: tuple[Heartbeat, ...] = ()
    ) -> None:
        self.run, self.step, self.event, self.beats = run, step, event, beats


def ignore(update: Update) -> None:
    """Watch nothing."""
    del update


def supervise(
    folder: Folder, launch: Launch, settings: Settings, watch: Callable[[Update], None], plan: Plan | None = None
) -> Run:
    """Start what is to run and see it to its end.

    Parameters
    ----------
    folder : Folder
        With a `run.json`, held by the caller; attempts that it tells of are resumed from.
    launch : Launch
        What each attempt starts.
    settings : Settings
        Patience.
    watch : callable
        Called with an `Update` at each new step and event.
    plan : Plan
        What is carried out, where it is known: what is measured is kept beside its request.

    Returns
    -------
    Run
        At its end; `exit_code` is what the command line ends with.

    Raises
    ------
    OutsideError
        The run folder cannot be written.
    """
    stop = Stop()
    try:
        with writing(folder), _signals(stop), _notices(settings, stop):
            return _Supervisor(folder, launch, settings, watch, stop, plan).run()
    finally:
        stop.close()


@contextlib.contextmanager
def writing(folder: Folder) -> Iterator[None]:
    """Say of a run folder that cannot be written what is wrong with it.

    Raises
    ------
    OutsideError
        In place of an `OSError`.
    """
    try:
        yield
    except OSError as error:
        what = say("run.cannot_write", reason=error.strerror or error)
        raise OutsideError(what, where=str(folder.path)[:200], fix=say("run.fix_room")) from None


@contextlib.contextmanager
def held(folder: Folder) -> Iterator[None]:
    """Hold a run folder against other supervisors.

    Raises
    ------
    RequestError
        Another one is alive.
    OutsideError
        The folder cannot be written, or the system has no /proc to find a run's processes by.
    """
    if not Path("/proc/self/stat").is_file():
        raise OutsideError(say("run.no_proc"), where="/proc", fix=say("run.fix_no_proc"))
    lock = Lock(folder.lock_file)
    with writing(folder):
        is_taken = lock.take(mark_of(os.getpid()))
    if not is_taken:
        who = holder(folder.lock_file) or {}
        fix = say("run.fix_alive", path=str(folder.path))
        raise RequestError(say("run.alive", pid=who.get("pid", "?")), where=str(folder.path)[:200], fix=fix)
    try:
        yield
    finally:
        lock.release()


def _notices(settings: Settings, stop: Stop) -> contextlib.AbstractContextManager[None]:
    return watch_notices(settings.notice, settings.notice_url, stop.ask, settings.notice_seconds)


@contextlib.contextmanager
def _signals(stop: Stop) -> Iterator[None]:
    """Let signals ask for a stop; only a process's first thread can hear them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {n: handler for n in _SIGNALS if (handler := signal.getsignal(n)) is not signal.SIG_IGN}
    try:
        for number in before:
            signal.signal(number, lambda got, _: stop.ask(signal.Signals(got).name))
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Supervisor:
    def __init__(
        self,
        folder: Folder,
        launch: Launch,
        settings: Settings,
        watch: Callable[[Update], None],
        stop: Stop,
        plan: Plan | None,
    ) -> None:
        self._folder, self._launch, self._settings, self._watch, self._stop = folder, launch, settings, watch, stop
        self._run = folder.read()
        self._written = self._run
        self._ends: list[End] = []
        self._collector = Collector(folder)
        self._plan = plan
        self._secrets = secrets(os.environ)
        prctl(SUBREAPER, 1)  # what a killed guard leaves becomes ours, and is found by its mark

    def run(self) -> Run:
        """Return the run at its end."""
        self._clear_up()
        while True:
            decision = self._attempt()
            if decision.verdict is not Verdict.RESTART:
                return self._close(decision)
            self._tell("restart", why=decision.why, wait_seconds=decision.wait_seconds)
            self._pause(decision.wait_seconds)
            if self._stop.reason:
                return self._close(Decision(verdict=Verdict.STOP, why=self._stop.reason, exit_code=75))

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._stop.reason and (left := until - time.monotonic()) > 0:
            self._stop.wait(left)

    def _clear_up(self) -> None:
        """End what a dead supervisor left, and close its attempt."""
        if leftovers(self._run.key):
            self._tell("leftovers", why=say("run.leftovers"))
            num = end_leftovers(self._run.key, self._settings.grace_seconds)
            self._tell("leftovers_ended", num_killed=num)
        if self._run.attempts and self._run.attempts[-1].ended is None:
            lost = replace(self._run.attempts[-1], ended=self._last_sign(), reason=str(EndKind.LOST))
            self._put(attempts=(*self._run.attempts[:-1], lost))

    def _last_sign(self) -> float:
        times = [beat.time for beat in self._folder.heartbeat() if beat.time is not None]
        return max([self._run.attempts[-1].started, *times])

    def _attempt(self) -> Decision:
        number = self._run.attempts[-1].number + 1 if self._run.attempts else 0
        ready = make_ready(self._folder, number)
        for name, fault in ready.damaged:
            self._hear("checkpoint_skipped", why=f"{name}: {fault}")
        attempt = Attempt(number=number, started=time.time(), resumed_from_step=ready.step)
        self._put(
            status=Status.STARTING, attempts=(*self._run.attempts, attempt), last_checkpoint=ready.name,
            message="", exit_code=None,
        )  # fmt: skip
        running = Running(self._folder, number, self._with_env(number), self._settings)
        running.expect(self._run.predicted.step_seconds_high or self._run.predicted.step_seconds)
        self._tell("attempt", pid=running.guard_pid, resumed_from_step=ready.step)
        try:
            end = running.watch(self._stop, self._look)
        except BaseException:
            running.kill()
            raise
        end_leftovers(self._run.key, 0.0)  # none, unless the guard itself was killed
        end = replace(end, message=hide(end.message, self._secrets))
        hide_in_files((self._folder.events_file, *self._folder.errors.glob("*.json")), self._secrets)
        self._keep(end)
        is_mute = self._launch.is_server or not self._launch.has_heartbeat  # how far it came is not known
        is_fresh = is_mute and time.time() - attempt.started > _SERVED_SECONDS
        self._ends = [end] if is_fresh else [*self._ends, end]
        return decide(self._ends, self._settings, is_server=self._launch.is_server)

    def _with_env(self, number: int) -> Launch:
        env = {
            **self._launch.env,
            KEY: self._run.key,
            "TONNAGE_RUN_DIR": str(self._folder.path),
            "TONNAGE_ATTEMPT": str(number),
            "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(self._folder.scratch / PIPE),
            **dict.fromkeys(_FLIGHT, str(self._folder.dumps / f"attempt-{number:03d}-flight-")),
        }
        return replace(self._launch, env=env)

    def _look(self, running: Running) -> None:
        """Pass on what is new, and let `run.json` follow it."""
        new = running.new_steps
        if self._run.status is Status.STARTING and running.is_moving:
            self._put(status=Status.RUNNING)
        for step in new:
            self._watch(Update(self._run, step=step, beats=running.beats()))
        if new:
            self._put(last_step=new[-1].step, is_late=True)
        if self._settings.textfile is not None and time.monotonic() >= self._next_textfile:
            self._next_textfile = time.monotonic() + self._settings.textfile_seconds
            self._write_textfile(self._settings.textfile)

    def _write_textfile(self, path: Path) -> None:
        with contextlib.suppress(OSError):  # figures are no reason to stop
            replace_text(path, exposition(self._collector.samples()))

    def _keep(self, end: End) -> None:
        """Write how an attempt ended."""
        attempt = replace(
            self._run.attempts[-1],
            ended=time.time(), exit_code=end.exit_code, exit_codes=end.exit_codes, reason=str(end.kind),
            detail=end.detail, last_step=end.reached,
        )  # fmt: skip
        newest = next(iter(checkpoints(self._folder.checkpoints)), None)
        self._put(
            attempts=(*self._run.attempts[:-1], attempt),
            last_checkpoint=None if newest is None else newest.name,
            last_step=end.reached if end.reached is not None else self._run.last_step,
            **self._told_by_steps(),
        )
        self._tell("attempt_ended", reason=attempt.reason, detail=attempt.detail, step=end.step)

    def _told_by_steps(self) -> dict[str, Any]:
        """Return the plan's request and what was measured of it, where both are known."""
        measured = measured_of(self._folder)
        request = None if measured is None or self._plan is None else request_of(self._plan)
        return {} if request is None else {"request": request, "measured": measured}

    def _close(self, decision: Decision) -> Run:
        message = decision.why
        if decision.verdict is Verdict.STOP:
            name = self._run.last_checkpoint
            message = say("run.stopped_at", name=name) if name else say("run.stopped_without")
        self._put(status=_STATUS[decision.verdict], message=message, exit_code=decision.exit_code)
        self._tell(str(self._run.status), why=message)
        if self._settings.textfile is not None:
            self._write_textfile(self._settings.textfile)
        return self._run

    def _put(self, *, is_late: bool = False, **changes: Any) -> None:
        """Change the run and write it; where the disk is full the old text stays, whole, until there is room."""
        self._run = replace(self._run, **changes)
        if is_late and self._written.status is self._run.status and time.monotonic() < self._next_write:
            return
        self._next_write = time.monotonic() + 1.0
        try:
            self._folder.write(self._run)
            self._written = self._run
        except OSError:
            if not self._run.attempts:
                raise

    _next_write = 0.0
    _next_textfile = 0.0

    def _tell(self, event: str, *, step: int | None = None, **more: Any) -> None:
        number = self._run.attempts[-1].number if self._run.attempts else None
        told = Event(time=time.time(), event=event, attempt=number, step=step, more=more)
        with contextlib.suppress(OSError):
            self._folder.tell(told)
        self._watch(Update(self._run, event=told))

    def _hear(self, event: str, **more: Any) -> None:
        """Tell whoever watches of an event that is written already."""
        self._watch(Update(self._run, event=Event(time=time.time(), event=event, more=more)))
