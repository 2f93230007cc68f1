"""The questions that the tool was built for, answered: what the answers must say, whatever the exact figures.

The golden texts beside this file show the whole answers for a reader; here stand the facts that no change of an
estimate may turn over.
"""

from __future__ import annotations

import json
import shlex
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from tests.conftest import call_tonnage

GIB = 1 << 30
DENSE, MOE = "Qwen/Qwen3.5-27B", "Qwen/Qwen3.5-35B-A3B"


@cache
def answer(command: str) -> tuple[int, dict[str, Any]]:
    """Return exit code and object of `tonnage plan …`."""
    got = call_tonnage("plan", *shlex.split(command), "--json", "--quiet")
    return got.code, json.loads(got.out)


@cache
def model(name: str) -> dict[str, Any]:
    return json.loads(call_tonnage("model", name, "--json").out)


def memory(entry: dict[str, Any], place: str = "device") -> float:
    return entry["memory"][place]["total_bytes"]["best"]


def test_the_start_case_is_an_rtx_4080():
    code, said = answer(f"{MOE} --serve --gpu rtx-4080")
    assert code == 0
    capacity = said["plans"][0]["memory"]["device"]["capacity_bytes"]
    # The driver shows 16376 MiB, less for the card of the source used here; a desktop takes part of that, which is said.
    assert 15 * GIB < capacity < 16376 << 20
    assert any("--reserve" in text for text in said["assumptions"])


def test_27b_in_fp16_does_not_fit_a_4080():
    assert model(DENSE)["weights_bytes"]["fp16"] == pytest.approx(54e9, rel=0.02)
    code, said = answer(f"{DENSE} --serve --gpu rtx-4080 --quant fp16")
    nearest = said["rejections"][0]
    assert code == 3
    assert said["plans"] == []
    assert 33 * GIB < nearest["short_by_bytes"] < 42 * GIB
    assert memory(nearest) - nearest["memory"]["device"]["capacity_bytes"] == pytest.approx(
        nearest["short_by_bytes"], abs=1
    )
    assert nearest["command"].startswith("tonnage plan ")


def test_an_8_bit_cache_lets_llama_8b_read_32k_on_8_gb():
    about = "meta-llama/Llama-3.1-8B-Instruct --serve --context 32768 --gpu rtx-4060 --engine llama.cpp --quant q4_k_m"
    pins = "--cpu-experts 0 --set offload.num_cpu_layers=0"
    code, said = answer(f"{about} --kv fp16 {pins}")
    assert code == 3
    assert 1 * GIB < said["rejections"][0]["short_by_bytes"] < 2 * GIB
    assert any("--kv q8_0" in change["command"] for change in said["rejections"][0]["changes"])
    code, said = answer(f"{about} --kv q8_0 {pins}")
    assert code == 0
    assert memory(said["plans"][0]) < 7.2 * GIB
    limits = said["plans"][0]["limits"]
    assert 32768 <= limits["max_context_tokens"] < 65536
    assert limits["max_concurrency"] == 1
    assert limits["least_memory_bytes"] < 8 * GIB
    assert limits["max_num_seqs"] is None


@pytest.mark.parametrize(
    ("flag", "value", "step"),
    [("--utilization", "0.6", -0.01), ("--max-num-seqs", "4096", 1)],
    ids=["share", "sequences"],
)
def test_a_pinned_limit_of_an_engine_is_moved_as_far_as_it_takes(flag, value, step):
    about = "Qwen/Qwen3-8B --serve --gpu rtx-4090 --engine vllm --quant bf16 --kv fp16"
    code, said = answer(f"{about} {flag} {value}")
    assert code == 3
    commands = [change["command"] for change in said["rejections"][0]["changes"]]
    cure = next(words for words in map(str.split, commands) if flag in words and words[words.index(flag) + 1] != value)
    found = cure[cure.index(flag) + 1]
    assert answer(f"{about} {flag} {found}")[0] == 0
    assert answer(f"{about} {flag} {round(float(found) + step, 2):g}")[0] == 3


def test_every_cure_is_computed_again():
    """What is said to make the 27B fit does so when its command is run."""
    _, said = answer(f"{DENSE} --serve --gpu rtx-4080 --quant fp16")
    commands = [change["command"] for change in said["rejections"][0]["changes"]]
    assert len(commands) >= 3
    for command in commands[:3]:
        code, again = answer(command.removeprefix("tonnage plan "))
        assert code == 0, command
        assert again["plans"][0]["fits"]["best"]


