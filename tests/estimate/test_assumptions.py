"""What is assumed of money: in range, with its reasoning, settable, in base units."""

from __future__ import annotations

import pytest

from tonnage.errors import RequestError
from tonnage.estimate.cost.assumptions import parse_given, stated, with_given
from tonnage.units import YEAR_SECONDS

ALL = list(stated().by_key.values())


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.key)
def test_each_has_a_range_a_source_and_a_reason(one):
    assert one.low <= one.best <= one.high
    assert one.low < one.high
    assert one.sources
    assert len(one.why) > 10


def test_units_become_base_units():
    assert stated().best("tariff", "home") * 3.6e6 == pytest.approx(0.187)
    assert stated().best("horizon") == 3 * YEAR_SECONDS
    assert stated().best("restart") == 600
    assert stated().best("save_rate") == 1e9
    assert stated().best("use_per_day") == pytest.approx(1 / 3)
    assert stated().best("spot_stops_per_day") == pytest.approx(1 / 86_400)
    assert stated().best("memory_usd") * 2**30 == pytest.approx(12)


def test_a_name_sets_every_kind_and_a_kind_only_itself():
    given = with_given(parse_given(["kept_per_year=0.5", "kept_per_year.host=0.4"]))
    assert given.best("kept_per_year", "consumer") == given.best("kept_per_year", "datacentre") == 0.5
    assert given.best("kept_per_year", "host") == 0.4
    assert given.of("kept_per_year", "host").is_given
    assert given.of("kept_per_year", "host").why == "as you say"
    assert not given.of("horizon").is_given


def test_what_is_given_has_no_width():
    value = with_given({"tariff.home": 0.3}).value("tariff", "home")
    assert value.low == value.best == value.high


@pytest.mark.parametrize(
    "text",
    ["", "tariff", "tariff=", "tariff=x", "tariff=nan", "=3", "sunshine=1", "kept_per_year=1.5", "kept_per_year=0",
     "kept_per_year.moon=0.5", "pue=0.9", "idle_ratio=1", "use_per_day=25", "use_per_day=0", "horizon=0", "tariff=-1",
     "restart=1e400"],
)  # fmt: skip
def test_what_cannot_be_is_refused(text):
    with pytest.raises(RequestError, match="--assume"):
        parse_given([text])


def test_some_may_be_nothing():
    assert parse_given(["host_usd=0", "tariff=0", "failures_per_year=0", "spot_stops_per_day=0"])["host_usd"] == 0
