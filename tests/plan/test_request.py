"""Requests: words are read strictly, and each request is written out as the command that asks for it."""

from __future__ import annotations

import shlex
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import call_tonnage
from tests.plan.nouns import make_candidate

from tonnage.errors import RequestError
from tonnage.estimate.types import Candidate
from tonnage.plan.pins import PINS, get, pins_of, read_pin, with_pins, write_pin
from tonnage.plan.request import arguments, command, make_request
from tonnage.workload.types import Serving, TrainingKind


def test_the_default_is_to_serve_one_request_and_says_so():
    request = make_request("m")
    assert request.workload == Serving(context_tokens=8192, concurrency=1, input_tokens=1024, output_tokens=256)
    assert request.assumed == ("--serve", "--context", "--concurrency", "--input-tokens", "--output-tokens")
    assert make_request("m", goal="serve", load={"context": "4096"}).assumed == (
        "--concurrency",
        "--input-tokens",
        "--output-tokens",
    )


def test_prompt_and_answer_fit_into_a_short_context():
    load = make_request("m", load={"context": "100"}).workload
    assert isinstance(load, Serving)
    assert load.input_tokens + load.output_tokens <= 100


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ({"gpus": ["rtx-4090:0"]}, "--gpu"),
        ({"gpus": [":2"]}, "--gpu"),
        ({"gpus": ["a:1e9"]}, "--gpu"),
        ({"gpus": ["a:²"]}, "--gpu"),
        ({"nodes": 0}, "--nodes"),
        ({"reserve": "1"}, "no unit"),
        ({"reserve": "0 GiB"}, "more than zero"),
        ({"load": {"context": "-1"}}, "--context"),
        ({"load": {"context": "0"}}, "--context"),
        ({"load": {"context": "100", "input_tokens": "90", "output_tokens": "20"}}, "--context 110"),
        ({"load": {"seq_len": "4096"}}, "--seq-len.*--finetune"),
        ({"goal": "pretrain", "load": {"ttft": "1s"}}, "--ttft"),
        ({"limits": {"budget": "25000"}}, "--budget"),
        ({"limits": {"rent": "3 USD"}}, "USD/h"),
        ({"limits": {"spend": "0 USD"}}, "more than zero"),
        ({"limits": {"require": ["warp"]}}, "--require"),
        ({"limits": {"prices": ["rtx-4090"]}}, "--price"),
        ({"limits": {"deadline": "3"}}, "--deadline"),
        ({"limits": {"max_power": "800"}}, "--max-power"),
        ({"pins": {"layout.tp": "0"}}, "--tp"),
        ({"pins": {"layout.zero_stage": "4"}}, "--zero.*0 to 3"),
        ({"pins": {"settings.utilization_ratio": "1.2"}}, "--utilization"),
        ({"pins": {"optimizer": "adam-w-hf"}}, "--optimizer"),
        ({"sets": ["layout.pt=2"]}, "layout.pp"),
        ({"sets": ["layout.tp"]}, "path=value"),
        ({"sets": ["offload.optimizer=maybe"]}, "true"),
        ({"sets": ["precision.weights=a b"]}, "not a format of weights"),
        ({"is_here": True, "gpus": ["a"]}, "--here"),
    ],
)
def test_a_wrong_word_is_refused_with_its_place_and_cure(words, what):
    with pytest.raises(RequestError, match=what) as caught:
        make_request("m", **words)
    assert caught.value.where
    assert caught.value.fix
    assert "\n" not in str(caught.value)


def test_every_pin_is_a_field_of_a_candidate():
    candidate = make_candidate()
    for path in PINS:
        get(candidate, path)
    assert {path.partition(".")[0] for path in PINS} <= {f.name for f in fields(Candidate)}


def test_pinning_every_field_of_a_candidate_gives_that_candidate():
    wanted = make_candidate(micro_batch_size=4)
    assert with_pins(make_candidate(engine=wanted.engine), pins_of(wanted)) == wanted


@given(st.sampled_from(sorted(PINS)), st.data())
def test_a_pin_written_as_arguments_reads_back(path, data):
    pin = PINS[path]
    words = {
        "count": st.integers(1, min(pin.largest, 10**6)).map(str),
        "natural": st.integers(0, min(pin.largest, 10**6)).map(str),
        "layers": st.integers(0, 99).map(str) | st.just("all") | st.integers(0, 9).map("all-{}".format),
        "ratio": st.floats(0.01, 1).map(str),
        "switch": st.sampled_from(["true", "false"]),
        "choice": st.sampled_from(pin.choices or ("-",)),
        "weights": st.sampled_from(["q4_k_m", "fp8", "nvfp4", "nf4_dq", "gptq_int4"]),
        "cache": st.sampled_from(["fp16", "fp8", "q8_0"]),
    }[pin.kind]
    _, value = read_pin(path, data.draw(words))
    flag, text = write_pin(path, value)
    assert read_pin(path, text.removeprefix(f"{path}=") if flag == "--set" else text) == (path, value)


def test_a_command_leaves_defaults_out_and_quotes():
    request = make_request(
        "Qwen/Qwen3.5-27B", gpus=["rtx-4080"], host="64 GiB ddr5-5600 x2", pins={"precision.kv": "q8_0"}
    )
    assert command(request) == (
        "tonnage plan Qwen/Qwen3.5-27B --serve --gpu rtx-4080 --host '64 GiB ddr5-5600 x2' --kv q8_0"
    )


def test_shell_characters_in_a_name_stay_one_word():
    assert shlex.split(command(make_request("a; rm -rf /$(x)`y`")))[2] == "a; rm -rf /$(x)`y`"


def test_training_words():
    request = make_request(
        "m", goal="finetune", finetune="qlora", gpus=["a:4"], nodes=2, load={"seq_len": "4096", "lora_rank": "8"}
    )
    assert request.workload.kind is TrainingKind.QLORA
    assert arguments(request) == (
        *("plan", "m", "--finetune", "qlora", "--seq-len", "4096", "--lora-rank", "8", "--gpu", "a:4", "--nodes", "2"),
    )


@pytest.mark.parametrize("engines", [[","], [""], [" , "]])
def test_an_engine_without_a_name_is_not_all_of_them(engines):
    with pytest.raises(RequestError, match="names no engine"):
        make_request("m", limits={"engines": engines})


def test_a_trace_of_serving_is_refused_before_torch_is_loaded(monkeypatch):
    loaded = []
    monkeypatch.setattr("tonnage.oracle.model.require_torch", lambda: loaded.append("torch"))
    answer = call_tonnage("plan", "Qwen/Qwen3-8B", "--gpu", "h100", "--oracle")
    assert answer.code == 2
    assert "traces training" in answer.err
    assert not loaded
