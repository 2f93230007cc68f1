"""`tonnage diagnose`: exit codes, the object that scripts read, both languages, effects by the plan."""

from __future__ import annotations

import pytest

from tonnage import api
from tonnage.diagnose.effect import effects

OOM = (
    "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 23.60 GiB of"
    " which 1.00 GiB is free. Of the allocated memory 21.80 GiB is allocated by PyTorch, and 11.00 MiB is reserved by PyTorch"
    " but unallocated.\n[rank0]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting"
    " prematurely. host: gpu7.example.com 10.0.0.7\n"
)


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "train.log"
    path.write_text(OOM)
    return str(path)


def test_the_object_that_scripts_read(tonnage, log):
    answer = tonnage("diagnose", log, "--json")
    assert answer.code == 0
    assert answer.json["schema"] == 1
    first = answer.json["findings"][0]
    assert {"id", "cause", "severity", "confidence", "evidence", "fixes", "consequences"} <= set(first)
    assert (first["id"], first["severity"], first["ranks"]) == ("TORCH_OOM", "critical", [1])
    assert first["evidence"][0]["line"] == 1
    assert first["consequences"][0]["id"] == "NCCL_REMOTE_ERROR"
    assert all(isinstance(fix, str) for fix in first["fixes"])
    assert "21.8 GiB of 23.6 GiB" in first["cause"]


def test_fail_on_exits_with_3_at_that_severity_or_worse(tonnage, log, tmp_path):
    mild = tmp_path / "mild.log"
    mild.write_text("INFO KV cache pool is full. Retract requests. #retracted_reqs: 3\n")
    assert tonnage("diagnose", log, "--fail-on", "critical").code == 3
    assert tonnage("diagnose", str(mild), "--fail-on", "critical").code == 0
    assert tonnage("diagnose", str(mild), "--fail-on", "warning").code == 3


def test_no_finding_says_what_was_looked_at_and_what_would_help(tonnage, tmp_path):
    path = tmp_path / "clean.log"
    path.write_text("step 1 loss 2.0\nValueError: frobnication\n")
    answer = tonnage("diagnose", str(path), "--fail-on", "info")
    assert answer.code == 0
    for word in ("No known failure", "2 lines", "frobnication", "dmesg", "@record"):
        assert word in answer.out


def test_a_wrong_path_is_one_line_and_exit_2(tonnage, tmp_path):
    answer = tonnage("diagnose", str(tmp_path / "nothing"))
    assert answer.code == 2
    assert answer.err.count("\n") == 1
    assert tonnage("diagnose").code == 2


def test_chinese(tonnage, log):
    answer = tonnage("diagnose", log, "--lang", "zh")
    assert "原因" in answer.out
    assert "微批减半" in answer.out


def test_hosts_are_hidden_when_asked(tonnage, tmp_path):
    path = tmp_path / "x.log"
    path.write_text("OSError: [Errno 28] No space left on device on host: gpu7.example.com (10.0.0.7)\n")
    assert "gpu7" in tonnage("diagnose", str(path)).out
    hidden = tonnage("diagnose", str(path), "--redact").out
    assert "gpu7" not in hidden
    assert "10.0.0.7" not in hidden


def test_effects_are_the_difference_of_two_estimates(tonnage, log, tmp_path):

    path = tmp_path / "plan.toml"
    code = tonnage(
        "plan", "Qwen/Qwen3-8B", "--finetune", "lora", "--seq-len", "4096", "--gpu", "rtx-4090", "--micro-batch", "2", "--pick", "1", "-o", str(path)
    ).code  # fmt: skip
    assert code == 0
    plan = api.read_plan(path.read_text())
    half = next(one for one in effects(plan) if one.setting == "micro_batch_size")
    pins = {"micro_batch_size": 1}
    from dataclasses import replace

    from tonnage.plan.choose import pinned

    request = pinned(plan.request, plan.estimate)
    again = api.plan(replace(request, pins={**request.pins, **pins})).plans[0]
    assert half.freed_bytes == pytest.approx(
        plan.estimate.footprint.total.best - again.estimate.footprint.total.best, abs=2
    )
    assert half.fits
    shown = tonnage("diagnose", log, "--for", str(path), "--json").json["findings"][0]["effects"]
    assert {
        "setting": "micro_batch_size",
        "before": 2,
        "after": 1,
        "frees_bytes": half.freed_bytes,
        "fits": True,
    } in shown
