"""Power limits: measured points come back, energy by hand, the best for each aim, and borrowed curves are wider."""

from __future__ import annotations

import re

import pytest
from tests.plan.test_price import estimate

from tonnage import api
from tonnage.estimate.cost.assumptions import stated, with_given
from tonnage.estimate.power import capped_speed_ratio
from tonnage.hardware.catalogue import find_device
from tonnage.hardware.power_curves import curve_of
from tonnage.plan import price
from tonnage.plan.caps import caps_of
from tonnage.plan.request import make_request
from tonnage.plan.types import Limits


def caps(name: str, job: float | None = None, **given: float):
    assumed = with_given(given)
    one = price.priced(estimate(name, job=job), Limits(assume=given))
    found = caps_of(one, assumed)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("work", "watts", "ratio"),
    [("decode", 250, 0.974), ("decode", 200, 0.941), ("decode", 100, 0.167), ("prefill", 250, 0.853), ("prefill", 150, 0.258),
     ("training", 280, 0.95), ("training", 350, 1.0)],
)  # fmt: skip
def test_measured_points_come_back(work, watts, ratio):
    curve = curve_of(find_device("rtx-3090"), work)
    assert not curve.is_borrowed
    assert float(capped_speed_ratio(watts / 350, curve.caps, curve.ratios)) == pytest.approx(ratio)


def test_a_higher_limit_is_never_slower():
    for work in ("decode", "training"):
        curve = curve_of(find_device("rtx-3090"), work)
        assert list(curve.ratios) == sorted(curve.ratios)
        assert list(curve.caps) == sorted(curve.caps)
        assert (curve.caps[-1], curve.ratios[-1]) == (1.0, 1.0)


def test_energy_by_hand():
    """200 W of 350 on a 3090: 0.9 x 200 + 100 W for 941 of 1000 tokens/s."""
    found = next(c for c in caps("rtx-3090").caps if c.cap_watts == pytest.approx(200))
    assert found.joules_per_token.best == pytest.approx((0.9 * 200 + 100) / 941)


def test_the_best_limit_depends_on_the_aim():
    found = caps("rtx-3090")
    assert found.best("speed").cap_watts == 350
    assert found.best("energy").cap_watts < 250
    assert found.best("energy").joules_per_token.best < found.best("speed").joules_per_token.best


def test_arithmetic_wants_a_higher_limit_than_decoding():
    assert caps("rtx-3090", job=3600.0).best("energy").cap_watts > caps("rtx-3090").best("energy").cap_watts


def test_dear_electricity_lowers_the_best_limit():
    cheap, dear = (caps("rtx-3090", tariff=t).best("cost").cap_watts for t in (0.01, 5.0))
    assert dear < cheap


def test_a_card_without_a_curve_borrows_one_and_is_less_sure():
    own, borrowed = caps("rtx-3090"), caps("rtx-4090")
    assert borrowed.curve.is_borrowed
    assert borrowed.curve.device == "rtx-3090"

    def width(found, ratio):
        cap = min(found.caps, key=lambda c: abs(c.cap_watts / found.caps[-1].cap_watts - ratio))
        return cap.speed_ratio.high - cap.speed_ratio.low

    assert width(borrowed, 0.6) > width(own, 0.6)


def test_unknown_power_has_no_limits():
    assert caps_of(estimate("m4-max"), stated()) is None


def test_a_limit_on_power_names_the_cap_that_keeps_it():
    words = {"gpus": ["rtx-4090:2"], "limits": {"max_power": "600W"}}
    answer = api.plan(make_request("Qwen/Qwen3-8B", **words))
    said = answer.rejections[0].reason
    watts = int(re.search(r"each at (\d+) W", said)[1])
    assert 2 * watts <= 600
    assert re.search(r": \d\d % of the speed, \d\d % at least", said)
    lowest = api.plan(make_request("Qwen/Qwen3-8B", gpus=["rtx-4090:2"], limits={"max_power": "100W"}))
    assert "nvidia-smi" not in lowest.rejections[0].reason
