"""The launch line carries every setting that the prediction assumed, on every engine."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.engines.test_solvers import FORMATS, MODELS, candidate

from tonnage.engines import ENGINES, find_engine
from tonnage.errors import RequestError
from tonnage.estimate.compose_serving import serving_load
from tonnage.estimate.types import EngineSettings, Layout, Offload
from tonnage.model import catalogue
from tonnage.model.types import Quantization
from tonnage.workload.precision import Precision


def words(engine, one):
    """Return what a launch line says: flags and variables with their values, and its files."""
    line = engine.launch(one)
    pairs = zip(line.argv, [*line.argv[1:], "--"], strict=True)
    said = dict(line.env) | {word: after for word, after in pairs if word.startswith("-")}
    for text in line.files.values():
        said |= dict(part.split(maxsplit=2)[1:] for part in text.splitlines() if part.startswith("PARAMETER"))
        said |= dict(part.strip().split(": ", 1) for part in text.splitlines() if ": " in part)
    return said


def case(engine, name="dense", **more):
    settings = EngineSettings(max_num_seqs=24, max_batched_tokens=1024)
    if engine.name not in SLOTS:
        settings = replace(settings, utilization_ratio=0.77)
    one = candidate(name, engine.name, 48.0, context_tokens=6000, concurrency=24)
    return replace(one, settings=settings, **more)


SLOTS = {"llama.cpp", "ik_llama.cpp", "ollama", "transformers"}
# Settings that decide memory, and the flag that carries each.
FLAGS = {
    "vllm": {
        "context_tokens": "--max-model-len",
        "max_num_seqs": "--max-num-seqs",
        "max_batched_tokens": "--max-num-batched-tokens",
        "utilization_ratio": "--gpu-memory-utilization",
        "tp": "--tensor-parallel-size",
        "pp": "--pipeline-parallel-size",
    },
    "sglang": {
        "context_tokens": "--context-length",
        "max_num_seqs": "--max-running-requests",
        "max_batched_tokens": "--chunked-prefill-size",
        "utilization_ratio": "--mem-fraction-static",
        "tp": "--tp-size",
        "pp": "--pp-size",
    },
    "ktransformers": {
        "context_tokens": "--context-length",
        "max_num_seqs": "--max-running-requests",
        "max_batched_tokens": "--chunked-prefill-size",
        "utilization_ratio": "--mem-fraction-static",
        "tp": "--tp-size",
    },
    "tensorrt-llm": {
        "context_tokens": "--max_seq_len",
        "max_num_seqs": "--max_batch_size",
        "max_batched_tokens": "--max_num_tokens",
        "utilization_ratio": "--kv_cache_free_gpu_memory_fraction",
        "tp": "--tp_size",
        "pp": "--pp_size",
    },
    "llama.cpp": {"max_num_seqs": "-np", "max_batched_tokens": "-ub"},
    "ik_llama.cpp": {"max_num_seqs": "-np", "max_batched_tokens": "-ub"},
    "ollama": {"context_tokens": "num_ctx", "max_num_seqs": "OLLAMA_NUM_PARALLEL"},
    "transformers": {},  # nothing is set aside: the request decides
}
EIGHT_BITS = {
    "vllm": ("fp8", "--kv-cache-dtype", "fp8"),
    "sglang": ("fp8", "--kv-cache-dtype", "fp8_e4m3"),
    "tensorrt-llm": ("fp8", "dtype", "fp8"),
    "llama.cpp": ("q8_0", "-ctk", "q8_0"),
    "ik_llama.cpp": ("q8_0", "-ctv", "q8_0"),
    "ollama": ("q8_0", "OLLAMA_KV_CACHE_TYPE", "q8_0"),
}


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_every_limit_is_on_the_line(engine):
    assert set(FLAGS) == {one.name for one in ENGINES}
    ways = Layout(tp=2, pp=2 if "pp" in FLAGS[engine.name] else 1)
    one = case(engine, layout=ways if "tp" in FLAGS[engine.name] else Layout())
    load, said = serving_load(one, engine.accounting), words(engine, one)
    for name, flag in FLAGS[engine.name].items():
        assert float(said[flag]) == pytest.approx(float(getattr(load, name))), flag


@pytest.mark.parametrize("engine", [e for e in ENGINES if e.name in EIGHT_BITS], ids=lambda e: e.name)
def test_the_type_of_the_cache_is_on_the_line(engine):
    kv, flag, value = EIGHT_BITS[engine.name]
    precision = Precision(weights=FORMATS.get(engine.name, "bf16"), kv=kv)
    assert words(engine, case(engine, precision=precision))[flag] == value


def test_16_bits_are_said_where_the_checkpoint_could_ask_for_8():
    vllm = find_engine("vllm")
    own = replace(MODELS["dense"], quantization=Quantization(scheme="nvfp4"))
    one = case(vllm, model=own, precision=Precision(weights="nvfp4", kv="fp16", compute="bf16"))
    assert words(vllm, one)["--kv-cache-dtype"] == "bfloat16"


@pytest.mark.parametrize("name", ["llama.cpp", "ik_llama.cpp"])
def test_slots_share_the_context_and_nothing_is_moved(name):
    engine = find_engine(name)
    one = case(engine, "hybrid", offload=Offload(num_cpu_expert_layers=5, num_cpu_layers=2), layout=Layout(pp=2))
    said = words(engine, one)
    assert said["-c"] == str(24 * 6000)
    on_device = "23" if name == "llama.cpp" else "22"  # with the output, or without
    assert (said["-ncmoe"], said["-ngl"], said["-sm"], said["-ts"]) == ("5", on_device, "layer", "1,1")
    assert said["-fa"] == "on"
    assert said.get("--fit", "off") == "off"


def test_layers_on_the_host_are_on_the_line():
    one = replace(case(find_engine("ollama")), offload=Offload(num_cpu_layers=4))
    assert words(find_engine("ollama"), one)["num_gpu"] == "21"
    assert words(find_engine("transformers"), case(find_engine("transformers")))["--device"] == "auto"


def test_states_and_windows_of_sglang_are_on_the_line():
    sglang = find_engine("sglang")
    assert words(sglang, case(sglang, "hybrid"))["--max-mamba-cache-size"] == str(3 * 24)
    assert words(sglang, case(sglang, "windowed"))["--swa-full-tokens-ratio"] == "0.3414"
    short = candidate("windowed", "sglang", 48.0, context_tokens=2000, concurrency=2)
    assert words(sglang, short)["--swa-full-tokens-ratio"] == "0.8"


def test_ktransformers_keeps_no_more_experts_on_the_device_than_predicted():
    engine = find_engine("ktransformers")
    for layers in (0, 7, 24):
        said = words(engine, case(engine, "hybrid", offload=Offload(num_cpu_expert_layers=layers)))
        assert int(said["--kt-num-gpu-experts"]) == 64 * (24 - layers) // 24


def test_an_old_setting_that_the_plan_does_not_fix_is_the_one_it_assumed():
    """Without settings of one's own the line has those that `with_defaults` filled in."""
    for engine in ENGINES:
        one = candidate("dense", engine.name, 24.0, context_tokens=6000, concurrency=3)
        load, said = serving_load(one, engine.accounting), words(engine, one)
        for name, flag in FLAGS[engine.name].items():
            if name not in ("tp", "pp"):
                assert float(said[flag]) == pytest.approx(float(getattr(load, name)), rel=1e-3), (engine.name, flag)


