"""Jobs on machines that come and go: by hand, against Daly's formula, and what must always hold."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tonnage.errors import BadFileError, RequestError
from tonnage.estimate.cost.spot import daly_interval_seconds, expected_seconds
from tonnage.simulate.spot import (
    Fallback,
    Spell,
    SpotJob,
    best_interval,
    failures,
    mean_spell_seconds,
    read_availability,
    replay_job,
    starts_of,
)

JOB = SpotJob(work_seconds=100.0, num_nodes=2, interval_seconds=30.0, checkpoint_seconds=5.0, restart_seconds=10.0)
ALWAYS = (Spell(seconds=1000.0, num_nodes=2),)


def test_a_trace_without_loss_is_the_plain_run():
    """10 to start, 100 of work, and four saves of 5: after 30, 60, 90 and at the end."""
    run = replay_job(JOB, ALWAYS)
    assert run.is_finished
    assert (run.wall_seconds, run.num_checkpoints, run.lost_seconds, run.waited_seconds) == (130.0, 4, 0.0, 0.0)
    assert run.spot_node_seconds == 260.0


def test_a_stop_by_hand():
    """10 start, 30 work, 5 save, 15 work lost at 60; none for 40; 10 start, then 70 of work and three saves."""
    trace = (Spell(seconds=60.0, num_nodes=2), Spell(seconds=40.0, num_nodes=0), Spell(seconds=1000.0, num_nodes=2))
    run = replay_job(JOB, trace)
    assert run.wall_seconds == 60 + 40 + 10 + 70 + 15
    assert (run.lost_seconds, run.waited_seconds, run.num_interruptions) == (15.0, 40.0, 1)
    assert run.spot_node_seconds == 2 * (60 + 95)


def test_a_save_that_is_cut_off_is_no_checkpoint():
    """The stop comes at 43, in the save from 40 to 45: all 30 seconds are lost."""
    trace = (Spell(seconds=43.0, num_nodes=2), Spell(seconds=1000.0, num_nodes=2, is_broken=True))
    run = replay_job(JOB, trace)
    assert run.lost_seconds == 30.0
    assert run.wall_seconds == 43 + 130


def test_renting_fills_the_gap():
    trace = (Spell(seconds=60.0, num_nodes=2), Spell(seconds=1000.0, num_nodes=0))
    run = replay_job(JOB, trace, fallback=Fallback.ON_DEMAND)
    assert run.wall_seconds == 60 + 10 + 70 + 15
    assert (run.spot_node_seconds, run.on_demand_node_seconds) == (120.0, 190.0)
    assert run.usd(1.0, 3.0) == pytest.approx((120 + 3 * 190) / 3600)


def test_an_elastic_job_goes_on_with_fewer():
    """One of two machines stays: at half the speed from the checkpoint on."""
    trace = (Spell(seconds=60.0, num_nodes=2), Spell(seconds=1000.0, num_nodes=1))
    run = replay_job(replace(JOB, least_nodes=1), trace)
    assert run.wall_seconds == 60 + 10 + 2 * 70 + 15
    assert run.spot_node_seconds == 120 + 165


def test_more_machines_are_taken_in_after_a_save():
    """One machine from 0: 10 start and 90 seconds give 45 less 2 * 2.5; at 100 it saves and starts again with two."""
    job = replace(JOB, least_nodes=1, checkpoint_seconds=0.0)
    run = replay_job(job, (Spell(seconds=100.0, num_nodes=1), Spell(seconds=1000.0, num_nodes=2)))
    assert run.lost_seconds == 0.0
    assert run.wall_seconds == 100 + 10 + 55


def test_a_deadline_is_kept_by_renting_in_time():
    job = replace(JOB, deadline_seconds=400.0)
    none = (Spell(seconds=1000.0, num_nodes=0),)
    run = replay_job(job, none, fallback=Fallback.DEADLINE)
    assert run.is_finished
    assert run.wall_seconds <= 400.0
    assert run.waited_seconds > 200.0  # it hoped as long as it could
    with pytest.raises(RequestError, match="deadline"):
        replay_job(JOB, none, fallback=Fallback.DEADLINE)


def test_a_trace_that_never_has_enough_is_said_to_end_nothing():
    run = replay_job(JOB, (Spell(seconds=10.0, num_nodes=1),))
    assert not run.is_finished


SPELLS = st.lists(
    st.builds(Spell, seconds=st.floats(1.0, 300.0), num_nodes=st.integers(0, 4), is_broken=st.booleans()),
    min_size=1,
    max_size=20,
).filter(lambda spells: any(spell.num_nodes >= 3 and spell.seconds > 100 for spell in spells))


@given(
    spells=SPELLS,
    work=st.floats(10.0, 2000.0),
    interval=st.floats(5.0, 60.0),
    saving=st.floats(0.0, 5.0),
    restart=st.floats(0.0, 20.0),
    elastic=st.booleans(),
    fallback=st.sampled_from(list(Fallback)),
    start=st.floats(0.0, 1e4),
)
@settings(max_examples=200, deadline=None)
def test_time_and_work_add_up(spells, work, interval, saving, restart, elastic, fallback, start):
    plain = work + -(-work // interval) * saving + restart
    job = SpotJob(
        work_seconds=work,
        num_nodes=3,
        interval_seconds=interval,
        checkpoint_seconds=saving,
        restart_seconds=restart,
        least_nodes=1 if elastic else None,
        deadline_seconds=1.5 * plain + 300.0,
    )
    run = replay_job(job, tuple(spells), fallback=fallback, start_seconds=start)
    if not run.is_finished:  # a trace whose spells are too short for it
        assert fallback is not Fallback.DEADLINE
        return
    assert run.wall_seconds >= plain - saving - 1e-6 or elastic
    held = run.wall_seconds - run.waited_seconds
    assert held >= work - 1e-6
    assert run.spot_node_seconds + run.on_demand_node_seconds <= 3 * held + 1e-6
    if not elastic:
        # Every second held is work kept, work lost, saving or starting.
        parts = work + run.lost_seconds + run.saving_seconds + run.restarting_seconds
        assert held == pytest.approx(parts, rel=1e-9)
        assert run.spot_node_seconds + run.on_demand_node_seconds == pytest.approx(3 * held, rel=1e-9)
    if fallback is Fallback.DEADLINE:
        assert run.wall_seconds <= job.deadline_seconds + 1e-6
    done = [value for _, value in run.progress]
    assert max(done) == pytest.approx(work)


def test_random_stops_cost_what_daly_says():
    """400 jobs of a day each, stopped every two hours on average."""
    mean, save, restart = 7200.0, 60.0, 300.0
    interval = float(daly_interval_seconds(save, mean))
    job = SpotJob(
        work_seconds=86_400.0, num_nodes=1, interval_seconds=interval, checkpoint_seconds=save, restart_seconds=restart
    )
    runs = [replay_job(job, failures(mean, 1, 4 * 86_400.0, seed)) for seed in range(400)]
    expected = float(expected_seconds(86_400.0, interval, save, restart, mean))
    assert sum(run.wall_seconds for run in runs) / len(runs) == pytest.approx(expected, rel=0.01)


def test_the_best_interval_lies_near_dalys():
    mean, save = 7200.0, 60.0
    job = SpotJob(
        work_seconds=86_400.0, num_nodes=1, interval_seconds=1.0, checkpoint_seconds=save, restart_seconds=300.0
    )
    trace = failures(mean, 1, 400 * 86_400.0, 1)
    daly = float(daly_interval_seconds(save, mean))
    tried = best_interval(job, trace, starts_of(trace, 60), [daly * ratio for ratio in (0.2, 0.5, 1.0, 2.0, 5.0)])
    held = [mean_held for _, mean_held, _ in tried]
    assert min(held) == min(held[1:4])
    assert held[2] == pytest.approx(min(held), rel=0.02)


def test_mean_time_until_a_stop():
    trace = (
        Spell(seconds=100.0, num_nodes=2),
        Spell(seconds=50.0, num_nodes=1),
        Spell(seconds=200.0, num_nodes=2),
        Spell(seconds=60.0, num_nodes=2, is_broken=True),
    )
    assert mean_spell_seconds(trace, 2) == (100 + 200 + 60) / 2
    assert mean_spell_seconds(ALWAYS, 2) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[1]",
        '{"metadata": {"gap_seconds": 0}, "data": [1]}',
        '{"metadata": {"gap_seconds": 1}, "data": [-1]}',
        '{"metadata": {"gap_seconds": 1}, "data": [1.5]}',
        '{"metadata": {"gap_seconds": 1}, "data": []}',
        '{"metadata": {"gap_seconds": NaN}, "data": [1]}',
        "seconds,instances\n5,1\n1,2",
        "a,b\n1,2",
    ],
)
def test_a_broken_trace_is_refused_in_one_line(text):
    with pytest.raises(BadFileError) as error:
        read_availability(text)
    assert "\n" not in str(error.value)


def test_lines_and_json_are_the_same_trace():
    lines = read_availability("seconds,instances\n0,2\n600,0\n900,0")
    assert lines == read_availability('{"metadata": {"gap_seconds": 300}, "data": [2, 2, 0]}')


SHARED = Path(__file__).parents[3] / "shared/data/traces/spot"


@pytest.mark.skipif(not SHARED.is_dir(), reason="platform: the public spot traces are no part of the project")
@pytest.mark.parametrize("path", sorted(SHARED.glob("*.json")), ids=lambda path: path.stem[:30])
def test_real_traces_replay(path):
    text = path.read_text(encoding="utf-8")
    spells = read_availability(text, path.name)
    table = json.loads(text)
    assert sum(spell.seconds for spell in spells) == pytest.approx(
        len(table["data"]) * table["metadata"]["gap_seconds"]
    )
    most = max(table["data"])
    job = SpotJob(
        work_seconds=86_400.0,
        num_nodes=most,
        interval_seconds=1800.0,
        checkpoint_seconds=60.0,
        restart_seconds=300.0,
        deadline_seconds=3 * 86_400.0,
    )
    for start in starts_of(spells, 5):
        rented = replay_job(job, spells, fallback=Fallback.DEADLINE, start_seconds=start)
        assert rented.is_finished
        assert rented.wall_seconds <= job.deadline_seconds