def test_weights_are_only_the_floor():
    """Bytes a parameter times parameters is one pool; the rest is more than nothing."""
    _, said = answer(f"{DENSE} --serve --gpu a100-80gb --quant fp16 --engine vllm")
    pools = {name: value["best"] for name, value in said["plans"][0]["memory"]["device"]["pools"].items()}
    assert pools["weights"] == pytest.approx(model(DENSE)["weights_bytes"]["fp16"], rel=0.02)
    assert sum(pools.values()) > 1.02 * pools["weights"]
    assert {"weights", "kv_cache", "context"} <= set(pools)


def test_all_experts_have_to_be_held():
    """35B in all, 3B active: the 6 GB are what a token touches, not what has to be resident."""
    counts = model(MOE)["parameters"]
    assert counts["total"] == 35_107_181_936
    assert 2 * counts["active"] == pytest.approx(6.9e9, rel=0.01)
    code, said = answer(f"{MOE} --serve --gpu rtx-4080 --quant bf16 --cpu-experts 0")
    assert code == 3
    assert said["rejections"][0]["short_by_bytes"] > 45 * GIB


def test_experts_in_host_memory_make_little_device_memory_real():
    code, said = answer(f"{MOE} --serve --gpu rtx-4080 --cpu-experts all")
    four_bits = said["plans"][0]
    assert code == 0
    assert memory(four_bits) < 6 * GIB
    assert memory(four_bits, "host") > 14 * GIB
    everything = memory(four_bits) + memory(four_bits, "host")
    assert everything > 0.4 * model(MOE)["parameters"]["total"]


def test_experts_move_by_as_many_layers_as_asked():
    """The share that leaves the card is a choice, not 40 to 60 %."""
    totals = []
    for layers in (0, 10, 20, 30, 40):
        _, said = answer(
            f"{MOE} --serve --gpu rtx-5090 --engine llama.cpp --quant q4_k_m --kv fp16 --cpu-experts {layers}"
        )
        totals.append(memory((said["plans"] or said["rejections"])[0]))
    steps = [before - after for before, after in pairwise(totals)]
    assert all(step > GIB for step in steps)
    assert steps[1] == pytest.approx(steps[2], rel=0.25)
    assert totals[-1] < 0.2 * totals[0]


def test_host_memory_sets_the_pace_of_experts_on_it():
    """50 GB/s is plain dual-channel memory; twice the channels, nearly twice the pace."""
    pace = []
    for channels in (2, 4):
        _, said = answer(f"{MOE} --serve --gpu rtx-4080 --cpu-experts all --host '64 GiB ddr4-3200 x{channels}'")
        pace.append(said["plans"][0]["performance"]["tokens_per_s"]["best"])
    assert 5 < pace[0] < 60
    assert 1.2 * pace[0] < pace[1] < 2.1 * pace[0]


def test_recomputation_does_not_train_27b_in_24_gb():
    code, said = answer(f"{DENSE} --finetune full --gpu rtx-4090 --recompute full --set offload.parameters=false")
    nearest = said["rejections"][0]
    assert code == 3
    pools = nearest["memory"]["device"]["pools"]
    assert sum(pools[name]["best"] for name in pools if name in {"activations", "layer_workspace"}) < 4 * GIB
    held = [pool["best"] for side in ("device", "host") for name, pool in nearest["memory"][side]["pools"].items()
            if name.removeprefix("host_") in {"weights", "gradients", "optimizer_states", "optimizer"}]  # fmt: skip
    states = sum(held)
    assert states > 7 * model(DENSE)["parameters"]["text"]
    assert any("lora" in change["command"] for change in nearest["changes"])


def test_qlora_or_offload_trains_27b_in_24_gb():
    code, said = answer(f"{DENSE} --finetune qlora --gpu rtx-4090 --seq-len 1024")
    assert code == 0
    assert said["plans"][0]["fits"]["best"]
    code, said = answer(f"{DENSE} --finetune full --gpu rtx-4090 --host '512 GiB ddr5-5600 x8'")
    assert code == 0
    assert said["plans"][0]["offload"]["optimizer"]


# The least class of card, in GB, that holds all of it: weights of 16, 8 and 4 bits, cache and workspace.
NEEDS = {DENSE: {"bf16": 80, "q8_0": 32, "q4_k_m": 24}, MOE: {"bf16": 80, "q8_0": 48, "q4_k_m": 24}}
CARDS = {"rtx-4090": 24, "rtx-5090": 32, "rtx-4090-48gb-mod": 48, "a100-sxm4-80gb": 80, "rtx-pro-6000": 96, "h200": 141}


