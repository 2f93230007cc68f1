"""`tonnage verify` on run folders and load tests: as text, object and page, and what is refused."""

import json
import math

import pytest

from tonnage import api
from tonnage.plan.request import make_request
from tonnage.record.folder import Folder
from tonnage.record.types import Attempt, Event, Run, Status

STEPS = 200


def write_run(
    path, *, loss=lambda step: 4.0 - step / 100, status=Status.FINISHED, ranks=2, again=(), events=(), log="ok\n"
):
    """A run folder as a supervisor and two ranks leave it."""
    folder = Folder(path=path)
    (path / "metrics").mkdir(parents=True)
    logs = folder.logs(0)
    logs.mkdir(parents=True)
    folder.log(0, 0).write_text(log)
    folder.write(
        Run(
            name=path.name,
            key="k",
            kind="training",
            status=status,
            engine="transformers",
            place="local",
            created=0.0,
            attempts=(Attempt(number=0, started=0.0, ended=9.0, exit_code=0, reason="finished"),),
            last_step=STEPS,
        )
    )
    for rank in range(ranks):
        with folder.metrics(rank).open("w") as file:
            shifted = [(step, 0.0) for step in range(1, STEPS + 1)] + [(step, 1e-3) for step in again]
            for step, shift in shifted:
                value = loss(step) + shift
                line = {
                    "step": step, "time": float(step), "loss": value if math.isfinite(value) else "NaN",
                    "grad_norm": 1.0, "tokens": 512, "step_seconds": 0.5, "host_memory_bytes": 1e9, "num_ooms": 0,
                }  # fmt: skip
                file.write(json.dumps(line) + "\n")
    for event in events:
        folder.tell(Event(time=1.0, event=event))
    return folder


def verdicts(said):
    return {one["name"]: one["verdict"] for one in json.loads(said.out)["checks"]}


def test_a_healthy_run_is_accepted(tonnage, tmp_path):
    write_run(tmp_path / "good")
    said = tonnage("verify", str(tmp_path / "good"), "--json")
    assert said.code == 0
    told = verdicts(said)
    assert told["finished"] == told["loss_change_ratio"] == told["nonfinite_steps"] == "pass"
    assert told["temperature_celsius"] == told["gpu_memory_ratio"] == "not measured"
    text = tonnage("verify", str(tmp_path / "good")).out
    assert "accepted" in text
    assert "not measured" not in text
    assert "not measured" in tonnage("verify", str(tmp_path / "good"), "--all").out


@pytest.mark.parametrize(
    "words,check",
    [
        ({"loss": lambda step: float("nan") if step == 150 else 4.0 - step / 100}, "nonfinite_steps"),
        ({"loss": lambda step: 1.0 + step / 100}, "loss_change_ratio"),
        ({"status": Status.GIVEN_UP}, "finished"),
        ({"again": (190, 191)}, "repeated_loss_ratio"),
        ({"events": ("replicas_differ",)}, "failed_saves"),
        ({"events": ("checkpoint_failed",)}, "failed_saves"),
        ({"log": "RuntimeError: CUDA error: device-side assert triggered\n"}, "log_findings"),
    ],
)
def test_each_planted_cause_is_found(tonnage, tmp_path, words, check):
    if words.get("events") == ("replicas_differ",):
        folder = write_run(tmp_path / "run", **words)
        for rank in (0, 1):
            lines = [json.loads(line) for line in folder.metrics(rank).read_text().splitlines()]
            folder.metrics(rank).write_text("".join(json.dumps({**x, "parameter_checksum": "a"}) + "\n" for x in lines))
        check = "unequal_replicas"
    else:
        write_run(tmp_path / "run", **words)
    said = tonnage("verify", str(tmp_path / "run"), "--json")
    assert said.code == 3
    assert verdicts(said)[check] == "fail"


def test_a_baseline_is_held_at_equal_tokens(tonnage, tmp_path):
    write_run(tmp_path / "base", loss=lambda step: 3.0 - step / 100)
    write_run(tmp_path / "same", loss=lambda step: 3.01 - step / 100)
    write_run(tmp_path / "worse", loss=lambda step: 4.0 - step / 100)
    base = ("--baseline", str(tmp_path / "base"))
    assert verdicts(tonnage("verify", str(tmp_path / "same"), *base, "--json"))["convergence_ratio"] == "pass"
    said = tonnage("verify", str(tmp_path / "worse"), *base, "--json")
    assert (said.code, verdicts(said)["convergence_ratio"]) == (3, "fail")


def test_readings_of_devices_count(tonnage, tmp_path):
    folder = write_run(tmp_path / "run")
    line = {"gpu": "0", "temperature_celsius": 88.0, "memory_used_bytes": 70, "memory_total_bytes": 100}
    (folder.path / "hardware.jsonl").write_text((json.dumps(line) + "\n") * 10)
    told = verdicts(tonnage("verify", str(folder.path), "--json"))
    assert (told["temperature_celsius"], told["gpu_memory_ratio"]) == ("fail", "pass")


def test_limits_of_a_plan_file_and_of_the_command_line(tonnage, tmp_path):
    plan = api.plan(make_request("Qwen/Qwen3-8B", gpus=["rtx-4090"], limits={"engines": ("vllm",)})).plans[0]
    path, bench = tmp_path / "plan.toml", tmp_path / "bench.json"
    path.write_text(api.write_plan(plan) + "\n[verify]\nttft_p99_seconds = 0.5\ntokens_per_s = 1\nrequests_per_s = 0\n")
    times = {"p99": 1.0, "mean": 0.1}
    bench.write_text(
        json.dumps(
            {"requests": 1000, "ok": 1000, "errors": {}, "qps": 3.0, "output_tokens_per_s": 60.0, "kept_ratio": 1.0,
             "ttft_seconds": times, "tpot_seconds": times, "e2e_seconds": times, "too_few_samples_for": []}
        )
    )  # fmt: skip
    words = ("verify", str(bench), "--plan", str(path), "--limit", "usd_per_million_tokens=1e9", "--json")
    assert verdicts(tonnage(*words))["ttft_p99_seconds"] == "fail"
    said = tonnage(*words, "--limit", "ttft_p99_seconds=2")
    assert (said.code, verdicts(said)["ttft_p99_seconds"]) == (0, "pass")


def test_a_page_is_written(tonnage, tmp_path):
    write_run(tmp_path / "run")
    page = tmp_path / "report.html"
    assert tonnage("verify", str(tmp_path / "run"), "--html", str(page)).code == 0
    assert page.read_text().count("<svg") == 3


@pytest.mark.parametrize(
    "words,reason",
    [
        (("nowhere",), "cannot be read"),
        ((".",), "no run lies here"),
        (("nowhere", "--limit", "x"), "sets nothing"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(tonnage, tmp_path, monkeypatch, words, reason):
    monkeypatch.chdir(tmp_path)
    said = tonnage("verify", *words)
    assert said.code == 2
    assert reason in said.err
    assert said.err.count("\n") == 1
