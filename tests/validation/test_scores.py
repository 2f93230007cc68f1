"""SCORES.md is what the stored figures say, every far row has a reason, and moved figures are noticed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from validation import scores


@pytest.fixture(scope="module")
def stored():
    return json.loads(scores.STORED.read_text(encoding="utf-8"))


def test_the_page_is_what_the_figures_say(stored):
    assert scores.TARGET.read_text(encoding="utf-8") == scores.document(stored), "python validation/scores.py --write"


def test_what_is_not_met_has_its_reason(stored):
    for part in scores.PARTS:
        lines = list(scores.unmet(part, stored[part]))
        assert all("Not explained" not in line for line in lines), lines


def test_a_missed_figure_is_told(stored):
    worse = json.loads(json.dumps(stored))
    worse["training"]["unit"]["peak_mem_gib"]["by"]["trust"]["A"]["median_ape"] = 0.5
    assert any("50.0 % (asked 6.0 %)" in line for line in scores.unmet("training", worse["training"]))
    assert "| **no** |" in scores.document(worse)


def test_moved_figures_are_stale(stored, tmp_path: Path):
    path = tmp_path / "now.json"
    path.write_text(json.dumps({"metrics": stored["training"]["unit"]}), encoding="utf-8")
    assert scores.compared([path]) == []
    stored["training"]["unit"]["peak_mem_gib"]["by"]["trust"]["A"]["median_ape"] += 0.01
    path.write_text(json.dumps({"metrics": stored["training"]["unit"]}), encoding="utf-8")
    stored["training"]["unit"]["peak_mem_gib"]["by"]["trust"]["A"]["median_ape"] -= 0.01
    (line,) = scores.compared([path])
    assert "peak_mem_gib/trust=A/median" in line


def test_every_bound_names_a_figure(stored):
    for part, (_, bounds) in scores.PARTS.items():
        for bound in scores.table(bounds)["bound"]:
            assert scores.looked_up(stored[part]["unit"], bound["path"]) is not None, bound
