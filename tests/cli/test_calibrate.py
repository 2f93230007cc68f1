"""`tonnage calibrate`: logs of three engines, beside plans of the same launch."""

from __future__ import annotations

import json

import pytest

from tonnage.calibrate.log_check import read_log
from tonnage.errors import BadFileError
from tonnage.units import GIB, MIB

VLLM = """INFO [gpu_model_runner.py:2007] Model loading took 13.50 GiB memory and 6.2 seconds
INFO [gpu_worker.py:260] Available KV cache memory: 5.25 GiB
INFO [kv_cache_utils.py:864] GPU KV cache size: 114,688 tokens
INFO [gpu_model_runner.py:2603] Graph capturing finished in 6 secs, took 0.50 GiB
"""
SGLANG = """Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=63.8 GB, mem usage=15.00 GB.
KV Cache is allocated. #tokens: 445124, K size: 27.17 GB, V size: 27.17 GB
Capture cuda graph end. Time elapsed: 6.2 s. mem usage=0.50 GB. avail mem=8.0 GB.
"""
LLAMA = """load_tensors:        CUDA0 model buffer size =  4403.50 MiB
load_tensors:   CPU_Mapped model buffer size =   281.81 MiB
llama_kv_cache:      CUDA0 KV buffer size =  1024.00 MiB
llama_context:      CUDA0 compute buffer size =   258.50 MiB
llama_context:  CUDA_Host compute buffer size =    24.01 MiB
"""


def test_each_engine_is_read():
    vllm, sglang, llama = (read_log(text, "log") for text in (VLLM, SGLANG, LLAMA))
    assert (vllm.engine, vllm.weights_bytes, vllm.cache_tokens) == ("vllm", 13.5 * GIB, 114_688)
    assert vllm.graph_bytes == 0.5 * GIB
    assert (sglang.engine, sglang.cache_tokens) == ("sglang", 445_124)
    assert sglang.cache_bytes == pytest.approx(54.34 * GIB)
    assert llama.engine == "llama.cpp"
    assert (llama.weights_bytes, llama.cache_bytes, llama.compute_bytes) == (4403.5 * MIB, 1024 * MIB, 258.5 * MIB)


def test_no_log_is_refused():
    with pytest.raises(BadFileError, match="no start-up log"):
        read_log("hello", "x.log")


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    from tests.conftest import call_tonnage

    path = tmp_path_factory.mktemp("plan") / "plan.toml"
    said = call_tonnage(
        "plan", "openai/gpt-oss-20b", "--serve", "--gpu", "rtx-4090", "--engine", "vllm", "--pick", "1", "-o", str(path)
    )
    assert said.code == 0, said.err
    return path


def test_a_log_is_told_beside_its_plan(plan, tmp_path):
    from tests.conftest import call_tonnage

    log = tmp_path / "vllm.log"
    log.write_text(VLLM, encoding="utf-8")
    said = call_tonnage("calibrate", str(log), "--plan", str(plan), "--json")
    assert said.code == 0, said.err
    found = {one["name"]: one for one in json.loads(said.out)["logs"][0]["quantities"]}
    assert found["weights_bytes"]["measured"] == 13.5 * GIB
    assert abs(found["weights_bytes"]["relative"]) < 0.03
    assert found["cache_tokens"]["predicted"] > 0


def test_another_engines_log_is_refused(plan, tmp_path):
    from tests.conftest import call_tonnage

    log = tmp_path / "llama.log"
    log.write_text(LLAMA, encoding="utf-8")
    said = call_tonnage("calibrate", str(log), "--plan", str(plan))
    assert said.code == 2
    assert "the log is of llama.cpp" in said.err
