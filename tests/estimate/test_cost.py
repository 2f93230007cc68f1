"""Money against cases worked out by hand, a simulation, and what must always hold."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tonnage.estimate.cost import (
    break_even_hours,
    daly_interval_seconds,
    depreciation_usd,
    electricity_usd,
    expected_seconds,
    first_loss_seconds,
    job_mean_seconds,
    owned_usd_per_hour,
    ownership_usd,
    rent_usd,
    residual_usd,
    usd_per_million_tokens,
    waiting_seconds,
    young_interval_seconds,
)
from tonnage.units import YEAR_SECONDS

HOUR, DAY = 3600.0, 86_400.0
usd = st.floats(100, 1e6)
ratio = st.floats(0.05, 0.99)
hours = st.floats(1, 50_000)
minutes = st.floats(1, 60).map(lambda m: m * 60)
mean = st.floats(1, 10_000).map(lambda h: h * HOUR)


# -- by hand -----------------------------------------------------------------------------------------------------


def test_a_rented_node_for_a_week():
    """8 x 2.95 USD/h for 168 h is 3964.80 USD; at 12 000 tokens/s that is 0.5463 USD a million."""
    assert rent_usd(23.6, 168 * HOUR) == pytest.approx(3964.8)
    assert (
        usd_per_million_tokens(23.6, 12_000)
        == pytest.approx(23.6 / (12_000 * 3600) * 1e6)
        == pytest.approx(0.5463, rel=1e-4)
    )


def test_a_card_that_idles_three_quarters_costs_four_times_a_token():
    assert usd_per_million_tokens(2.0, 100.0, 0.75) == pytest.approx(4 * usd_per_million_tokens(2.0, 100.0))


def test_owning_a_card_for_three_years():
    """2000 USD at 0.75 a year leaves 843.75; 3 % failures at half the price add 90; 1000 h x 0.5 kW x 0.20 USD add 100."""
    horizon, tariff = 3 * YEAR_SECONDS, 0.20 / 3.6e6
    assert residual_usd(2000, 0.75, horizon) == pytest.approx(843.75)
    assert depreciation_usd(2000, 0.75, horizon) == pytest.approx(1156.25)
    assert electricity_usd(500, tariff, 1.0, 1000 * HOUR) == pytest.approx(100)
    total = ownership_usd(2000, 0.75, 0.03, 0.5, horizon, 0.10, 1000 * HOUR)
    assert total == pytest.approx(1156.25 + 90 + 100)
    assert owned_usd_per_hour(total, 1000 * HOUR) == pytest.approx(1.34625)


def test_break_even_of_that_card_against_forty_cents_an_hour():
    assert float(break_even_hours(1246.25, 0.10, 0.40)) == pytest.approx(1246.25 / 0.30)


@pytest.mark.parametrize(("mean_minutes", "interval_minutes"), [(1440, 117), (360, 57), (15, 9.1)])
def test_dalys_own_cases(mean_minutes, interval_minutes):
    """Figures 3 to 5 of the paper: a dump takes 5 minutes."""
    found = float(daly_interval_seconds(300, mean_minutes * 60)) / 60
    assert found == pytest.approx(interval_minutes, rel=0.006)


def test_youngs_rule():
    assert young_interval_seconds(120, DAY) == pytest.approx(math.sqrt(2 * 120 * DAY))


def test_a_checkpoint_that_outlasts_the_machines_is_written_once_in_their_life():
    assert float(daly_interval_seconds(2 * HOUR, HOUR)) == HOUR
    assert float(daly_interval_seconds(3 * HOUR, HOUR)) == HOUR


def test_four_machines_are_taken_away_four_times_as_often():
    assert job_mean_seconds(DAY, 4) == 6 * HOUR


def simulated_seconds(work: float, interval: float, save: float, restart: float, mean_seconds: float) -> float:
    """Return the mean time of a job that is played through, interruption by interruption."""
    dice = np.random.default_rng(5)
    total, num_runs = 0.0, 400
    for _ in range(num_runs):
        done, clock, failure = 0.0, 0.0, dice.exponential(mean_seconds)
        while done < work:
            step = min(interval, work - done) + save
            if clock + step <= failure:
                clock += step
                done += step - save
                continue
            clock = failure
            failure = clock + dice.exponential(mean_seconds)
            while clock + restart > failure:
                clock, failure = failure, failure + dice.exponential(mean_seconds)
            clock += restart
        total += clock
    return total / num_runs


@pytest.mark.parametrize("mean_hours", [2, 8, 50])
def test_the_expected_time_is_that_of_a_simulation(mean_hours):
    case = (100 * HOUR, HOUR, 300.0, 600.0, mean_hours * HOUR)
    assert float(expected_seconds(*case)) == pytest.approx(simulated_seconds(*case), rel=0.025)


# -- limits and properties ---------------------------------------------------------------------------------------


def test_without_interruptions_only_saving_is_left():
    assert float(expected_seconds(10 * HOUR, HOUR, 60, 600, 1e15)) == pytest.approx(10 * (HOUR + 60), rel=1e-6)


def test_short_checkpoints_bring_daly_to_young():
    """The two differ by the checkpoint's own time and by a part of order sqrt(delta / M)."""
    for save in (100.0, 1.0, 0.01):
        part = math.sqrt(save / (2 * DAY))
        young = young_interval_seconds(save, DAY)
        assert abs(float(daly_interval_seconds(save, DAY)) / young - 1) < part


