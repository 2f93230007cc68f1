"""Splitting a training job: links and algorithms set the time of collectives, and both step time and interval are told."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.estimate.test_compose_training import candidate

from tonnage.estimate.collectives import all_gather_seconds, all_reduce_seconds
from tonnage.estimate.compose_training import estimate_training
from tonnage.estimate.types import Layout
from tonnage.hardware.types import Link


def test_a_ring_reduction_by_hand():
    """Each rank sends 2·(n − 1)/n of the bytes; a gather half of that (arXiv:1802.05799)."""
    size, ranks, rate = 1e9, 8, 1e11
    assert all_reduce_seconds(size, ranks, rate, 0.0) == pytest.approx(2 * 7 / 8 * size / rate)
    assert all_gather_seconds(size, ranks, rate, 0.0) == pytest.approx(7 / 8 * size / rate)


def collectives(link, layout):
    base = candidate(layout=layout)
    peers = tuple(replace(device, has_p2p=True) for device in base.cluster.node.devices)
    node = replace(base.cluster.node, devices=peers, intra_link=link)
    parts = estimate_training(replace(base, cluster=replace(base.cluster, node=node))).step_time.parts
    return sum(part.seconds for part in parts if "collectives" in part.name)


def test_the_link_sets_what_tensor_parallelism_costs():
    layout = Layout(dp=1, tp=8, has_sequence_parallel=True)
    nvlink = Link(name="NVLink 4", kind="nvlink", bytes_per_s=450e9)
    pcie = Link(name="PCIe 5", kind="pcie", bytes_per_s=64e9)
    fast, slow = (collectives(link, layout) for link in (nvlink, pcie))
    assert 3 < slow / fast < 20  # seven times the rate, and less of it reached over PCIe
    assert collectives(nvlink, Layout(dp=8, tp=1, zero_stage=1)) < fast  # gradients once, not every layer's outputs


def test_step_time_is_told_with_an_interval():
    estimate = estimate_training(candidate())
    step = estimate.performance.step_seconds
    assert step.low < step.best < step.high
    assert step.best == pytest.approx(sum(part.seconds for part in estimate.step_time.parts), rel=1e-9)
