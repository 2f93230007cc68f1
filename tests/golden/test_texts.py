"""Whole answers as a person reads them, one file a question; `pytest tests/golden --update` writes them anew.

The files hold today's figures: an estimate that changes shows here, for a reviewer to read.
"""

from __future__ import annotations

import shlex

import pytest
from tests.conftest import call_tonnage

DENSE, MOE = "Qwen/Qwen3.5-27B", "Qwen/Qwen3.5-35B-A3B"
CARDS = {
    "24": "rtx-4090", "32": "rtx-5090", "48": "rtx-4090-48gb-mod", "80": "h100-sxm5", "96": "rtx-pro-6000", "141": "h200",
}  # fmt: skip
SCENARIOS = {
    "27b-fp16-on-4080": (f"{DENSE} --serve --gpu rtx-4080 --quant fp16", 3),
    "27b-on-4080": (f"{DENSE} --serve --gpu rtx-4080", 0),
    "35b-a3b-on-4080": (f"{MOE} --serve --gpu rtx-4080", 0),
    "35b-a3b-all-experts-on-host": (f"{MOE} --serve --gpu rtx-4080 --cpu-experts all", 0),
    "35b-a3b-on-4080-zh": (f"{MOE} --serve --gpu rtx-4080 --lang zh", 0),
    "27b-full-recompute-24gb": (f"{DENSE} --finetune full --recompute full --gpu rtx-4090", 3),
    "27b-qlora-24gb": (f"{DENSE} --finetune qlora --seq-len 1024 --gpu rtx-4090", 0),
    "27b-full-offload-24gb": (f"{DENSE} --finetune full --gpu rtx-4090 --host '512 GiB ddr5-5600 x8'", 0),
    **{f"27b-on-{size}gb": (f"{DENSE} --serve --gpu {card}", 0) for size, card in CARDS.items()},
    **{f"35b-a3b-on-{size}gb": (f"{MOE} --serve --gpu {card}", 0) for size, card in CARDS.items()},
    "35b-a3b-serve-2xh100": (f"{MOE} --serve --concurrency 32 --gpu h100-sxm5:2", 0),
    "35b-a3b-full-2xh100": (f"{MOE} --finetune full --gpu h100-sxm5:2", 3),
    "70b-full-8xa100-32gb": ("meta-llama/Llama-3.1-70B-Instruct --finetune full --gpu a100-drive-32gb:8", 0),
    "70b-full-8xa100-80gb": ("meta-llama/Llama-3.1-70B-Instruct --finetune full --gpu a100-sxm4-80gb:8", 0),
    "70b-lora-8xa100-80gb": ("meta-llama/Llama-3.1-70B-Instruct --finetune lora --gpu a100-sxm4-80gb:8", 0),
    "1t-full-8xa100-32gb": ("moonshotai/Kimi-K2-Instruct --finetune full --gpu a100-drive-32gb:8", 3),
    "1t-full-8xa100-80gb": ("moonshotai/Kimi-K2-Instruct --finetune full --gpu a100-sxm4-80gb:8", 3),
    "235b-full-96gb": ("Qwen/Qwen3-235B-A22B --finetune full --gpu rtx-pro-6000", 3),
    "235b-serve-96gb": ("Qwen/Qwen3-235B-A22B --serve --gpu rtx-pro-6000", 0),
    "35b-a3b-for-25000-cny": (f"{MOE} --serve --budget '25000 CNY'", 0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_an_answer(name, golden):
    words, code = SCENARIOS[name]
    answer = call_tonnage("plan", *shlex.split(words))
    golden(f"plan/{name}.txt", f"$ tonnage plan {words}\n{answer.out}exit {answer.code}\n")
    assert answer.code == code
    assert not answer.err


@pytest.mark.slow
def test_an_explanation(golden, tmp_path):
    path = tmp_path / "plan.toml"
    call_tonnage("plan", *shlex.split(SCENARIOS["35b-a3b-on-4080"][0]), "-o", str(path), "--quiet")
    answer = call_tonnage("explain", str(path))
    golden("explain/35b-a3b-on-4080.txt", answer.out)
    assert answer.code == 0


def test_help(golden):
    golden("help/plan.txt", call_tonnage("plan", "--help").out)
    golden("help/explain.txt", call_tonnage("explain", "--help").out)
