"""Runs of the fake job under a real supervisor: each end, and what the run folder says of it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.record.test_folder import RUN
from validation.fake_bundle import write_bundle
from validation.faults import FAST, Fault, Trial, fake_job

from tonnage import api
from tonnage.errors import OutsideError, RequestError
from tonnage.record import environment
from tonnage.record.folder import Folder
from tonnage.record.types import Status
from tonnage.run import guard, processes

QUICK = {**FAST, "least_step_seconds": 30.0, "tick_seconds": 0.01}  # a busy machine is no hang


def run(bundle, **patience):
    return api.run(str(bundle), **{**QUICK, **patience})


@pytest.fixture
def folder(tmp_path):
    return Folder(path=tmp_path / "bundle" / "run")


def bundle(tmp_path, **job):
    return write_bundle(tmp_path / "bundle", **{"num_steps": 8, "save_every": 4, "save_seconds": 0.0, **job})


def test_a_run_ends_finished(tmp_path, folder, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_0123456789")
    updates = []
    textfile = tmp_path / "out" / "run.prom"
    state = api.run(str(bundle(tmp_path)), watch=updates.append, textfile=textfile, **QUICK)
    assert 'tonnage_train_step{run="fake",rank="1"} 8\n' in textfile.read_text()
    assert 'tonnage_run_status{run="fake",status="finished"} 1\n' in textfile.read_text()
    assert state == folder.read()
    assert (state.status, state.exit_code, state.last_step, state.last_checkpoint) == (
        Status.FINISHED,
        0,
        8,
        "step-00000008",
    )
    assert [step.step for step in folder.steps(1)] == list(range(1, 9))
    assert [update.step.step for update in updates if update.step] == list(range(1, 9))
    assert "[rank1]: step 8" in folder.log(0, 1).read_text()
    assert "[rank0]: step 8" in folder.log(0, 0).read_text()
    for path in folder.path.rglob("*"):
        if path.is_file():
            assert b"hf_0123456789" not in path.read_bytes(), path
    with pytest.raises(RequestError, match="finished"):
        run(tmp_path / "bundle")
    assert processes.leftovers(state.key) == ()


def test_no_step_is_lost_on_who_watches(tmp_path):
    updates = []
    api.run(
        str(bundle(tmp_path, num_steps=150, save_every=100, step_seconds=0.0)),
        watch=updates.append,
        **{**QUICK, "tick_seconds": 0.4},
    )
    assert [update.step.step for update in updates if update.step] == list(range(1, 151))


def test_more_steps_go_on_from_the_end(tmp_path, folder):
    first = run(bundle(tmp_path))
    second = api.run(str(folder.path), num_steps=12, **QUICK)
    assert (second.last_step, second.attempts[1].resumed_from_step, second.key) == (12, 8, first.key)
    assert json.loads((folder.bundle / "job.json").read_text())["training_arguments"] == {"max_steps": 12}


def test_the_same_error_at_the_same_step_twice_is_given_up(tmp_path, folder, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_0123456789")
    state = run(bundle(tmp_path, fail_at=6))
    for path in folder.path.rglob("*"):
        assert path.is_dir() or b"hf_0123456789" not in path.read_bytes(), path
    assert (state.status, state.exit_code, len(state.attempts)) == (Status.GIVEN_UP, 3, 2)
    assert "ValueError: broken at" in state.message
    assert state.attempts[0].exit_codes["0"] in (1, -9)
    assert (state.attempts[1].resumed_from_step, state.attempts[1].reason) == (4, "error")
    assert [event.event for event in folder.events() if event.event in ("restart", "given_up")] == [
        "restart",
        "given_up",
    ]


@pytest.mark.parametrize(("code", "status"), [(2, Status.FAILED), (4, Status.FAILED)])
def test_what_starting_again_cannot_mend_is_not_started_again(tmp_path, code, status):
    state = run(bundle(tmp_path, exit_with=code, num_ranks=1))
    assert (state.status, state.exit_code, len(state.attempts)) == (status, code, 1)


def test_a_missing_program_ends_with_4(tmp_path):
    place = bundle(tmp_path)
    (place / "start.sh").write_text("exec no-such-launcher train.py\n")
    state = run(place)
    assert (state.exit_code, state.attempts[0].exit_code) == (4, 127)
    assert "no-such-launcher" in state.message


def test_nan_at_the_same_step_twice_is_given_up(tmp_path):
    state = run(bundle(tmp_path, nan_at=3, nan_always=True))
    assert (state.status, state.exit_code) == (Status.GIVEN_UP, 3)
    assert "FloatingPointError" in state.message


def test_a_hang_is_seen_told_and_ended(tmp_path, folder):
    state = run(bundle(tmp_path, hang_at=6, hang_rank=1), least_step_seconds=1.5)
    assert [one.reason for one in state.attempts] == ["hang", "finished"]
    (told,) = (event for event in folder.events() if event.event == "hang")
    assert (told.attempt, told.step) == (0, 5)
    stacks = sorted(path.name for path in folder.dumps.iterdir())
    assert stacks == ["attempt-000-flight-1", "attempt-000-rank-00000.stacks.txt", "attempt-000-rank-00001.stacks.txt"]
    assert "maybe_fail" in (folder.dumps / stacks[2]).read_text()
    assert (folder.dumps / stacks[0]).read_text() == "recorded"


def stop_soon(folder, number=signal.SIGTERM, step=3):
    """Send this process a signal once the run has reached a step."""

    def wait():
        until = time.monotonic() + 20
        while time.monotonic() < until:
            if any((beat.step or 0) >= step for beat in folder.heartbeat()):
                os.kill(os.getpid(), number)
                return
            time.sleep(0.005)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_a_stop_leaves_a_checkpoint_and_the_next_start_goes_on(tmp_path, folder):
    place = bundle(tmp_path, num_steps=60, save_every=50)
    thread = stop_soon(folder)
    state = run(place)
    thread.join()
    assert (state.status, state.exit_code) == (Status.STOPPED, 75)
    saved = int(state.last_checkpoint.removeprefix("step-"))
    assert 3 <= saved < 60
    assert state.attempts[0].exit_codes == {"0": 75, "1": 75}
    later = run(place)
    assert (later.status, later.attempts[1].resumed_from_step) == (Status.FINISHED, saved)


def test_a_job_that_does_not_stop_is_killed_after_its_grace(tmp_path, folder):
    place = bundle(tmp_path, num_steps=60, hang_at=4, hang_always=True)
    thread = stop_soon(folder)
    state = run(place, grace_seconds=0.3, least_step_seconds=30.0)
    thread.join()
    assert (state.status, state.exit_code, state.last_checkpoint) == (Status.STOPPED, 75, None)
    assert processes.leftovers(state.key) == ()


def test_another_supervisor_is_told_of_and_stopped(tmp_path, folder):
    job = fake_job(2, 500)
    trial = Trial(job, Fault(number=0, job=job.name, kind="", rank=0, step=1), tmp_path)
    trial.start()
    assert trial.wait(lambda: trial.pid(0))
    with pytest.raises(RequestError, match=f"process {trial.supervisor} runs it"):
        api.run(str(trial.run.path))
    told = api.stop(trial.run.path)
    assert trial.end() == 75
    assert (told["status"], told["last_checkpoint"]) == ("stopped", trial.run.read().last_checkpoint)
    with pytest.raises(RequestError, match="nothing runs"):
        api.stop(trial.run.path)


def test_what_a_dead_supervisor_left_is_stopped(tmp_path):
    job = fake_job(1, 500)
    trial = Trial(job, Fault(number=0, job=job.name, kind="", rank=0, step=1), tmp_path)
    trial.start()
    assert trial.wait(lambda: trial.pid(0))
    os.kill(trial.supervisor, signal.SIGKILL)
    trial.end()
    assert api.runs(tmp_path)[0]["status"] == "lost"
    assert api.stop(trial.run.path)["status"] == "stopped"
    state = trial.run.read()
    assert state.attempts[-1].reason == "lost"
    assert processes.leftovers(state.key) == ()


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    place = bundle(tmp_path)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")
    with pytest.raises(RequestError, match="not empty"):
        api.run(str(place), to=mine, **QUICK)
    assert (mine / "notes.txt").read_text() == "mine"
    with pytest.raises(RequestError, match="neither a bundle nor a run"):
        api.run(str(mine))


def test_a_run_folder_that_was_cut_off_while_it_was_made_is_made_again(tmp_path):
    place = bundle(tmp_path)
    (place / "run" / "bundle").mkdir(parents=True)
    (place / "run" / ".making").touch()
    assert run(place).status is Status.FINISHED
    assert not (place / "run" / ".making").exists()


def test_a_training_does_not_end_with_its_terminal(tmp_path):
    from tonnage.cli.progress import Progress

    class Gone:
        def isatty(self):
            return False

        def write(self, _):
            raise BrokenPipeError

        flush = write

    with contextlib.redirect_stderr(Gone()):
        state = api.run(str(bundle(tmp_path)), watch=Progress(is_json=False, is_quiet=False), **QUICK)
    assert state.exit_code == 0


def test_a_place_that_is_no_folder_is_no_fault_of_ours(tmp_path):
    place = bundle(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(OutsideError, match="cannot be written"):
        api.run(str(place), to=tmp_path / "file" / "run", **QUICK)


def test_a_folder_that_cannot_be_written_is_no_fault_of_ours(tmp_path, monkeypatch):
    place = bundle(tmp_path)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tonnage.run.checkpoints.newest", full)
    with pytest.raises(OutsideError, match="No space left"):
        run(place)


def test_guard_and_record_hide_the_same_names():
    assert guard._SECRET.pattern == environment._SECRET.pattern
    assert guard._SECRET.flags == environment._SECRET.flags


def test_a_process_of_the_same_number_is_another(monkeypatch):
    mark = processes.mark_of(os.getpid())
    assert processes.is_same(mark)
    assert not processes.is_same({**mark, "start_ticks": 1})
    assert not processes.is_same({"pid": None})


def test_the_guard_is_alone():
    source = Path(guard.__file__).read_text(encoding="utf-8")
    assert not re.search(r"^(from|import) tonnage", source, re.MULTILINE)


SERVER = """
import http.server, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def log_message(self, *words): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def test_a_server_is_running_once_it_answers_and_is_started_again(tmp_path):
    from dataclasses import replace

    from tonnage.run.health import is_healthy
    from tonnage.run.supervise import held, supervise
    from tonnage.run.types import Launch, Settings

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder, url = Folder(path=tmp_path / "run"), f"http://127.0.0.1:{port}/health"
    folder.path.mkdir()
    folder.write(replace(RUN, kind="serving", status=Status.STARTING, attempts=()))
    (tmp_path / "server.py").write_text(SERVER)
    launch = Launch(
        command=(sys.executable, "-S", "server.py", str(port)), folder=tmp_path, ranks=1, is_server=True, health_url=url
    )
    seen = []

    def watch(update):
        seen.append((update.run.status, len(update.run.attempts)))

    def hurt():
        for number in (1, 2):
            until = time.monotonic() + 20
            while time.monotonic() < until:
                state = folder.read()
                if (state.status, len(state.attempts)) == (Status.RUNNING, number) and is_healthy(url):
                    break
                time.sleep(0.02)
            (pid, *_) = [
                one
                for one in processes.leftovers(state.key)
                if "server.py" in Path(f"/proc/{one}/cmdline").read_text()
                and "guard.py" not in Path(f"/proc/{one}/cmdline").read_text()
            ]
            os.kill(pid if number == 1 else os.getpid(), signal.SIGKILL if number == 1 else signal.SIGTERM)

    thread = threading.Thread(target=hurt)
    with held(folder):
        thread.start()
        state = supervise(folder, launch, Settings(**{**QUICK, "backoff_seconds": 0.01}), watch)
    thread.join()
    assert (state.status, [one.reason for one in state.attempts]) == (Status.STOPPED, ["killed", "stopped"])
    assert not is_healthy(url)


