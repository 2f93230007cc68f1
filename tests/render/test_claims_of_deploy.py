"""What the articles say of deploying, held to what is written: each test answers a row of docs/claims.csv."""

import json
import re
import shlex

import pytest
import yaml

from tonnage import api
from tonnage.plan.request import make_request
from tonnage.render.services import service_of


def a_plan(name="Qwen/Qwen3-8B", **words):
    return api.plan(make_request(name, **words)).plans[0]


def files_of(plan, place="local", **words):
    return {file.path: file.text for file in api.deploy(plan, place=place, **words).files}


def test_44_storage_is_asked_for_a_rate_in_sequence():
    plan = a_plan(gpus=["rtx-4090"], limits={"engines": ["vllm"]})
    text = files_of(plan)["prepare.sh"]
    rate = plan.estimate.storage.read_bytes_per_s
    assert rate > 0
    assert f"the plan reads {rate / 1e9:.2f} GB/s in sequence" in text
    assert "--rw=read --bs=1M" in text


def test_46_the_machine_owes_the_driver_and_the_wheels_bring_the_rest():
    text = files_of(a_plan(gpus=["rtx-5090"], limits={"engines": ["vllm"]}))["prepare.sh"]
    assert "NVIDIA driver 580 or newer, open kernel modules" in text
    assert "no toolkit is installed" in text
    assert not re.search(r"install -y \S*(cuda-toolkit|cudnn|nvidia-cuda)", text)


def test_48_an_exporter_comes_with_the_bundle():
    project = yaml.safe_load(
        files_of(a_plan(gpus=["rtx-4090"], limits={"engines": ["vllm"]}), "compose")["compose.yaml"]
    )
    exporter = project["services"]["gpu-exporter"]
    assert exporter["image"].startswith("nvcr.io/nvidia/k8s/dcgm-exporter:4.5.3")
    assert exporter["ports"] == ["127.0.0.1:9400:9400"]
    assert exporter["profiles"] == ["monitor"]


def test_49_host_memory_is_the_plans_and_what_is_available_counts():
    plan = a_plan("Qwen/Qwen3.5-35B-A3B", gpus=["rtx-4080"], limits={"engines": ["llama.cpp"]})
    text = files_of(plan)["prepare.sh"]
    host = service_of(plan).host_memory_bytes
    assert host > plan.estimate.footprint.host_total.high
    assert f'"$available" -ge {-(-host // 1024)}' in text
    assert "MemAvailable" in text
    assert "memory.max" in text
    assert "free -" not in text


@pytest.mark.parametrize(("card", "compute"), [("rtx-3090", "bf16"), ("rtx-4090", "bf16"), ("v100-sxm2-32gb", "fp16")])
def test_89_the_16_bits_follow_the_architecture(card, compute):
    plan = a_plan(
        "Qwen/Qwen3-0.6B", goal="finetune", finetune="lora", gpus=[card], limits={"engines": ["transformers"]}
    )
    arguments = json.loads(files_of(plan)["job.json"])["training_arguments"]
    assert (arguments["bf16"], arguments["fp16"]) == (compute == "bf16", compute == "fp16")


def test_91_recomputation_is_asked_for_where_the_plan_counts_on_it():
    def trained(recompute):
        plan = a_plan(goal="finetune", finetune="full", gpus=["h100-sxm5-80gb:8"], load={"global_batch": 64},
                      limits={"engines": ["transformers"]},
                      pins={"recompute": recompute, "micro_batch_size": 1, "layout.zero_stage": 3})  # fmt: skip
        arguments = json.loads(files_of(plan)["job.json"])["training_arguments"]
        return (
            arguments["gradient_checkpointing"],
            plan.estimate.footprint.total.best,
            plan.estimate.performance.step_seconds.best,
        )

    kept, again = trained("none"), trained("full")
    assert (kept[0], again[0]) == (False, True)
    assert again[1] < kept[1]
    assert again[2] > kept[2]


def test_92_and_94_deepspeed_runs_what_the_plan_counted():
    pins = {"layout.zero_stage": 3, "offload.optimizer": True, "micro_batch_size": 1}
    plan = a_plan(goal="finetune", finetune="full", gpus=["h100-sxm5-80gb:4"], load={"global_batch": 16},
                  limits={"engines": ["deepspeed"]}, host="512 GiB ddr5-5600 x8", pins=pins)  # fmt: skip
    files = files_of(plan)
    words = shlex.split(files["start.sh"].partition("\nexec ")[2].replace(" \\\n", " "))
    assert words[words.index("--nproc-per-node") + 1] == "4"
    assert json.loads(files["job.json"])["training_arguments"]["deepspeed"] == "deepspeed.json"
    config = json.loads(files["deepspeed.json"])
    assert config["zero_optimization"]["stage"] == 3
    assert config["zero_optimization"]["offload_optimizer"]["device"] == "cpu"
    assert (
        config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"] * 4
        == config["train_batch_size"]
        == 16
    )
    assert plan.estimate.footprint.host_total.best > 0


@pytest.mark.parametrize("gpus", [["h100-sxm5-80gb:8"], ["rtx-4090:2"]])
def test_95_algorithms_are_left_to_nccl(gpus):
    plan = a_plan(gpus=gpus, limits={"engines": ["vllm"]})
    for place in ("local", "compose", "systemd", "kubernetes", "slurm", "skypilot"):
        text = "".join(files_of(plan, place).values())
        assert not re.search(r"NCCL_(ALGO|PROTO|BUFFSIZE|NTHREADS|MAX_NCHANNELS|IB_DISABLE=0)", text)
        assert "NCCL_SOCKET_IFNAME=eth" not in text


def test_97_tensorrt_is_served():
    plan = a_plan(gpus=["h100-sxm5-80gb"], limits={"engines": ["tensorrt-llm"]}, pins={"precision.weights": "fp8"})
    words = shlex.split(files_of(plan)["start.sh"].partition("\nexec ")[2].replace(" \\\n", " "))
    assert words[0] == "trtllm-serve"
    assert words[1].endswith("Qwen3-8B-fp8")
