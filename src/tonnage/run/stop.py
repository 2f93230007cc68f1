"""Ends a run from outside: asks its supervisor, waits, and clears up after a dead one."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import replace
from typing import Final

from tonnage.errors import OutsideError, RequestError
from tonnage.messages import say
from tonnage.record.folder import Folder
from tonnage.record.lock import holder
from tonnage.record.types import Run, Status
from tonnage.run.processes import end_leftovers, is_same, leftovers
from tonnage.run.supervise import held
from tonnage.run.types import EndKind

__all__ = ["stop_run"]

_PAUSE_SECONDS: Final = 0.05


def stop_run(folder: Folder, wait_seconds: float) -> Run:
    """End a run and return it as it is then.

    Parameters
    ----------
    folder : Folder
        A run folder; of a dead supervisor the processes that it left are ended.
    wait_seconds : float
        For the checkpoint; then an error says that it still runs. [s]

    Returns
    -------
    Run
        With its status.

    Raises
    ------
    RequestError
        Nothing runs there.
    OutsideError
        It did not end in time, or belongs to another user or machine.
    """
    run = folder.read()
    who = holder(folder.lock_file)
    if who is None:
        return _clear_up(folder, run)
    if not is_same(who):
        raise OutsideError(say("run.elsewhere"), where=str(folder.path)[:200], fix=say("run.fix_elsewhere"))
    try:
        os.kill(who["pid"], signal.SIGTERM)
    except PermissionError:
        raise OutsideError(say("run.not_yours"), where=str(folder.path)[:200], fix=say("run.fix_elsewhere")) from None
    except ProcessLookupError:
        pass
    until = time.monotonic() + wait_seconds
    while folder.is_supervised:
        if time.monotonic() > until:
            fix = say("run.fix_wait")
            raise OutsideError(say("run.still_runs", pid=who["pid"]), where=str(folder.path)[:200], fix=fix)
        time.sleep(_PAUSE_SECONDS)
    return folder.read()


def _clear_up(folder: Folder, run: Run) -> Run:
    left = leftovers(run.key)
    if run.status.is_over and not left:
        raise RequestError(
            say("run.not_running", status=run.status), where=str(folder.path)[:200], fix=say("run.fix_list")
        )
    with held(folder):
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGTERM)
        end_leftovers(run.key, 10.0)
        run = folder.read()
        if run.status.is_over:
            return run
        attempts = run.attempts
        if attempts and attempts[-1].ended is None:
            attempts = (*attempts[:-1], replace(attempts[-1], ended=time.time(), reason=str(EndKind.LOST)))
        message = say("run.stopped_at", name=run.last_checkpoint) if run.last_checkpoint else say("run.stopped_without")
        run = replace(run, status=Status.STOPPED, attempts=attempts, message=message, exit_code=75)
        folder.write(run)
    return run
