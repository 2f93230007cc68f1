"""A device without data is told by its nearest measured sibling, within the interval that an estimate gives it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tonnage.calibrate.sibling_check import CURVES, borrowed_curves, covered_share
from tonnage.estimate.compose_training import training_constants
from tonnage.hardware import catalogue, siblings

LEAST_COVERED = 0.6


@pytest.mark.parametrize("name", CURVES)
def test_left_out_devices_lie_within_their_intervals(name: str) -> None:
    found = borrowed_curves(name, training_constants())
    assert len(found) > 20
    assert covered_share(found, training_constants()) >= LEAST_COVERED


@pytest.mark.parametrize("name", CURVES)
def test_a_wrong_lender_is_found_out(name: str) -> None:
    halved = [replace(one, predicted=one.predicted / 2) for one in borrowed_curves(name, training_constants())]
    assert covered_share(halved, training_constants()) < LEAST_COVERED


def test_narrow_intervals_are_found_out() -> None:
    narrow = {**training_constants(), "width.time.base": 0.01, "width.time.sibling": 0.0, "width.time.stranger": 0.0}
    assert covered_share(borrowed_curves("matrix products", narrow), narrow) < LEAST_COVERED


def test_the_rule_prefers_the_device_itself_then_its_kin() -> None:
    h100, h200, rtx = (catalogue.device(slug) for slug in ("h100-sxm5", "h200-sxm5", "rtx-4070"))
    assert siblings.lender(h100, siblings.MATMUL).step == 0
    assert siblings.lender(h200, siblings.MATMUL).slug == "h100-sxm5"
    assert siblings.lender(rtx, siblings.MATMUL).step == 1
    assert siblings.lender(h100, siblings.MATMUL, {"h100-sxm5"}).slug != "h100-sxm5"


def test_steps_are_named() -> None:
    steps = [
        siblings.lender(device, siblings.MATMUL).step
        for device in catalogue.devices()
        if any(device.flop_per_s.values())
    ]
    assert max(steps) < len(siblings.STEPS)
