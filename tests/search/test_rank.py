"""The order: sure before unsure, four bits before fewer, then speed; and the short list differs in kind."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.plan.nouns import make_candidate, make_estimate

from tonnage import datafiles
from tonnage.estimate.types import Cost, Interval, Layout, Offload
from tonnage.search import rank
from tonnage.units import GIB
from tonnage.workload.precision import Precision
from tonnage.workload.types import Training, TrainingKind


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


@given(
    st.sampled_from([*rank.OBJECTIVES, "speed", "value"]),
    st.lists(st.tuples(st.floats(0.001, 1), st.booleans(), st.sampled_from(["q8_0", "q2_k"])), min_size=1, max_size=8),
)
def test_under_no_objective_is_an_unsure_fit_above_a_sure_one(objective, drawn):
    made = [estimate(seconds=s, total=(10 if sure else 15.9) * GIB, weights=w) for s, sure, w in drawn]
    in_order = rank.ranked(made, objective)
    flags = [one.footprint.fits_surely for one in in_order]
    assert flags == sorted(flags, reverse=True)


def priced(*, seconds=0.01, bought=2000.0, per_hour=1.0, watts=200.0, ttft=1.0):
    made = estimate(seconds=seconds)
    device = replace(made.candidate.cluster.node.devices[0], power_watts=watts)
    node = replace(made.candidate.cluster.node, devices=(device,))
    candidate = replace(made.candidate, cluster=replace(made.candidate.cluster, node=node))
    cost = Cost(
        purchase_usd=Interval.exact(bought),
        usd_per_hour=Interval.exact(per_hour),
        usd_per_million_tokens=Interval.exact(per_hour * seconds / 0.0036),
    )
    speed = replace(
        made.performance,
        ttft_seconds=Interval.exact(ttft),
        tpot_seconds=Interval.exact(seconds),
        job_seconds=Interval.exact(1e6 * seconds),
    )
    return replace(made, candidate=candidate, cost=cost, performance=speed)


def test_each_objective_has_its_own_best():
    fast = priced(seconds=0.001, bought=30_000, per_hour=20, watts=700, ttft=5.0)
    prompt = priced(seconds=0.002, bought=20_000, per_hour=30, watts=900, ttft=0.1)
    cheap = priced(seconds=0.1, bought=300, per_hour=1.0, watts=300, ttft=9.0)
    frugal = priced(seconds=0.005, bought=9000, per_hour=4.5, watts=50, ttft=6.0)
    rented = priced(seconds=0.02, bought=15_000, per_hour=0.1, watts=300, ttft=7.0)
    every = [cheap, rented, frugal, prompt, fast]
    best = {name: rank.ranked(every, name)[0] for name in (*rank.OBJECTIVES, "speed")}
    assert best["throughput"] is best["time"] is best["speed"] is fast
    assert best["latency"] is prompt
    assert best["price"] is cheap
    assert best["energy"] is frugal
    assert best["cost"] is rented
    ones = {id(one): number for number, one in enumerate(every)}
    fewest = rank.ranked(every, "change", changes=lambda one: (ones[id(one)] - 3) ** 2)
    assert fewest[0] is prompt
    front = rank.pareto_front(every)
    assert all(any(one is kept for kept in front) for one in {id(b): b for b in best.values()}.values())


@given(st.lists(st.tuples(st.floats(0.001, 1), st.floats(100, 9000), st.floats(50, 900)), min_size=1, max_size=12))
def test_the_front_holds_the_best_of_every_objective(drawn):
    every = [priced(seconds=s, bought=b, watts=w) for s, b, w in drawn]
    front = rank.pareto_front(every)
    for name in rank.FRONT_OBJECTIVES:
        least = min(rank.objective_of(one, name) for one in every)
        assert min(rank.objective_of(one, name) for one in front) == least


def test_what_is_not_known_comes_after_what_is():
    known, unknown = priced(seconds=0.5), replace(priced(seconds=0.1), cost=Cost())
    for name in ("cost", "price", "value"):
        assert rank.ranked([unknown, known], name) == [known, unknown]


def test_a_layout_wider_than_any_measured_is_taken_at_its_slow_end():
    load = Training(kind=TrainingKind.PRETRAIN, seq_len=8192, global_batch_size=64)
    wide = make_candidate(workload=load, engine="megatron", layout=Layout(cp=16), precision=Precision())
    plain = replace(wide, layout=Layout(cp=8))
    assert rank.beyond(wide) == ("cp",)
    assert not rank.beyond(plain)

    def at(candidate, rate):
        made = make_estimate(candidate)
        return replace(made, performance=replace(made.performance, tokens_per_s=Interval.around(rate, 0.2)))

    assert rank.ranked([at(wide, 110.0), at(plain, 100.0)], "throughput")[0].candidate is plain
    assert rank.ranked([at(wide, 150.0), at(plain, 100.0)], "throughput")[0].candidate is wide


def test_the_widest_layouts_are_those_of_the_measurements():
    rows = [json.loads(line) for line in datafiles.text("measurements/training.jsonl").splitlines()]
    for way, most in rank.MOST_MEASURED.items():
        assert max(row.get(way) or 1 for row in rows) == most
    assert max(row.get("n_gpus") or 1 for row in rows) == rank.MOST_DEVICES_MEASURED["all"]
    moved = [row for row in rows if "offload" in str(row.get("offload")).lower()]
    assert max(row.get("n_gpus") or 1 for row in moved) == rank.MOST_DEVICES_MEASURED["offload"]
