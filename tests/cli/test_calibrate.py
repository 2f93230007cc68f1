"""`tonnage calibrate`: what was measured beside what was predicted, kept for later plans, shown and forgotten."""

from __future__ import annotations

import json
import os
import stat

import pytest
from tests.calibrate.test_measurements import LLAMA_2026, SERVING, TABLE, TESTS
from tests.conftest import call_tonnage

from tonnage.plan.file import read_plan
from tonnage.units import GIB, MIB

ASK = ("Qwen/Qwen3-8B", "--gpu", "rtx-4090", "--quant", "bf16")
LOG = """INFO [gpu_model_runner.py:2007] Model loading took {weights:.4f} GiB memory and 6.2 seconds
INFO [gpu_worker.py:260] Available KV cache memory: {pool:.4f} GiB
"""


@pytest.fixture(scope="module")
def plans(tmp_path_factory):
    """A plan for each engine."""
    folder = tmp_path_factory.mktemp("plans")
    for engine in ("vllm", "sglang"):
        said = call_tonnage("plan", *ASK, "--engine", engine, "-o", str(folder / f"{engine}.toml"), "-q")
        assert said.code == 0, said.err
    quantised = ("--quant", "q4_k_m", "--kv", "fp16")
    said = call_tonnage("plan", *ASK[:3], *quantised, "--engine", "llama.cpp", "-o", str(folder / "llama.toml"), "-q")
    assert said.code == 0, said.err
    return folder


@pytest.fixture
def profile(tmp_path, monkeypatch):
    path = tmp_path / "config" / "profile.toml"
    monkeypatch.setenv("TONNAGE_PROFILE", str(path))
    return path


def pool_of(plans, text, tmp_path, name="vllm"):
    """What a plan's launch is told to keep for its cache, by a comparison that keeps nothing."""
    log = tmp_path / "probe.log"
    log.write_text(text)
    said = call_tonnage("calibrate", str(log), "--plan", str(plans / f"{name}.toml"), "--check", "--json")
    assert said.code == 0, said.err
    found = {one["name"]: one for one in said.json["logs"][0]["quantities"]}
    return found["cache_bytes"]["predicted"], found["weights_bytes"]["predicted"]


def write_log(plans, tmp_path, less_gib, more_weights_gib=0.0):
    predicted, weights = pool_of(plans, LOG.format(weights=15, pool=5), tmp_path)
    log = tmp_path / "vllm.log"
    pool = predicted / GIB - less_gib
    log.write_text(LOG.format(weights=weights / GIB + more_weights_gib, pool=pool))
    return log, pool


def capacity(*more):
    answer = call_tonnage("plan", *ASK, *more, "--json")
    assert answer.code == 0, answer.err
    (plan,) = [one for one in answer.json["plans"] if one["rank"] == 1]
    return plan


@pytest.mark.parametrize(("less", "heavier"), [(0.9, 0.0), (-0.2, 0.0), (0.4, 0.3)])
def test_after_a_log_the_same_launch_is_told_as_it_was(plans, profile, tmp_path, less, heavier):
    log, pool = write_log(plans, tmp_path, less, heavier)
    said = call_tonnage("calibrate", str(log), "--plan", str(plans / "vllm.toml"), "--json")
    assert said.code == 0, said.err
    assert said.json["profile"]["num_lessons"] >= 1
    from tonnage.engines import find_engine
    from tonnage.engines.taught import taught
    from tonnage.estimate.compose_serving import serving_load
    from tonnage.plan.profile import read_profile, teaching_of

    candidate = read_plan((plans / "vllm.toml").read_text()).estimate.candidate
    lessons = read_profile(profile.read_text(), "p").lessons
    accounting = taught(find_engine("vllm"), teaching_of(lessons, "vllm", candidate.model.name)).accounting
    again = accounting.memory(serving_load(candidate, accounting)).cache_bytes
    assert again == pytest.approx(pool * GIB, abs=0.01 * GIB)


