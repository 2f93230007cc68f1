"""Existing configurations and launch lines become pins; what cannot be read is refused, never misread."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import call_tonnage

from tonnage import datafiles
from tonnage.errors import BadFileError
from tonnage.plan.adopt import adopt, read_flat_yaml
from tonnage.plan.pins import PINS
from tonnage.plan.request import make_request

DEEPSPEED = json.dumps(
    {
        "train_batch_size": 64,
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 4,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "nvme"}},
    }
)
ACCELERATE = """\
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_activation_checkpointing: true   # saves memory
  fsdp_offload_params: false
  fsdp_reshard_after_forward: true
  fsdp_version: 2
mixed_precision: bf16
num_machines: 2
num_processes: 16
"""
TORCHTITAN = """\
[training]
local_batch_size = 1
seq_len = 8192
[parallelism]
data_parallel_shard_degree = -1
tensor_parallel_degree = 8
[activation_checkpoint]
mode = "selective"
selective_ac_option = "2"
[model]
converters = ["float8"]
"""


def test_deepspeed():
    got = adopt(DEEPSPEED, "ds.json")
    assert got.load == {"global_batch": "64"}
    assert got.pins == {
        "micro_batch_size": "2",
        "layout.zero_stage": "3",
        "offload.optimizer": "true",
        "offload.parameters": "true",
        "offload.parameters_nvme": "true",
        "optimizer": "adamw",
        "precision.compute": "bf16",
    }
    assert not got.ignored


def test_deepspeed_below_stage_3_takes_a_drive_for_host_memory():
    text = '{"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "nvme", "nvme_path": "/mnt"}}}'
    assert adopt(text, "ds.json").pins["offload.optimizer"] == "true"
    assert "offload.optimizer_nvme" not in adopt(text, "ds.json").pins


def test_deepspeed_leaves_auto_open():
    got = adopt(
        '{"train_batch_size": "auto", "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2}}', "ds.json"
    )
    assert got.pins == {"layout.zero_stage": "2"}
    assert not got.load


def test_accelerate():
    got = adopt(ACCELERATE, "accelerate.yaml")
    assert (got.num_devices, got.num_nodes) == (8, 2)
    assert got.pins == {"precision.compute": "bf16", "layout.zero_stage": "3", "recompute": "full"}


def test_torchtitan():
    got = adopt(TORCHTITAN, "train.toml")
    assert got.engine == "torchtitan"
    assert got.load == {"seq_len": "8192"}
    assert got.pins == {
        "micro_batch_size": "1",
        "layout.tp": "8",
        "layout.zero_stage": "3",
        "recompute": "full",
        "recompute_every": "2",
        "precision.compute": "fp8",
    }


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            (
                "docker run --gpus all vllm/vllm-openai:latest --model Q/W --tensor-parallel-size=4 \\\n --max_model_len 32K "
                "--enable-expert-parallel --kv-cache-dtype fp8_e4m3 --dtype auto --cpu-offload-gb 10"
            ),
            {
                "engine": "vllm",
                "model": "Q/W",
                "load": {"context": "32768"},
                "pins": {"layout.tp": "4", "precision.kv": "fp8", "layout.ep": "4"},
                "ignored": ("--cpu-offload-gb 10",),
            },
        ),
        (
            "vllm serve Q/W -tp 2 --max-num-seqs 64",
            {"model": "Q/W", "pins": {"layout.tp": "2", "settings.max_num_seqs": "64"}},
        ),
        (
            "python3 -m sglang.launch_server --model-path Q/W --tp 8 --ep 8 --mem-fraction-static 0.85",
            {
                "engine": "sglang",
                "pins": {"layout.tp": "8", "layout.ep": "8", "settings.utilization_ratio": "0.85"},
            },
        ),
        (
            (
                "CUDA_VISIBLE_DEVICES=0 ./build/bin/llama-server -hf ggml-org/x-GGUF:Q4_K_M -c 32768 -np 4 -ngl 30 -cmoe "
                "-ctk q8_0 -ctv q8_0 -fa on"
            ),
            {
                "engine": "llama_cpp",
                "model": "ggml-org/x-GGUF",
                "load": {"context": "8192", "concurrency": "4"},
                "pins": {
                    "precision.kv": "q8_0",
                    "settings.has_flash_attention": "true",
                    "precision.weights": "q4_k_m",
                    "offload.num_cpu_expert_layers": "all",
                    "offload.num_cpu_layers": "all-29",
                },
            },
        ),
        (
            (
                "torchrun --nproc-per-node=8 --nnodes 2 pretrain_gpt.py --tensor-model-parallel-size 4 --fp8-format hybrid "
                "--use-megatron-fsdp --data-parallel-sharding-strategy optim --micro-batch-size 2 --recompute-activations "
                "--sequence-parallel --seq-length 4096"
            ),
            {
                "engine": "megatron",
                "num_devices": 8,
                "num_nodes": 2,
                "load": {"seq_len": "4096"},
                "pins": {
                    "layout.tp": "4",
                    "precision.compute": "fp8",
                    "micro_batch_size": "2",
                    "recompute": "selective",
                    "layout.has_sequence_parallel": "true",
                    "layout.zero_stage": "1",
                },
            },
        ),
        (
            (
                "torchrun --nproc_per_node 4 train.py --model_name_or_path Q/W --per_device_train_batch_size 2 "
                "--gradient_accumulation_steps 8 --bf16 --gradient_checkpointing True --optim paged_adamw_8bit"
            ),
            {
                "model": "Q/W",
                "num_devices": 4,
                "load": {"global_batch": "64"},
                "pins": {
                    "micro_batch_size": "2",
                    "precision.compute": "bf16",
                    "recompute": "full",
                    "optimizer": "paged_adamw_8bit",
                },
            },
        ),
        ("deepspeed --num_gpus 8 train.py --bf16 False", {"num_devices": 8, "pins": {}}),
    ],
)
def test_a_launch_line(line, expected):
    got = asdict(adopt(line, "run.sh"))
    assert {name: got[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("line", "pins", "defaults"),
    [
        ("vllm serve Q/W", {}, {"precision.weights": "own", "precision.kv": "own", "layout.tp": "1"}),
        ("vllm serve Q/W -q awq", {"precision.weights": "awq"}, {"precision.kv": "own"}),
        ("python3 -m sglang.launch_server --model Q/W --tp 2", {"layout.tp": "2"}, {"precision.weights": "own"}),
        ("llama-server -m a/W-35B-A3B-Q8_0.gguf", {"precision.weights": "q8_0"}, {"precision.kv": "fp16"}),
        ("llama-server -m W-Q4_K_M-00001-of-00002.gguf", {"precision.weights": "q4_k_m"}, {"precision.kv": "fp16"}),
        ("llama-server -m W-Q9_X.gguf", {}, {"precision.kv": "fp16"}),
        ("llama-server -hf Q/W-GGUF", {}, {"precision.weights": "q4_k_m"}),
    ],
)
def test_what_a_line_leaves_out_is_the_engines_default(line, pins, defaults):
    got = adopt(line, "run.sh")
    assert {name: got.pins.get(name) for name in ("precision.weights", "layout.tp")} == {
        "precision.weights": None,
        "layout.tp": None,
        **pins,
    }
    assert defaults.items() <= got.defaults.items()
    assert not got.defaults.keys() & got.pins.keys()


def test_what_llama_cpp_takes_from_the_model_is_not_given():
    got = adopt("llama-server -m W.gguf -c 0 -np 0", "run.sh")
    assert not got.load
    assert len(got.ignored) == 2


@pytest.mark.parametrize(
    ("words", "layers"),
    [
        ("exps=CPU", "all"),
        (r"'.ffn_.*_exps.=CPU'", "all"),
        (r"'blk\.(2[0-9])\.ffn_.*_exps=CPU'", None),
        ("ffn_up_exps=CPU", None),
        ("exps=CUDA0", None),
    ],
)
def test_experts_put_on_the_host_by_name(words, layers):
    got = adopt(f"llama-server -m W.gguf -ot {words}", "run.sh")
    assert got.pins.get("offload.num_cpu_expert_layers") == layers
    assert bool(got.ignored) == (layers is None)


def test_a_line_of_another_model_is_warned_of(tmp_path):
    place = tmp_path / "run.sh"
    for model, is_other in (("Qwen/Qwen3-32B", True), ("Qwen/Qwen3-8B", False)):
        place.write_text(f"vllm serve {model}\n")
        answer = call_tonnage("plan", "Qwen/Qwen3-8B", "--gpu", "h100", "--import", str(place), "--json")
        assert any("Qwen3-32B" in text for text in answer.json["warnings"]) == is_other


def test_a_line_that_cannot_start_is_told_so(tmp_path):
    place = tmp_path / "run.sh"
    place.write_text("vllm serve Qwen/Qwen3-32B\n")
    answer = call_tonnage("plan", "--gpu", "rtx-4090", "--import", str(place))
    assert answer.code == 3
    assert "precision.weights=own" in answer.err


@pytest.mark.parametrize(
    ("text", "name", "what"),
    [
        ("python train.py", "run.sh", "no program"),
        ("vllm serve 'x", "run.sh", "launch line"),
        ("vllm serve x --max-model-len", "run.sh", "no value"),
        ("vllm serve x -tp two", "run.sh", "not a number"),
        ("{", "ds.json", "cannot be read"),
        ("[" * 100_000, "ds.json", "cannot be read"),
        ("[1]", "ds.json", "not a table"),
        ('{"a": 1}', "ds.json", "not a configuration"),
        ("a = ", "t.toml", "cannot be read"),
        ("a = 1", "t.toml", "training"),
        ("a:\n  - b\n", "a.yaml", "flat"),
        ("a: &x 1\n", "a.yaml", "flat"),
        ("a: 1\n", "a.yaml", "distributed_type"),
        ("x" * (1 << 20 | 1), "run.sh", "larger"),
    ],
)
def test_what_is_not_known_is_refused(text, name, what):
    with pytest.raises(BadFileError, match=what):
        adopt(text, name)


def test_every_flag_leads_to_a_field_or_is_settled():
    settled = {"expert_parallel", "cache_v", "gpu_layers", "all_experts", "hub", "sharding", "megatron_fsdp"}
    settled |= {"model", "devices", "nodes", "accumulation", "deepspeed_file", "logical_batch", "split_mode"}
    settled |= {"tensor_split", "attention_backend", "local_batch", "cpu_offload", "sharded", "replicated", "reshard"}
    settled |= {"in_pipeline"}
    programs = {row["program"] for row in datafiles.rows("adopt/programs.csv")}
    for row in datafiles.rows("adopt/flags.csv"):
        target = row["target"]
        assert target in PINS or target in settled or target.startswith(("load.", "settings.extra.")), row
        assert row["program"] in programs
    assert all(row["source"].startswith("https://") for row in datafiles.rows("adopt/programs.csv"))


@pytest.mark.parametrize(("text", "name"), [(DEEPSPEED, "a.json"), (ACCELERATE, "a.yaml"), (TORCHTITAN, "a.toml")])
def test_what_was_read_makes_a_request(text, name):
    got = adopt(text, name)
    request = make_request("m", goal="pretrain", load={**got.load}, pins={**got.pins})
    assert dict(request.pins).keys() == got.pins.keys()


def test_flat_yaml():
    assert read_flat_yaml("---\na: 'b'\nc: {}\nd:\n  e: 1 # f\n", "x") == {"a": "b", "c": {}, "d": {"e": "1"}}


@given(st.text(max_size=300), st.sampled_from(["a.json", "a.toml", "a.yaml", "a.sh"]))
def test_any_text_is_read_or_refused(text, name):
    try:
        adopt(text, name)
    except BadFileError as error:
        assert "\n" not in str(error)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
KEYS = (
    "train_batch_size",
    "optimizer",
    "bf16",
    "zero_optimization",
    "distributed_type",
    "num_processes",
    "fsdp_config",
)


@given(st.dictionaries(st.sampled_from(KEYS), json_values))
def test_any_values_are_read_or_refused(table):
    try:
        adopt(json.dumps(table), "a.json")
    except BadFileError as error:
        assert "\n" not in str(error)


@given(st.lists(st.sampled_from([row["flag"] for row in datafiles.rows("adopt/flags.csv")]) | st.text(max_size=5)))
def test_any_flags_are_read_or_refused(words):
    import shlex

    for program in ("vllm serve", "llama-server", "torchrun pretrain_gpt.py", "sglang"):
        try:
            adopt(f"{program} {shlex.join(words)}", "a.sh")
        except BadFileError as error:
            assert "\n" not in str(error)
