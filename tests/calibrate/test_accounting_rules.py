"""The accounting rules that logs confirm, row by row: every row that disagrees is named with its reason."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tonnage.calibrate.inference_rows import case_of_row, load_of_case
from tonnage.calibrate.rows import read_rows
from tonnage.datafiles import text
from tonnage.engines import find_engine
from tonnage.engines.facts import version_key
from tonnage.engines.vllm.accounting import block_cut
from tonnage.estimate.serving_memory import cache_bytes_of_group
from tonnage.estimate.serving_shape import held
from tonnage.units import GIB, MIB

ROWS = read_rows(text("measurements/inference.jsonl"), "measurements/inference.jsonl")
# Kimi-Linear and a pruned Nemotron: their shapes are not known, nothing is predicted.
UNKNOWN = {"inf-2229-3fb92273", "inf-3063-ff5d7e39"}
VLLM = [row for row in ROWS if row["engine"] == "vLLM" and row["id"] not in UNKNOWN]
_HALF = 0.0051  # logs round to two digits

ANOTHER_RANK = "the pool is of one rank, the tokens follow the smallest pool of all"
# Rows whose printed tokens do not follow from the pool that they print.
TOKENS_APART = {
    "inf-2165-a94b0591": ANOTHER_RANK,
    "inf-2166-28a23130": ANOTHER_RANK,
    "inf-2228-f460b3bc": ANOTHER_RANK,
    "inf-2239-507280db": "blocks of 816 tokens are those of a 16-bit cache, the row says fp8",
    "inf-2946-975a5655": "the count is of two drafted tokens, the row tells no number",
}
POOLS_APART = {
    "inf-2249-00178980": "0.21 and later take the estimated CUDA graphs from the pool too: 1.32 GiB",
}
LLAMA_APART = {
    "inf-2491-5b27606f": "the sum is of a context eight times as long as the one stated",
}


def having(*names):
    return [row for row in ROWS if all(name in row["measured"] for name in names)]


def prepared(row):
    case = case_of_row(row)
    accounting = find_engine(case.candidate.engine).accounting
    return load_of_case(case, accounting), accounting


def cut_of(row):
    load, accounting = prepared(row)
    cut = block_cut(load, held(load.shape, load.pp, 0, 0), accounting.constants)
    in_flight = load.max_batched_tokens * accounting.constants.value("batches_in_flight", load.version)
    at = version_key(load.version or accounting.constants.version)
    return load, cut, cut.blocks_per_request(load.context_tokens, in_flight), at


def printed(row, more_gib=0.0):
    load, cut, blocks, at = cut_of(row)
    num_blocks = (row["measured"]["kv_cache_gib"] + more_gib) * GIB // cut.block_bytes
    return cut.printed_tokens(num_blocks, blocks, load.context_tokens, at)


def test_pool_is_the_share_less_weights_peak_and_what_torch_does_not_see():
    rows = [
        row
        for row in having("kv_cache_gib", "weights_gib", "activation_peak_gib", "non_torch_gib")
        if row in VLLM and row.get("gpu_memory_utilization")
    ]
    apart = set()
    for row in rows:
        m = row["measured"]
        total = m.get("gpu_total_gib") or row["gpu_mem_gib"]
        rest = m["weights_gib"] + m["activation_peak_gib"] + m["non_torch_gib"] + m["kv_cache_gib"]
        if abs(row["gpu_memory_utilization"] * total - rest) > 0.06:
            apart.add(row["id"])
    assert len(rows) >= 49
    assert apart == set(POOLS_APART)


def test_printed_tokens_follow_from_the_printed_pool():
    """Blocks of one group or of several, before and after 0.21, with drafts and with states."""
    rows = [row for row in having("kv_cache_gib", "kv_cache_tokens") if row in VLLM]
    apart = {
        row["id"]
        for row in rows
        if not printed(row, -_HALF) <= row["measured"]["kv_cache_tokens"] <= printed(row, _HALF)
    }
    assert len(rows) >= 50
    assert apart == set(TOKENS_APART)


def test_uniform_attention_has_the_pool_over_sixteen_tokens_of_blocks():
    rows = [row for row in having("kv_cache_gib") if row in VLLM and row["id"] not in TOKENS_APART]
    counted = 0
    for row in rows:
        m = row["measured"]
        load, cut, _, _ = cut_of(row)
        blocks = m.get("gpu_blocks") or m.get("kv_cache_tokens", 0) / 16
        if not blocks or cut.num_groups > 1:
            continue
        counted += 1
        group_bytes = sum(len(group.layers) * group.num_elements_per_head for group in load.shape.cache_groups)
        heads = {group.num_kv_heads for group in load.shape.cache_groups}
        bytes_per_token = group_bytes * max(heads) / load.tp * load.cache_bytes_per_element
        if not any(group.is_latent for group in load.shape.cache_groups):
            assert (m["kv_cache_gib"] - _HALF) * GIB // (16 * bytes_per_token) <= blocks, row["id"]
            assert blocks <= (m["kv_cache_gib"] + _HALF) * GIB // (16 * bytes_per_token), row["id"]
    assert counted >= 37


def test_a_hybrid_model_s_cache_is_printed_otherwise_since_0_21():
    """Blocks over groups times block until 0.20, requests times length since; both logs are of one model and card."""
    row = next(row for row in VLLM if row["id"] == "inf-2234-f8c56a66")
    after = printed(row)
    before = printed({**row, "engine_version": "0.20.2"})
    assert after == row["measured"]["kv_cache_tokens"]
    assert before == 300 // 4 * 2096
    uniform = next(row for row in VLLM if row["id"] == "inf-2157-316c1c51")
    assert printed(uniform) == pytest.approx(printed({**uniform, "engine_version": "0.24.0"}), rel=1e-3)


def test_the_sampler_s_workspace_belongs_to_the_version():
    """Logs of one model: 5.64 GiB until 0.16, 2.2 GiB since 0.17."""
    row = next(row for row in VLLM if row["id"] == "inf-2184-178bfcbe")
    peaks = []
    for version in ("0.16.0", "0.19.0"):
        load, accounting = prepared({**row, "engine_version": version})
        peaks.append(accounting.activation_bytes(load) / GIB)
    assert peaks == pytest.approx([5.6, 2.21], rel=0.03)


def test_llama_cpp_caches_are_those_of_the_logs():
    """Grouped and latent, in f16, q8_0 and q4, padded to 256 cells."""
    rows = [
        row
        for row in having("kv_cache_gib")
        if "llama" in row["engine"] and row.get("ctx") and row["measured"]["kv_cache_gib"]
    ]
    apart, counted = set(), 0
    for row in rows:
        try:
            load, accounting = prepared(row)
        except Exception as error:  # noqa: BLE001  a shape that is not known is told elsewhere
            assert "shape" in str(error)
            continue
        counted += 1
        if float(accounting.memory(load).total_cache_bytes) / GIB != pytest.approx(
            row["measured"]["kv_cache_gib"], rel=5e-4, abs=0.5 * MIB / GIB
        ):
            apart.add(row["id"])
    assert counted >= 81
    assert apart == set(LLAMA_APART)


@pytest.mark.parametrize(("context", "cells"), [(1, 256), (256, 256), (257, 512), (32_768, 32_768), (32_769, 33_024)])
def test_llama_cpp_pads_a_slot_to_256_cells(context, cells):
    row = next(row for row in ROWS if row["engine"] == "llama.cpp" and row["model"] == "LLaMA-3-8B")
    load, accounting = prepared({**row, "ctx": context})
    assert accounting.num_cells(load, load.shape.cache_groups[0]) == cells


def test_windows_of_llama_cpp_are_kept_for_each_slot_and_not_at_all_in_its_fork():
    row = {"id": "x", "model": "google/gemma-3-12b-it", "gpu": "RTX 4090", "n_gpus": 1, "ctx": 32768, "measured": {}}
    cells = {}
    for engine in ("llama.cpp", "ik_llama.cpp"):
        load, accounting = prepared({**row, "engine": engine})
        windowed = next(group for group in load.shape.cache_groups if group.window_tokens)
        cells[engine] = [accounting.num_cells(replace(load, max_num_seqs=n), windowed) for n in (1, 4)]
    assert cells["llama.cpp"] == [1536, 4 * 1536]  # a window of 1,024 and a micro-batch of 512
    assert cells["ik_llama.cpp"] == [32768, 4 * 32768]
    load, accounting = prepared({**row, "engine": "llama.cpp", "date": "2025-01"})
    assert accounting.num_cells(load, windowed) == 32768


def test_flash_attention_over_a_latent_cache_unpacks_it_in_ik_llama():
    """Compute buffers of logs with the whole context's keys and values in 16 bits: 3.4 GiB at 32,768 cells."""
    errors = []
    for row in having("compute_buffer_mib"):
        is_unpacked = (
            row["engine"].startswith("ik_llama")
            and row.get("flash_attn")
            and row["measured"]["compute_buffer_mib"] > 1000
        )
        if is_unpacked and re.search(r"mla_attn=[23]; attn_max_b=512", row.get("settings") or ""):
            load, accounting = prepared(row)
            has = held(load.shape, load.pp, 0, load.num_cpu_expert_layers, counts_output=True)
            predicted = float(accounting.compute_buffer_bytes(load, has)) / MIB
            errors.append(abs(predicted / row["measured"]["compute_buffer_mib"] - 1))
    errors.sort()
    assert len(errors) > 20
    assert errors[len(errors) // 2] < 0.07
    assert errors[int(0.8 * len(errors))] < 0.2


def test_experts_on_the_host_need_room_for_one_of_their_matrices_on_the_device():
    row = {"id": "x", "engine": "llama.cpp", "model": "Qwen3-30B-A3B", "gpu": "RTX 4090", "quant": "Q4_K_M", "n_gpus": 1,
           "ctx": 4096, "measured": {}}  # fmt: skip
    load, accounting = prepared(row)
    one = replace(load, num_cpu_expert_layers=1)
    assert accounting.copied_bytes(load) == 0
    assert accounting.copied_bytes(one) == pytest.approx(max(load.shape.expert_bytes) / 3)
    assert accounting.copied_bytes(replace(one, max_batched_tokens=16)) == 0
    assert accounting.memory(one).device_bytes() < accounting.memory(load).device_bytes()


@pytest.mark.parametrize(("kv", "token_bytes"), [("bf16", 576 * 2 + 132), ("fp8", 656 + 132)])
def test_sparse_latent_attention_packs_its_selector(kv, token_bytes):
    """A token and layer of DeepSeek-V3.2 in vLLM; plain transformers keeps the selector's keys as all others."""
    row = {"id": "x", "model": "deepseek-ai/DeepSeek-V3.2", "gpu": "H200", "quant": "fp8", "n_gpus": 8, "tp": 8,
           "ctx": 4096, "kv_dtype": kv, "measured": {}}  # fmt: skip
    load, _ = prepared({**row, "engine": "vLLM"})
    group = load.shape.cache_groups[0]
    assert cache_bytes_of_group(load, group, 1, 1) == token_bytes
    load, _ = prepared({**row, "engine": "transformers"})
    assert cache_bytes_of_group(load, group, 1, 1) == (576 + 128) * load.cache_bytes_per_element