def test_drafting_and_the_encoder_s_file_are_on_the_line():
    """What `--set settings.extra…` makes the prediction assume."""
    drafts = EngineSettings(extra={"draft_tokens": "3", "draft_layers": "1", "draft": "mtp"})
    vllm, sglang, llama = (find_engine(name) for name in ("vllm", "sglang", "llama.cpp"))
    said = words(vllm, replace(case(vllm), settings=drafts))
    assert json.loads(said["--speculative-config"]) == {"method": "mtp", "num_speculative_tokens": 3}
    said = words(sglang, replace(case(sglang), settings=drafts))
    assert (said["--speculative-num-steps"], said["--speculative-num-draft-tokens"]) == ("3", "4")
    mixed = EngineSettings(extra={"value_cache": "q8_0"})
    said = words(llama, replace(case(llama), settings=mixed))
    assert (said["-ctk"], said["-ctv"]) == ("f16", "q8_0")


def test_an_encoder_in_a_file_of_its_own_takes_its_bytes():
    llama = find_engine("llama.cpp")
    one = replace(
        case(llama), model=catalogue.find("Qwen/Qwen3.5-27B"), precision=Precision(weights="q4_k_m", kv="fp16")
    )
    beside = replace(one, settings=replace(one.settings, extra={"mmproj": "fp16"}))
    without, with_it = (
        llama.accounting.memory(serving_load(each, llama.accounting)).device_bytes() for each in (one, beside)
    )
    assert with_it - without == pytest.approx(2 * one.model.encoder.num_parameters, rel=0.01)
    assert words(llama, beside)["--mmproj"] == "mmproj-Qwen3.5-27B-FP16.gguf"
    assert "--mmproj" not in words(llama, one)
    with pytest.raises(RequestError, match="no encoder"):
        serving_load(replace(beside, model=MODELS["dense"]), llama.accounting)
