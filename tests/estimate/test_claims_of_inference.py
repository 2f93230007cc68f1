"""What the articles say of inference, held against the estimates."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tonnage.engines import find_engine
from tonnage.estimate.compose_serving import estimate_serving
from tonnage.plan.ask import answer
from tonnage.plan.request import make_request
from tonnage.probe.spec import read_spec

MOE = "Qwen/Qwen3.5-35B-A3B"


def first(model, gpu, **more):
    request = make_request(model, gpus=[gpu], limits={"engines": ("vllm",)}, pins={"precision.kv": "fp16", **more})
    found = answer(request, read_spec(model))
    return found.plans[0].estimate if found.plans else None


def with_device(estimate, **change):
    cluster = estimate.candidate.cluster
    devices = tuple(replace(device, **change) for device in cluster.node.devices)
    candidate = replace(estimate.candidate, cluster=replace(cluster, node=replace(cluster.node, devices=devices)))
    return estimate_serving(candidate, find_engine("vllm").accounting)


def test_13_decoding_a_mixture_hangs_on_bandwidth_and_on_the_experts_touched():
    plain = first(MOE, "h100", **{"precision.weights": "bf16"})
    device = plain.candidate.cluster.node.devices[0]
    wider = with_device(plain, bandwidth_bytes_per_s=2 * device.bandwidth_bytes_per_s)
    faster = with_device(plain, flop_per_s={name: 2 * rate for name, rate in device.flop_per_s.items()})
    tpot = plain.performance.tpot_seconds.best
    assert wider.performance.tpot_seconds.best < 0.75 * tpot
    assert faster.performance.tpot_seconds.best == pytest.approx(tpot, rel=0.02)
    dense = first("Qwen/Qwen3.5-27B", "h100", **{"precision.weights": "bf16"})
    assert tpot < 0.5 * dense.performance.tpot_seconds.best  # as large, but a tenth of it is read a token


def test_144_whether_8_bits_pay_depends_on_engine_and_card():
    model = "Qwen/Qwen3-8B"
    wide, int8, fp8 = (first(model, "rtx-4090", **{"precision.weights": w}) for w in ("bf16", "int8", "fp8"))
    for narrow in (int8, fp8):
        assert narrow.performance.tpot_seconds.best < 0.75 * wide.performance.tpot_seconds.best
        assert narrow.storage.weights_bytes < 0.65 * wide.storage.weights_bytes
    assert first(model, "tesla-v100-sxm2-16gb", **{"precision.weights": "fp8"}) is None  # no such kernels there
