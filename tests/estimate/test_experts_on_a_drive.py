"""Experts that host memory does not hold are read from a drive: how many are missed, how long it takes, when it is used."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tonnage import api
from tonnage.engines import ENGINES, find_engine
from tonnage.estimate.compose_serving import estimate_serving, serving_load
from tonnage.estimate.types import Candidate, Estimate, Offload
from tonnage.hardware.types import Drive
from tonnage.plan.request import make_request
from tonnage.plan.types import Where
from tonnage.plan.where import place
from tonnage.workload.precision import Precision
from tonnage.workload.types import Serving

MODEL = api.read_model("Qwen/Qwen3-235B-A22B")
ENGINE = find_engine("llama.cpp")
GIB = 1 << 30
LAYERS = 82


def candidate(host_gib=64.0, read=7e9, *, on_drive=True) -> Candidate:
    cluster = place(Where(gpus=(("rtx-4090", 1),))).cluster
    drive = Drive(free_bytes=10**13, read_bytes_per_s=read, write_bytes_per_s=read)
    host = replace(cluster.node.host, drive=drive, memory_bytes=round(host_gib * GIB))
    return Candidate(
        model=MODEL,
        workload=Serving(context_tokens=8192, concurrency=1, input_tokens=512, output_tokens=128),
        cluster=replace(cluster, node=replace(cluster.node, host=host)),
        engine="llama.cpp",
        precision=Precision(weights="q4_k_m", compute="bf16", kv="fp16"),
        offload=Offload(num_cpu_expert_layers=LAYERS, experts_nvme=on_drive),
    )


def estimate(*words, **flags) -> Estimate:
    return estimate_serving(candidate(*words, **flags), ENGINE.accounting)


def drive_seconds(one: Estimate) -> float:
    return next((part.seconds for part in one.step_time.parts if part.name == "drive"), 0.0)


@pytest.mark.parametrize("part", [0.25, 0.5, 0.8])
def test_of_evenly_chosen_experts_the_part_that_fits_is_there(part):
    """A memory that drops the longest unused, simulated: the derivation of `_mapped`."""
    rng, layers, experts, chosen = np.random.default_rng(7), 8, 64, 4
    cache: OrderedDict[tuple[int, int], None] = OrderedDict()
    hits = total = 0
    for token in range(600):
        for layer in range(layers):
            for expert in rng.choice(experts, chosen, replace=False):
                key = layer, int(expert)
                if token >= 100:
                    total += 1
                    hits += key in cache
                cache[key] = None
                cache.move_to_end(key)
                if len(cache) > part * layers * experts:
                    cache.popitem(last=False)
    assert hits / total == pytest.approx(part, abs=0.03)


def test_the_drive_s_time_by_hand():
    one, load = estimate(), serving_load(candidate(on_drive=False), ENGINE.accounting)
    host = float(ENGINE.accounting.memory(load).host_bytes())
    experts = sum(p.bytes for p in estimate(400.0, on_drive=False).footprint.pools if p.name == "host_weights")
    embedding = host - experts
    assert embedding >= 0
    read = experts * 8 / 128  # of each layer the experts that one token chooses
    expected = read * (host - 64 * GIB) / experts / (0.5 * 7e9)
    assert drive_seconds(one) == pytest.approx(expected, rel=0.02)
    assert one.footprint.host_total.best == pytest.approx(64 * GIB)
    assert one.footprint.fits


def test_what_memory_holds_is_not_read():
    there, here = estimate(200.0), estimate(200.0, on_drive=False)
    assert drive_seconds(there) == 0
    assert there.performance == here.performance


@settings(max_examples=20, deadline=None)
@given(st.floats(16, 200), st.floats(1, 100), st.floats(5e8, 2e10), st.floats(1, 8))
def test_more_memory_or_a_faster_drive_is_never_slower(gib, more, read, factor):
    slow = estimate(gib, read).performance
    for better in (estimate(gib + more, read).performance, estimate(gib, read * factor).performance):
        assert better.tpot_seconds.best <= slow.tpot_seconds.best * (1 + 1e-9)
        assert better.ttft_seconds.best <= slow.ttft_seconds.best * (1 + 1e-9)


def test_the_more_the_drive_does_the_wider_the_interval():
    widths = [
        (one.tpot_seconds.high - one.tpot_seconds.low) / one.tpot_seconds.best
        for one in (estimate(gib).performance for gib in (120.0, 100.0, 64.0, 24.0))
    ]
    assert widths == sorted(widths)
    assert widths[0] < widths[-1]


def plan(host, **words):
    return api.plan(make_request("Qwen/Qwen3-235B-A22B", gpus=["rtx-4090"], host=host, **words))


SLOW = {"load": {"tpot": "60s"}}


def test_a_drive_is_used_only_where_memory_is_too_small():
    for gib, used in ((200, False), (64, True)):
        answer = plan(f"{gib} GiB ddr5-5600 x2, nvme 2 TB", pins={"precision.weights": "q4_k_m"}, **SLOW)
        assert any(p.estimate.candidate.offload.experts_nvme for p in answer.plans) == used
    answer = plan("64 GiB ddr5-5600 x2, nvme 100 GB", pins={"precision.weights": "q4_k_m"}, **SLOW)
    assert not answer.plans  # the file is larger than the drive
    answer = plan("64 GiB ddr5-5600 x2", pins={"precision.weights": "q4_k_m"}, **SLOW)
    assert any("nvme 2 TB" in change.command for change in answer.rejections[0].changes)


def test_the_fewest_layers_on_the_host_are_the_fastest():
    """Brute force over the layers that fit the device: the search takes the best of them."""
    answer = plan("64 GiB ddr5-5600 x2, nvme 2 TB", pins={"precision.weights": "q4_k_m"}, **SLOW)
    mine = next(p.estimate for p in answer.plans if p.estimate.candidate.engine == "ik_llama.cpp")
    accounting = next(e for e in ENGINES if e.name == "ik_llama.cpp").accounting
    cell = mine.candidate
    assert cell.offload.experts_nvme
    every = [
        estimate_serving(replace(cell, offload=replace(cell.offload, num_cpu_expert_layers=n)), accounting)
        for n in range(cell.model.num_layers + 1)
    ]
    fitting = [one for one in every if one.footprint.fits_surely]
    best = max(one.performance.tokens_per_s.best for one in fitting)
    assert mine.performance.tokens_per_s.best == pytest.approx(best, rel=1e-9)


def test_the_launch_leaves_the_weights_pages_of_the_file():
    assert "--no-repack" in ENGINE.launch(candidate()).argv
    assert "--no-repack" not in ENGINE.launch(candidate(on_drive=False)).argv


@pytest.mark.parametrize("name", ["vllm", "ktransformers", "ollama", "sglang"])
def test_engines_that_load_all_refuse(name):
    engine = find_engine(name)
    one = replace(candidate(), engine=name, precision=Precision(weights="bf16", compute="bf16", kv="fp16"))
    one = replace(one, offload=Offload(experts_nvme=True))
    refusal = engine.refuses(one if name != "ollama" else replace(one, precision=candidate().precision))
    assert refusal is not None
    assert "drive" in refusal.reason
