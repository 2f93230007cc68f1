"""The script that measures a person's own card: its rows are scored, its GGUF file is one."""

from __future__ import annotations

import importlib.util
import json

import pytest
from validation.device import serve_probe

from tonnage.api import read_model
from tonnage.calibrate.rows import read_rows, score_rows

CARD = {"gpu": "RTX 4090", "n_gpus": 1}


@pytest.mark.trace
def test_tiny_models_are_measured_and_told(tmp_path):
    out = tmp_path / "probe.jsonl"
    rows = serve_probe.probe(out, "transformers", 120.0, is_tiny=True)
    assert [row["id"] for row in rows] == [row["id"] for row in read_rows(out.read_text(), str(out))]
    assert len(rows) == len(serve_probe.TINY)
    for row in rows:
        assert row["predicted"]["weights_gib"] == pytest.approx(row["measured"]["weights_gib"], rel=1e-4)
        assert row["predicted"]["kv_cache_gib"] == pytest.approx(row["measured"]["kv_cache_gib"], rel=0.02)
        assert row["measured"]["prefill_tps"] > 0 < row["measured"]["decode_tps_single"]


@pytest.mark.parametrize("engine", ["transformers", "vllm", "llama.cpp"])
@pytest.mark.parametrize("name", list(serve_probe.MODELS))
def test_each_row_can_be_told(engine, name):
    config = serve_probe.MODELS[name]
    measured = {"weights_gib": 2.0, "prefill_tps": 9000.0, "decode_tps_single": 100.0}
    row = serve_probe.row_of(engine, name, config, measured, CARD, "", 1024, 64)
    assert all(value and value > 0 for value in row["predicted"].values()), row["predicted"]
    assert {one.metric for one in score_rows([json.loads(json.dumps(row))])} >= set(measured)


@pytest.mark.skipif(importlib.util.find_spec("gguf") is None, reason="platform: the gguf package is not installed")
def test_the_gguf_file_is_one(tmp_path):
    config = serve_probe.TINY["llama tiny"]
    serve_probe.write_gguf(tmp_path / "x.gguf", config)
    model = read_model(str(tmp_path / "x.gguf"))
    assert (model.num_layers, model.hidden_size, model.vocab_size) == (2, 64, 512)
    assert model.quantization is not None
    assert model.quantization.scheme == "q8_0"
