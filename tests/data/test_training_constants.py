"""Every calibrated constant has a name, a unit, a physical meaning, a plausible range, a prior and its evidence."""

from __future__ import annotations

import pytest

from tonnage import datafiles
from tonnage.estimate.compose_training.constants import CALIBRATION, evidence_of
from tonnage.hardware.catalogue import devices

ROWS = datafiles.table(CALIBRATION)
FIELDS = {"value", "guess", "low", "high", "unit", "part", "meaning", "basis"}
FITTED = ("memory", "time")
UNITS = {"1", "B", "s", "a", "1/a", "W", "1/s"}


@pytest.mark.parametrize("name", ROWS)
def test_a_constant_is_described(name):
    row = ROWS[name]
    assert set(row) == FIELDS
    assert row["low"] <= row["value"] <= row["high"]
    assert row["low"] <= row["guess"] <= row["high"]
    assert row["low"] < row["high"]
    assert row["unit"] in UNITS
    assert row["part"].removeprefix("width.") in ("memory", "time", "lengths", "none")
    assert len(row["meaning"]) > 15
    assert not row["meaning"].startswith("the same")
    assert len(row["basis"]) > 8


@pytest.mark.parametrize("name", ROWS)
def test_a_constant_says_which_measurements_it_rests_on(name):
    found = evidence_of(name)
    assert (found.num_rows > 0) == bool(found.sources)
    assert found.num_sources <= found.num_rows
    if ROWS[name]["part"] in FITTED:
        assert 0 <= found.measured_ratio <= 1
    else:
        assert found.measured_ratio is None


def test_most_fitted_constants_rest_on_measurements_of_more_than_one_source():
    fitted = [evidence_of(name) for name, row in ROWS.items() if row["part"] in FITTED]
    assert sum(one.num_sources > 1 for one in fitted) > 0.6 * len(fitted)
    assert sum(one.measured_ratio > 0.5 for one in fitted) > 0.6 * len(fitted)


def test_no_constant_is_of_a_source_a_model_or_a_card():
    cards = {device.slug for device in devices()}
    models = ("llama", "qwen", "gpt", "mixtral", "deepseek", "mpt", "gemma")
    for name in ROWS:
        words = name.lower().replace(".", "_").split("_")
        assert not cards & set(words)
        assert not any(model in words for model in models)
