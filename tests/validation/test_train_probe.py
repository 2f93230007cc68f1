"""The script that trains on a person's own card: its rows are read and told."""

from __future__ import annotations

import json

import pytest
from validation.device import train_probe

from tonnage.calibrate.rows import read_rows, score_rows

CARD = {"gpu": "RTX 4090", "gpu_mem_gb": 24, "n_gpus": 1}
FOUND = {"seconds": 1.0, "states": 8e9, "allocated": 10e9, "reserved": 11e9, "driver": 12e9}


@pytest.mark.trace
@pytest.mark.filterwarnings("ignore::FutureWarning")  # peft calls transformers by an old name
def test_tiny_models_are_trained_and_told(tmp_path):
    out = tmp_path / "probe.jsonl"
    rows = train_probe.probe(out, 120.0, is_tiny=True)
    assert [row["id"] for row in rows] == [row["id"] for row in read_rows(out.read_text(), str(out))]
    assert len(rows) == len(train_probe.TINY)
    for row in rows:
        assert row["step_time_s"] > 0
        assert row["states_gib"] > 0
        assert row["predicted"]["step_time_s"] > 0


@pytest.mark.parametrize("case", train_probe.CASES, ids=lambda case: "-".join(str(part) for part in case if not isinstance(part, dict)))  # fmt: skip
def test_each_case_can_be_told(case):
    rows = [json.loads(json.dumps(row)) for row in train_probe.rows_of(case, FOUND, CARD, "transformers 5.24.0")]
    assert [row["mem_quantity"] for row in rows] == ["allocated", "reserved", "driver"]
    told = {(one.metric, one.id): one for one in score_rows(rows)}
    assert all(one.refused == "" or one.refused is None for one in told.values())
    peaks = [one.predicted for (metric, _), one in told.items() if metric == "peak_mem_gib"]
    assert peaks == sorted(peaks)
    assert sum(metric == "step_time_s" for metric, _ in told) == 1


def test_a_run_out_of_memory_is_no_fit():
    (row,) = train_probe.rows_of(train_probe.CASES[-1], None, CARD, "transformers 5.24.0")
    assert row["oom"] is True
    assert row["predicted"] == {"oom": True}


def test_measured_fields_do_not_tell_the_prediction():
    one = train_probe.rows_of(train_probe.CASES[0], FOUND, CARD, "")
    other = train_probe.rows_of(train_probe.CASES[0], {k: 3 * v for k, v in FOUND.items()}, CARD, "")
    speeds = ("peak_mem_gib", "step_time_s", "tokens_per_s_per_gpu")
    assert [[r["predicted"].get(k) for k in speeds] for r in one] == [
        [r["predicted"].get(k) for k in speeds] for r in other
    ]
