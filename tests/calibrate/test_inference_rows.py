"""Rows of inference measurements: the accounting rules that logs confirm, and how rows are read and scored."""

from __future__ import annotations

import math

import pytest

from tonnage.calibrate.inference_rows import case_of_row, load_of_case
from tonnage.calibrate.inference_score import DOMAIN
from tonnage.calibrate.rows import read_rows
from tonnage.datafiles import text
from tonnage.engines import find_engine

ROWS = read_rows(text("measurements/inference.jsonl"), "measurements/inference.jsonl")
BY_METRIC = {
    metric: [row for row in ROWS if metric in row["measured"]]
    for metric in ("activation_peak_gib", "gpu_blocks", "kv_cache_gib", "throughput_tps")
}


def scored(rows):
    return [one for one in DOMAIN.score(rows, None) if one.predicted is not None]


def test_pool_is_the_share_less_what_was_profiled():
    """vLLM before 0.21: pool = utilisation x total - weights - peak of activations - memory outside torch."""
    rows = [
        row
        for row in BY_METRIC["activation_peak_gib"]
        if {"kv_cache_gib", "non_torch_gib", "weights_gib", "gpu_total_gib"} <= set(row["measured"])
        and row.get("gpu_memory_utilization")
    ]
    assert len(rows) > 30
    off = []
    for row in rows:
        m = row["measured"]
        pool = row["gpu_memory_utilization"] * m["gpu_total_gib"]
        pool -= m["weights_gib"] + m["activation_peak_gib"] + m["non_torch_gib"]
        off.append(abs(pool - m["kv_cache_gib"]))
    assert sum(one < 0.06 for one in off) >= 0.95 * len(off)


def test_pools_of_logs_are_met_within_four_percent():
    rows = [row for row in BY_METRIC["kv_cache_gib"] if row.get("max_num_seqs") and row.get("engine_version")]
    errors = sorted(one.ape for one in scored(rows) if one.metric == "kv_cache_gib")
    assert len(errors) > 30
    assert errors[len(errors) // 2] < 0.01
    assert errors[int(0.9 * len(errors))] < 0.04


def test_llama_cpp_caches_are_exact():
    """Grouped, latent and quantised caches, padded to 256 cells, as every log prints them."""
    rows = [row for row in BY_METRIC["kv_cache_gib"] if "llama" in row["engine"] and row.get("ctx")]
    errors = [one.ape for one in scored(rows) if one.metric == "kv_cache_gib"]
    assert len(errors) > 60
    assert sum(error < 0.005 for error in errors) >= 0.97 * len(errors)


def test_latent_cache_is_not_divided_by_tensor_parallelism():
    row = next(
        row for row in ROWS if row["engine"] == "vLLM" and row["model"].startswith("deepseek-ai/DeepSeek-V2-Lite")
    )
    accounting = find_engine("vllm").accounting
    bytes_per_token = []
    for tp in (1, 2):
        load = load_of_case(case_of_row({**row, "tp": tp, "n_gpus": tp}), accounting)
        needs = accounting.memory(load)
        bytes_per_token.append(float(needs.cache_bytes) / float(needs.cache_tokens))
    assert bytes_per_token[0] == pytest.approx(bytes_per_token[1], rel=0.01)


def test_measurements_are_no_input_of_their_prediction():
    rows = BY_METRIC["kv_cache_gib"][:20] + BY_METRIC["throughput_tps"][:20]
    changed = [
        {**row, "measured": {key: 3.0 * value for key, value in row["measured"].items()}, "oom": not row["oom"]}
        for row in rows
    ]
    known = {(one.id, one.metric): one.predicted for one in scored(rows)}
    for one in scored(changed):
        assert one.predicted == known.get((one.id, one.metric), one.predicted)


def test_batches_are_told_within_their_aim():
    errors = sorted(one.ape for one in scored(BY_METRIC["throughput_tps"]) if one.metric == "throughput_tps")
    assert errors[len(errors) // 2] < 0.2


def test_an_unknown_shape_is_refused_with_a_reason():
    row = {**BY_METRIC["kv_cache_gib"][0], "id": "x", "model": "nobody/unheard-of", "arch": None, "params_b": None}
    refused = [one for one in DOMAIN.score([row], None) if one.predicted is None]
    assert refused
    assert all(one.refused for one in refused)


def test_rows_bear_a_public_source():
    assert all(row["source"].startswith("github:") or "http" in row["source"] for row in ROWS)
    assert not any("notes" in row or "trust" in row for row in ROWS)
    assert all(math.isfinite(value) for row in ROWS for value in row["measured"].values())