@given(save=minutes, restart=minutes, mean_seconds=mean)
def test_dalys_interval_is_where_the_expected_time_is_least(save, restart, mean_seconds):
    assume(save < mean_seconds / 2)
    best = float(daly_interval_seconds(save, mean_seconds))
    work = 1000 * best
    least = float(expected_seconds(work, best, save, restart, mean_seconds))
    for other in (0.5, 0.7, 1.4, 2.0):
        assert least <= float(expected_seconds(work, best * other, save, restart, mean_seconds))


@given(work=hours, more=st.floats(1.01, 10), save=minutes, restart=minutes, mean_seconds=mean)
def test_more_work_never_takes_less(work, more, save, restart, mean_seconds):
    once, again = (float(expected_seconds(w * HOUR, HOUR, save, restart, mean_seconds)) for w in (work, work * more))
    assert HOUR * work <= once <= again


@given(save=minutes, restart=minutes, mean_seconds=mean, factor=st.floats(1.01, 50))
def test_rarer_interruptions_never_cost_more(save, restart, mean_seconds, factor):
    seldom, often = (
        float(expected_seconds(100 * HOUR, HOUR, save, restart, m)) for m in (mean_seconds * factor, mean_seconds)
    )
    assert seldom <= often


@given(interval=minutes, save=minutes, mean_seconds=mean)
def test_what_is_lost_is_at_most_half_a_segment(interval, save, mean_seconds):
    lost = float(first_loss_seconds(interval, save, mean_seconds))
    assert 0 < lost <= (interval + save) / 2 * (1 + 1e-9)


@given(used=hours, more=st.floats(0, 10_000), rent=st.floats(0.01, 100))
def test_more_hours_never_cost_less(used, more, rent):
    assert rent_usd(rent, used * HOUR) <= rent_usd(rent, (used + more) * HOUR)


@given(price=usd, kept=ratio, fails=st.floats(0, 0.3), running=st.floats(0, 5), used=hours, more=st.floats(0, 10_000))
def test_more_hours_of_an_owned_machine_never_cost_less(price, kept, fails, running, used, more):
    once, again = (
        ownership_usd(price, kept, fails, 0.5, 3 * YEAR_SECONDS, running, h * HOUR) for h in (used, used + more)
    )
    assert 0 < once <= again


@given(price=usd, dearer=st.floats(1.0, 3.0), kept=ratio, years=st.floats(0.1, 10))
def test_a_dearer_machine_never_loses_less(price, dearer, kept, years):
    horizon = years * YEAR_SECONDS
    assert depreciation_usd(price, kept, horizon) <= depreciation_usd(price * dearer, kept, horizon) * (1 + 1e-12)
    assert 0 <= residual_usd(price, kept, horizon) <= price


@given(fixed=usd, running=st.floats(0, 5), rent=st.floats(0.01, 50))
def test_the_curves_cross_at_break_even(fixed, running, rent):
    at = float(break_even_hours(fixed, running, rent))
    if rent <= running:
        assert at == math.inf
        return
    assume(rent - running > 1e-3)
    assert fixed + running * at == pytest.approx(rent * at, rel=1e-9)
    assert rent * at * 0.9 < fixed + running * at * 0.9
    assert rent * at * 1.1 > fixed + running * at * 1.1


@given(held=hours, share=ratio)
def test_waiting_never_shortens(held, share):
    assert waiting_seconds(held, share) >= held


def test_columns_give_what_numbers_give():
    save, mean_seconds = np.array([60.0, 300.0, 7200.0]), np.array([3600.0, 86_400.0, 1800.0])
    interval = daly_interval_seconds(save, mean_seconds)
    whole = expected_seconds(HOUR * 24, interval, save, 600.0, mean_seconds)
    for i in range(3):
        one = daly_interval_seconds(save[i], mean_seconds[i])
        assert float(one) == interval[i]
        assert float(expected_seconds(HOUR * 24, one, save[i], 600.0, mean_seconds[i])) == whole[i]
    rents = break_even_hours(np.array([1000.0, 1000.0]), 0.5, np.array([1.5, 0.5]))
    assert rents.tolist() == [1000.0, math.inf]
