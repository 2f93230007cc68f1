"""Requests against a server that behaves, and against each way of misbehaving; loopback only."""

import numpy as np
import pytest

pytest.importorskip("aiohttp", reason="tonnage[bench] is not installed")

from tests.load.servers import serving

from tonnage.errors import OutsideError, RequestError
from tonnage.load.ask import LoadTest, bench, served_model
from tonnage.load.summary import summed
from tonnage.load.types import Api, Outcome, Sample
from tonnage.simulate.arrivals import constant, poisson

NOBODY = "http://127.0.0.1:9"


def test_times_are_those_of_the_server():
    with serving(first_seconds=0.1, token_seconds=0.02) as (url, _):
        found, samples, target = bench(LoadTest(url=url, requests=constant(10, 20.0, 40, 6), warmup=1))
    assert (found.num_requests, found.num_ok, target.model) == (10, 10, "tiny")
    assert found.ttft.p50 == pytest.approx(0.1, abs=0.05)
    assert found.tpot.p50 == pytest.approx(0.02, abs=0.01)
    assert found.output_tokens == 60
    assert sum(one.is_warmup for one in samples) == 1


@pytest.mark.parametrize("api", list(Api))
def test_prompts_have_the_tokens_asked_for(api):
    """The server counts two tokens a word, and five for a chat's template."""
    with serving() as (url, manners):
        found, _, _ = bench(LoadTest(url=url, api=api, requests=constant(4, 100.0, 105, 2)))
    assert found.input_tokens == pytest.approx(4 * 105, abs=4)
    asked = [body for body, _ in manners.asked][3:]
    texts = [body["messages"][0]["content"] if api is Api.CHAT else body["prompt"] for body in asked]
    assert len(set(texts)) == 4  # no two alike: no prefix cache helps


def test_a_closed_loop_keeps_so_many_in_flight():
    with serving(first_seconds=0.05, seats=2) as (url, _):
        test = LoadTest(url=url, requests=constant(12, 1.0, 8, 1), num_clients=4)
        found, _, _ = bench(test)
    assert found.num_ok == 12
    assert found.e2e.p50 == pytest.approx(0.1, abs=0.05)  # four clients at two seats: each waits for one other


def test_a_stalled_server_is_charged_for_what_it_kept_waiting():
    """Half a second without answers at 60 a second: thirty requests waited, not one."""
    with serving(stall=(22, 0.5)) as (url, _):
        found, samples, _ = bench(LoadTest(url=url, requests=constant(60, 60.0, 8, 1), warmup=0))
    assert found.num_ok == 60
    assert sum(one.ttft_seconds > 0.05 for one in samples) >= 20
    assert found.ttft.worst == pytest.approx(0.5, abs=0.1)


def test_lateness_counts_from_when_a_request_was_due():
    """One seat of 50 ms at 100 a second: the queue grows, and the last waits for all before it."""
    with serving(first_seconds=0.05, seats=1) as (url, _):
        found, _, _ = bench(LoadTest(url=url, requests=constant(30, 100.0, 8, 1)))
    assert found.ttft.worst == pytest.approx(30 * 0.05 - 0.3, rel=0.3)
    assert found.ttft.p50 == pytest.approx(found.ttft.worst / 2, rel=0.3)


@pytest.mark.parametrize(
    "manners,outcome",
    [
        ({"status": lambda number: 429 if number > 3 else 200}, Outcome.TOO_MANY),
        ({"status": lambda number: 500 if number > 3 else 200}, Outcome.SERVER_FAULT),
        ({"status": lambda number: 404 if number > 3 else 200}, Outcome.CLIENT_FAULT),
        ({"cut_after": 3}, Outcome.CLOSED),
        ({"garbage_after": 3}, Outcome.MALFORMED),
        ({"error_after": 3}, Outcome.MALFORMED),
        ({"first_seconds": 0.4}, Outcome.TIMED_OUT),
    ],
)
def test_each_failure_is_counted_by_its_kind(manners, outcome):
    with serving(**manners) as (url, _):
        test = LoadTest(
            url=url,
            requests=constant(5, 50.0, 8, 6),
            warmup=0,
            timeout_seconds=0.3 if outcome is Outcome.TIMED_OUT else 20,
        )
        if outcome is Outcome.TIMED_OUT:
            with pytest.raises(OutsideError, match="timed out"):
                bench(test)
            return
        found, _, _ = bench(test)
    assert found.errors == {str(outcome): found.num_requests - found.num_ok}
    assert found.num_ok < 5
    assert found.reasons[str(outcome)]
    assert found.kept_ratio < 1.0


