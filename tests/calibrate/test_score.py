"""Scoring: statistics, breakdowns, files that are wrong, measured fields that must not reach a prediction."""

from __future__ import annotations

import json

import pytest

from tonnage.calibrate.rows import read_rows, score_rows
from tonnage.calibrate.score import failed_bounds, row_object, statistics
from tonnage.calibrate.training_rows import release_year
from tonnage.calibrate.types import Scored
from tonnage.errors import BadFileError

# FSDP of MPT-7B on 8 to 64 H100, mosaicml/llm-foundry scripts/train/benchmarking/README.md; shapes and one figure each.
ROW = {
    "id": "mpt-7b", "kind": "pretrain", "model": "MPT-7b", "hidden": 4096, "layers": 32, "heads": 32, "kv_heads": 32,
    "ffn": 16384, "vocab": 50368, "tied_embeddings": True, "gpu": "H100 SXM 80GB", "n_gpus": 8, "n_nodes": 1,
    "precision": "bf16 mixed (amp_bf16)", "optimizer": "decoupled AdamW (fp32 states)", "zero_stage": 3, "tp": 1,
    "pp": 1, "cp": 1, "dp": 8, "micro_batch": 8, "grad_accum": 8, "global_batch_seqs": 512, "seq_len": 2048,
    "seq_len_kind": "fixed/full", "activation_checkpointing": "none", "flash_attention": True,
    "framework": "llm-foundry/Composer + FSDP", "framework_version": "torch 2.1.0", "trust": "A",
    "tokens_per_s_per_gpu": 9000.0, "unit": "u1", "source_key": "s1", "oom": False,
}  # fmt: skip


def scored(**values) -> Scored:
    return Scored(**{"id": "a", "metric": "peak_mem_gib", "measured": 10.0, "trust": "A", **values})


def test_errors_are_medians_of_groups():
    rows = [
        scored(id="a", predicted=11.0, low=9.0, high=12.0),
        scored(id="b", predicted=15.0, low=14.0, high=16.0, group="g"),
        scored(id="c", predicted=13.0, low=9.0, high=16.0, group="g"),
        scored(id="d", refused="no shape"),
    ]
    found = statistics(rows)["peak_mem_gib"]
    assert (found["n"], found["covered"]) == (4, 3)
    assert found["median_ape"] == pytest.approx((0.1 + 0.4) / 2)
    assert found["bias"] == pytest.approx((0.1 + 0.4) / 2)
    assert found["interval_coverage"] == pytest.approx((1 + 0.5) / 2)
    assert found["by"]["trust"]["A"]["n"] == 4


def test_a_refused_row_counts_as_wrong_for_oom():
    rows = [
        scored(id="a", metric="oom", measured=True, predicted=True),
        scored(id="b", metric="oom", measured=True, refused="no shape"),
        scored(id="c", metric="oom", measured=False, predicted=False),
        scored(id="d", metric="oom", measured=False, predicted=True),
        scored(id="e", metric="oom", measured=False, predicted=True, trust="C"),
    ]
    found = statistics(rows)["oom"]
    assert found["n"] == 4
    assert (found["balanced_accuracy"], found["false_fit"], found["false_oom"]) == (0.5, 0.5, 0.5)


def test_bounds_name_what_is_missed():
    metrics = statistics([scored(predicted=12.0, low=1.0, high=20.0)])
    bounds = [
        {"path": "peak_mem_gib/trust=A/median_ape", "at_most": 0.3},
        {"path": "peak_mem_gib/trust=A/median_ape", "at_most": 0.1},
        {"path": "peak_mem_gib/trust=B/median_ape", "at_most": 0.1},
        {"path": "peak_mem_gib/interval_coverage", "at_least": 1.1},
    ]
    failures = failed_bounds(metrics, bounds)
    assert len(failures) == 3
    assert "0.2 is above 0.1" in failures[0]
    assert "no such statistic" in failures[1]


