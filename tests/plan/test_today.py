"""Today's stack under a plan: driver and CUDA floors both ways, precision, split, monitoring; what is no stack."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.plan.test_price import estimate

from tonnage.errors import BadFileError, UnknownNameError
from tonnage.estimate.types import Layout
from tonnage.plan.today import Stack, held, is_stack, read_stack, stack_of


def verdicts(name: str, **stack) -> dict[str, str]:
    return {one.part: one.verdict for one in held(Stack(**stack), estimate(name))}


@pytest.mark.parametrize(
    ("name", "driver", "cuda", "wanted"),
    [
        ("rtx-4080", "535.154.05", "12.2", ("carries", "carries")),
        ("rtx-5090", "535.154.05", "12.2", ("changes", "changes")),
        ("rtx-5090", "R570", "12.8", ("carries", "carries")),
        ("v100-sxm2-16gb", "590.44", "13.0", ("changes", "changes")),
        ("v100-sxm2-16gb", "R580", "12.9", ("carries", "carries")),
        ("rx-7900-xtx", "570.86", "12.8", ("changes", "changes")),
    ],
)
def test_floors_and_ceilings(name, driver, cuda, wanted):
    found = verdicts(name, driver=driver, cuda=cuda)
    assert (found["driver"], found["cuda"]) == wanted


def test_precision():
    assert verdicts("a100-pcie-80gb", precision="fp8") == {"precision": "changes"}
    assert verdicts("rtx-4090", precision="fp8") == {"precision": "carries"}
    assert verdicts("t4", precision="bf16") == {"precision": "changes"}


def test_monitoring():
    assert verdicts("h100-sxm5", monitoring=("dcgm-exporter", "prometheus"))["monitoring"] == "carries"
    assert verdicts("rtx-4090", monitoring=("dcgm-exporter",))["monitoring"] == "changes"
    assert verdicts("rtx-4090", monitoring=("nvidia-smi",))["monitoring"] == "carries"
    assert verdicts("mi300x", monitoring=("nvidia-smi",))["monitoring"] == "changes"


def test_engine_and_split():
    one = estimate("rtx-4090", 2)
    one = replace(one, candidate=replace(one.candidate, engine="vllm", layout=Layout(tp=2)))
    found = {c.part: c.verdict for c in held(Stack(engine="vLLM", strategy=("single",)), one)}
    assert found == {"engine": "carries", "strategy": "changes"}
    found = {c.part: c.verdict for c in held(Stack(engine="mlx", strategy=("tp",)), one)}
    assert found == {"engine": "changes", "strategy": "carries"}
    found = {c.part: c.verdict for c in held(Stack(engine="sglang"), one)}  # it could stay, and does not
    assert found == {"engine": "changes"}
    assert not held(Stack(engine="megatron"), one)  # what trains is not replaced by what serves


def test_what_is_not_said_is_not_compared():
    assert verdicts("rtx-4090") == {}


def test_a_stage_follows_a_stage():
    found = {c.part for c in held(stack_of(estimate("rtx-4090")), estimate("h100-sxm5", 8))}
    assert found == {"engine", "precision", "strategy"}


def test_a_stack_is_read():
    table = {
        "gpu": "4080",
        "driver": "535.154.05",
        "cuda": 12.2,
        "strategy": "DDP",
        "monitoring": ["nvidia-smi", "DCGM"],
    }
    assert is_stack(table)
    assert not is_stack({"train_batch_size": 8})
    stack = read_stack(table, "today.toml")
    assert stack.cuda == "12.2"
    assert stack.strategy == ("ddp",)
    assert stack.monitoring == ("nvidia-smi", "dcgm")


@pytest.mark.parametrize(
    "table",
    [{"gpus": "x"}, {"driver": "newest"}, {"cuda": True}, {"cuda": ["12"]}, {"strategy": ["magic"]}, {"engine": {}}],
)
def test_what_is_no_stack_is_refused(table):
    with pytest.raises(BadFileError) as caught:
        read_stack(table, "today.toml")
    assert caught.value.where == "today.toml"


def test_an_unknown_card_is_refused():
    with pytest.raises(UnknownNameError):
        read_stack({"gpu": "rtx 9999"}, "today.toml")


def test_on_the_command_line(tonnage, tmp_path):
    path = tmp_path / "today.toml"
    path.write_text('gpu = "rtx-4080"\ndriver = "535.154.05"\ncuda = "12.2"\nprecision = "fp16"\n')
    words = ("plan", "Qwen/Qwen3-8B", "--gpu", "rtx-5090", "--today", str(path))
    reasons = " ".join(tonnage(*words, "--json").json["plans"][0]["reasons"])
    assert "driver 535.154.05 is too old" in reasons
    assert "CUDA 12.2 has no code" in reasons
    assert "computes in fp16" in reasons
    path.write_text('gpu = "rtx-4080"\ndriver = "newest"\n')
    answer = tonnage(*words)
    assert answer.code == 2
    assert "driver 'newest'" in answer.err