def test_later_plans_take_it_and_forgetting_restores(plans, profile, tmp_path):
    before = capacity("--engine", "vllm")
    log, _ = write_log(plans, tmp_path, 0.8)
    said = call_tonnage("calibrate", str(log), "--plan", str(plans / "vllm.toml"))
    assert said.code == 0, said.err
    assert "--profile here" in said.out
    assert "what the cache pool loses" in said.out
    after = capacity("--engine", "vllm", "--profile", "here")
    more = after["memory"]["device"]["total_bytes"]["best"] - before["memory"]["device"]["total_bytes"]["best"]
    assert more == pytest.approx(0.8 * GIB, abs=20 * MIB)
    assert any("machine 'here'" in text for text in after["provenance"]["assumptions"])
    assert after["limits"]["max_context_tokens"] < before["limits"]["max_context_tokens"]
    grown = after["limits"]["least_memory_bytes"] - before["limits"]["least_memory_bytes"]
    assert 0.8 * GIB - 20 * MIB < grown < 1.2 * GIB  # the engine may take a share of the device only
    kept = tmp_path / "kept.toml"
    assert call_tonnage("plan", *ASK, "--engine", "vllm", "--profile", "here", "-o", str(kept), "-q").code == 0
    assert read_plan(kept.read_text()).limits.max_context_tokens == after["limits"]["max_context_tokens"]
    assert capacity("--engine", "vllm") == before
    assert capacity("--engine", "sglang", "--profile", "here") == capacity("--engine", "sglang")
    assert call_tonnage("calibrate", "profile", "forget").code == 0
    assert call_tonnage("calibrate", "profile", "show", "--json").json["lessons"] == []
    assert call_tonnage("plan", *ASK, "--profile", "here").code == 2


def test_show_export_and_forget_one(plans, profile, tmp_path):
    assert "nothing was taught" in call_tonnage("calibrate", "profile", "show").out
    log, _ = write_log(plans, tmp_path, 0.8, 0.3)
    assert call_tonnage("calibrate", str(log), "--plan", str(plans / "vllm.toml"), "-q").code == 0
    lessons = call_tonnage("calibrate", "profile", "show", "--json").json["lessons"]
    assert {one["quantity"] for one in lessons} == {"pool_bytes", "weights_bytes"}
    assert "vllm.log, 2026-11-30" in call_tonnage("calibrate", "profile", "show").out
    assert call_tonnage("calibrate", "profile", "export").out == profile.read_text()
    assert call_tonnage("calibrate", "profile", "forget", "1").code == 0
    (left,) = call_tonnage("calibrate", "profile", "show", "--json").json["lessons"]
    assert left["quantity"] == lessons[1]["quantity"]
    for words in (("forget", "7"), ("forget", "x"), ("burn",)):
        answer = call_tonnage("calibrate", "profile", *words)
        assert (answer.code, answer.err.count("\n")) == (2, 1)


def test_the_file_holds_no_paths_and_no_names(plans, profile, tmp_path):
    log, _ = write_log(plans, tmp_path, 0.8)
    call_tonnage("calibrate", str(log), "--plan", str(plans / "vllm.toml"), "-q")
    text = profile.read_text()
    assert str(tmp_path) not in text
    assert os.uname().nodename not in text or len(os.uname().nodename) < 4
    assert list(profile.parent.iterdir()) == [profile]


def test_a_damaged_profile_is_one_line(profile):
    profile.parent.mkdir(parents=True)
    profile.write_text("format = 1\nlessons = ")
    answer = call_tonnage("plan", *ASK, "--profile", "here")
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert str(profile) in answer.err
    assert call_tonnage("plan", *ASK, "--no-profile").code == 0
    assert call_tonnage("plan", *ASK).code == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="platform: root may write anywhere")
def test_a_folder_that_takes_nothing(plans, profile, tmp_path):
    log, _ = write_log(plans, tmp_path, 0.8)
    profile.parent.mkdir()
    profile.parent.chmod(stat.S_IRUSR | stat.S_IXUSR)
    answer = call_tonnage("calibrate", str(log), "--plan", str(plans / "vllm.toml"))
    assert (answer.code, "cannot be written" in answer.err) == (4, True)


def test_a_log_of_llama_cpp(plans, profile, tmp_path):
    log = tmp_path / "llama.log"
    log.write_text(LLAMA_2026)
    said = call_tonnage("calibrate", str(log), "--plan", str(plans / "llama.toml"), "--json")
    assert said.code == 0, said.err
    found = {one["name"]: one for one in said.json["logs"][0]["quantities"]}
    assert found["context_bytes"]["teaches"] == "context_bytes"
    assert found["compute_bytes"]["teaches"] == "compute_buffer_bytes"
    assert found["decode_tps_single"]["teaches"] == "bandwidth_ratio"
    assert found["prefill_tps"]["teaches"] == "compute_ratio"


@pytest.mark.parametrize("text", [json.dumps(TESTS), TABLE], ids=["json", "table"])
def test_a_benchmark_without_a_plan(text, profile, tmp_path):
    bench = tmp_path / "bench.txt"
    bench.write_text(text.replace("llama-8b", "qwen3-8b"))
    said = call_tonnage("calibrate", str(bench), "--model", "Qwen/Qwen3-8B", "--gpu", "rtx-4090", "--json")
    assert said.code == 0, said.err
    (result,) = said.json["logs"]
    found = {(one["name"], one["load"]): one for one in result["quantities"]}
    decode = found["decode_tps_single", "1 + 128 tokens"]
    assert decode["teaches"] == "bandwidth_ratio"
    plain = call_tonnage("plan", *ASK[:3], "--quant", "q4_k_m", "--kv", "fp16", "--engine", "llama.cpp", "--json")
    taught = call_tonnage(
        "plan", *ASK[:3], "--quant", "q4_k_m", "--kv", "fp16", "--engine", "llama.cpp", "--json", "--profile", "here"
    )
    before, after = (one.json["plans"][0]["performance"]["tpot_seconds"]["best"] for one in (plain, taught))
    assert after == pytest.approx(before * decode["predicted"] / decode["measured"], rel=0.1)


