"""Logs of several versions of three engines, and the results of four benchmark programs, as they are printed."""

from __future__ import annotations

import json
import time

import pytest

from tonnage.calibrate.measurements import read_log, read_measurements
from tonnage.errors import BadFileError
from tonnage.units import GIB, MIB

VLLM_06 = """INFO model_runner.py:1115] Loading model weights took 2.8875 GB
INFO worker.py:267] the current vLLM instance can use total_gpu_memory (14.56GiB) x gpu_memory_utilization (0.50) = 7.28GiB
INFO worker.py:267] model weights take 2.89GiB; non_torch_memory takes 0.01GiB; PyTorch activation peak memory takes 2.02GiB; the rest of the memory reserved for KV Cache is 2.36GiB.
INFO executor_base.py:110] # CUDA blocks: 5519, # CPU blocks: 9362
"""
VLLM_10 = """INFO Initializing a V1 LLM engine (v0.10.2) with config: model='Qwen/Qwen3-8B', max_seq_len=4096, tensor_parallel_size=1, pipeline_parallel_size=1
INFO [gpu_model_runner.py:2007] Model loading took 14.08 GiB and 6.2 seconds
INFO [gpu_worker.py:276] Available KV cache memory: 55.15 GiB
INFO [kv_cache_utils.py:864] GPU KV cache size: 451,744 tokens
INFO [gpu_model_runner.py:3118] Graph capturing finished in 5 secs, took 0.67 GiB
INFO [gpu_worker.py:391] Free memory on device (78.66/79.19 GiB) on startup. Desired GPU memory utilization is (0.9, 71.27 GiB). Actual usage is 14.08 GiB for weight, 1.97 GiB for peak activation, 0.07 GiB for non-torch memory, and 0.67 GiB for CUDAGraph memory. Current kv cache memory in use is 59212694937 bytes.
"""
VLLM_33 = """(EngineCore pid=326) INFO [model_runner.py:407] Model loading took 15.0 GiB memory and 5.420225 seconds
(EngineCore pid=326) INFO [kv_cache_utils.py:2464] GPU KV cache size: 460,496 tokens, Maximum concurrency for 131,072 tokens per request: 3.51x
(EngineCore pid=326) INFO [gpu_worker.py:955] Free memory on device (78.84/79.25 GiB) on startup. Desired GPU memory utilization is (0.92, 72.91 GiB). Actual usage is 15.26 GiB for consumed memory (weights + non-torch), 1.44 GiB for peak activation, and 0.23 GiB for CUDAGraph memory.
(EngineCore pid=326) INFO [gpu_worker.py:692] Available KV cache memory: 56.21 GiB
"""
SGLANG_04 = """[TP0] server_args=ServerArgs(model_path='meta-llama/Llama-3.1-8B', mem_fraction_static=0.88, tp_size=2)
[TP0] Load weight begin. avail mem=78.50 GB
[TP0] Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=63.82 GB
[TP0] KV Cache is allocated. K size: 27.13 GB, V size: 27.13 GB.
[TP0] max_total_num_tokens=445124, max_prefill_tokens=16384, max_running_requests=4097, context_len=131072
"""
SGLANG_05 = """Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=63.8 GB, mem usage=15.00 GB.
KV Cache is allocated. #tokens: 445124, K size: 27.17 GB, V size: 27.17 GB
Capture cuda graph end. Time elapsed: 6.2 s. mem usage=0.50 GB. avail mem=8.0 GB.
"""
LLAMA_2024 = """llm_load_tensors:        CPU buffer size =   281.81 MiB
llm_load_tensors:      CUDA0 buffer size =  4403.50 MiB
llama_kv_cache_init:      CUDA0 KV buffer size =  1024.00 MiB
llama_new_context_with_model: n_ctx      = 8192
llama_new_context_with_model:      CUDA0 compute buffer size =   258.50 MiB
"""
LLAMA_2026 = """load_tensors:        CUDA0 model buffer size =  4403.50 MiB
load_tensors:   CPU_Mapped model buffer size =   281.81 MiB
llama_context: n_seq_max     = 2
llama_context: n_ctx         = 8192
llama_context: n_ubatch      = 512
llama_kv_cache:      CUDA0 KV buffer size =  1024.00 MiB
llama_kv_cache: size = 1024.00 MiB (  8192 cells,  32 layers,  1/1 seqs), K (q8_0):  512.00 MiB, V (q8_0):  512.00 MiB
llama_context:      CUDA0 compute buffer size =   258.50 MiB
llama_context:  CUDA_Host compute buffer size =    24.01 MiB
llama_perf_context_print: prompt eval time =      80.76 ms /   511 tokens (    0.16 ms per token,  6327.00 tokens per second)
llama_perf_context_print:        eval time =    9210.59 ms /   475 runs   (   19.39 ms per token,    51.57 tokens per second)
llama_memory_breakdown_print: |   - CUDA0 (RTX 4090)   | 24080 = 17700 + ( 5686 =  4403 +    1024 +     258) +         694 |
llama_memory_breakdown_print: |   - Host               |                   306 =   281 +       0 +      24                |
"""


