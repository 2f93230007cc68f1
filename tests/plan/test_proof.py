"""The proof to run: the numbers that may turn the answer, by their chance, and a run that is short, fits and is pinned."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.plan.nouns import make_estimate

from tonnage import api
from tonnage.estimate.types import Interval
from tonnage.plan.proof import chance_above, proof
from tonnage.plan.request import make_request
from tonnage.plan.types import Answer, Plan


def asked(model: str, **words):
    return api.plan(make_request(model, **words))


@given(st.floats(1, 1e12), st.floats(1.01, 3), st.floats(0.1, 10))
def test_chances_are_those_of_a_log_normal(best, wide, part):
    """Ten in a hundred lie above an 80 % interval, and the higher the limit the fewer lie above it."""
    value = Interval(best=best, low=best / wide, high=best * wide)
    assert chance_above(value, value.high) == pytest.approx(0.1, abs=1e-9)
    assert chance_above(value, value.low) == pytest.approx(0.9, abs=1e-9)
    assert chance_above(value, best) == pytest.approx(0.5)
    assert chance_above(value, best * part) >= chance_above(value, best * part * 1.1)


def with_memory(best: float, low: float, high: float) -> Plan:
    made = make_estimate()
    held = replace(made.footprint, capacity_bytes=100, total=Interval(best=best, low=low, high=high))
    request = make_request("m", gpus=["rtx-4080"])
    return Plan(rank=1, request=request, estimate=replace(made, footprint=held))


@pytest.mark.parametrize(("best", "is_first"), [(97.0, True), (20.0, False)])
def test_memory_near_the_limit_is_what_is_least_certain(best, is_first):
    plan = with_memory(best, best * 0.9, best * 1.1)
    answer = Answer(request=plan.request, plans=(plan,), rejections=(), num_candidates=1)
    names = [doubt.name for doubt in proof(answer).doubts]
    assert (names[0] == "device") is is_first
    assert 2 <= len(names) <= 3


def test_serving_is_settled_by_a_start_and_a_few_requests():
    answer = asked("Qwen/Qwen3-8B", gpus=["rtx-4090"], load={"concurrency": "4"})
    found = proof(answer)
    assert found.trial.num_requests == 12
    assert found.trial.num_steps is None
    assert found.trial.commands[0].startswith(("vllm serve", "llama-server", "python", "ollama", "trtllm"))
    assert found.trial.usd is not None
    assert found.trial.usd.low < found.trial.usd.best < 1
    chances = [round(doubt.chance, 3) for doubt in found.doubts]
    assert chances == sorted(chances, reverse=True)


def test_random_weights_stand_in_where_the_checkpoint_is_served_as_it_is():
    answer = asked("Qwen/Qwen3-8B", gpus=["rtx-4090"], limits={"engines": ["vllm"]}, pins={"precision.weights": "bf16"})
    found = proof(answer).trial
    assert "--load-format dummy" in found.commands[0]
    other = asked("Qwen/Qwen3-8B", gpus=["rtx-4090"], limits={"engines": ["vllm"]}, pins={"precision.weights": "awq"})
    assert "--load-format" not in proof(other).trial.commands[0]


def test_training_takes_two_micro_batches_a_step_so_that_gradients_are_held():
    answer = asked("Qwen/Qwen3-0.6B", goal="finetune", finetune="lora", gpus=["rtx-4090"], load={"global_batch": "512"})
    found = proof(answer).trial
    assert found.num_steps == 12
    assert found.expected.candidate.workload.global_batch_size == 2 * found.expected.candidate.micro_batch_size
    assert found.expected.footprint.total == answer.plans[0].estimate.footprint.total
    assert found.expected.performance.step_seconds.best < answer.plans[0].estimate.performance.step_seconds.best
    assert found.seconds.low < found.seconds.best < found.seconds.high


def test_many_machines_are_proved_on_few_with_fewer_layers():
    answer = asked(
        "meta-llama/Meta-Llama-3.1-405B",
        goal="pretrain",
        gpus=["h100-sxm5:8"],
        nodes=64,
        load={"global_batch": "512", "seq_len": "4096"},
        pins={"layout.tp": "8", "layout.pp": "16", "layout.dp": "4", "layout.cp": "1"},
    )
    plan, found = answer.plans[0], proof(answer).trial
    assert plan.estimate.candidate.layout.pp == 16
    assert found.num_nodes == 1
    assert found.num_layers == 8  # of 126 over 16 stages
    assert found.expected.footprint.fits_surely
    assert found.expected.candidate.layout.tp == 8
    assert "num_hidden_layers = 8" in found.notes[0]
    assert shlex.split(found.commands[0])[2] == "./config.json"


def test_the_run_that_is_pinned_is_the_one_that_was_estimated(tonnage):
    said = tonnage("plan", "Qwen/Qwen3-0.6B", "--finetune", "full", "--gpu", "rtx-4090", "--poc", "--json").json["poc"]
    words = shlex.split(said["run"]["commands"][0])
    again = tonnage(*words[1 : words.index("-o")], "--json").json["plans"][0]
    expected = said["run"]["expected"]
    assert again["memory"]["device"]["total_bytes"]["best"] == pytest.approx(expected["device_bytes"]["best"], rel=1e-9)
    assert again["performance"]["step_seconds"]["best"] == pytest.approx(expected["step_seconds"]["best"], rel=1e-9)


def test_it_is_said_in_both_languages(tonnage):
    words = ("plan", "Qwen/Qwen3-8B", "--gpu", "rtx-4090", "--poc")
    english, chinese = tonnage(*words).out, tonnage(*words, "--lang", "zh").out
    assert "the proof to run for #1" in english
    assert "方案 #1 的验证测试" in chinese
    assert "the proof" not in chinese


def test_nothing_fits_nothing_is_proved(tonnage):
    got = tonnage("plan", "Qwen/Qwen3.5-27B", "--gpu", "rtx-4080", "--quant", "fp16", "--poc", "--json")
    assert got.code == 3
    assert got.json["poc"] is None


def test_a_price_is_settled_by_an_offer(tonnage):
    said = tonnage("plan", "Qwen/Qwen3-8B", "--gpu", "rtx-4090", "--budget", "3500 USD", "--poc", "--json").json["poc"]
    by_name = {one["name"]: one for one in said["uncertain"]}
    assert by_name["budget"]["settled_by"] == "offer"
    assert 0.05 < by_name["budget"]["chance"] < 0.6
