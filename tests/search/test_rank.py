"""The order: sure before unsure, four bits before fewer, then speed; and the short list differs in kind."""

from __future__ import annotations

import itertools
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.plan.nouns import make_candidate, make_estimate

from tonnage.estimate.types import Interval, Offload
from tonnage.search import rank
from tonnage.units import GIB
from tonnage.workload.precision import Precision


def estimate(*, weights="q4_k_m", seconds=0.01, total=10 * GIB, layers=0, engine="llama.cpp"):
    candidate = make_candidate(
        precision=Precision(weights=weights), offload=Offload(num_cpu_layers=layers), engine=engine
    )
    made = make_estimate(candidate, total=total)
    speed = replace(made.performance, tokens_per_s=Interval.around(1 / seconds, 0.2))
    return replace(made, performance=speed)


def test_a_sure_fit_comes_before_a_faster_unsure_one():
    sure, unsure = estimate(seconds=0.1), estimate(seconds=0.01, total=15.9 * GIB)
    assert rank.ranked([unsure, sure], "speed") == [sure, unsure]


def test_four_bits_come_before_fewer():
    four, two = estimate(seconds=0.1), estimate(seconds=0.01, weights="q2_k")
    assert rank.ranked([two, four], "speed") == [four, two]


def test_of_equals_the_more_exact_then_the_first():
    a, b, c = estimate(), estimate(weights="q8_0"), estimate(engine="ollama")
    assert rank.ranked([a, b, c], "speed") == [b, a, c]


def test_a_broken_limit_comes_after_a_kept_one():
    fast, slow = estimate(seconds=0.01), estimate(seconds=0.1)
    assert rank.ranked([fast, slow], "speed", lambda one: one is slow) == [slow, fast]


@given(st.lists(st.tuples(st.sampled_from(["q8_0", "q4_k_m", "q2_k", "bf16"]), st.floats(0.001, 1)), min_size=1))
def test_the_short_list_keeps_the_order_and_the_best_of_each_kind(pairs):
    in_order = rank.ranked([estimate(weights=w, seconds=s) for w, s in pairs], "speed")
    chosen = rank.short_list(in_order)
    places = [next(i for i, e in enumerate(in_order) if e is one) for one in chosen]
    assert places == sorted(places)
    assert chosen[0] is in_order[0]
    assert len(chosen) <= rank.MOST_SHOWN
    firsts = {rank.kind(e): e for e in reversed(in_order)}
    assert all(any(first is one for one in chosen) for first in firsts.values())
    assert not any(rank.kind(a) == rank.kind(b) for a, b in itertools.pairwise(chosen))
