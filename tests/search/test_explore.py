"""The walk finds what trying everything finds: the fewest layers moved, the fastest that fits, nothing that does not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tonnage import api
from tonnage.engines import ENGINES, find_engine
from tonnage.estimate.compose_serving import estimate_serving
from tonnage.estimate.compose_training import estimate_training
from tonnage.plan.types import Where
from tonnage.plan.where import place
from tonnage.search import explore as walk
from tonnage.search.constraints import why_not
from tonnage.search.explore import Explored, Fixed, explore_serving, explore_training, first_that_fits, training_ways
from tonnage.search.rank import placement
from tonnage.workload.types import Serving, Training, TrainingKind

SPARSE = api.read_model("Qwen/Qwen3.5-35B-A3B")
SMALL = api.read_model("Qwen/Qwen3-0.6B")


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


def every_training(load, cluster, ways):
    """Yield every candidate of one software, one by one."""
    collector = walk._Walk(Fixed())
    base = walk.Candidate(model=SMALL, workload=load, cluster=cluster, engine=ways.name)
    for layout in walk.training_layouts(SMALL, cluster.num_devices, 8, ways.ways, ways.zero):
        for precision, optimizer in walk._precisions(load.kind, ways, walk.compute_type(cluster)):
            whole = replace(base, layout=layout, precision=precision, optimizer=optimizer)
            yield from walk._trainings(collector, whole, ways)


@pytest.mark.parametrize("name", ["transformers", "torchtitan", "megatron", "deepspeed"])
@settings(max_examples=2)
@given(st.sampled_from(["rtx-3090", "t4"]), st.sampled_from([1, 2, 4]), st.sampled_from([512, 4096]))
def test_the_fastest_kept_is_the_fastest_of_all(name, gpu, count, seq_len):
    load = Training(kind=TrainingKind.FULL, seq_len=seq_len, global_batch_size=8)
    cluster = place(Where(gpus=((gpu, count),))).cluster
    ways = next(w for w in training_ways() if w.name == name)
    found = explore_training(SMALL, load, cluster, [ways], Fixed())
    every = [estimate_training(candidate) for candidate in every_training(load, cluster, ways)]
    fitting = [e for e in every if e.footprint.fits_surely and not e.candidate.offload.is_any]
    if fitting:
        best = max(e.performance.tokens_per_s.best for e in fitting)
        assert max(e.performance.tokens_per_s.best for e in found.kept) >= best * (1 - 1e-9)
    assert bool(found.kept) == any(e.footprint.fits for e in every)


def test_one_software_that_cannot_is_ruled_out_with_its_reason():
    load = Training(kind=TrainingKind.QLORA, seq_len=512, global_batch_size=8)
    found = explore_training(SMALL, load, place(Where(gpus=(("mi300x", 1),))).cluster, training_ways(), Fixed())
    reasons = {one.engine: one.reason for one in found.ruled_out}
    assert "qlora" in reasons["torchtitan"]
    assert "megatron" in reasons
