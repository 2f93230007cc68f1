"""A run folder is read whole at any instant, half lines and later versions included."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.errors import BadFileError, RequestError
from tonnage.record import checkpoints, environment
from tonnage.record.files import append_line, read_lines, replace_text, tail
from tonnage.record.folder import Folder, find_runs, run_of, run_text, summary
from tonnage.record.lock import Lock, holder, is_held
from tonnage.record.types import Attempt, Event, Predicted, Run, Status

RUN = Run(
    name="a",
    key="k",
    kind="training",
    status=Status.RUNNING,
    engine="transformers",
    place="local",
    created=1.0,
    attempts=(Attempt(number=0, started=2.0, exit_codes={"0": -9}, reason="killed", last_step=7),),
    predicted=Predicted(step_seconds=0.5),
)


def test_a_run_reads_back():
    assert run_of(json.loads(run_text(RUN))) == RUN


def test_the_reference_names_every_field(root):
    page = (root / "docs" / "reference" / "run-folder.md").read_text(encoding="utf-8")
    for noun in (Run, Attempt, Predicted):
        assert {one.name for one in fields(noun)} <= set(re.findall(r"`(\w+)`", page)), noun


def test_fields_of_later_versions_are_passed_over(tmp_path):
    table = json.loads(run_text(RUN)) | {"colour": "red"}
    table["attempts"][0]["mood"] = "good"
    (tmp_path / "run.json").write_text(json.dumps(table))
    assert Folder(path=tmp_path).read() == RUN


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"schema": 2}', '{"schema": 1}', '{"schema": 1, "status": "happy"}']
)
def test_a_broken_run_is_refused_in_one_line(tmp_path, text):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(BadFileError) as told:
        Folder(path=tmp_path).read()
    assert "\n" not in str(told.value)
    assert summary(Folder(path=tmp_path)) is None


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(RequestError):
        Folder(path=tmp_path).read()


def test_half_a_line_is_passed_over_and_written_past(tmp_path):
    path = tmp_path / "x.jsonl"
    append_line(path, {"step": 1})
    with path.open("ab") as file:
        file.write(b'{"step": 2, "lo')
    assert [line["step"] for line in read_lines(path)] == [1]
    append_line(path, {"step": 3})
    assert [line["step"] for line in read_lines(path)] == [1, 3]


@given(st.lists(st.integers(0, 10**6), max_size=8), st.integers(0, 400))
def test_a_tail_sees_each_line_once(tmp_path_factory, numbers, cut):
    path = tmp_path_factory.mktemp("tail") / "x.jsonl"
    whole = b"".join(json.dumps({"step": number}).encode() + b"\n" for number in numbers)
    path.write_bytes(whole[:cut])
    first, offset = tail(path, 0)
    path.write_bytes(whole)
    rest, _ = tail(path, offset)
    assert [line["step"] for line in first + rest] == numbers


def test_a_file_that_was_begun_anew_is_read_from_its_start(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n')
    _, offset = tail(path, 0)
    path.write_text('{"step": 9}\n')
    assert tail(path, offset)[0] == [{"step": 9}]


def test_steps_that_were_done_again_count_once(tmp_path):
    folder = Folder(path=tmp_path)
    for line in (
        {"step": 1, "loss": 3},
        {"step": 2, "loss": "NaN"},
        {"step": 2, "loss": 2.5},
        {"loss": 1},
        {"step": True},
    ):
        append_line(folder.metrics(0), line)
    steps = folder.steps(0)
    assert [(step.step, step.loss) for step in steps] == [(1, 3.0), (2, 2.5)]
    assert folder.ranks() == (0,)


def test_what_is_not_finite_is_read_as_such(tmp_path):
    folder = Folder(path=tmp_path)
    append_line(folder.metrics(0), {"step": 1, "loss": "NaN", "grad_norm": "Infinity", "mfu_ratio": None})
    step = folder.steps(0)[0]
    assert step.loss is not None
    assert math.isnan(step.loss)
    assert step.grad_norm == math.inf
    assert step.mfu_ratio is None


def test_events_keep_what_is_their_own(tmp_path):
    folder = Folder(path=tmp_path)
    folder.tell(Event(time=1.0, event="hang", attempt=0, rank=1, more={"phase": "saving"}))
    (event,) = folder.events()
    assert (event.event, event.rank, event.step, event.more) == ("hang", 1, None, {"phase": "saving"})


def test_a_text_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "run.json"
    replace_text(path, "old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        replace_text(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["run.json"]


def test_a_killed_writer_leaves_a_whole_file(tmp_path):
    code = (
        "import sys; from pathlib import Path; from tonnage.record.files import replace_text\n"
        "n = 0\nwhile True:\n n += 1; replace_text(Path(sys.argv[1]), ('%d ' % n) * 5000 + 'end')"
    )
    path = tmp_path / "run.json"
    writer = subprocess.Popen([sys.executable, "-c", code, str(path)])
    while not path.exists():
        assert writer.poll() is None
        time.sleep(0.01)
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    assert path.read_text().endswith(" end")


def test_a_lock_goes_with_its_holder(tmp_path):
    path = tmp_path / "lock"
    lock = Lock(path)
    assert not is_held(path)
    assert lock.take({"pid": 1})
    assert not Lock(path).take({"pid": 2})
    assert holder(path) == {"pid": 1}
    lock.release()
    assert holder(path) is None
    code = "import sys, os; from pathlib import Path; from tonnage.record.lock import Lock\nLock(Path(sys.argv[1])).take({}); print('held', flush=True); input()"
    other = subprocess.Popen([sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdout.readline() == b"held\n"
    assert is_held(path)
    other.kill()
    other.wait()
    other.stdin.close()
    other.stdout.close()
    assert not is_held(path)


def save(place, step, text="x" * 100):
    folder = place / f"step-{step:08d}"
    (folder / "part").mkdir(parents=True)
    (folder / "part" / "a.bin").write_text(text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    files = [{"name": "part/a.bin", "bytes": len(text), "sha256": digest}]
    (folder / "manifest.json").write_text(
        json.dumps({"schema": 1, "step": step, "world_size": 2, "engine": "e", "files": files})
    )
    return folder


def test_the_newest_whole_checkpoint_is_found(tmp_path):
    old, new = save(tmp_path, 5), save(tmp_path, 10)
    (tmp_path / ".writing-step-00000015").mkdir()
    assert checkpoints.newest(tmp_path) == (new, ())
    assert checkpoints.read_checkpoint(new).num_bytes == 100
    (new / "part" / "a.bin").write_text("x" * 99 + "y")
    assert checkpoints.newest(tmp_path) == (old, ((new, "part/a.bin differs from its sha256"),))
    assert checkpoints.newest(tmp_path, is_hashed=False) == (new, ())


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (lambda f: (f / "manifest.json").unlink(), "missing or broken"),
        (lambda f: (f / "manifest.json").write_text('{"step": 10'), "missing or broken"),
        (lambda f: (f / "manifest.json").write_text('{"step": 9, "files": []}'), "is of step 9"),
        (lambda f: (f / "manifest.json").write_text('{"step": 10, "files": []}'), "names no files"),
        (lambda f: (f / "manifest.json").write_text('{"step": 10, "files": 3}'), "names no files"),
        (lambda f: (f / "part" / "a.bin").unlink(), "is missing"),
        (lambda f: os.truncate(f / "part" / "a.bin", 7), "has 7 bytes"),
    ],
)
def test_each_damage_is_told(tmp_path, spoil, fault):
    folder = save(tmp_path, 10)
    spoil(folder)
    assert fault in checkpoints.fault_of(folder)


def test_a_manifest_reaches_nothing_outside(tmp_path):
    folder = save(tmp_path, 10)
    table = json.loads((folder / "manifest.json").read_text())
    table["files"].append({"name": "../../secret", "bytes": 1, "sha256": "0"})
    (folder / "manifest.json").write_text(json.dumps(table))
    assert checkpoints.fault_of(folder) == "manifest.json names no files"


def test_the_environment_tells_names_on_the_list_only():
    variables = {
        "NCCL_DEBUG": "INFO", "HF_TOKEN": "hf_abcdefghij", "WANDB_API_KEY": "0123456789", "HOME": "/home/me", "PET_TEE": "3",
        "HF_ENDPOINT": "https://me:hf_abcdefghij@mirror.example/x", "TORCH_SECRET": "0123456789",
        "PYTHON_NOTE": "a 0123456789 b",
    }  # fmt: skip
    told = environment.environment(variables)
    assert told["variables"] == {
        "NCCL_DEBUG": "INFO",
        "PET_TEE": "3",
        "HF_ENDPOINT": "https://***@mirror.example/x",
        "PYTHON_NOTE": "a *** b",
    }
    assert "hf_abcdefghij" not in json.dumps(told)


def test_runs_are_found_below_a_folder(tmp_path):
    for name in ("a/run", "runs/b", "c/d/e/f/too-deep"):
        replace_text(tmp_path / name / "run.json", run_text(RUN))
    assert {folder.path.name for folder in find_runs(tmp_path)} == {"run", "b"}
    assert summary(find_runs(tmp_path)[0])["status"] == "lost"
