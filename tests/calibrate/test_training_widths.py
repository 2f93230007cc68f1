"""Intervals of training estimates: wider with what is unknown, and the bounds name statistics that exist."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path

from tonnage import datafiles
from tonnage.calibrate.score import failed_bounds, statistics
from tonnage.calibrate.training_score import fold_evidence, item_setup, num_unknown, prepare, score_training
from tonnage.estimate.compose_training import training_constants
from tonnage.estimate.compose_training.evidence import shipped_evidence
from tonnage.estimate.compose_training.width import memory_width, spread, time_width

ROWS = [json.loads(line) for line in datafiles.text("measurements/training.jsonl").splitlines()]


def test_unknown_fields_widen() -> None:
    item = prepare(ROWS[:1])[0][0]
    c = training_constants()
    widths = [memory_width(item.case, c, 2048, num_unknown=n) for n in range(4)]
    assert widths == sorted(widths)
    assert widths[0] < widths[-1]
    assert time_width(item.case, c, 2048, 0.0) < time_width(item.case, c, 2048, 0.5)
    assert time_width(item.case, c, 2048, 0.0) < time_width(item.case, c, 2048, 0.0, has_lengths=False)


def test_device_without_data_widens() -> None:
    item = prepare(ROWS[:1])[0][0]
    c = training_constants()
    other = replace(item.case, device=replace(item.case.device, architecture="Novel"))
    assert time_width(item.case, c, 2048, 0.0) < time_width(other, c, 2048, 0.0)


def test_far_from_what_was_measured_widens() -> None:
    item = prepare(ROWS[:1])[0][0]
    c = training_constants()
    lengths = [time_width(item.case, c, seq_len, 0.0) for seq_len in (2048, 2**22, 2**24)]
    assert lengths[0] < lengths[1] < lengths[2]


def test_evidence_left_out_widens() -> None:
    items = {item.row.row["id"]: item for item in prepare(ROWS)[0]}
    one = next(item for item in items.values() if item.case.software.name == "llm-foundry")
    fold = str(one.row.row["source_key"])
    evidence = fold_evidence("time", ROWS, items, "source")
    assert evidence[""].missing(item_setup(one))["software"] == 0
    assert evidence[fold].missing(item_setup(one))["software"] == 1


def test_evidence_that_ships_is_that_of_the_rows() -> None:
    items = {item.row.row["id"]: item for item in prepare(ROWS)[0]}
    for part in ("memory", "time"):
        rows = fold_evidence(part, ROWS, items, None)[""]
        shipped = shipped_evidence(part)
        assert (shipped.devices, shipped.kinds, shipped.computes) == (rows.devices, rows.kinds, rows.computes)


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