def test_nohup_is_respected(tmp_path):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        state = run(bundle(tmp_path, num_steps=3))
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
    assert state.exit_code == 0


def test_a_program_that_tells_nothing_is_not_called_hung(tmp_path):
    place = bundle(tmp_path)
    (place / "job.json").unlink()
    manifest = json.loads((place / "manifest.json").read_text())
    manifest["files"] = [one for one in manifest["files"] if one["path"] != "job.json"]
    (place / "manifest.json").write_text(json.dumps(manifest))
    (place / "start.sh").write_text('sleep 0.5; echo "[rank1]: done"\n')
    state = run(place, start_seconds=0.1, least_step_seconds=0.1)
    assert (state.status, [one.reason for one in state.attempts]) == (Status.FINISHED, ["finished"])
    assert Folder(path=place / "run").log(0, 1).read_text() == "[rank1]: done\n"
    (place / "start.sh").write_text("echo no memory; exit 9\n")
    state = api.run(str(place), to=tmp_path / "other", **QUICK)
    assert (state.status, state.message) == (Status.GIVEN_UP, "the same end at the same step twice: no memory")


def test_ranks_may_wait_for_one_that_works(tmp_path, folder):
    """One rank beats for longer than a step may take, the other waits for it all the while."""
    place = bundle(tmp_path, work_at=3, work_rank=1, work_seconds=2.0)
    state = run(place, least_step_seconds=0.7)
    assert [one.reason for one in state.attempts] == ["finished"]


def test_what_a_dead_process_left_half_is_cleared(tmp_path, folder):
    first = run(bundle(tmp_path))
    for path in (folder.metrics(0), folder.events_file):
        with path.open("a") as file:
            file.write('{"step": 9, "lo')
    (folder.path / ".run.json.123.part").write_text("{")
    (folder.checkpoints / ".writing-step-00000009").mkdir()
    later = api.run(str(folder.path), num_steps=12, **QUICK)
    assert (first.last_step, later.last_step) == (8, 12)
    assert [step.step for step in folder.steps(0)] == list(range(1, 13))
    assert next(event.event for event in folder.events() if event.attempt == 1) == "attempt"
    assert not [path for path in folder.path.rglob(".*") if path.name.endswith(".part") or "writing" in path.name]
