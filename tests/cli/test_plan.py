"""`tonnage plan` and `tonnage explain`: the object scripts rely on, exit codes, files, and one line for every mistake."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.conftest import call_tonnage

import tonnage as package

MOE, DENSE, SMALL = "Qwen/Qwen3.5-35B-A3B", "Qwen/Qwen3.5-27B", "Qwen/Qwen3-0.6B"
SERVE = ("plan", MOE, "--serve", "--gpu", "rtx-4080")
TRAIN = ("plan", SMALL, "--finetune", "full", "--gpu", "rtx-4090:2", "--tokens", "1B")
PLAN_KEYS = {
    "rank", "engine", "hardware", "layout", "precision", "recompute", "offload", "micro_batch_size", "memory", "storage",
    "performance", "cost", "warnings", "provenance",
}  # fmt: skip
LAYOUT = {"dp", "tp", "pp", "cp", "ep", "zero_stage"}
PERFORMANCE = {"tokens_per_s", "step_seconds", "mfu_ratio", "ttft_seconds", "tpot_seconds", "max_concurrency"}
COST = {"usd_per_hour", "usd_per_million_tokens", "purchase_usd", "usd_total"}
STORAGE = {"weights_bytes", "data_bytes", "checkpoints_bytes", "read_bytes_per_s", "feed_bytes_per_s"}


def intervals(value: Any, path: str = ""):
    """Yield every object that has a best value, with its path."""
    if isinstance(value, dict):
        if "best" in value and "low" in value:
            yield path, value
        for name, inner in value.items():
            yield from intervals(inner, f"{path}.{name}")
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from intervals(inner, f"{path}[{i}]")


@pytest.mark.parametrize("words", [SERVE, TRAIN], ids=["serve", "train"])
def test_the_object_that_scripts_rely_on(words):
    answer = call_tonnage(*words, "--json")
    found = answer.json
    assert answer.code == 0
    assert not answer.err
    assert found["schema"] == 1
    assert set(found) >= {"request", "plans", "rejections", "num_candidates"}
    for rank, plan in enumerate(found["plans"], 1):
        assert set(plan) >= PLAN_KEYS
        assert plan["rank"] == rank
        assert set(plan["hardware"]) >= {"gpu", "num_gpus", "num_nodes"}
        assert set(plan["layout"]) >= LAYOUT
        assert set(plan["performance"]) >= PERFORMANCE | {"tokens_per_s_per_gpu"}
        assert set(plan["cost"]) == COST
        assert set(plan["storage"]) == STORAGE
        for place in ("device", "host"):
            held = plan["memory"][place]
            assert set(held) == {"capacity_bytes", "total_bytes", "pools"}
            total = sum(pool["best"] for pool in held["pools"].values())
            assert total == pytest.approx(held["total_bytes"]["best"], rel=1e-9)
    for path, interval in intervals(found):
        assert interval["low"] <= interval["best"] <= interval["high"], path
    for one in found["rejections"]:
        assert set(one) >= {"what", "reason", "short_by_bytes", "command"}


def test_what_is_not_known_is_null():
    plan = call_tonnage(*SERVE, "--json").json["plans"][0]
    assert plan["performance"]["step_seconds"] is None
    assert plan["performance"]["mfu_ratio"] is None
    assert plan["cost"]["usd_total"] is None
    assert plan["storage"]["data_bytes"] is None


def test_defaults_come_first_with_their_flags():
    out = call_tonnage("plan", SMALL, "--gpu", "rtx-4080", "--engine", "vllm").out
    first = " ".join(out.partition("\n\n")[0].split())
    for flag in ("--serve", "--context", "--concurrency", "--host", "--reserve"):
        assert flag in first
    said = call_tonnage(
        *(
            "plan",
            SMALL,
            "--serve",
            "--context",
            "4096",
            "--concurrency",
            "2",
            "--gpu",
            "h100-sxm5",
            "--engine",
            "vllm",
        ),
        *("--host", "64 GiB ddr5-5600 x2", "--tpot", "1s", "--input-tokens", "1024", "--output-tokens", "256"),
    ).out
    assert said.startswith(f"{SMALL} on H100")


def test_exit_codes():
    assert call_tonnage("plan", SMALL, "--gpu", "rtx-4080", "--engine", "vllm").code == 0
    assert call_tonnage("plan", DENSE, "--gpu", "rtx-4080", "--quant", "fp16", "--engine", "vllm").code == 3
    assert call_tonnage("plan", DENSE, "--gpu", "no-such-card").code == 2


@pytest.mark.parametrize(
    "words",
    [
        ("plan",),
        ("plan", ""),
        ("plan", "no/such\0model"),
        ("plan", "$(reboot)"),
        ("plan", SMALL, "--gpu", "a; rm -rf /"),
        ("plan", SMALL, "--gpu", "rtx-4080:0"),
        ("plan", SMALL, "--gpu", "rtx-4080", "--host", "64"),
        ("plan", SMALL, "--gpu", "rtx-4080", "--reserve", "1"),
        ("plan", SMALL, "--gpu", "rtx-4080", "--reserve", "-1 GiB"),
        ("plan", SMALL, "--gpu", "rtx-4080", "--context", "0"),
        ("plan", SMALL, "--gpu", "rtx-4080", "--context", "-5"),
        ("plan", SMALL, "--gpu", "rtx-4080", "--context", "1e999"),
        ("plan", SMALL, "--gpu", "rtx-4080", "--quant", "q99"),
        ("plan", SMALL, "--gpu", "rtx-4080", "--kv", "q99"),
        ("plan", SMALL, "--gpu", "rtx-4080", "--engine", "notanengine"),
        ("plan", SMALL, "--gpu", "rtx-4080", "--budget", "1 XYZ"),
        ("plan", SMALL, "--gpu", "rtx-4080", "--budget", "5"),
        ("plan", SMALL, "--gpu", "rtx-4080", "--price", "rtx-4080"),
        ("plan", SMALL, "--gpu", "rtx-4080", "--set", "layout.tp=x"),
        ("plan", SMALL, "--gpu", "rtx-4080", "--import", "no-such-file"),
        ("plan", SMALL, "--gpu", "rtx-4080", "--pick", "99", "-o", "-"),
        ("plan", SMALL, "--gpu", "rtx-4080", "-o", "no-such-folder/plan.toml"),
        ("plan", SMALL, "--gpu", "rtx-4080", "--finetune", "lora", "--serve"),
        ("plan", SMALL, "--gpu", "rtx-4080", "--pretrain", "--ttft", "1s"),
        ("plan", SMALL, "--gpu", "rtx-4080", "--nodes", "0"),
        ("plan", SMALL, "--gpu", "rtx-4080", "--nodes", "9" * 30),
        ("plan", SMALL, "--wrong"),
        ("explain", "no-such-file"),
        ("explain", "."),
    ],
    ids=lambda words: " ".join(words[-2:])[:40],
)
@pytest.mark.parametrize("is_json", [False, True], ids=["text", "json"])
def test_a_mistake_is_one_line_and_nothing_else(words, is_json):
    answer = call_tonnage(*words, *(["--json"] if is_json else []))
    assert answer.code == 2
    assert answer.err.startswith("tonnage: ")
    assert answer.err.count("\n") == 1
    assert "Traceback" not in answer.err
    if is_json:
        assert set(answer.json["error"]) == {"what", "where", "fix"}
    else:
        assert not answer.out


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(
        [
            "--gpu",
            "--host",
            "--reserve",
            "--context",
            "--ttft",
            "--budget",
            "--rent",
            "--price",
            "--set",
            "--quant",
            "--kv",
            "--engine",
            "--cpu-experts",
            "--utilization",
            "--require",
            "--deadline",
            "--max-power",
            "--zero",
            "--tp",
        ]
    ),
    st.text(max_size=12),
)
def test_any_word_is_understood_or_refused(flag, word):
    answer = call_tonnage("plan", SMALL, "--gpu", "rtx-4080", "--engine", "vllm", "--quiet", f"{flag}={word}")
    assert answer.code in (0, 2, 3)
    assert answer.err.count("\n") <= 1


def test_a_plan_is_kept_and_explained(tmp_path):
    path = tmp_path / "plan.toml"
    kept = call_tonnage(*SERVE, "--pick", "2", "-o", str(path))
    assert kept.code == 0
    assert "plan 2 of" in kept.err
    assert tomllib.loads(path.read_text())["rank"] == 2
    text = call_tonnage("explain", str(path))
    assert text.code == 0
    assert "weights" in text.out
    found = call_tonnage("explain", str(path), "--json").json
    assert found["plan"]["rank"] == 2
    page = tmp_path / "plan.html"
    written = call_tonnage("explain", str(path), "--html", str(page))
    assert written.code == 0
    assert not written.out
    assert page.read_text().startswith("<!doctype html>")


def test_a_plan_goes_to_standard_output_alone():
    answer = call_tonnage(*SERVE, "-o", "-")
    assert tomllib.loads(answer.out)["format"] == 1


def test_nothing_is_written_when_nothing_fits(tmp_path):
    path = tmp_path / "plan.toml"
    answer = call_tonnage("plan", DENSE, "--gpu", "rtx-4080", "--quant", "fp16", "--engine", "vllm", "-o", str(path))
    assert answer.code == 3
    assert not path.exists()


def test_a_launch_line_is_imported_and_the_command_line_wins(tmp_path):
    line = tmp_path / "serve.sh"
    line.write_text(f"vllm serve {SMALL} -tp 2 --max-model-len 4096 --max-num-seqs 8 --cpu-offload-gb 4 --port 80\n")
    answer = call_tonnage("plan", "--import", str(line), "--gpu", "rtx-4090:2", "--max-num-seqs", "32", "--json")
    found = answer.json
    assert found["request"]["model"] == SMALL
    assert found["request"]["context_tokens"] == 4096
    left_out = {"layout.dp": 1, "layout.pp": 1, "precision.kv": "bf16", "precision.weights": "bf16"}
    assert found["request"]["pins"] == {"layout.tp": 2, "settings.max_num_seqs": 32, **left_out}
    assert {plan["engine"] for plan in found["plans"]} == {"vllm"}
    assert "not counted: --cpu-offload-gb 4" in answer.err
    assert "not counted: --port\n" in answer.err
    assert "--max-model-len" not in answer.err


def test_a_launch_line_names_the_checkpoint_that_it_needs():
    lines = call_tonnage("plan", DENSE, "--gpu", "rtx-4090", "--engine", "vllm", "--quant", "awq").out.splitlines()
    assert lines[-1].startswith("  vllm serve")
    assert lines[-1].endswith("given a checkpoint in awq")
    own = call_tonnage("plan", SMALL, "--gpu", "rtx-4090", "--engine", "vllm", "--quant", "bf16").out.splitlines()
    assert own[-1].endswith("# starts it")


def test_a_cost_is_told_in_the_currency_of_its_limit():
    answer = call_tonnage("plan", SMALL, "--gpu", "h100-sxm", "--budget", "25000 CNY")
    assert answer.code == 3
    assert " CNY, asked for 25,000 CNY (--budget)" in answer.out


def test_a_page_goes_to_standard_output(tmp_path):
    path = tmp_path / "plan.toml"
    call_tonnage(*SERVE, "-o", str(path))
    assert call_tonnage("explain", str(path), "--html", "-").out.startswith("<!doctype html>")
    assert call_tonnage("explain", str(path), "--html", "-", "--json").code == 2


def test_shares_have_words_in_chinese():
    answer = call_tonnage(
        "plan", DENSE, "--gpu", "rtx-4080", "--quant", "bf16", "--engine", "llama.cpp", "--lang", "zh"
    )
    assert "计算缓冲" in answer.out
    assert "compute buffer" not in answer.out


def test_no_verb_is_answered_with_the_help():
    answer = call_tonnage()
    assert answer.code == 2
    assert answer.err.startswith("Usage: tonnage")
    assert answer.err.count("\n") > 10


def test_a_deepspeed_configuration_is_imported(tmp_path):
    config = tmp_path / "ds.json"
    config.write_text(json.dumps({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}))
    refused = call_tonnage("plan", SMALL, "--import", str(config), "--gpu", "rtx-4090:2")
    assert refused.code == 2
    assert "--finetune" in refused.err
    answer = call_tonnage("plan", SMALL, "--import", str(config), "--gpu", "rtx-4090:2", "--finetune", "full", "--json")
    assert answer.json["plans"][0]["layout"]["zero_stage"] == 2
    assert answer.json["plans"][0]["micro_batch_size"] == 1


def test_what_carries_over_from_today_is_said(tmp_path):
    line = tmp_path / "serve.sh"
    line.write_text(f"vllm serve {SMALL} -tp 1\n")
    plans = call_tonnage("plan", SMALL, "--gpu", "rtx-4090", "--engine", "vllm", "--today", str(line), "--json").json[
        "plans"
    ]
    assert any("engine vllm" in reason for reason in plans[0]["reasons"])


def test_chinese():
    answer = call_tonnage(*SERVE, "--lang", "zh")
    assert "可以" in answer.out
    assert "yes" not in answer.out


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TONNAGE_", "LC_", "LANG"))}
    paths = {"PYTHONPATH": str(Path(package.__file__).parent.parent)}
    return subprocess.run(
        [sys.executable, "-m", "tonnage", *words],
        env=kept | paths | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_settings_file_the_environment_and_the_command_line_in_that_order(tmp_path):
    settings_file = tmp_path / "config.toml"
    settings_file.write_text('[plan]\ngpu = ["rtx-4080"]\nengine = ["vllm"]\ncontext = "2048"\n')
    words = ("plan", SMALL, "--json")
    plain = json.loads(run(*words, TONNAGE_CONFIG=str(settings_file)).stdout)["request"]
    assert (plain["gpus"][0]["gpu"], plain["context_tokens"]) == ("rtx-4080", 2048)
    changed = json.loads(run(*words, TONNAGE_CONFIG=str(settings_file), TONNAGE_PLAN_CONTEXT="1024").stdout)["request"]
    assert changed["context_tokens"] == 1024
    said = json.loads(
        run(*words, "--context", "512", TONNAGE_CONFIG=str(settings_file), TONNAGE_PLAN_CONTEXT="1024").stdout
    )
    assert said["request"]["context_tokens"] == 512


def test_a_chinese_locale_and_no_colour():
    done = run("plan", SMALL, "--gpu", "rtx-4080", "--engine", "vllm", LANG="zh_CN.UTF-8", PYTHONUTF8="1")
    assert "可以" in done.stdout
    assert "\x1b[" not in done.stdout


@pytest.mark.parametrize(
    ("shell", "words", "expected"),
    [
        ("bash", "tonnage pl", "plan"),
        ("bash", "tonnage plan --gpu rtx-408", "rtx-4080"),
        ("zsh", "tonnage plan Qwen/Qwen3.5-2", "27B"),
    ],
)
def test_the_shell_completes(shell, words, expected):
    split = words.split(" ")
    done = run(_TONNAGE_COMPLETE=f"{shell}_complete", COMP_WORDS=words, COMP_CWORD=str(len(split) - 1))
    assert expected in done.stdout


def test_the_completion_script_is_printed():
    assert "_tonnage_completion" in run(_TONNAGE_COMPLETE="bash_source").stdout


def test_the_owner_of_a_gguf_file_sees_it_first_as_it_is(tmp_path):
    from tests.probe.test_files import write_gguf

    place = tmp_path / "mine.gguf"
    write_gguf(place, **{"general.file_type": 7})
    answer = call_tonnage("plan", str(place), "--gpu", "rtx-4090", "--context", "64", "--json")
    assert answer.code == 0, answer.err
    engines = [plan["engine"] for plan in answer.json["plans"]]
    assert set(engines) <= {"llama.cpp", "ik_llama.cpp", "ollama"}
    assert answer.json["plans"][0]["precision"]["weights"] == "q8_0"
    assert str(place) in call_tonnage("plan", str(place), "--gpu", "rtx-4090", "--context", "64").out
    refused = call_tonnage("plan", str(place), "--gpu", "rtx-4090", "--engine", "vllm")
    assert refused.code == 3
    assert "does not run this GGUF file" in " ".join(refused.out.split())


def test_money_is_told_in_the_currency_that_was_asked_in():
    out = call_tonnage("plan", "Qwen/Qwen3-8B", "--budget", "20000 CNY", "--rate", "CNY=7", "--engine", "llama.cpp").out
    yuan, dollars = re.search(r"([\d,]+) CNY \(([\d,]+) USD\)", out).groups()
    assert int(yuan.replace(",", "")) == pytest.approx(7 * int(dollars.replace(",", "")), abs=4)
    assert "money, in CNY (1 USD = 7 CNY)" in out
    assert "to buy, USD" in out
    assert (
        "to buy, USD" not in call_tonnage("plan", "Qwen/Qwen3-8B", "--budget", "3000 USD", "--engine", "llama.cpp").out
    )


def test_what_takes_longer_than_a_second_says_so(monkeypatch, capsys):
    from tonnage.cli import options

    monkeypatch.setattr(options, "_SILENT_SECONDS", 0.01)
    with options.waiting("a file or a pipe", is_quiet=False):
        time.sleep(0.1)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    for is_quiet in (False, True):
        with options.waiting("still looking", is_quiet=is_quiet):
            time.sleep(0.1)
        assert ("still looking" in capsys.readouterr().err) == (not is_quiet)
    monkeypatch.setattr(options, "_SILENT_SECONDS", 60.0)
    with options.waiting("still looking", is_quiet=False):
        pass
    assert capsys.readouterr().err == ""


def test_lengths_that_were_assumed_are_said_with_their_flags(tonnage):
    assert "prompts of 1,024 and answers of 256 tokens" in " ".join(
        tonnage("plan", SMALL, "--gpu", "rtx-4090").out.split()
    )
    said = tonnage("plan", SMALL, "--gpu", "rtx-4090", "--output-tokens", "100", "--json").json["assumptions"]
    assert "prompts of 1024 tokens (--input-tokens)" in said
    assert not any("--output-tokens" in text for text in said)


def test_a_host_that_is_short_is_explained_with_what_lies_on_the_host(tonnage):
    words = ("plan", SMALL, "--finetune", "full", "--gpu", "rtx-4090", "--host", "1 GiB ddr5-5600 x2")
    pinned = tonnage(*words, "--set", "offload.optimizer=true").out
    line = " ".join(pinned.split("\n\n")[1].split())
    assert "short in host memory" in line
    assert "optimizer" in line
    assert "activations" not in line


def test_a_budget_is_kept_by_cards_of_known_price_alone(tonnage):
    """Cards that nobody prices stand in the list of their own, not among the ranked."""
    words = ("plan", DENSE, "--rent", "3 USD/h", "--json")
    answer = tonnage(*words).json
    assert answer["plans"]
    assert all(plan["cost"]["usd_per_hour"] is not None for plan in answer["plans"])
    dear = [one["reason"] for one in answer["rejections"] if "--rent" in one["reason"]]
    assert all(" USD/h" in reason and "3 USD/h" in reason for reason in dear)


def test_a_card_that_is_rented_with_others_is_said_to_be(tonnage):
    """A V100 of 32 GB is rented in machines of eight alone: 31.2 USD/h are not the price of one."""
    found = tonnage("plan", SMALL, "--gpu", "v100-sxm2-32gb", "--rent", "3 USD/h", "--json")
    reasons = [one["reason"] for one in found.json["rejections"]]
    assert any("USD/h for a machine of 8 devices" in reason for reason in reasons)
