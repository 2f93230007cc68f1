"""A replay against theory: queues whose answers are known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.simulate.fixed import FixedTimes

from tonnage import datafiles
from tonnage.simulate.arrivals import Requests, constant, poisson, read_requests
from tonnage.simulate.batching.slots import Slots
from tonnage.simulate.replay import replay, tail_of
from tonnage.simulate.router import ROUTERS


def one_at_a_time():
    """A server that takes one request at a time, each for a second."""
    return Slots(FixedTimes(1.0), num_slots=1, slot_tokens=8, batch_tokens=8)


@pytest.mark.parametrize("load", [0.3, 0.6])
def test_the_mean_wait_is_that_of_one_server_with_fixed_service(load):
    """Pollaczek and Khintchine: rho / (2 (1 - rho)) seconds of waiting before one second of service."""
    out = replay(poisson(120_000, load, 1, 1, seed=7), [one_at_a_time()])
    assert out.ttft.mean - 1.0 == pytest.approx(load / (2 * (1 - load)), rel=0.02)


def test_what_runs_is_rate_times_time():
    """Little's law: the integral that a replica keeps, and the times of the requests, agree in a steady state."""
    replica = Slots(FixedTimes(0.01), num_slots=64, slot_tokens=512, batch_tokens=512)
    load = poisson(5_000, 6.0, 4, 100, seed=3)  # a second each, so six run on average and none waits
    out = replay(load, [replica])
    assert out.mean_running == pytest.approx(load.requests_per_s * out.e2e.mean, rel=0.02)


@given(
    gaps=st.lists(st.floats(0, 3), min_size=1, max_size=60),
    num_replicas=st.integers(1, 5),
)
@settings(max_examples=150, deadline=None)
def test_more_replicas_never_raise_a_percentile(gaps, num_replicas):
    arrivals = tuple(np.cumsum(gaps).tolist())
    load = Requests(arrival_seconds=arrivals, input_tokens=(1,) * len(gaps), output_tokens=(1,) * len(gaps))
    fewer = replay(load, [one_at_a_time() for _ in range(num_replicas)]).e2e
    more = replay(load, [one_at_a_time() for _ in range(num_replicas + 1)]).e2e
    for name in ("mean", "p50", "p90", "p95", "p99", "worst"):
        assert getattr(more, name) <= getattr(fewer, name) + 1e-9


@given(st.lists(st.floats(0, 1e3), min_size=1, max_size=200))
def test_percentiles_are_numpys(samples):
    tail = tail_of(samples)
    for name, quantile in (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99)):
        assert getattr(tail, name) == pytest.approx(np.quantile(samples, quantile), rel=1e-9, abs=1e-9)
    assert (tail.worst, tail.num_samples) == (max(samples), len(samples))


def test_no_sample_has_no_percentile():
    assert tail_of([]).p99 is None


def test_goodput_counts_what_keeps_both_limits():
    load = constant(4, 100.0, 1, 2)
    replica = one_at_a_time()
    out = replay(load, [replica], ttft_limit_seconds=3.5, tpot_limit_seconds=1.0)
    # Two seconds each, one after another: first tokens after about 1, 3, 5 and 7 seconds.
    assert out.kept_ratio == 0.5
    assert out.goodput_requests_per_s == pytest.approx(2 / out.span_seconds)


def test_a_full_queue_turns_away():
    """One is served, one waits; the other two come to a full queue, and count as not kept."""
    load = Requests(arrival_seconds=(0.0, 0.1, 0.2, 0.3), input_tokens=(1,) * 4, output_tokens=(9,) * 4)
    out = replay(load, [one_at_a_time_for(9)], most_waiting=1)
    assert (out.num_finished, out.num_turned_away, out.kept_ratio) == (2, 2, 0.5)


def one_at_a_time_for(tokens):
    return Slots(FixedTimes(1.0), num_slots=1, slot_tokens=tokens + 1, batch_tokens=8)


def test_turns_and_the_shortest_queue_differ_where_requests_differ():
    load = Requests(arrival_seconds=(0.0, 0.1, 0.2, 0.3), input_tokens=(1,) * 4, output_tokens=(7, 1, 7, 1))
    by = {
        name: replay(load, [one_at_a_time(), one_at_a_time()], router=router).e2e.worst
        for name, router in ROUTERS.items()
    }
    assert by["shortest-queue"] < by["round-robin"]


@pytest.mark.parametrize("row", datafiles.rows("traces/traces.csv"), ids=lambda row: row["name"])
def test_a_shipped_trace_holds_what_its_row_says(row):
    load = read_requests(datafiles.packed(f"traces/{row['name']}.csv.xz"))
    assert len(load) == int(row["num_requests"])
    assert load.arrival_seconds == tuple(sorted(load.arrival_seconds))
