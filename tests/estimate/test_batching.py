"""How long requests wait for each other: against a queue played through, and what must hold of any load."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tonnage.calibrate.inference_rows import case_of_row
from tonnage.engines import ENGINES, find_engine
from tonnage.estimate.batching import share_within, tail_seconds, waiting
from tonnage.estimate.compose_serving import estimate_serving, serving_load
from tonnage.estimate.serving_speed import serving_times

GPU = "h100-sxm"
FORMATS = {"llama.cpp": "q4_k_m", "ik_llama.cpp": "q4_k_m", "ollama": "q4_k_m"}
SERVERS = [engine.name for engine in ENGINES if engine.name not in ("ktransformers", "torchrun")]


def waits_of_a_queue(busy: float, number: int = 60_000) -> list[float]:
    """Play a queue through: random arrivals, each served for one second."""
    chance = random.Random(7)
    wait, found = 0.0, []
    for _ in range(number):
        found.append(wait)
        wait = max(0.0, wait + 1.0 - chance.expovariate(busy))
    return sorted(found)


@pytest.mark.parametrize("busy", [0.5, 0.65, 0.8])
def test_waits_are_those_of_a_queue_played_through(busy):
    played = waits_of_a_queue(busy)
    mean = busy / (2 * (1 - busy))
    assert sum(played) / len(played) == pytest.approx(mean, rel=0.08)
    for quantile in (0.9, 0.95, 0.99):
        assert tail_seconds(mean, busy, quantile) == pytest.approx(played[int(quantile * len(played))], rel=0.25)
    limit = played[len(played) * 9 // 10]
    assert share_within(mean, busy, limit) == pytest.approx(0.9, abs=0.04)


def test_one_client_waits_for_nobody():
    one = waiting(
        num_requests=1, num_running=1, output_tokens=200, token_seconds=0.02, busy_token_seconds=0.025,
        prompt_seconds=0.5, first_token_seconds=0.02,
    )  # fmt: skip
    assert one.ttft_seconds == one.ttft_quantile_seconds(0.99) == pytest.approx(0.52)
    assert one.tpot_seconds == one.tpot_quantile_seconds(0.99) == 0.02
    assert one.goodput_per_s(0.6, 0.03) == one.requests_per_s
    assert one.goodput_per_s(0.5, 0.03) == one.goodput_per_s(0.6, 0.01) == 0


def serving(engine: str, model: str = "Llama-3.1-8B-Instruct", **more: object):
    row = {"id": "load", "engine": engine, "model": model, "gpu": GPU, "n_gpus": 1, "measured": {}, **more}
    return case_of_row(row | ({"quant": FORMATS[engine]} if engine in FORMATS else {"quant": "fp8"})).candidate


@pytest.mark.parametrize("engine", SERVERS)
@settings(max_examples=12, deadline=None)
@given(
    prompt=st.sampled_from([64, 512, 4096]), output=st.sampled_from([32, 256, 2048]), number=st.integers(1, 40),
    more=st.integers(1, 40),
)  # fmt: skip
def test_more_requests_at_once_lose_no_throughput_and_gain_no_speed(engine, prompt, output, number, more):
    accounting = find_engine(engine).accounting
    load = serving_load(serving(engine, ctx=8192), accounting)
    load = replace(load, input_tokens=prompt, output_tokens=output)
    few, many = (
        serving_times(one, accounting.rates(one))
        for one in (accounting.with_concurrency(load, n) for n in (number, number + more))
    )
    assert many.throughput_tokens_per_s >= few.throughput_tokens_per_s * 0.99
    assert many.tpot_seconds >= few.tpot_seconds * 0.999
    assert few.busy_token_seconds >= few.tpot_seconds * 0.8


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llama.cpp", "tensorrt-llm"])
@pytest.mark.parametrize("number", [1, 4, 32, 400])
def test_an_estimate_tells_tails_and_goodput(engine, number):
    candidate = serving(engine, ctx=2048)
    workload = replace(candidate.workload, concurrency=number, input_tokens=1024, output_tokens=256)
    found = estimate_serving(replace(candidate, workload=workload), find_engine(engine).accounting).performance
    assert found.ttft_p99_seconds.best >= found.ttft_seconds.best
    assert found.tpot_p99_seconds.best >= found.tpot_seconds.best
    assert found.goodput_requests_per_s == found.requests_per_s  # no limits asked for
    assert found.requests_per_s.best == pytest.approx(found.tokens_per_s.best / 256)
    limited = replace(workload, ttft_limit_seconds=found.ttft_seconds.best, tpot_limit_seconds=10.0)
    kept = estimate_serving(replace(candidate, workload=limited), find_engine(engine).accounting).performance
    assert 0 <= kept.goodput_requests_per_s.best <= found.requests_per_s.best
    assert kept.goodput_requests_per_s.best == pytest.approx(found.requests_per_s.best) or number > 1