def test_a_serving_benchmark(plans, profile, tmp_path):
    bench = tmp_path / "serve.json"
    bench.write_text(json.dumps(SERVING))
    said = call_tonnage("calibrate", str(bench), "--plan", str(plans / "vllm.toml"), "--json")
    assert said.code == 0, said.err
    (one,) = said.json["logs"][0]["quantities"]
    assert (one["name"], one["teaches"]) == ("throughput_tps", "batch_ratio")


def test_rows_of_measured_runs(profile, tmp_path):
    rows = tmp_path / "rows.jsonl"
    row = {"id": "a", "engine": "llama.cpp", "model": "Qwen/Qwen3-8B", "quant": "Q4_K_M", "gpu": "RTX 4090", "n_gpus": 1,
           "isl": 512, "osl": 128, "measured": {"decode_tps_single": 120.0}}  # fmt: skip
    rows.write_text(json.dumps(row))
    said = call_tonnage("calibrate", str(rows), "--json")
    assert said.code == 0, said.err
    assert said.json["logs"][0]["gpu"] == "rtx-4090"
    assert said.json["profile"]["num_lessons"] == 1


@pytest.mark.parametrize(
    ("text", "more", "said"),
    [
        ("hello", (), "nothing is measured in it"),
        (LLAMA_2026 + LOG.format(weights=15, pool=5), ("--plan", "{vllm}"), "holds lines of vllm and llama.cpp"),
        (LLAMA_2026, ("--plan", "{vllm}"), "measured was llama.cpp"),
        (LOG.format(weights=15, pool=5) + "config: tensor_parallel_size=2", ("--plan", "{vllm}"), "tp=2"),
        (json.dumps(SERVING | {"model_id": "x/y"}), (), "which model ran"),
        (LOG.format(weights=15, pool=5), ("--plan", "{vllm}", "--profile", "a b"), "is no label"),
    ],
)
def test_what_does_not_belong_together(text, more, said, plans, profile, tmp_path):
    log = tmp_path / "x.log"
    log.write_text(text)
    answer = call_tonnage("calibrate", str(log), *(one.format(vllm=plans / "vllm.toml") for one in more))
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert said in answer.err
    assert not profile.exists()


@pytest.mark.parametrize(("weights", "pool"), [(0, 5), (15, 0), (500, 5), (15, 90000)])
def test_impossible_figures_are_refused(weights, pool, plans, profile, tmp_path):
    log = tmp_path / "x.log"
    log.write_text(LOG.format(weights=weights, pool=pool))
    answer = call_tonnage("calibrate", str(log), "--plan", str(plans / "vllm.toml"))
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert "cannot be on" in answer.err
    assert not profile.exists()


def test_a_log_of_another_model_is_told(plans, profile, tmp_path):
    log = tmp_path / "x.log"
    log.write_text(LOG.format(weights=15, pool=5) + "with config: model='meta-llama/Llama-3.1-8B'")
    answer = call_tonnage("calibrate", str(log), "--plan", str(plans / "vllm.toml"), "--check")
    assert "warning: the file is of meta-llama/Llama-3.1-8B" in answer.err
    answer = call_tonnage("calibrate", str(log), "--plan", str(plans / "vllm.toml"))
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert "nothing was kept" in answer.err
    assert not profile.exists()
    folder = "/models--Qwen--Qwen3-8B/snapshots/b968826d9c46"
    log.write_text(log.read_text().replace("meta-llama/Llama-3.1-8B", folder))
    assert call_tonnage("calibrate", str(log), "--plan", str(plans / "vllm.toml")).code == 0