@pytest.mark.parametrize(
    ("text", "weights", "cache", "tokens", "non_torch"),
    [
        (VLLM_06, 2.8875, 2.36, 5519 * 16, 0.01),
        (VLLM_10, 14.08, 55.15, 451_744, 0.07),
        (VLLM_33, 15.0, 56.21, 460_496, 0.26),
    ],
    ids=["0.6", "0.10", "0.33"],
)
def test_vllm(text, weights, cache, tokens, non_torch):
    facts = read_log(text, "log")
    assert facts.engine == "vllm"
    assert facts.weights_bytes == pytest.approx(weights * GIB)
    assert facts.cache_bytes == pytest.approx(cache * GIB)
    assert facts.cache_tokens == tokens
    assert facts.non_torch_bytes == pytest.approx(non_torch * GIB)


def test_vllm_tells_its_launch():
    facts = read_log(VLLM_10, "log")
    assert (facts.version, facts.model) == ("0.10.2", "Qwen/Qwen3-8B")
    assert facts.settings["context"] == "4096"
    assert facts.settings["settings.utilization_ratio"] == "0.9"
    assert read_log(VLLM_06, "log").settings["settings.utilization_ratio"] == "0.50"


def test_ranks_count_by_the_fullest():
    two = VLLM_33 + VLLM_33.replace("15.0 GiB", "15.2 GiB").replace("56.21", "56.01")
    facts = read_log(two, "log")
    assert (facts.weights_bytes, facts.cache_bytes) == (15.2 * GIB, 56.01 * GIB)


def test_sglang():
    old, new = read_log(SGLANG_04, "log"), read_log(SGLANG_05, "log")
    assert old.engine == new.engine == "sglang"
    assert old.weights_bytes == pytest.approx(14.68 * GIB)
    assert old.cache_bytes == pytest.approx(54.26 * GIB)
    assert old.cache_tokens == new.cache_tokens == 445_124
    assert (old.model, old.settings["layout.tp"]) == ("meta-llama/Llama-3.1-8B", "2")
    assert new.weights_bytes == 15 * GIB
    assert new.graph_bytes == 0.5 * GIB


def test_llama_cpp():
    for text in (LLAMA_2024, LLAMA_2026):
        facts = read_log(text, "log")
        assert facts.engine == "llama.cpp"
        assert (facts.weights_bytes, facts.cache_bytes, facts.compute_bytes) == (4403.5 * MIB, 1024 * MIB, 258.5 * MIB)
        assert facts.settings["context"] == "8192"
    assert facts.context_bytes == 694 * MIB
    assert facts.settings["precision.kv"] == "q8_0"
    assert (facts.decode_tokens_per_s, facts.num_decode_tokens) == (51.57, 475)
    assert (facts.prefill_tokens_per_s, facts.num_prefill_tokens) == (6327.0, 511)


ROW = {"model_filename": "/m/llama-8b-q4_k_m.gguf", "model_type": "llama 8B Q4_K - Medium", "type_k": "f16",
       "n_ubatch": 512, "n_depth": 0}  # fmt: skip
TESTS = [ROW | {"n_prompt": 512, "n_gen": 0, "avg_ts": 4100.5}, ROW | {"n_prompt": 0, "n_gen": 128, "avg_ts": 101.25}]
TABLE = """| model                  |       size |     params | backend | ngl |   test |             t/s |
| ---------------------- | ---------: | ---------: | ------- | --: | -----: | --------------: |
| llama 8B Q4_K - Medium |   4.58 GiB |     8.03 B | CUDA    |  99 |  pp512 | 4100.50 ± 12.00 |
| llama 8B Q4_K - Medium |   4.58 GiB |     8.03 B | CUDA    |  99 |  tg128 |   101.25 ± 0.10 |
| llama 8B Q4_K - Medium |   4.58 GiB |     8.03 B | CUDA    |  99 | tg128 @ d4096 | 90.0 ± 0.10 |
"""


