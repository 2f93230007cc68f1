"""`tonnage lint` as a person calls it: answers, exit codes, corrected copies."""

from __future__ import annotations

import io
import json
import sys

import pytest

SCRIPT = """import torch
from transformers import AutoModelForCausalLM, TrainingArguments

model = AutoModelForCausalLM.from_pretrained(
    "path/to/model",
    torch_dtype=torch.float16,  # half
    device_map="auto",
    low_cpu_mem_usage=True      # less memory
).to("cuda:0")
args = TrainingArguments(output_dir="out", evaluation_strategy="steps", optim="adamw_hf", devices=1, bf16=True)
state = torch.load("état.pt", map_location="cpu")
"""
FIXED = """import torch
from transformers import AutoModelForCausalLM, TrainingArguments

model = AutoModelForCausalLM.from_pretrained(
    "path/to/model",
    dtype=torch.float16,  # half
    device_map="auto",
)
args = TrainingArguments(output_dir="out", eval_strategy="steps", optim="adamw_torch_fused", bf16=True)
state = torch.load("état.pt", map_location="cpu", weights_only=True)
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT, encoding="utf-8")
    return path


def test_findings_are_told_with_today_and_source(tonnage, script):
    answer = tonnage("lint", str(script))
    assert answer.code == 0
    assert f"{script}:6: warning [torch-dtype]" in answer.out
    assert "today: dtype=" in answer.out
    assert "source: transformers 5.24.0" in answer.out


def test_json_is_the_contract(tonnage, script):
    answer = tonnage("lint", str(script), "--json")
    assert answer.json["schema"] == 1
    for finding in answer.json["findings"]:
        assert {"id", "file", "line", "what", "today", "source", "severity"} <= set(finding)
    assert {f["id"] for f in answer.json["findings"]} == {
        "torch-dtype", "low-cpu-mem-usage", "moved-after-device-map", "trainer-renamed-argument", "trainer-optim-value",
        "trainer-process-argument", "torch-load-unsaid",
    }  # fmt: skip


@pytest.mark.parametrize(("limit", "code"), [("error", 3), ("warning", 3), ("note", 3)])
def test_fail_on(tonnage, script, limit, code):
    assert tonnage("lint", str(script), "--fail-on", limit).code == code


def test_fail_on_is_not_reached_by_less(tonnage, tmp_path):
    path = tmp_path / "a.sh"
    path.write_text("nvcc --version\n")
    assert tonnage("lint", str(path), "--fail-on", "warning").code == 0
    assert tonnage("lint", str(path), "--fail-on", "note").code == 3


def test_fix_writes_a_copy_and_leaves_the_file(tonnage, script):
    answer = tonnage("lint", str(script), "--fix")
    assert answer.code == 0
    assert script.read_text("utf-8") == SCRIPT
    assert script.with_name("train.py.fixed").read_text("utf-8") == FIXED


def test_the_corrected_copy_is_clean(tonnage, script):
    script.write_text(FIXED, encoding="utf-8")
    assert tonnage("lint", str(script), "--json").json["findings"] == []


def test_diff_shows_and_writes_nothing(tonnage, script):
    answer = tonnage("lint", str(script), "--diff")
    assert "+    dtype=torch.float16,  # half" in answer.out
    assert not script.with_name("train.py.fixed").exists()


def test_line_ends_are_kept(tonnage, tmp_path):
    path = tmp_path / "run.sh"
    path.write_bytes(b"set -e\r\nexport NCCL_IB_DISABLE=0\r\necho x\r\n")
    tonnage("lint", str(path), "--fix")
    assert path.with_name("run.sh.fixed").read_bytes() == b"set -e\r\necho x\r\n"


def test_snippets_of_a_page_are_fixed_in_place(tonnage, tmp_path):
    path = tmp_path / "page.md"
    path.write_text(
        "- so:\n\n  ```bash\n  export NCCL_IB_DISABLE=0\n  docker run -v a:b prometheus/prometheus:v3.5.0\n  ```\n"
    )
    tonnage("lint", str(path), "--fix")
    fixed = path.with_name("page.md.fixed").read_text()
    assert fixed == "- so:\n\n  ```bash\n  docker run -v a:b prom/prometheus:v3.5.0\n  ```\n"


def test_standard_input(tonnage, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"#!/bin/sh\nexport TF_GPU_MEMORY_LIMIT=1\n")))
    answer = tonnage("lint", "-", "--json")
    assert [f["id"] for f in answer.json["findings"]] == ["tf-gpu-memory-limit"]


def test_a_launch_line_explains_its_script(tonnage, tmp_path):
    script = 'from transformers import AutoModelForCausalLM\nm = AutoModelForCausalLM.from_pretrained("x", device_map="auto")\n'
    (tmp_path / "train.py").write_text(script)
    alone = tonnage("lint", str(tmp_path / "train.py"), "--json").json["findings"]
    assert alone == []
    (tmp_path / "run.sh").write_text("torchrun --nproc-per-node 4 train.py\n")
    found = tonnage("lint", str(tmp_path), "--json").json["findings"]
    assert [f["id"] for f in found] == ["device-map-distributed"]


def test_batches_that_do_not_add_up_with_the_launch(tonnage, tmp_path):
    config = {"train_batch_size": 32, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4}
    (tmp_path / "ds.json").write_text(json.dumps(config))
    (tmp_path / "run.sh").write_text("deepspeed --num_gpus=8 train.py --deepspeed ds.json\n")
    (found,) = tonnage("lint", str(tmp_path), "--json").json["findings"]
    assert found["id"] == "deepspeed-batch"
    assert "2 × 4 × 8 = 64, not 32" in found["what"]


def test_a_model_of_the_catalogue_is_counted(tonnage, tmp_path):
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 1}, "bf16": {"enabled": true}}')
    (tmp_path / "run.sh").write_text(
        "deepspeed --num_gpus=8 train.py --model_name_or_path Qwen/Qwen3-32B --deepspeed ds.json\n"
    )
    (found,) = tonnage("lint", str(tmp_path), "--json").json["findings"]
    assert found["id"] == "zero-stage-memory"
    # 32.76e9 parameters: 2 B of weights, 2 B of gradients, 12 B of states over 8 ranks
    assert "66 GB of weights, 180 GB" in found["what"]


def test_secrets_are_masked(tonnage, tmp_path):
    token = "hf_" + "Ab3" * 11 + "Z"
    (tmp_path / "run.sh").write_text(f"hf auth login --token {token}\n")
    answer = tonnage("lint", str(tmp_path), "--json")
    assert [f["id"] for f in answer.json["findings"]] == ["secret-in-file"]
    assert token[:8] not in answer.out


@pytest.mark.parametrize("arguments", [(), ("no/such/file",), ("--explain", "nccl-ib-disable")])
def test_a_wrong_request_is_one_line(tonnage, arguments):
    answer = tonnage("lint", *arguments)
    assert answer.code == 2
    assert answer.err.count("\n") == 1


def test_explain(tonnage):
    answer = tonnage("lint", "--explain", "nccl-ib-disable-zero")
    assert answer.code == 0
    assert "export NCCL_IB_DISABLE=0" in answer.out
    assert "nccl-ib-disable-zero (warning)" in tonnage("lint", "--explain", "all").out
    assert tonnage("lint", "--explain", "all", "--json").json["rules"]


def test_chinese(tonnage, script):
    out = tonnage("lint", str(script), "--lang", "zh").out
    assert "torch_dtype= 已弃用" in out
    assert "现在：dtype=" in out


def test_an_older_installed_release_is_what_counts(monkeypatch, tonnage, tmp_path):
    """A field that the installed transformers has is no error, though today's release lacks it."""
    import tonnage.probe.lint_files as files

    held = files.installed_fields()
    fields = held[1] if held else frozenset({"output_dir", "bf16"})
    monkeypatch.setattr(files, "installed_fields", lambda: ("transformers 4.40", fields | {"evaluation_strategy"}))
    path = tmp_path / "t.py"
    path.write_text(
        'from transformers import TrainingArguments\nTrainingArguments(output_dir="o", evaluation_strategy="no")\n'
    )
    assert tonnage("lint", str(path), "--json").json["findings"] == []


@pytest.mark.train  # where transformers is installed
def test_installed_fields_are_read_without_an_import():
    from tonnage.probe.lint_files import installed_fields

    held = installed_fields()
    if held is None:
        pytest.skip("transformers is not installed")
    assert "per_device_train_batch_size" in held[1]
