"""`tonnage score`: tables, breakdowns, the worst rows, and rows that nobody can read."""

from __future__ import annotations

import json

import pytest
from tests.conftest import call_tonnage

ROW = {"id": "a", "tier": "B", "engine": "llama.cpp", "model": "LLaMA-3-8B", "quant": "Q4_K_M", "file_size_gib": 4.58,
       "gpu": "RTX 3090", "n_gpus": 1, "isl": 512, "osl": 512, "source_key": "me", "unit": "u", "placement": "gpu",
       "measured": {"decode_tps_single": 105.0, "prefill_tps": 3700.0}}  # fmt: skip


@pytest.fixture
def rows(tmp_path):
    def write(*rows):
        path = tmp_path / "rows.jsonl"
        path.write_text("\n".join(json.dumps(row) if isinstance(row, dict) else row for row in rows))
        return str(path)

    return write


def test_the_object_is_the_contracts(rows):
    answer = call_tonnage("score", rows(ROW, ROW | {"id": "b", "gpu": "Martian 9000"}), "--json")
    assert answer.code == 0
    found = answer.json
    assert set(found) == {"schema", "file", "num_rows", "leave_out", "metrics", "rows"}
    assert found["num_rows"] == 2
    decode = found["metrics"]["decode_tps_single"]
    wanted = {"n", "covered", "median_ape", "p90_ape", "bias", "interval_coverage", "relative_width", "by"}
    assert wanted <= set(decode)
    assert (decode["n"], decode["covered"]) == (2, 1)
    assert {"source", "framework", "gpu", "kind"} <= set(decode["by"])
    told = [row for row in found["rows"] if row["id"] == "a"]
    assert all(set(row) == {"id", "metric", "measured", "predicted", "low", "high", "ape"} for row in told)
    refused = [row for row in found["rows"] if row["id"] == "b"]
    assert all(set(row) == {"id", "metric", "refused"} for row in refused)


@pytest.mark.parametrize("by", ["source", "engine", "gpu", "card", "kind", "placement", "trust", "tier"])
def test_breakdowns(rows, by):
    answer = call_tonnage("score", rows(ROW, ROW | {"id": "b", "gpu": "RTX 4090"}), "--by", by)
    assert answer.code == 0, answer.err
    assert any(line.startswith(by) for line in answer.out.splitlines())


def test_control_characters_of_a_file_do_not_reach_the_terminal(rows):
    bad = "\x1b[2Jx\x07"
    row = ROW | {"id": bad, "source_key": bad}
    refused = row | {"id": bad + "2", "gpu": "Martian \x1b[31m"}
    answer = call_tonnage(
        "score", rows(row, refused, ROW | {"id": bad + "3", "n_gpus": 0}), "--worst", "3", "--by", "source"
    )
    assert answer.code == 0, answer.err
    assert "?[2Jx?" in answer.out
    assert not {"\x1b", "\x07"} & set(answer.out + answer.err)


