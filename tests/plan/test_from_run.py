"""A measured run corrects the estimates near it, says so, and leaves those far from it alone."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace

import pytest
from tests.conftest import call_tonnage

from tonnage import datafiles
from tonnage.plan.distance import steps_apart
from tonnage.plan.measured import correlation

REQUEST = {
    "model": "Qwen/Qwen3-8B", "goal": "finetune", "finetune": "qlora", "load": {"seq_len": 2048, "global_batch": 8},
    "gpus": ["rtx-4090"], "engines": ["unsloth"], "pins": {"micro_batch_size": 4, "recompute": "full"},
}  # fmt: skip
MEASURED = {"peak_mem_gib": 17.0, "mem_kind": "nvidia-smi", "tokens_per_s": 2300}
PINS = "--engine unsloth --micro-batch 4 --recompute full"


def plan(words, code=0):
    got = call_tonnage("plan", *shlex.split(words), "--json", "--quiet")
    assert got.code == code, got.err
    return json.loads(got.out)


@pytest.fixture
def run(tmp_path):
    path = tmp_path / "run"
    path.mkdir()
    (path / "run.json").write_text(json.dumps({"request": REQUEST, "measured": MEASURED}))
    return path


def figures(entry):
    device, speed = entry["memory"]["device"]["total_bytes"], entry["performance"]["tokens_per_s"]
    return device, speed


def width(interval):
    return interval["high"] / interval["low"]


def test_at_the_run_itself_the_estimate_is_the_measurement_and_narrow(run):
    words = f"Qwen/Qwen3-8B --finetune qlora --gpu rtx-4090 {PINS}"
    plain, near = (figures(plan(f"{words}{more}")["plans"][0]) for more in ("", f" --from {run}"))
    for before, after, measured in zip(plain, near, (17.0 * 2**30, 2300.0), strict=True):
        low, high = sorted((before["best"], measured))
        assert low < after["best"] < high
        assert abs(after["best"] / measured - 1) < 0.3 * abs(before["best"] / measured - 1)
        assert width(after) < 0.6 * width(before) + 0.4
        assert after["low"] < measured < after["high"]


def test_the_farther_a_candidate_the_less_it_takes(run):
    ratios, widths = [], []
    for words in (
        f"Qwen/Qwen3-8B --finetune qlora --gpu rtx-4090 {PINS}",
        f"Qwen/Qwen3-8B --finetune qlora --gpu rtx-4090 --seq-len 4096 {PINS}",
        "Qwen/Qwen3-8B --finetune full --gpu h100-sxm5:8 --engine deepspeed",
    ):
        plain, near = (plan(f"{words}{more}")["plans"][0] for more in ("", f" --from {run}"))
        ratios.append(figures(near)[1]["best"] / figures(plain)[1]["best"])
        widths.append(width(figures(near)[0]) / width(figures(plain)[0]))
    assert ratios[0] < ratios[1] < ratios[2] < 1.001
    assert widths[0] < widths[1] < widths[2] <= 1.0


def test_counted_pools_stay_and_what_is_modelled_is_scaled(run):
    words = f"Qwen/Qwen3-8B --finetune qlora --gpu rtx-4090 {PINS}"
    plain, near = (plan(f"{words}{more}")["plans"][0]["memory"]["device"]["pools"] for more in ("", f" --from {run}"))
    for name in ("weights", "gradients", "optimizer_states"):
        if name in plain:
            assert near[name]["best"] == pytest.approx(plain[name]["best"], rel=1e-9)
    modelled = [
        near[n]["best"] / plain[n]["best"] for n in ("layer_workspace", "fragmentation", "context") if n in plain
    ]
    assert modelled == pytest.approx([modelled[0]] * len(modelled), rel=1e-9)
    assert modelled[0] > 1.03


def test_the_run_s_own_request_is_the_default_and_is_said(run):
    said = plan(f"--from {run}")
    assert (said["request"]["model"], said["request"]["goal"]) == ("Qwen/Qwen3-8B", "qlora")
    assert said["request"]["from"] == str(run)
    assert said["request"]["pins"] == {}
    assert f"--from {run}" in said["request"]["command"]
    first = said["plans"][0]
    assert len(first["provenance"]["measured"]) == 2
    text = " ".join(call_tonnage("plan", "--from", str(run)).out.split())
    assert "17.0 GiB measured" in text
    assert first["limits"]["micro_batch_size"]["best"] > 0


def test_a_measurement_row_is_a_run(tmp_path):
    rows = [json.loads(line) for line in datafiles.text("measurements/training.jsonl").splitlines()]
    row = next(r for r in rows if r.get("trust") == "A" and r.get("peak_mem_gib") and r.get("tokens_per_s_per_gpu"))
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(json.dumps(r) for r in (row, {**row, "id": "other"})))
    words = "Qwen/Qwen3-8B --finetune qlora --gpu rtx-4090"
    said = plan(f"{words} --from {path}#{row['id']}")
    assert said["plans"][0]["provenance"]["measured"]
    got = call_tonnage("plan", *shlex.split(words), "--from", str(path))
    assert got.code == 2
    assert "2 runs" in got.err


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{", "not JSON"),
        ("[]", "no measurement"),
        (json.dumps({"request": REQUEST, "measured": {}}), "neither memory nor speed"),
        (json.dumps({"request": REQUEST, "measured": {"peak_mem_gib": 1.0}}), "less memory was measured"),
        (json.dumps({"request": REQUEST, "measured": {"peak_mem_gib": 900.0}}), "another configuration"),
        (json.dumps({"request": REQUEST, "measured": {"peak_mem_gib": "much"}}), "positive number"),
        (json.dumps({"request": REQUEST, "measured": {"peak": 1.0}}), "'peak' is no field"),
        (json.dumps({"request": {**REQUEST, "goal": "serve", "finetune": None}, "measured": MEASURED}), "says nothing"),
        (json.dumps({"request": {**REQUEST, "gpus": []}, "measured": MEASURED}), "named cards"),
    ],
)
def test_what_is_no_run_is_refused_in_one_line(tmp_path, text, what):
    path = tmp_path / "run.json"
    path.write_text(text)
    got = call_tonnage("plan", "Qwen/Qwen3-8B", "--finetune", "qlora", "--gpu", "rtx-4090", "--from", str(path))
    assert got.code == 2
    assert what in got.err
    assert got.err.count("\n") == 1


def test_a_run_says_nothing_for_serving(run):
    got = call_tonnage("plan", "Qwen/Qwen3-8B", "--serve", "--gpu", "rtx-4090", "--from", str(run))
    assert got.code == 2
    assert "--from" in got.err


def test_distance_is_one_for_a_doubling_or_a_choice():
    from tonnage import api
    from tonnage.plan.request import make_request

    one = api.plan(make_request("Qwen/Qwen3-8B", goal="finetune", finetune="lora", gpus=["h100-sxm5"])).plans[0]
    candidate = one.estimate.candidate
    assert steps_apart(candidate, candidate) == 0
    assert steps_apart(candidate, replace(candidate, optimizer="sgd")) == 1
    longer = replace(candidate.workload, seq_len=2 * candidate.workload.seq_len)
    assert steps_apart(candidate, replace(candidate, workload=longer)) == 2  # the sequence, and tokens at once
    assert correlation("time", 0) == pytest.approx(0.86)
