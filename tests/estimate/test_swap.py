"""What training swaps with a drive: counted by hand, never faster than host memory, faster with a faster drive."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tonnage import api
from tonnage.estimate import swap
from tonnage.estimate.compose_training import case_of, drive_bytes, estimate_training
from tonnage.estimate.compose_training.case import filled
from tonnage.estimate.types import Candidate, Estimate, Layout, Offload
from tonnage.hardware.types import Drive
from tonnage.plan.types import Where
from tonnage.plan.where import place
from tonnage.workload.types import Training, TrainingKind

SMALL = api.read_model("Qwen/Qwen3-0.6B")
SPARSE = api.read_model("Qwen/Qwen3-30B-A3B")
ON_HOST = Offload(optimizer=True, parameters=True)
ON_DRIVE = Offload(optimizer=True, parameters=True, optimizer_nvme=True, parameters_nvme=True)
HALF_ON_DRIVE = Offload(optimizer=True, parameters=True, optimizer_nvme=True)


def estimate(offload, *, read=7e9, write=5e9, count=2, model=SMALL, kind=TrainingKind.FULL, micro=1) -> Estimate:
    cluster = place(Where(gpus=(("rtx-3090", count),))).cluster
    drive = Drive(free_bytes=10**13, read_bytes_per_s=read, write_bytes_per_s=write)
    host = replace(cluster.node.host, drive=drive)
    return estimate_training(
        Candidate(
            model=model,
            workload=Training(kind=kind, seq_len=1024, global_batch_size=8),
            cluster=replace(cluster, node=replace(cluster.node, host=host)),
            engine="deepspeed",
            layout=Layout(dp=count, zero_stage=3),
            offload=offload,
            micro_batch_size=micro,
        )
    )


def part(one: Estimate, name: str) -> float:
    return next((p.seconds for p in one.step_time.parts if p.name == name), 0.0)


def host_pool(one: Estimate, name: str) -> float:
    return next((p.bytes for p in one.footprint.pools if p.name == name), 0.0)


def test_the_drive_holds_sixteen_bytes_a_parameter_and_the_weights():
    n = 596_049_920  # of transformers' Qwen3-0.6B
    both, half = estimate(ON_DRIVE), estimate(HALF_ON_DRIVE)
    assert both.storage.offload_bytes == pytest.approx(18 * n, rel=2e-3)
    assert half.storage.offload_bytes == pytest.approx(16 * n, rel=2e-3)
    assert estimate(ON_HOST).storage.offload_bytes is None


def test_the_optimizer_s_traffic_by_hand():
    n = estimate(HALF_ON_DRIVE).storage.offload_bytes / 16
    seconds = part(estimate(HALF_ON_DRIVE, read=8e9, write=2e9), "drive traffic")
    assert seconds == pytest.approx(16 * n / 8e9 + 16 * n / 2e9)


def test_host_memory_by_hand():
    """Two ranks: gradients in 16 bit stay, four fp32 buffers of one group, five of the embedding's half, a group out."""
    one = estimate(ON_DRIVE)
    n = one.storage.offload_bytes / 18
    share = 151_936 * 1024 / 2
    group = min(n / 2, 1e8 + share)
    assert host_pool(one, "host_optimizer") == pytest.approx(2 * n)
    assert host_pool(one, "host_weights") == 0
    assert host_pool(one, "host_swap_buffers") == pytest.approx(2 * (16 * group + 5 * 2 * share + 2 * group))


@pytest.mark.parametrize("model", [SMALL, SPARSE], ids=["dense", "experts"])
@pytest.mark.parametrize("offload", [ON_DRIVE, HALF_ON_DRIVE], ids=["all", "optimizer"])
def test_a_drive_is_slower_than_host_memory_and_takes_as_much_of_the_device(model, offload):
    here, there = estimate(ON_HOST, model=model, count=4), estimate(offload, model=model, count=4)
    assert there.step_time.total.best > here.step_time.total.best
    assert there.footprint.total == here.footprint.total


def test_large_jobs_need_less_host_memory():
    here, half, all_ = (estimate(o, model=SPARSE, count=8) for o in (ON_HOST, HALF_ON_DRIVE, ON_DRIVE))
    assert all_.footprint.host_total.best < half.footprint.host_total.best < here.footprint.host_total.best


def test_frozen_weights_are_read_and_never_written():
    frozen = Offload(parameters=True, parameters_nvme=True)
    one, other = (estimate(frozen, kind=TrainingKind.LORA, write=w) for w in (5e9, 1e9))
    assert part(one, "drive traffic") == part(other, "drive traffic") > 0


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([ON_DRIVE, HALF_ON_DRIVE]),
    st.floats(1e8, 5e10),
    st.floats(1e8, 5e10),
    st.floats(1.01, 10),
    st.sampled_from([1, 2, 4]),
)
def test_a_faster_drive_is_never_slower(offload, read, write, factor, micro):
    slow = estimate(offload, read=read, write=write, micro=micro)
    for one in (
        estimate(offload, read=read * factor, write=write, micro=micro),
        estimate(offload, read=read, write=write * factor, micro=micro),
    ):
        assert one.step_time.total.best <= slow.step_time.total.best
        assert one.footprint == slow.footprint
    assert slow.step_time.total.best >= slow.storage.offload_bytes / max(read, write)


def test_what_is_read_ahead_hides_behind_no_more_computation_than_there_is():
    slow = estimate(ON_DRIVE, read=1e7, write=1e12)
    read = (16 + 2 * 2 * 4) * slow.storage.offload_bytes / 18 / 1e7
    assert part(slow, "drive traffic") > 0.9 * read


def test_columns_are_what_candidates_are():
    case = case_of(estimate(ON_DRIVE).candidate)
    ranks = np.array([1.0, 2.0, 4.0])
    together = drive_bytes(case, filled({"dp": ranks, "zero_stage": 3, "nvme_optimizer": 1, "nvme_parameters": 1}))
    for number, ways in enumerate(ranks):
        alone = drive_bytes(case, filled({"dp": ways, "zero_stage": 3, "nvme_optimizer": 1, "nvme_parameters": 1}))
        assert together[number] == pytest.approx(float(alone))


def test_the_routed_experts_of_a_layer_are_one_tensor():
    assert swap.largest_tensor(SPARSE) == 128 * 2 * 768 * 2048
    assert swap.largest_tensor(SMALL) == 151_936 * 1024
