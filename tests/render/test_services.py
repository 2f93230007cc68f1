"""A plan that trains becomes a job whose own numbers agree with the plan's."""

import json
import shlex

import pytest

from tonnage import api
from tonnage.errors import RequestError
from tonnage.plan.request import make_request
from tonnage.render.services import service_of, slug_of


def a_plan(**words):
    answer = api.plan(make_request("Qwen/Qwen3-8B", goal="finetune", **words))
    assert answer.plans
    return answer.plans[0]


@pytest.fixture(scope="module")
def deepspeed():
    return a_plan(finetune="full", gpus=["h100-sxm5-80gb:4"], limits={"engines": ["deepspeed"]})


def test_batch_arithmetic_of_deepspeed_adds_up(deepspeed):
    service = service_of(deepspeed)
    config, job = json.loads(service.files["deepspeed.json"]), json.loads(service.files["job.json"])
    candidate = deepspeed.estimate.candidate
    micro, accumulation = config["train_micro_batch_size_per_gpu"], config["gradient_accumulation_steps"]
    assert config["train_batch_size"] == micro * accumulation * candidate.layout.dp == 8
    assert job["training_arguments"]["per_device_train_batch_size"] == micro == candidate.micro_batch_size
    assert job["training_arguments"]["gradient_accumulation_steps"] == accumulation
    assert config["zero_optimization"]["stage"] == candidate.layout.zero_stage
    assert service.argv[:4] == ("torchrun", "--standalone", "--nproc-per-node", "4")
    assert service.files["train.py"].startswith('"""Trains a causal language model')


def test_sharding_is_fsdp2_of_accelerate():
    service = service_of(a_plan(finetune="lora", gpus=["rtx-4090:2"], limits={"engines": ["transformers"]}))
    config = json.loads(service.files["accelerate.json"])
    assert config["distributed_type"] == "FSDP"
    assert config["fsdp_config"]["fsdp_version"] == 2
    assert config["num_processes"] == 2


def test_several_nodes_meet_at_an_address_of_the_place():
    plan = a_plan(
        finetune="full",
        gpus=["h100-sxm5-80gb:8"],
        nodes=2,
        load={"global_batch": 32},
        limits={"engines": ["deepspeed"]},
    )
    from tonnage.render.targets.local import start_script

    text = start_script(service_of(plan)).text
    assert '--rdzv-endpoint "$MASTER_ADDR:29500"' in text
    assert shlex.split(text, comments=True)


def test_a_job_has_no_replicas(deepspeed):
    with pytest.raises(RequestError, match="no replicas"):
        service_of(deepspeed, num_replicas=2)


def test_names_that_every_place_takes():
    assert slug_of("Qwen/Qwen3.5-35B-A3B") == "qwen3-5-35b-a3b"
    assert slug_of("../../$(id)") == "id"
    assert slug_of("模型") == "model"
    assert len(slug_of("x" * 200)) <= 40
