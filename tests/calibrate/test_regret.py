"""What would have been chosen among measured layouts: the rule, its figures, and the bound on the shipped measurements."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage import datafiles
from tonnage.calibrate.regret import Choice, Way, choices, failed, kendall_tau, summary
from tonnage.calibrate.rows import read_rows

BOUNDS = {"within": 0.05, "share_at_least": 0.8, "ran_out_at_most": 0}


def way(name: str, measured: float | None, predicted: float, needs_ratio: float = 0.5) -> Way:
    return Way(id=name, measured=measured, predicted=predicted, needs_ratio=needs_ratio)


def choice(*ways: Way) -> Choice:
    return Choice(sweep="s", model="m", gpu="g", source="x", ways=ways)


def test_the_fastest_of_what_fits_is_chosen():
    found = choice(way("a", 100.0, 90.0), way("b", 80.0, 95.0), way("c", 120.0, 200.0, needs_ratio=1.2))
    assert found.chosen.id == "b"
    assert found.best.id == "c"
    assert found.regret_ratio == pytest.approx(1 / 3)
    assert not found.ran_out


def test_where_nothing_fits_what_misses_least_is_chosen():
    assert choice(way("a", 1.0, 9.0, 1.5), way("b", 1.0, 1.0, 1.1)).chosen.id == "b"


def test_what_ran_out_of_memory_is_the_whole_loss():
    found = choice(way("a", None, 100.0), way("b", 50.0, 40.0))
    assert found.ran_out
    assert found.regret_ratio == 1.0
    assert found.tau is None  # one speed has no order


def test_ranks():
    """Five pairs of six agree; a tie counts on neither side."""
    assert kendall_tau([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx(4 / 6)
    assert kendall_tau([1, 2, 2], [1, 2, 3]) == pytest.approx(2 / (2 * 3) ** 0.5)
    assert kendall_tau([1, 1], [1, 2]) is None


@given(st.lists(st.floats(1, 1e6), min_size=2, max_size=9, unique=True))
def test_the_own_order_is_one_and_the_opposite_minus_one(values):
    assert kendall_tau(values, values) == pytest.approx(1.0)
    assert kendall_tau(values, [-v for v in values]) == pytest.approx(-1.0)


def test_a_missed_bound_is_said():
    near, far = choice(way("a", 1.0, 1.0)), choice(way("a", 1.0, 1.0), way("b", 0.9, 2.0))
    out = choice(way("a", None, 3.0), way("b", 1.0, 2.0))
    assert failed(summary([near] * 4 + [far]), BOUNDS) == []
    assert len(failed(summary([near] * 3 + [far]), BOUNDS)) == 1
    assert "memory" in failed(summary([near] * 9 + [out]), BOUNDS)[0]
    assert failed(summary([]), BOUNDS)


@pytest.mark.slow
def test_the_shipped_measurements_keep_the_bounds():
    """Eighteen jobs measured in several layouts, each with its source left out of the fit."""
    found = choices(read_rows(datafiles.text("measurements/training.jsonl"), "training.jsonl"), "source")
    path = Path(__file__).parents[2] / "validation/bounds.toml"
    bounds = tomllib.loads(path.read_text(encoding="utf-8"))["regret"]
    assert len(found) == 18
    assert max(len(one.ways) for one in found) == 42
    assert failed(summary(found, bounds["within"]), bounds) == []
