"""Intervals of training estimates: wider with what is unknown, and the bounds name statistics that exist."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path

from tonnage import datafiles
from tonnage.calibrate.score import failed_bounds, statistics
from tonnage.calibrate.training_score import num_unknown, prepare, score_training
from tonnage.estimate.compose_training import training_constants
from tonnage.estimate.compose_training.width import memory_width, spread, time_width

ROWS = [json.loads(line) for line in datafiles.text("measurements/training.jsonl").splitlines()]


def test_unknown_fields_widen() -> None:
    item = prepare(ROWS[:1])[0][0]
    c = training_constants()
    widths = [memory_width(item.case, c, num_unknown=n) for n in range(4)]
    assert widths == sorted(widths)
    assert widths[0] < widths[-1]
    assert time_width(item.case, c, 0.0) < time_width(item.case, c, 0.5)
    assert time_width(item.case, c, 0.0) < time_width(item.case, c, 0.0, has_lengths=False)


def test_device_without_data_widens() -> None:
    item = prepare(ROWS[:1])[0][0]
    c = training_constants()
    other = replace(item.case, device=replace(item.case.device, architecture="Novel"))
    assert time_width(item.case, c, 0.0) < time_width(other, c, 0.0)


def test_spread_holds_its_value() -> None:
    interval = spread(10.0, 0.1)
    assert interval.low < interval.best < interval.high


def test_fewer_fields_are_more_unknown() -> None:
    known = prepare(ROWS[:1])[0][0]
    bare = {k: v for k, v in ROWS[0].items() if k not in ("optimizer", "micro_batch", "activation_checkpointing")}
    assert num_unknown(prepare([bare])[0][0]) > num_unknown(known)


def test_measurements_are_bare_facts() -> None:
    for row in ROWS:
        assert not {"notes", "notes_add", "check", "mem_kind"} & set(row)
        assert row["source"].startswith(("https://", "arXiv:", "PyPI"))


def test_bounds_name_statistics(root: Path) -> None:
    bounds = tomllib.loads((root / "validation/bounds.toml").read_text(encoding="utf-8"))["bound"]
    metrics = statistics(score_training(ROWS, None))
    assert not [line for line in failed_bounds(metrics, bounds) if "no such statistic" in line]
