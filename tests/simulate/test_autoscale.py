"""Policies by hand, and what must hold of every replay with replicas that come and go."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.simulate.fixed import FixedTimes

from tonnage.errors import RequestError
from tonnage.simulate.arrivals import Requests, constant, poisson
from tonnage.simulate.autoscale import Metric, Policy, SpotReplicas, cheapest, replay_scaled
from tonnage.simulate.batching.slots import Slots
from tonnage.simulate.replay import replay


def make(start):
    """One request at a time, each for four seconds."""
    return Slots(FixedTimes(1.0), num_slots=1, slot_tokens=64, batch_tokens=16, start_seconds=start)


def test_a_fixed_number_is_the_plain_replay():
    load = poisson(300, 0.4, 1, 4, seed=2)
    plain = replay(load, [make(0.0), make(0.0)])
    scaled = replay_scaled(load, make, Policy(name="two", least=2, most=2), start_seconds=60.0)
    assert (scaled.ttft, scaled.e2e, scaled.num_finished) == (plain.ttft, plain.e2e, plain.num_finished)
    assert scaled.replica_seconds == pytest.approx(plain.replica_seconds)


def test_scaling_up_by_hand():
    """Nine requests at second 0: one runs, eight wait. At the first sync (0) nothing is there yet.

    At 15 four are served and five wait, of whom two may: ceil(1 * 5 / 2) = 3 replicas. The two new ones answer at 25;
    by then the first has served six and works at the seventh, so two still wait and each finds a replica only when it
    asks for one: they stay where they are, and the last ends at 36.
    """
    load = Requests(arrival_seconds=(1.0,) * 9, input_tokens=(1,) * 9, output_tokens=(4,) * 9)
    policy = Policy(name="hpa", least=1, most=4, metric=Metric.WAITING, target=2.0)
    out = replay_scaled(load, make, policy, start_seconds=10.0)
    by_moment = {moment: (replicas, waiting, running) for moment, replicas, waiting, running in out.series}
    assert by_moment[0.0] == (1, 0, 0)
    assert by_moment[15.0] == (1, 5, 1)
    assert by_moment[30.0][0] == 3
    assert out.num_finished == 9
    assert out.e2e.worst == 36.0


def test_to_zero_and_back():
    """A request at 0 and one at 1000: the replica goes 300 s after the last, and the second waits for a new one."""
    load = Requests(arrival_seconds=(0.0, 1000.0), input_tokens=(1, 1), output_tokens=(4, 4))
    policy = Policy(name="keda", least=0, most=2, metric=Metric.PRESENT, target=1.0)
    out = replay_scaled(load, make, policy, start_seconds=20.0)
    assert out.num_finished == 2
    assert out.ttft.p50 == 21.0  # each: twenty to start, one for the first token
    assert out.replica_seconds < 2 * (20 + 4 + 330)
    always = replay_scaled(load, make, Policy(name="one", least=1, most=1), start_seconds=20.0)
    assert always.replica_seconds > 1000


def test_a_schedule_holds_replicas_ready():
    load = constant(50, 0.5, 1, 4)
    policy = Policy(name="schedule", least=1, most=4, schedule=((0.0, 1), (30.0, 3)))
    out = replay_scaled(load, make, policy, start_seconds=5.0)
    assert [replicas for moment, replicas, _, _ in out.series if moment == 45.0] == [3]


LOADS = st.lists(st.tuples(st.floats(0, 400), st.integers(1, 20), st.integers(1, 12)), min_size=1, max_size=40).map(
    lambda rows: Requests(
        arrival_seconds=tuple(sorted(row[0] for row in rows)),
        input_tokens=tuple(row[1] for row in rows),
        output_tokens=tuple(row[2] for row in rows),
    )
)


@given(
    load=LOADS,
    least=st.integers(0, 2),
    metric=st.sampled_from([*Metric, None]),
    is_spot=st.booleans(),
    target=st.floats(0.5, 4.0),
)
@settings(max_examples=150, deadline=None)
def test_every_request_ends_once(load, least, metric, is_spot, target):
    if metric is None:
        least = max(least, 1)
    policy = Policy(name="any", least=least, most=4, metric=metric, target=target, stabilization_seconds=30.0)
    spot = SpotReplicas(mean_seconds=90.0, seed=1) if is_spot else None
    out = replay_scaled(load, make, policy, start_seconds=12.0, spot=spot)
    assert out.num_finished == len(load)
    assert out.output_tokens == sum(load.output_tokens)
    assert max((replicas for _, replicas, _, _ in out.series), default=0) <= 4
    # A replica is there at least as long as it works.
    assert out.busy_ratio <= 1.0 + 1e-9


def test_losing_machines_costs_time():
    load = poisson(400, 0.3, 1, 4, seed=5)
    policy = Policy(name="two", least=2, most=2)
    kept = replay_scaled(load, make, policy, start_seconds=60.0)
    lost = replay_scaled(load, make, policy, start_seconds=60.0, spot=SpotReplicas(mean_seconds=120.0, seed=3))
    assert lost.e2e.mean > kept.e2e.mean
    assert lost == replay_scaled(load, make, policy, start_seconds=60.0, spot=SpotReplicas(mean_seconds=120.0, seed=3))


def test_the_cheapest_of_those_that_keep_the_limits():
    load = poisson(300, 0.6, 1, 4, seed=2)
    runs = []
    for number in (2, 3, 4, 6):
        policy = Policy(name=str(number), least=number, most=number)
        runs.append((policy, replay_scaled(load, make, policy, start_seconds=0.0, ttft_limit_seconds=6.0)))
    assert cheapest(runs, 2.0) is None
    place = cheapest(runs, 0.95)
    assert place is not None
    assert runs[place][1].kept_ratio >= 0.95
    assert all(run.kept_ratio < 0.95 for _, run in runs[:place])


@pytest.mark.parametrize("least,most", [(2, 1), (0, 0), (-1, 2)])
def test_a_policy_that_makes_no_sense_is_refused(least, most):
    with pytest.raises(RequestError):
        Policy(name="bad", least=least, most=most)
