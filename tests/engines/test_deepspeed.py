"""DeepSpeed's configuration says where optimizer and weights are kept, in buffers of the size that was predicted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tonnage import api
from tonnage.engines import find_trainer
from tonnage.engines.deepspeed.launch import config
from tonnage.estimate.types import Candidate, Layout, Offload
from tonnage.plan.types import Where
from tonnage.plan.where import place
from tonnage.workload.types import Training, TrainingKind

MODEL = api.read_model("Qwen/Qwen3-0.6B")


def candidate_of(offload, count=2, stage=3):
    return Candidate(
        model=MODEL,
        workload=Training(kind=TrainingKind.FULL, seq_len=1024, global_batch_size=8),
        cluster=place(Where(gpus=(("rtx-3090", count),))).cluster,
        engine="deepspeed",
        layout=Layout(dp=count, zero_stage=stage if count > 1 else 0),
        offload=offload,
    )


def zero(offload, count=2, stage=3):
    table = config(candidate_of(offload, count, stage))
    return table["zero_optimization"], table.get("aio")


def test_an_optimizer_on_the_host_is_deepspeeds_own():
    """DeepSpeed stops at any other, unless it is told to take it."""
    moved = candidate_of(Offload(optimizer=True))
    assert config(moved)["optimizer"]["type"] == "AdamW"
    assert config(replace(moved, optimizer="sgd"))["zero_force_ds_cpu_optimizer"] is False
    assert not {"optimizer", "zero_force_ds_cpu_optimizer"} & set(config(candidate_of(Offload())))


def test_host_memory_needs_no_buffers():
    table, aio = zero(Offload(optimizer=True, parameters=True))
    assert table["offload_optimizer"] == table["offload_param"] == {"device": "cpu", "pin_memory": True}
    assert aio is None
    assert "sub_group_size" not in table


def test_the_drive_gets_a_path_and_buffers():
    table, aio = zero(Offload(optimizer=True, parameters=True, optimizer_nvme=True, parameters_nvme=True))
    assert table["stage"] == 3
    assert table["offload_optimizer"] == {
        "device": "nvme", "pin_memory": True, "nvme_path": "nvme", "buffer_count": 4,
    }  # fmt: skip
    assert table["offload_param"]["buffer_size"] >= 151_936 * 1024 / 2
    assert table["offload_param"]["max_in_cpu"] == 0
    assert aio["queue_depth"] == 8


@pytest.mark.parametrize(
    ("offload", "stage"),
    [
        (Offload(), 0),
        (Offload(optimizer=True), 1),
        (Offload(optimizer=True, parameters=True), 3),
        (Offload(optimizer=True, optimizer_nvme=True), 3),
    ],
)
def test_one_card_that_moves_something_names_a_stage(offload, stage):
    """At stage 0 DeepSpeed moves nothing; on one card no stage shards."""
    assert zero(offload, count=1)[0]["stage"] == stage


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_several_cards_keep_the_stage_of_the_plan(stage):
    assert zero(Offload(optimizer=True), stage=stage)[0]["stage"] == stage


@pytest.mark.parametrize(
    "offload", [Offload(optimizer=True), Offload(optimizer=True, parameters=True), Offload(optimizer=True, optimizer_nvme=True)]
)  # fmt: skip
def test_one_card_that_moves_something_is_not_refused(offload):
    trainer = find_trainer("deepspeed")
    candidate = Candidate(
        model=MODEL,
        workload=Training(kind=TrainingKind.FULL, seq_len=1024, global_batch_size=8),
        cluster=place(Where(gpus=(("rtx-3090", 1),))).cluster,
        engine="deepspeed",
        offload=offload,
    )
    assert trainer is not None
    assert trainer.refuses(candidate) is None