@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("name", [DENSE, MOE])
def test_both_models_on_every_class_of_card(name, card):
    fits = {}
    for quant in NEEDS[name]:
        pins = f"--engine llama.cpp --quant {quant} --kv fp16 --cpu-experts 0 --set offload.num_cpu_layers=0"
        fits[quant] = answer(f"{name} --serve --gpu {card} {pins}")[0] == 0
    assert fits == {quant: CARDS[card] >= needed for quant, needed in NEEDS[name].items()}


def test_two_h100_and_the_35b_mixture():
    code, said = answer(f"{MOE} --serve --gpu h100-sxm5:2 --quant bf16")
    assert code == 0
    assert said["plans"][0]["hardware"] == {
        "gpu": "h100-sxm5",
        "gpus": ["h100-sxm5"] * 2,
        "num_gpus": 2,
        "num_nodes": 1,
    }
    stays = "--set offload.optimizer=false --set offload.parameters=false"
    code, said = answer(f"{MOE} --finetune full --gpu h100-sxm5:2 {stays}")
    assert code == 3
    assert said["rejections"][0]["short_by_bytes"] > 20 * GIB


def test_a_trillion_parameters_and_eight_a100():
    name = "moonshotai/Kimi-K2-Instruct"
    assert model(name)["parameters"]["total"] > 1e12
    for card, held in (("a100-drive-32gb", 256e9), ("a100-sxm4-80gb", 688e9)):
        assert model(name)["weights_bytes"]["bf16"] > 2.9 * held
        code, said = answer(f"{name} --finetune full --gpu {card}:8 --engine megatron")
        assert code == 3
        assert said["rejections"][0]["short_by_bytes"] > 500 * GIB


def test_seventy_billion_and_eight_a100():
    name = "meta-llama/Llama-3.1-70B-Instruct"
    stays = "--set offload.optimizer=false --set offload.parameters=false"
    code, said = answer(f"{name} --finetune full --gpu a100-drive-32gb:8 {stays}")
    assert code == 3
    assert said["rejections"][0]["short_by_bytes"] > 20 * GIB
    code, said = answer(f"{name} --finetune full --gpu a100-sxm4-80gb:8")
    assert code == 0
    assert said["plans"][0]["offload"]["optimizer"]  # a server's memory carries what the cards do not
    code, _ = answer(f"{name} --finetune lora --gpu a100-sxm4-80gb:8")
    assert code == 0


def test_two_hundred_billion_and_one_card_of_96_gb():
    name = "Qwen/Qwen3-235B-A22B"
    total = model(name)["parameters"]["total"]
    card = 97_887 << 20
    assert 2 * total > 4 * card
    assert model(name)["weights_bytes"]["q4_k_m"] > card
    code, said = answer(f"{name} --finetune full --gpu rtx-pro-6000 --engine megatron")
    assert code == 3
    assert said["rejections"][0]["short_by_bytes"] > 1000 * GIB


def test_zeros_take_the_bytes_of_any_other_number():
    """Nothing in the size of weights depends on their values: the inactive experts stay as large as they are."""
    held = model(MOE)["parameters"]["by_component"]["experts"]
    assert held > 0.9 * model(MOE)["parameters"]["total"]
    assert model(MOE)["weights_bytes"]["bf16"] == pytest.approx(2 * model(MOE)["parameters"]["total"], rel=1e-3)


def test_a_plan_states_its_storage():
    code, said = answer("Qwen/Qwen3-8B --pretrain --gpu h100-sxm5:8 --tokens 1T --engine megatron")
    entry = said["plans"][0]
    assert code == 0
    assert entry["storage"]["weights_bytes"] == pytest.approx(
        2 * model("Qwen/Qwen3-8B")["parameters"]["total"], rel=0.01
    )
    assert entry["storage"]["data_bytes"] >= 2e12
    assert entry["storage"]["checkpoints_bytes"] > 5 * entry["storage"]["weights_bytes"]


def test_a_checkpoint_of_adapters_holds_adapters():
    """Rank 16 on all linear layers of an 8B model is some 40 million numbers: half a gigabyte with their states."""
    _, said = answer("Qwen/Qwen3-8B --finetune lora --gpu rtx-4090 --lora-rank 16")
    assert 0.3e9 < said["plans"][0]["storage"]["checkpoints_bytes"] < 1e9
