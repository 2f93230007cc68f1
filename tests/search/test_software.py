"""What a person fixes is held against what the software does: refused with the reason, never silently dropped."""

from __future__ import annotations

import json
import shlex

import pytest
from tests.conftest import call_tonnage

MOE = "Qwen/Qwen3.5-35B-A3B"
SMALL = "Qwen/Qwen3-0.6B"


def plan(words):
    got = call_tonnage("plan", *shlex.split(words), "--json", "--quiet")
    return got.code, json.loads(got.out)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--finetune lora --quant awq --engine deepspeed", "awq"),
        ("--finetune lora --quant gptq_int4 --engine unsloth", "gptq_int4"),
        ("--finetune full --quant nf4 --engine transformers", "frozen"),
        ("--finetune full --tp 2 --engine transformers", "tp"),
        ("--finetune full --optimizer adafactor --engine megatron", "megatron has no adafactor"),
        ("--finetune full --optimizer adamw_8bit --engine torchtitan", "torchtitan has no adamw_8bit"),
        (
            "--finetune full --optimizer adamw_8bit --engine deepspeed --zero 2 --set offload.optimizer=true",
            "steps adamw in host memory, not adamw_8bit",
        ),
        ("--finetune full --zero 3 --dp 2 --engine megatron", "ZeRO"),
        ("--finetune full --recompute selective --engine deepspeed", "selective"),
        ("--finetune full --set offload.parameters=true --engine megatron", "parameters"),
        ("--finetune full --set layout.num_virtual_stages=2 --engine megatron --tp 2 --pp 1", "num_virtual_stages"),
        ("--finetune full --set recompute_every=4 --recompute none --engine megatron", "recompute_every"),
    ],
)
def test_what_a_software_does_not_do_is_said(words, reason):
    code, said = plan(f"{SMALL} {words} --gpu h100-sxm5:2")
    assert code == 3
    assert any(reason in one["reason"] for one in said["rejections"]), said["rejections"]


@pytest.mark.parametrize(
    ("words", "where"),
    [
        ("--finetune lora --kv fp8", "--kv"),
        ("--finetune lora --max-num-seqs 4", "--max-num-seqs"),
        ("--pretrain --utilization 0.9", "--utilization"),
        ("--pretrain --set offload.num_cpu_layers=2", "--set offload.num_cpu_layers"),
        ("--finetune full --lora-targets all", "--lora-targets"),
        ("--finetune full --lora-rank 8", "--lora-rank"),
        ("--serve --zero 3", "--zero"),
        ("--serve --set precision.gradients=bf16", "--set precision.gradients"),
        ("--finetune lora --lora-targets most", "--lora-targets"),
    ],
)
def test_a_pin_that_says_nothing_for_the_goal_is_refused(words, where):
    got = call_tonnage("plan", SMALL, *shlex.split(words), "--gpu", "h100-sxm5")
    assert got.code == 2
    assert got.err.startswith(f"tonnage: {where}: ")


def test_bitsandbytes_leaves_stacked_experts_in_16_bit_but_unsloth_does_not():
    """https://github.com/bitsandbytes-foundation/bitsandbytes/issues/1849, unslothai/unsloth issue 4032."""
    _, kept = plan(f"{MOE} --finetune qlora --gpu h200 --engine transformers")
    _, packed = plan(f"{MOE} --finetune qlora --gpu h200 --engine unsloth")
    weights = [said["plans"][0]["memory"]["device"]["pools"]["weights"]["best"] for said in (kept, packed)]
    assert weights[0] > 60 * 2**30 > 25 * 2**30 > weights[1]
    assert kept["plans"][0]["precision"]["experts"] == "bf16"
    assert any("bitsandbytes" in text for text in kept["plans"][0]["warnings"])
    _, asked = plan(f"{MOE} --finetune qlora --gpu h200 --engine transformers --set precision.experts=nf4_dq")
    assert asked["plans"][0]["memory"]["device"]["pools"]["weights"]["best"] < 25 * 2**30


def test_adapters_on_experts_are_asked_for():
    _, linear = plan(f"{MOE} --finetune lora --gpu h200")
    _, everything = plan(f"{MOE} --finetune lora --gpu h200:2 --lora-targets all")
    assert linear["request"]["lora_targets"] == ["all-linear"]
    assert any("--lora-targets" in text for text in linear["assumptions"])
    assert everything["request"]["lora_targets"] == ["all"]
    assert "--lora-targets all" in everything["request"]["command"]
    trained = [said["plans"][0]["storage"]["checkpoints_bytes"] for said in (linear, everything)]
    assert trained[1] > 5 * trained[0]
