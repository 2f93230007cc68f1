"""Requests at the edges: nothing left of a card, more machines than exist, copies that have no request."""

from __future__ import annotations

import re
import shlex

import pytest
from tests.conftest import call_tonnage

from tonnage.model.catalogue import find
from tonnage.plan.pins import settle
from tonnage.search.space import serving_layouts


def test_a_reserve_of_all_the_memory_is_refused():
    answer = call_tonnage("plan", "Qwen/Qwen3-8B", "--gpu", "rtx-4080", "--reserve", "16 GiB")
    assert answer.code == 2
    assert "--reserve" in answer.err


def test_more_cards_than_a_machine_holds_are_refused():
    answer = call_tonnage("plan", "Qwen/Qwen3-8B", "--gpu", "rtx-4080:1000000")
    assert answer.code == 2
    assert "--nodes" in answer.err


def test_a_prime_number_of_machines_is_answered():
    answer = call_tonnage("plan", "Qwen/Qwen3-8B", "--gpu", "h100:8", "--nodes", "100003")
    assert answer.code == 0
    model = find("Qwen/Qwen3-8B")
    assert {layout.num_devices for layout in serving_layouts(model, 800_024, 8, ("tp", "pp"))} == {288}


def test_copies_without_a_request_add_no_speed():
    def rate(*words: str) -> float:
        answer = call_tonnage("plan", "Qwen/Qwen3-8B", "--engine", "vllm", "--quant", "fp8", "--json", *words)
        return answer.json["plans"][0]["performance"]["tokens_per_s"]["best"]

    alone = rate("--gpu", "rtx-4090")
    assert rate("--gpu", "rtx-4090:8", "--dp", "8", "--tp", "1", "--pp", "1") == pytest.approx(alone)
    assert rate("--gpu", "rtx-4090:8", "--dp", "8", "--tp", "1", "--pp", "1", "--concurrency", "8") == pytest.approx(
        8 * alone
    )


def test_more_layers_than_there_are_mean_all_of_them():
    assert settle({"offload.num_cpu_layers": 999}, 40) == {"offload.num_cpu_layers": 40}


def test_a_context_beyond_the_model_is_said():
    answer = call_tonnage("plan", "Qwen/Qwen3-8B", "--gpu", "h100", "--context", "300000", "--json")
    assert any("40,960" in text for text in answer.json["warnings"])


def test_the_cache_of_layers_on_the_host_is_counted():
    answer = call_tonnage("plan", "Qwen/Qwen3.5-35B-A3B", "--gpu", "rtx-4080", "--context", "10000000000")
    assert answer.code == 3


def test_a_stage_without_attention_is_answered():
    words = ("--gpu", "rtx-a6000", "--context", "4096", "--concurrency", "2000", "--tpot", "20ms")
    answer = call_tonnage("plan", "nvidia/Nemotron-H-56B-Base-8K", *words)
    assert answer.code in (0, 3)


@pytest.mark.parametrize("name", ["Qwen/..", "Qwen/-x", "a--b/c", "a/b.git"])
def test_names_that_no_hub_takes(name):
    answer = call_tonnage("model", name)
    assert answer.code == 2
    assert "fault of ours" not in answer.err


def nearest(*words: str) -> list[str]:
    """Return the commands that a "no" gives, each run: it must fit."""
    answer = call_tonnage("plan", *words, "--json")
    assert answer.code == 3
    first = answer.json["rejections"][0]
    assert first["command"]
    commands = [first["command"], *(change["command"] for change in first["changes"])]
    for command in commands:
        assert call_tonnage(*shlex.split(command)[1:], "--json").code == 0, command
    return commands


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--gpu", "rtx-4080", "--ttft", "1ms"), "--ttft"),
        (("--gpu", "rtx-4080", "--tpot", "100us"), "--tpot"),
        (("--gpu", "rtx-4080", "--max-power", "100W"), "--max-power 320W"),
        (("--gpu", "rtx-4080", "--budget", "10 USD"), "--budget"),
        (("--gpu", "h100", "--finetune", "lora", "--tokens", "1B", "--spend", "1 USD"), "--spend"),
        (("--gpu", "h100", "--finetune", "lora", "--tokens", "1B", "--deadline", "1min"), "--deadline"),
    ],
)
def test_a_limit_in_the_way_is_set_as_wide_as_it_takes(words, said):
    assert said in nearest("Qwen/Qwen3-8B", *words)[0]


@pytest.mark.parametrize(
    "words",
    [
        ("--gpu", "rtx-4080", "--tp", "2"),
        ("--gpu", "tpu-v5e"),
        ("--gpu", "rtx-4080", "--engine", "vllm", "--kv", "q8_0", "--quant", "bf16"),
        ("--gpu", "rtx-4080", "--finetune", "qlora", "--micro-batch", "3"),
        ("--gpu", "rtx-4080", "--require", "nvlink", "--max-power", "10W"),
    ],
)
def test_every_no_has_a_way(words):
    nearest("Qwen/Qwen3-8B", *words)


@pytest.mark.parametrize("value", ["inf", "-inf", "nan"])
def test_a_plan_file_holds_no_number_that_is_none(value, tmp_path):
    text = call_tonnage("plan", "Qwen/Qwen3-8B", "--gpu", "rtx-4090", "-o", "-").out
    place = tmp_path / "plan.toml"
    place.write_text(re.sub(r"^best = .*$", f"best = {value}", text, count=1, flags=re.MULTILINE))
    answer = call_tonnage("explain", str(place), "--json")
    assert answer.code == 2
    assert set(answer.json) == {"error"}