@pytest.mark.parametrize("text", ["{", "[]", '{"model": 1}', '{"id": "a"}\n{"id": "a"}', "[" * 100_000])
def test_a_wrong_file_is_told_in_one_line(text):
    with pytest.raises(BadFileError) as error:
        read_rows(text, "rows.jsonl")
    assert "\n" not in str(error.value)
    assert "rows.jsonl:" in str(error.value)


def test_measured_fields_never_reach_the_prediction():
    base = score_rows([ROW])
    changed = {
        **ROW, "tokens_per_s_per_gpu": 1.0, "mfu": 99.0, "tflops_per_gpu": 1.0, "notes": "none", "trust": "C",
        "samples_per_s": 3.0, "oom": False,
    }  # fmt: skip
    again = score_rows([changed])
    assert [s.predicted for s in base] == [s.predicted for s in again]
    assert {s.metric for s in base} == {"tokens_per_s_per_gpu"}
    assert base[0].low < base[0].predicted < base[0].high


def test_leaving_a_unit_out_refits_and_changes_the_prediction():
    rows = [
        {**ROW, "id": f"r{i}", "unit": f"u{i}", "source_key": f"s{i % 2}", "micro_batch": 4 * (i + 1),
         "tokens_per_s_per_gpu": 9000.0 - 500 * i}
        for i in range(4)
    ]  # fmt: skip
    plain = {s.id: s.predicted for s in score_rows(rows)}
    by_unit = {s.id: s.predicted for s in score_rows(rows, "unit")}
    by_source = {s.id: s.predicted for s in score_rows(rows, "source")}
    assert plain.keys() == by_unit.keys() == by_source.keys()
    assert by_unit != plain
    assert by_source != by_unit


def test_a_row_without_a_shape_is_refused_with_the_reason():
    row = {k: v for k, v in ROW.items() if k not in ("hidden", "layers")} | {"model": "a model that no catalogue has"}
    found = row_object(score_rows([row])[0])
    reason = "the model's shape is not stated, and its name is not in the catalogue"
    assert found == {"id": "mpt-7b", "metric": "tokens_per_s_per_gpu", "refused": reason}


def test_releases_are_read_from_how_sources_write_them():
    assert release_year("NeMo container 26.08") == pytest.approx(2026.58)
    assert release_year("") is None


def test_the_command_prints_one_object(tmp_path, tonnage):
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(ROW) + "\n", encoding="utf-8")
    result = tonnage("score", str(file), "--json")
    value = json.loads(result.out)
    assert result.code == 0
    assert value["num_rows"] == 1
    assert set(value["rows"][0]) == {"id", "metric", "measured", "predicted", "low", "high", "ape"}
    assert set(value["metrics"]["tokens_per_s_per_gpu"]) >= {
        "n", "covered", "median_ape", "p90_ape", "bias", "interval_coverage", "relative_width", "by",
    }  # fmt: skip


def test_check_fails_with_three_when_a_bound_is_missed(tmp_path, tonnage):
    file, bounds = tmp_path / "rows.jsonl", tmp_path / "bounds.toml"
    file.write_text(json.dumps(ROW) + "\n", encoding="utf-8")
    bounds.write_text('[[bound]]\npath = "tokens_per_s_per_gpu/median_ape"\nat_most = 1e-9\n', encoding="utf-8")
    assert tonnage("score", str(file), "--check", "--bounds", str(bounds)).code == 3
    bounds.write_text('[[bound]]\npath = "tokens_per_s_per_gpu/median_ape"\nat_most = 9\n', encoding="utf-8")
    assert tonnage("score", str(file), "--check", "--bounds", str(bounds)).code == 0


def test_what_a_row_says_beside_its_figures_does_not_matter():
    plain = score_rows([ROW])
    noted = score_rows([ROW | {"check": "flops/token=1.9e+11", "notes": ["a", "b"], "anything": {"else": 1}}])
    assert [one.predicted for one in noted] == [one.predicted for one in plain] != [None]
