"""Known servings: does it load, what does it hold. Bytes within 3 %; nothing is tuned to them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tonnage.calibrate.inference_rows import case_of_row, load_of_case
from tonnage.engines import find_engine
from tonnage.estimate.compose_serving import (
    largest_context,
    short_by_bytes,
    smallest_num_cpu_expert_layers,
)
from tonnage.estimate.serving_speed import decode_seconds, decode_work
from tonnage.units import GIB


def serving(engine, model, gpu, **more):
    accounting = find_engine(engine).accounting
    row = {"id": "golden", "engine": engine, "model": model, "gpu": gpu, "n_gpus": 1, "measured": {}, **more}
    return load_of_case(case_of_row(row), accounting), accounting


def fits(load, accounting):
    return bool(short_by_bytes(load, accounting.memory(load)) <= 0)


def test_gpt_oss_20b_keeps_13_gib_of_weights_in_vllm():
    load, accounting = serving("vllm", "openai/gpt-oss-20b", "rtx-4090", quant="mxfp4", ctx=8192)
    weights = next(pool.bytes for pool in accounting.memory(load).pools if pool.name == "weights")
    assert weights / GIB == pytest.approx(13.5, rel=0.03)


def test_llama_8b_at_32k_needs_an_8_bit_cache_on_8_gb():
    about = {"quant": "Q4_K_M", "ctx": 32768, "flash_attn": True}
    f16 = serving("llama.cpp", "Llama-3.1-8B-Instruct", "rtx-4060", kv_dtype="f16", **about)
    q8 = serving("llama.cpp", "Llama-3.1-8B-Instruct", "rtx-4060", kv_dtype="q8_0", **about)
    assert not fits(*f16)
    assert fits(*q8)
    assert largest_context(f16[0], f16[1]) < 32768 < largest_context(q8[0], q8[1])


def pools(load, accounting):
    return {pool.name: float(pool.bytes) / GIB for pool in accounting.memory(load).pools}


def test_llama_8b_at_32k_byte_by_byte():
    """4.58 GiB of file less the embedding that stays on the host; 32 layers, 8 heads of 128, two of 2 or of 34/32 bytes."""
    about = {"quant": "Q4_K_M", "ctx": 32768, "flash_attn": True}
    for kv, element_bytes in (("f16", 2), ("q8_0", 34 / 32)):
        found = pools(*serving("llama.cpp", "Llama-3.1-8B-Instruct", "rtx-4060", kv_dtype=kv, **about))
        assert found["kv_cache"] == pytest.approx(2 * 32 * 8 * 128 * 32768 * element_bytes / GIB, rel=0.03)
        assert found["weights"] + found["host_weights"] == pytest.approx(4.58, rel=0.03)


def test_deepseek_v3_on_eight_h200_byte_by_byte():
    """An eighth of 669.2 G of 8-bit weights and of embedding and output in 16 bits; what no rank divides, and the maps
    that undo the latent once more in 16 bits. The latent cache is whole on each rank: 576 elements, 61 layers."""
    about = {"quant": "fp8", "n_gpus": 8, "tp": 8, "ctx": 32768, "kv_dtype": "bf16"}
    load, accounting = serving("vllm", "deepseek-ai/DeepSeek-V3", "h200-sxm", **about)
    found = pools(load, accounting)
    outer, latent = 2 * 2 * 129280 * 7168, 2 * 61 * 512 * 128 * 256
    whole = 61 * 7168 * (1536 + 576) + 2 * 58 * 256 * 7168
    assert found["weights"] * GIB == pytest.approx((669.2e9 + outer + latent) / 8 + whole, rel=0.03)
    assert found["kv_cache"] * GIB == pytest.approx(61 * 576 * 2 * 32768, rel=0.03)


def test_27b_in_16_bits_byte_by_byte():
    load, accounting = serving("vllm", "Qwen3.5-27B", "rtx-4080", quant="fp16", ctx=4096, max_num_seqs=1)
    found = pools(load, accounting)
    assert found["weights"] * GIB == pytest.approx(2 * 27.36e9, rel=0.03)
    # 16 full-attention layers of 4 heads of 256, two of 2 bytes, and no more than a few states of 48 layers
    full = 2 * 2 * 16 * 4 * 256 * 4096
    state = 48 * (4 * 48 * 128 * 128 + 2 * 10240 * 3)
    assert full + state < found["kv_cache"] * GIB < full + 4 * state
    assert found["weights"] > 3 * accounting.memory(load).capacity_bytes / GIB


def test_qwen3_30b_a3b_on_16_gb_leaves_some_experts_on_the_host():
    load, accounting = serving(
        "llama.cpp", "Qwen3-30B-A3B", "rtx-4080", quant="Q4_K_M", ctx=32768, cpu="Ryzen 9 7950X", flash_attn=True
    )
    assert not fits(load, accounting)
    fewest = smallest_num_cpu_expert_layers(load, accounting)
    assert fewest is not None
    assert 4 <= fewest <= 30
    assert fits(replace(load, num_cpu_expert_layers=fewest), accounting)
    assert not fits(replace(load, num_cpu_expert_layers=fewest - 1), accounting)
    seconds = [
        float(decode_seconds(decode_work(one, 1, 2048), accounting.rates(one)))
        for one in (replace(load, num_cpu_expert_layers=n) for n in (fewest, 48))
    ]
    assert 1 / 150 < seconds[0] < seconds[1] < 1 / 15


def test_deepseek_v3_needs_eight_h200():
    about = {"quant": "fp8", "n_gpus": 8, "tp": 8, "ctx": 32768}
    assert fits(*serving("vllm", "deepseek-ai/DeepSeek-V3", "h200-sxm", **about))
    assert not fits(*serving("vllm", "deepseek-ai/DeepSeek-V3", "h100-sxm", **about))


def test_27b_in_16_bits_does_not_fit_16_gb():
    assert not fits(*serving("vllm", "Qwen3.5-27B", "rtx-4080", quant="fp16", ctx=4096))


def decoded_per_s(engine, model, gpu, num_cpu_expert_layers=0, **more):
    load, accounting = serving(engine, model, gpu, **more)
    load = replace(load, num_cpu_expert_layers=num_cpu_expert_layers)
    return 1.0 / float(decode_seconds(decode_work(load, 1, 512), accounting.rates(load)))


# Speeds within 25 % of what bytes over bandwidth and counted kernels give, worked out by hand; nothing is tuned to them.
# A kernel too small to fill a card takes some 3 to 4 us; cards stream at 85 % of their rate, desktop memory at 75 %.


def test_gpt_oss_20b_on_a_4090():
    # 1.5 GB of attention, embedding and head, 4 of 32 experts of 10.2 GB; 24 layers of some 12 kernels
    by_hand = (1.5e9 + 10.2e9 * 4 / 32) / (0.85 * 1008e9) + 24 * 12 * 3.5e-6
    assert decoded_per_s("llama.cpp", "openai/gpt-oss-20b", "rtx-4090", quant="mxfp4") == pytest.approx(
        1 / by_hand, rel=0.25
    )


def test_qwen3_30b_a3b_on_a_4080_with_a_quarter_of_its_experts_on_a_desktop_processor():
    # 8 of 128 experts of 16.4 GB, a quarter on the host (two channels of DDR5-5200); 1.1 GB of all else; 48 layers of
    # some 12 kernels, and two crossings of 50 us, a meeting of threads and kernels launched anew in each host layer
    experts = 16.4e9 * 8 / 128
    device = (1.1e9 + 0.75 * experts) / (0.85 * 717e9) + 48 * 12 * 3.5e-6
    host = 0.25 * experts / (0.75 * 83.2e9) + 12 * (2 * 50e-6 + 100e-6 + 12 * 3.5e-6)
    found = decoded_per_s(
        "llama.cpp", "Qwen3-30B-A3B", "rtx-4080", 12, quant="Q4_K_M", cpu="Ryzen 9 7950X", flash_attn=True
    )
    assert found == pytest.approx(1 / (device + host), rel=0.25)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_deepseek_v3_on_eight_h200(engine):
    # 37 GB active in FP8 over eight cards; 61 layers of some 35 kernels (latent attention, blockwise quantisation of each
    # input, routing, two grouped products) and two all-reduces of 9 us
    by_hand = 37e9 / 8 / (0.7 * 4.8e12) + 61 * (35 * 3.5e-6 + 2 * 9e-6)
    found = decoded_per_s(engine, "deepseek-ai/DeepSeek-V3", "h200-sxm", quant="fp8", n_gpus=8, tp=8)
    assert found == pytest.approx(1 / by_hand, rel=0.25)


@pytest.mark.parametrize(
    ("engine", "model", "gpu", "quant"),
    [
        ("llama.cpp", "Llama-3.1-8B-Instruct", "rtx-4090", "Q4_K_M"),
        ("llama.cpp", "Llama-3.1-8B-Instruct", "rtx-4090", "Q8_0"),
        ("vllm", "Llama-3.1-8B-Instruct", "rtx-4090", "awq"),
        ("sglang", "Llama-3.1-8B-Instruct", "rtx-4090", "awq"),
        ("tensorrt-llm", "Llama-3.1-8B-Instruct", "rtx-4090", "awq"),
        ("vllm", "Llama-3.1-70B-Instruct", "h200-sxm", "fp8"),
        ("llama.cpp", "Qwen3-30B-A3B", "rtx-4090", "Q4_K_M"),
    ],
)
def test_no_step_reads_faster_than_memory_gives(engine, model, gpu, quant):
    load, accounting = serving(engine, model, gpu, quant=quant)
    work = decode_work(load, 1, 1024)
    read = work.dense_bytes_seconds + work.expert_bytes_seconds + work.cache_bytes_seconds
    assert read / float(decode_seconds(work, accounting.rates(load))) <= 0.87
