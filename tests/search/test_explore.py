"""The walk finds what trying everything finds: the fewest layers moved, the fastest that fits, nothing that does not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage import api
from tonnage.engines import ENGINES, find_engine
from tonnage.estimate.compose_serving import estimate_serving
from tonnage.plan.types import Where
from tonnage.plan.where import place
from tonnage.search.constraints import why_not
from tonnage.search.explore import Explored, Fixed, explore_serving, first_that_fits
from tonnage.search.rank import placement
from tonnage.workload.types import Serving

SPARSE = api.read_model("Qwen/Qwen3.5-35B-A3B")


@given(st.integers(0, 90), st.integers(1, 90), st.integers(-5, 200))
def test_the_first_that_fits_is_found_whatever_the_guess(threshold, most, guess):
    expected = next((n for n in range(1, most + 1) if n >= threshold), None)
    assert first_that_fits(lambda n: n >= threshold, 1, most, guess) == expected


def test_a_good_guess_costs_few_trials():
    tried = []

    def fits(number):
        tried.append(number)
        return number >= 41

    assert first_that_fits(fits, 1, 80, 42) == 41
    assert len(tried) <= 5


@pytest.fixture(scope="module")
def serving() -> Explored:
    return explore_serving(SPARSE, Serving(), place(Where(gpus=(("rtx-4080", 1),))).cluster, ENGINES, Fixed())


def test_everything_kept_fits_and_everything_short_does_not(serving):
    assert serving.kept
    assert serving.short
    assert all(estimate.footprint.fits for estimate in serving.kept)
    assert not any(estimate.footprint.fits for estimate in serving.short)
    assert serving.num_candidates >= len(serving.kept) + len(serving.short) + len(serving.ruled_out)


def test_a_host_too_small_for_all_experts_takes_some():
    """Some layers' experts suit a small host though all of them would not."""
    where = Where(gpus=(("rtx-4080", 1),), host="8 GiB ddr5-5600 x2")
    found = explore_serving(SPARSE, Serving(), place(where).cluster, ENGINES, Fixed())
    moved = [e for e in found.kept if placement(e) == "experts_cpu"]
    assert moved
    for estimate in moved:
        assert 1 <= estimate.candidate.offload.num_cpu_expert_layers < SPARSE.num_layers
        assert estimate.footprint.host_total.high <= estimate.footprint.host_capacity_bytes


def test_no_layer_less_could_be_moved(serving):
    moved = [e for e in serving.kept if placement(e) == "experts_cpu"]
    assert len({e.candidate.engine for e in moved}) > 1
    for estimate in moved[:6]:
        candidate = estimate.candidate
        less = replace(candidate.offload, num_cpu_expert_layers=candidate.offload.num_cpu_expert_layers - 1)
        accounting = find_engine(candidate.engine).accounting
        assert not estimate_serving(replace(candidate, offload=less), accounting).footprint.fits_surely


def test_no_engine_is_asked_for_what_it_refuses(serving):
    for estimate in serving.kept:
        assert find_engine(estimate.candidate.engine).refuses(estimate.candidate) is None
        assert why_not(estimate.candidate) is None