@pytest.mark.parametrize("form", ["json", "jsonl", "csv", "table"])
def test_llama_bench(form):
    names = list(TESTS[0])
    text = {
        "json": json.dumps(TESTS),
        "jsonl": "\n".join(json.dumps(one) for one in TESTS),
        "csv": "\n".join(",".join(f'"{v}"' if i else v for v in line)
                         for i, line in enumerate([names, *([str(t[n]) for n in names] for t in TESTS)])),
        "table": TABLE,
    }[form]  # fmt: skip
    (found,) = read_measurements(text, "bench")
    assert (found.kind, found.engine, found.weights) == ("llama-bench", "llama.cpp", "llama 8B Q4_K - Medium")
    rates = {(one.metric, one.input_tokens, one.output_tokens): one.value for one in found.speeds}
    assert rates["prefill_tps", 512, 1] == 4100.5
    assert rates["decode_tps_single", 1, 128] == 101.25
    if form == "table":
        assert rates["decode_tps_single", 4096, 128] == 90.0


SERVING = {"backend": "vllm", "model_id": "Qwen/Qwen3-8B", "request_rate": "inf", "max_concurrency": 16, "duration": 60.0,
           "completed": 200, "total_input_tokens": 200 * 512, "total_output_tokens": 200 * 128, "output_throughput": 900.0,
           "mean_ttft_ms": 210.0, "mean_tpot_ms": 15.0}  # fmt: skip


def test_serving_benchmarks():
    (vllm,) = read_measurements(json.dumps(SERVING), "bench")
    assert (vllm.kind, vllm.engine, vllm.model) == ("vllm bench serve", "vllm", "Qwen/Qwen3-8B")
    (one,) = vllm.speeds
    assert (one.metric, one.value, one.concurrency, one.input_tokens, one.output_tokens) == (
        "throughput_tps", 900.0, 16, 512, 128)  # fmt: skip
    sglang = {**SERVING, "backend": "sglang", "mean_e2e_latency_ms": 3000.0}
    many = read_measurements("\n".join(json.dumps(one) for one in (sglang, {**sglang, "max_concurrency": 1})), "bench")
    assert [one.kind for one in many] == ["sglang.bench_serving"] * 2
    assert {one.metric for one in many[1].speeds} == {"throughput_tps", "ttft_seconds", "tpot_seconds"}


def test_an_offered_rate_is_no_capacity():
    with pytest.raises(BadFileError):
        read_measurements(json.dumps({**SERVING, "request_rate": 2.0, "max_concurrency": None}), "bench")


def test_our_own_bench():
    spread = {"p50": 0.012, "p95": 0.02, "p99": 0.03}
    own = {"schema": 1, "requests": 10, "errors": 0, "output_tokens_per_s": 80.0, "ttft_seconds": spread,
           "tpot_seconds": spread, "concurrency": 1}  # fmt: skip
    (found,) = read_measurements(json.dumps(own), "bench")
    assert {one.metric: one.value for one in found.speeds} == {
        "throughput_tps": 80.0, "ttft_seconds": 0.012, "tpot_seconds": 0.012}  # fmt: skip


@pytest.mark.parametrize(
    "text", ["", "hello", "{}", "[]", "[1]", '{"output_throughput": 3}', "| a | b |\n", "{" * 100000]
)
def test_anything_else_is_refused_in_one_line(text):
    with pytest.raises(BadFileError) as caught:
        read_measurements(text, "x.log")
    assert str(caught.value).startswith("x.log: ")
    assert "\n" not in str(caught.value)


HOSTILE = {
    "one word": "a" * 300_000, "dashes": "- " * 100_000, "digits": "1" * 300_000, "spaces": " " * 300_000,
    "lines": "INFO 123 model buffer\n" * 20_000, "caches": "KV Cache is allocated. " * 10_000,
    "weights": "Load weight end. " * 10_000, "buffers": "x buffer size = " * 20_000, "brackets": "[" * 200_000,
    "table": "| test | t/s |\n" + "|" * 200_000, "bytes": "".join(map(chr, range(1, 50_000))),
}  # fmt: skip


@pytest.mark.parametrize("text", list(HOSTILE.values()), ids=list(HOSTILE))
def test_no_text_takes_long(text):
    start = time.process_time()
    with pytest.raises(BadFileError):
        read_measurements(text, "x.log")
    assert time.process_time() - start < 3
