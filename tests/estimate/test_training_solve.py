"""Solvers of training jobs are exact: the value found fits and the next one does not."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.estimate.test_compose_training import H100, candidate

from tonnage.estimate.compose_training import case_of, columns_of
from tonnage.estimate.compose_training.solve import (
    fewest_replicas,
    fits_with,
    largest,
    largest_micro_batch,
    longest_sequence,
)


@given(st.integers(0, 100_000))
def test_largest_is_exact(bound: int) -> None:
    assert largest(lambda n: n <= bound) == bound


@settings(max_examples=25, deadline=None)
@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from([24, 48, 80, 141]), st.sampled_from([0, 1, 2]))
def test_found_fits_and_next_does_not(tp: int, gib: int, recompute: int) -> None:
    base = candidate()
    case = replace(case_of(base), device=replace(H100, memory_bytes=gib * 2**30))
    columns = {**columns_of(base), "tp": tp, "recompute": recompute}
    for name, solve in (("micro_batch_size", largest_micro_batch), ("seq_len", longest_sequence)):
        found = solve(case, columns)
        fits = fits_with(case, columns, name)
        assert found == 0 or fits(found)
        assert not fits(found + 1)


@settings(max_examples=15, deadline=None)
@given(st.sampled_from([24, 40, 80]), st.sampled_from([1, 3]))
def test_fewest_replicas_is_exact(gib: int, stage: int) -> None:
    base = candidate()
    case = replace(case_of(base), device=replace(H100, memory_bytes=gib * 2**30))
    columns = {**columns_of(base), "tp": 2, "zero_stage": stage}
    found = fewest_replicas(case, columns)
    fits = fits_with(case, columns, "dp")
    if found:
        assert fits(found)
        assert found == 1 or not fits(found - 1)
    else:
        assert not fits(4096)