def test_a_slow_first_token_breaks_its_limit_alone():
    with serving(first_seconds=0.2, token_seconds=0.001) as (url, _):
        words = {"url": url, "requests": constant(6, 50.0, 8, 5)}
        slow, _, _ = bench(LoadTest(**words, ttft_limit_seconds=0.1))
        kept, _, _ = bench(LoadTest(**words, ttft_limit_seconds=2.0, tpot_limit_seconds=0.1))
    assert (slow.kept_ratio, slow.num_ok) == (0.0, 6)
    assert kept.kept_ratio == 1.0


def test_a_server_that_does_not_know_ignore_eos_is_asked_without():
    with serving(knows_ignore_eos=False) as (url, manners):
        found, _, target = bench(LoadTest(url=url, requests=constant(3, 50.0, 8, 2)))
    assert found.num_ok == 3
    assert not target.asks_to_go_on
    assert "ignore_eos" not in manners.asked[-1][0]


def test_without_usage_chunks_are_counted():
    with serving(has_usage=False) as (url, _):
        found, _, _ = bench(LoadTest(url=url, requests=constant(3, 50.0, 8, 7)))
    assert found.output_tokens == 21
    assert found.input_tokens is None


def test_a_key_is_sent_and_stays_out_of_everything_else():
    with serving() as (url, manners):
        found, samples, _ = bench(LoadTest(url=url, key="sk-secret-1", requests=constant(2, 50.0, 8, 1)))
    assert manners.asked[-1][1]["Authorization"] == "Bearer sk-secret-1"
    assert "sk-secret-1" not in repr(found) + repr(samples)


def test_nobody_there_is_said_at_once():
    with pytest.raises(OutsideError, match="does not answer"):
        served_model(NOBODY)
    with pytest.raises(OutsideError, match="refused"):
        bench(LoadTest(url=NOBODY, model="m", requests=constant(1, 1.0, 8, 1)))


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://127.0.0.1", "http://", "http://a:b@127.0.0.1:1"])
def test_what_is_no_address_is_refused(url):
    with pytest.raises(RequestError):
        bench(LoadTest(url=url, model="m", requests=constant(1, 1.0, 8, 1)))


def sample(due, first, end, tokens=4, outcome=Outcome.OK, sent=None):
    return Sample(
        scheduled_seconds=due,
        sent_seconds=due if sent is None else sent,
        first_token_seconds=first,
        end_seconds=end,
        input_tokens=8,
        output_tokens=tokens,
        outcome=outcome,
    )


def test_percentiles_are_numpys_on_the_raw_samples():
    draw = np.random.default_rng(1)
    first = draw.exponential(0.3, 500)
    samples = [sample(at, at + wait, at + wait + 1.0) for at, wait in enumerate(first)]
    found = summed(samples)
    for name, quantile in (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99)):
        assert getattr(found.ttft, name) == pytest.approx(np.quantile(first, quantile))
    assert found.few == ("p99",)
    assert summed(samples * 2).few == ()


def test_a_late_client_says_so():
    on_time = [sample(float(at), at + 0.1, at + 0.2) for at in range(50)]
    late = [sample(float(at), at + 0.3, at + 0.4, sent=at + 0.2) for at in range(50)]
    assert not summed(on_time).is_client_limited
    assert summed(late).is_client_limited
    assert summed(on_time, client_busy_ratio=0.97).is_client_limited


def test_nothing_that_ended_is_no_speed():
    found = summed([sample(0.0, None, 1.0, tokens=0, outcome=Outcome.SERVER_FAULT)])
    assert (found.num_ok, found.ttft.p50, found.requests_per_s) == (0, None, 0.0)


def test_arrivals_are_kept():
    load = poisson(30, 60.0, 8, 1, seed=4)
    with serving() as (url, _):
        _, samples, _ = bench(LoadTest(url=url, requests=load, warmup=0))
    assert [one.scheduled_seconds for one in samples] == list(load.arrival_seconds)
    assert all(one.sent_seconds >= one.scheduled_seconds - 1e-3 for one in samples)
