"""Where device and host have one memory, nothing moves to the host to make room: both shares count together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage import api
from tonnage.estimate.types import Footprint, Interval
from tonnage.plan.request import make_request
from tonnage.plan.types import Where
from tonnage.plan.where import place


@pytest.mark.parametrize("gpu", ["jetson-agx-orin-64gb", "strix-halo-395", "dgx-spark-gb10"])
@pytest.mark.parametrize(
    "words", [{"goal": "finetune", "finetune": "full"}, {"goal": "finetune", "finetune": "lora"}, {"goal": "serve"}]
)
def test_device_and_host_fit_one_memory(gpu, words):
    answer = api.plan(make_request("Qwen/Qwen3-8B", gpus=[gpu], **words))
    for plan in answer.plans:
        held = plan.estimate.footprint
        assert held.is_shared
        least = held.total.best if held.least_bytes is None else held.least_bytes
        assert least + held.host_total.best <= held.capacity_bytes * 1.001
        offload = plan.estimate.candidate.offload
        assert not offload.num_cpu_layers
        assert not offload.num_cpu_expert_layers


def test_moving_the_optimizer_to_the_host_gains_nothing():
    """8B with fp32 masters need more than 64 GiB wherever they lie."""
    words = {"goal": "finetune", "finetune": "full", "gpus": ["jetson-agx-orin-64gb"]}
    answer = api.plan(make_request("Qwen/Qwen3-8B", limits={"engines": ["deepspeed"]}, **words))
    assert not answer.plans
    assert answer.rejections[0].short_by_bytes > 0


def test_of_a_named_host_the_drive_counts_and_the_memory_does_not():
    words = "512 GiB ddr5-5600 x8, nvme 2 TB, 12 cores"
    host = place(Where(gpus=(("jetson-agx-orin-64gb", 1),), host=words)).cluster.node.host
    assert host.memory_bytes == 64 * 2**30
    assert host.drive.free_bytes == 2 * 10**12
    assert host.num_cores == 12


@given(st.floats(1, 200), st.floats(0, 1), st.floats(0, 200), st.floats(1, 1.5))
def test_what_is_taken_lies_between_the_least_and_the_sum(total, part, host, width):
    held = Footprint(
        capacity_bytes=100,
        pools=(),
        total=Interval(best=total, low=total / width, high=total * width),
        host_capacity_bytes=100,
        host_total=Interval.exact(host),
        least_bytes=total * part,
        is_shared=True,
    )
    taken = held.taken.best
    assert min(total, total * part + host) <= taken <= total + host + 1e-9
    assert host == 0 or (taken <= 100) == (min(total + host, total * part + host) <= 100)
    assert not held.fits_surely or (held.fits and held.taken.high <= 100)
