"""`tonnage run`, `runs`, `logs` and `stop` on the fake job."""

from __future__ import annotations

import json

import pytest
from validation.fake_bundle import write_bundle

from tonnage.cli.progress import event_line, finite, step_line
from tonnage.messages import choose_language
from tonnage.record.types import Event, Predicted, Run, Status, Step

RUN = Run(name="a", key="k", kind="training", status=Status.RUNNING, engine="", place="local", created=0.0)  # fmt: skip


@pytest.fixture
def bundle(tmp_path):
    return write_bundle(tmp_path / "bundle", num_steps=6, save_every=3, save_seconds=0.0)


def test_a_run_from_start_to_list(tonnage, bundle, tmp_path):
    answer = tonnage("run", str(bundle), "--to", str(tmp_path / "mine"), "--steps", "7")
    assert (answer.code, answer.out) == (0, "")
    assert "step 7/7  loss" in answer.err
    assert answer.err.endswith("fake: finished\n")
    listed = tonnage("runs", str(tmp_path), "--json").json["runs"]
    assert [(one["status"], one["last_step"], one["num_attempts"]) for one in listed] == [("finished", 7, 1)]
    assert "7/7" in tonnage("runs", str(tmp_path)).out
    log = tonnage("logs", str(tmp_path / "mine"), "--rank", "1")
    assert [line[:15] for line in log.out.splitlines()] == [f"[rank1]: step {n}" for n in range(1, 8)]
    assert "==> rank-00000.log <==" in tonnage("logs", str(tmp_path / "mine")).out
    followed = tonnage("logs", str(tmp_path / "mine"), "--follow")
    assert "rank-00001: [rank1]: step 7" in followed.out
    assert tonnage("logs", str(tmp_path / "mine"), "--rank", "9").code == 2
    stopped = tonnage("stop", str(tmp_path / "mine"))
    assert (stopped.code, "nothing runs there: finished" in stopped.err) == (2, True)
    again = tonnage("run", str(tmp_path / "mine"))
    assert again.code == 2
    assert "--steps N goes on" in again.err


def test_json_is_lines(tonnage, bundle, tmp_path):
    answer = tonnage("run", str(bundle), "--json", "--quiet")
    lines = [json.loads(line) for line in answer.out.splitlines()]
    assert not answer.err
    assert all(line["schema"] == 1 for line in lines)
    assert [line["step"] for line in lines if line["line"] == "step"] == [1, 2, 3, 4, 5, 6]
    assert lines[-1]["line"] == "run"
    assert lines[-1]["status"] == "finished"
    assert {line["event"] for line in lines if line["line"] == "event"} == {"attempt", "attempt_ended", "finished"}


def test_given_up_is_3(tonnage, tmp_path):
    place = write_bundle(tmp_path / "b", num_steps=6, exit_with=9, num_ranks=1)
    answer = tonnage("run", str(place))
    assert answer.code == 3
    assert "starts again in 1 s" in answer.err
    assert "given up: the same end at the same step twice" in answer.err


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["run", "no-such-plan.toml"], "cannot be read"),
        (["run", "."], "neither a bundle nor a run"),
        (["run", "pyproject.toml"], "not a plan file"),
        (["run", "x", "--to", " "], "names no folder"),
        (["logs", "."], "no run lies here"),
        (["stop", "."], "no run lies here"),
    ],
)
def test_what_is_no_run_is_refused_in_one_line(tonnage, words, what, root, monkeypatch):
    monkeypatch.chdir(root)
    answer = tonnage(*words)
    assert (answer.code, len(answer.err.splitlines())) == (2, 1)
    assert what in answer.err


def test_data_for_a_job_that_takes_none(tonnage, bundle, tmp_path):
    (bundle / "job.json").write_text("")
    answer = tonnage("run", str(bundle), "--data", str(tmp_path))
    assert answer.code == 2
    assert not (bundle / "run" / "run.json").exists()


def test_a_bundle_of_another_place_tells_its_own_start(tonnage, bundle):
    table = json.loads((bundle / "manifest.json").read_text())
    (bundle / "manifest.json").write_text(json.dumps({**table, "place": "compose", "start": "docker compose up -d"}))
    answer = tonnage("run", str(bundle))
    assert answer.code == 2
    assert "start it with: docker compose up -d" in answer.err


def test_no_runs(tonnage, tmp_path):
    assert tonnage("runs", str(tmp_path)).out == f"no runs under {tmp_path}\n"
    assert tonnage("runs", str(tmp_path), "--json").json["runs"] == []


def test_the_line_of_a_step():
    from dataclasses import replace

    step = Step(step=12, loss=2.3456789, tokens_per_s=900.0, memory_allocated_bytes=3 * 2**30, step_seconds=2.0)
    run = replace(RUN, num_steps=42, predicted=Predicted(tokens_per_s=1000.0))
    assert step_line(run, step, [1.0, 2.0, 9.0]) == (
        "step 12/42  loss 2.346  900 tokens/s (90 % of the plan)  3.0 GiB allocated  1.0 min left"
    )
    assert step_line(RUN, Step(step=3), []) == "step 3"
    choose_language("zh")
    assert step_line(RUN, Step(step=3, loss=2.0), []) == "步 3  损失 2"
    choose_language("en")


def test_lines_of_events():
    event = Event(time=0.0, event="restart", more={"why": "killed \x1b[2J", "wait_seconds": 4.0})
    assert event_line(event) == "starts again in 4 s: killed ?[2J"
    assert event_line(Event(time=0.0, event="checkpoint_saved")) == ""


def test_what_json_lacks_is_null():
    assert finite({"loss": float("nan"), "more": [float("inf"), 1]}) == {"loss": None, "more": [None, 1]}