def test_the_worst_rows(rows):
    far = ROW | {"id": "far", "measured": {"decode_tps_single": 3.0}}
    answer = call_tonnage("score", rows(ROW, far, ROW | {"id": "b", "gpu": "Martian 9000"}), "--worst", "1")
    lines = answer.out.splitlines()
    place = lines.index("farthest off: decode_tps_single")
    assert lines[place + 2].startswith("far ")
    assert any("b decode_tps_single: no device is named" in line for line in lines)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"n_gpus": "many"}, "n_gpus is 'many', a number is wanted"),
        ({"isl": -3}, "isl is -3"),
        ({"osl": [1]}, "osl is [1]"),
        ({"measured": 3, "engine": "x"}, "measured is 3"),
        ({"flash_attn": "yes"}, "flash_attn is 'yes'"),
        ({"model": {"a": 1}}, "model is {'a': 1}"),
        ({"ctx": 1e30}, "ctx is 1e+30"),
        ({"ctx": 10**400}, "ctx is 1000"),
        ({"measured": {"decode_tps_single": 10**400}}, "measured.decode_tps_single is 1000"),
        ({"n_gpus": 10**12}, "n_gpus is 1000000000000, a number from 1 to 10,000 is wanted"),
        ({"n_gpus": 1_000_000}, "n_gpus is 1000000, a number from 1 to 10,000 is wanted"),
        ({"n_gpus": 0}, "n_gpus is 0, a number from 1"),
        ({"n_gpus": 1.5}, "n_gpus is 1.5, a whole number is wanted"),
        ({"layers": 10**9}, "layers is 1000000000"),
        ({"arch": {"n_layers": 10**9}}, "arch.n_layers is 1000000000"),
        ({"batch": 0}, "batch is 0"),
        ({"batch": [1]}, "batch is [1]"),
        ({"concurrency": 0}, "concurrency is 0"),
        ({"tp": 0}, "tp is 0"),
        ({"heads": 0}, "heads is 0"),
        ({"micro_batch": 0}, "micro_batch is 0"),
        ({"seq_len": 0}, "seq_len is 0"),
    ],
)
def test_a_field_that_cannot_be_is_told_with_its_line(rows, change, fault):
    answer = call_tonnage("score", rows(ROW, "", ROW | {"id": "b"} | change), "--json")
    assert answer.code == 0, answer.err
    assert f"rows.jsonl:3: {fault}" in answer.err
    assert "mend the row" in answer.err
    assert answer.json["metrics"]["decode_tps_single"]["covered"] == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "rows.jsonl:1: not JSON"),
        ('{"id": 3}', "rows.jsonl:1: no measurement with an id"),
        ("", "holds no rows"),
        ('{"id": "a"}\n{"id": "a"}', "rows.jsonl:2: the id 'a' occurs twice"),
    ],
)
def test_files_that_are_none(rows, text, said):
    answer = call_tonnage("score", rows(text))
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert said in answer.err


def test_two_files_with_one_row(rows, tmp_path):
    first = rows(ROW)
    (tmp_path / "more.jsonl").write_text(json.dumps(ROW))
    assert "is in two files" in call_tonnage("score", first, str(tmp_path / "more.jsonl")).err


def test_bounds(rows, tmp_path):
    place = tmp_path / "bounds.toml"
    ask = ("score", rows(ROW), "--check", "--bounds", str(place))
    place.write_text('[[bound]]\npath = "decode_tps_single/median_ape"\nat_most = 0.9\n')
    assert call_tonnage(*ask).code == 0
    place.write_text('[[bound]]\npath = "decode_tps_single/median_ape"\nat_most = 1e-9\n')
    answer = call_tonnage(*ask)
    assert (answer.code, "bound not met: decode_tps_single/median_ape" in answer.err) == (3, True)
    for text in ("x", "[[bound]]\npath = 3\nat_most = 1", "[[bound]]\npath = 'a'", "bound = 3"):
        place.write_text(text)
        answer = call_tonnage(*ask)
        assert (answer.code, answer.err.count("\n")) == (2, 1)


def test_a_row_that_measures_nothing_is_told(rows):
    answer = call_tonnage("score", rows(ROW, {"id": "z", "foo": 1}))
    assert "1 row(s) measure nothing" in answer.err


def test_a_format_that_nobody_knows_is_not_predicted(rows):
    answer = call_tonnage("score", rows(ROW | {"quant": "bf99"}), "--json")
    assert ":1: quant is 'bf99'" in answer.err
    assert answer.json["metrics"]["decode_tps_single"]["covered"] == 0
    chinese = call_tonnage("score", rows(ROW | {"quant": "bf99"}), "--lang", "zh", "--worst", "1")
    assert "没有这样的权重格式" in chinese.out + chinese.err


def test_a_training_row_is_known_by_its_models_name(rows):
    row = {"id": "t", "framework": "unsloth", "kind": "qlora", "model": "Qwen/Qwen3-8B", "gpu": "RTX 4090", "n_gpus": 1,
           "seq_len": 2048, "micro_batch": 2, "lora_rank": 16, "trust": "B", "peak_mem_gib": 9.0}  # fmt: skip
    answer = call_tonnage("score", rows(row), "--json")
    assert answer.json["metrics"]["peak_mem_gib"]["covered"] == 1
    lost = call_tonnage("score", rows(row | {"model": "nobody/knows"}), "--worst", "1")
    assert "oom: 1 rows, none predicted" in lost.out
    assert "100" not in lost.out.partition("oom:")[2].partition("\n")[0]