def test_a_training_run_teaches_later_training(profile, tmp_path):
    ask = ("plan", "Qwen/Qwen3-8B", "--finetune", "lora", "--gpu", "rtx-4090", "--engine", "transformers", "--json")
    plain = call_tonnage(*ask)
    assert plain.code == 0, plain.err
    rows = tmp_path / "run.json"
    row = {"id": "a", "kind": "lora", "model": "Qwen/Qwen3-8B", "framework": "transformers", "gpu": "RTX 4090",
           "n_gpus": 1, "precision": "bf16", "optimizer": "adamw", "micro_batch": 1, "grad_accum": 1,
           "global_batch_seqs": 1, "seq_len": 1024, "lora_rank": 16, "flash_attention": True, "zero_stage": 0, "tp": 1,
           "pp": 1, "activation_checkpointing": "full", "trust": "A", "oom": False, "hidden": 4096, "layers": 36, "heads": 32,
           "kv_heads": 8, "ffn": 12288, "vocab": 151936}  # fmt: skip
    rows.write_text(json.dumps(row | {"tokens_per_s_per_gpu": 1000.0}))
    first = call_tonnage("calibrate", str(rows), "--check", "--json")
    assert first.code == 0, first.err
    (told,) = first.json["logs"][0]["quantities"]
    assert told["teaches"] == "training_speed_ratio"
    rows.write_text(json.dumps(row | {"tokens_per_s_per_gpu": 0.8 * told["predicted"]}))
    assert call_tonnage("calibrate", str(rows), "-q").code == 0
    taught = call_tonnage(*ask, "--profile", "here")
    before, after = (one.json["plans"][0] for one in (plain, taught))
    slower = after["performance"]["tokens_per_s"]["best"] / before["performance"]["tokens_per_s"]["best"]
    assert slower == pytest.approx(0.8, abs=0.06)
    assert after["performance"]["mfu_ratio"]["best"] < before["performance"]["mfu_ratio"]["best"]
    assert any("achieved speed of training" in text for text in after["provenance"]["assumptions"])
    assert after["memory"] == before["memory"]
    serving = ("plan", "Qwen/Qwen3-8B", "--gpu", "rtx-4090", "--engine", "transformers", "--json")
    assert call_tonnage(*serving, "--profile", "here").json["plans"] == call_tonnage(*serving).json["plans"]


def bench_of(tmp_path, card="NVIDIA GeForce RTX 4080", rate=95.0):
    about = {"build_commit": "a", "build_number": 6000, "gpu_info": card, "backends": "CUDA", "n_ubatch": 512,
             "model_filename": "Qwen3-8B-Q4_K_M.gguf", "model_type": "qwen3 8B Q4_K - Medium", "n_depth": 0}  # fmt: skip
    tests = [{"n_prompt": 0, "n_gen": 128, "avg_ts": rate}, {"n_prompt": 512, "n_gen": 0, "avg_ts": 5000.0}]
    path = tmp_path / "bench.json"
    path.write_text(json.dumps([about | test for test in tests]))
    return str(path)


def test_the_card_that_a_file_names_is_the_card(profile, tmp_path):
    path = bench_of(tmp_path)
    said = call_tonnage("calibrate", path, "--model", "Qwen/Qwen3-8B", "--gpu", "rtx-4090")
    assert said.code == 2
    assert "RTX 4080" in said.err
    assert not profile.exists()
    found = call_tonnage("calibrate", path, "--model", "Qwen/Qwen3-8B", "--json")
    assert found.code == 0, found.err
    assert found.json["logs"][0]["gpu"] == "rtx-4080"


def test_a_log_that_the_card_cannot_hold_teaches_nothing(profile, tmp_path):
    log = tmp_path / "vllm.log"
    log.write_text(LOG.format(weights=15.3, pool=50.0))
    said = call_tonnage("calibrate", str(log), "--model", "Qwen/Qwen3-8B", "--gpu", "rtx-4090")
    assert said.code == 2
    assert "wrong --gpu?" in said.err
    assert not profile.exists()


def test_a_lesson_narrows_the_rate_and_its_command_works(profile, tmp_path):
    """±40 % of one request's rate falls to what prompts and steps leave open once both were measured there."""

    def width(*words):
        rate = call_tonnage(*words, "--json").json["plans"][0]["performance"]["tokens_per_s"]
        return (rate["high"] - rate["low"]) / rate["best"]

    ask = ("plan", "Qwen/Qwen3-8B", "--gpu", "rtx-4080", "--engine", "llama.cpp", "--quant", "q4_k_m")
    before = width(*ask)
    said = call_tonnage("calibrate", bench_of(tmp_path), "--model", "Qwen/Qwen3-8B", "--profile", "box")
    assert width(*ask, "--profile", "box") < 0.7 * before
    words = said.out.rpartition("tonnage ")[2].split()
    assert call_tonnage(*words).code == 0
    assert words[-2:] == ["--profile", "box"]


def test_the_profile_is_a_part_of_calibrate(profile):
    said = call_tonnage("profile", "show")
    assert said.code == 2
    assert "tonnage calibrate profile show" in said.err


def test_a_comparison_is_told_in_chinese(plans, profile, tmp_path):
    log, _ = write_log(plans, tmp_path, 0.2)
    said = call_tonnage("calibrate", str(log), "--plan", str(plans / "vllm.toml"), "--check", "--lang", "zh")
    assert "：启动日志，vllm，" in said.out
