"""What a solver answers fits, and one more does not, for every engine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tonnage.engines import ENGINES
from tonnage.estimate.compose_serving import (
    estimate_serving,
    largest_concurrency,
    largest_context,
    serving_load,
    short_by_bytes,
    smallest_num_cpu_expert_layers,
)
from tonnage.estimate.serving_limits import serving_limits
from tonnage.estimate.serving_speed import serving_times
from tonnage.estimate.types import Candidate, EngineSettings, Offload
from tonnage.hardware.types import Cluster, Device, Host, Link, Node
from tonnage.model.types import Attention, GatedDeltaNet, LatentAttention, Layer, Mlp, Model, Moe
from tonnage.search.space import cache_formats
from tonnage.units import GIB, MIB
from tonnage.workload.precision import Precision
from tonnage.workload.types import Serving

ATTENTION = Attention(num_heads=32, num_kv_heads=8, head_dim=128)
WINDOW = replace(ATTENTION, window_tokens=1024)
LATENT = LatentAttention(
    num_heads=32, q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128
)
DELTA = GatedDeltaNet(num_key_heads=16, num_value_heads=32, key_head_dim=128, value_head_dim=128, conv_kernel=4)
DENSE = Mlp(intermediate_size=8192)
EXPERTS = Moe(num_experts=64, top_k=6, expert_size=768)
FORMATS = {"llama.cpp": "q4_k_m", "ik_llama.cpp": "q4_k_m", "ollama": "q4_k_m"}


def model(*layers: Layer) -> Model:
    return Model(
        name="example",
        family="example",
        hidden_size=2048,
        vocab_size=64_000,
        layers=layers,
        other_parameters={"embedding": 64_000 * 2048, "lm_head": 64_000 * 2048, "norm": 2048},
    )


MODELS = {
    "dense": model(*[Layer(mixers=(ATTENTION,), feed_forwards=(DENSE,))] * 24),
    "windowed": model(*[Layer(mixers=(m,), feed_forwards=(DENSE,)) for m in (WINDOW, WINDOW, ATTENTION)] * 8),
    "hybrid": model(*[Layer(mixers=(m,), feed_forwards=(EXPERTS,)) for m in (DELTA, DELTA, DELTA, ATTENTION)] * 6),
    "latent": model(
        Layer(mixers=(LATENT,), feed_forwards=(DENSE,)), *[Layer(mixers=(LATENT,), feed_forwards=(EXPERTS,))] * 23
    ),
}


def candidate(name: str, engine: str, memory_gib: float, host_gib: float = 64.0, **workload: int) -> Candidate:
    device = Device(
        slug="x", name="x", vendor="NVIDIA", architecture="Ada", form_factor="PCIe", memory_bytes=round(memory_gib * GIB),
        memory_type="GDDR6X", bandwidth_bytes_per_s=7e11, flop_per_s={"bf16": 1e14, "fp16": 1e14, "int8": 4e14},
    )  # fmt: skip
    pcie = Link(name="pcie", kind="pcie", bytes_per_s=32e9)
    host = Host(memory_bytes=round(host_gib * GIB), bandwidth_bytes_per_s=8e10, pcie=pcie)
    return Candidate(
        model=MODELS[name],
        workload=Serving(**workload),
        cluster=Cluster(node=Node(devices=(device,), host=host)),
        engine=engine,
        precision=Precision(weights=FORMATS.get(engine, "bf16"), kv="fp16"),
    )


SLOTTED = {"llama.cpp", "ik_llama.cpp", "ollama", "transformers"}  # one slot a request, and the whole device


def fits(load, accounting) -> bool:
    return float(short_by_bytes(load, accounting.memory(load))) <= 0


SIZES = {
    "memory_gib": st.floats(6.0, 80.0),
    "context_tokens": st.integers(64, 60_000),
    "concurrency": st.integers(1, 40),
}


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
@given(name=st.sampled_from(sorted(MODELS)), **SIZES)
@settings(max_examples=12, deadline=None)
def test_one_more_does_not_fit(engine, name, memory_gib, context_tokens, concurrency):
    one = candidate(name, engine.name, memory_gib, context_tokens=context_tokens, concurrency=concurrency)
    load = serving_load(one, engine.accounting)
    most = largest_context(load, engine.accounting, 1 << 20)
    assert most == 0 or fits(replace(load, context_tokens=most), engine.accounting)
    assert most == 1 << 20 or not fits(replace(load, context_tokens=most + 1), engine.accounting)
    number = largest_concurrency(load, engine.accounting, 4096)
    assert number == 0 or fits(engine.accounting.with_concurrency(load, number), engine.accounting)
    assert number == 4096 or not fits(engine.accounting.with_concurrency(load, number + 1), engine.accounting)


@pytest.mark.parametrize("engine", [e for e in ENGINES if "experts_cpu" in e.traits.placements], ids=lambda e: e.name)
@given(name=st.sampled_from(["hybrid", "latent"]), memory_gib=st.floats(1.5, 12.0), host_gib=st.floats(2.0, 64.0))
@settings(max_examples=15, deadline=None)
def test_fewest_expert_layers_on_the_host(engine, name, memory_gib, host_gib):
    load = serving_load(candidate(name, engine.name, memory_gib, host_gib, context_tokens=4096), engine.accounting)
    number = smallest_num_cpu_expert_layers(load, engine.accounting)
    tried = [fits(replace(load, num_cpu_expert_layers=n), engine.accounting) for n in range(load.shape.num_layers + 1)]
    assert number == (tried.index(True) if True in tried else None)


def on(one: Candidate, memory_bytes: int) -> Candidate:
    devices = tuple(replace(device, memory_bytes=memory_bytes) for device in one.cluster.node.devices)
    return replace(one, cluster=replace(one.cluster, node=replace(one.cluster.node, devices=devices)))


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
@given(name=st.sampled_from(sorted(MODELS)), **SIZES)
@settings(max_examples=8, deadline=None)
def test_limits_are_the_last_that_fit(engine, name, memory_gib, context_tokens, concurrency):
    """Sequences, share of the device, and the device itself: the limit fits, one step beyond it does not."""
    one = candidate(name, engine.name, memory_gib, context_tokens=context_tokens, concurrency=concurrency)
    load, accounting = serving_load(one, engine.accounting), engine.accounting
    found = serving_limits(one, accounting)
    if found.max_num_seqs is None:
        assert engine.name in SLOTTED
    elif found.max_num_seqs:
        assert fits(replace(load, max_num_seqs=found.max_num_seqs), accounting)
        assert found.max_num_seqs == 1 << 14 or not fits(replace(load, max_num_seqs=found.max_num_seqs + 1), accounting)
    else:
        assert not fits(replace(load, max_num_seqs=concurrency), accounting)
    share = found.least_utilization_ratio
    if share is None:
        assert engine.name in SLOTTED or not fits(replace(load, utilization_ratio=1.0), accounting)
    else:
        assert fits(replace(load, utilization_ratio=share), accounting)
        assert not fits(replace(load, utilization_ratio=share - 0.01), accounting)
    least = found.least_memory_bytes
    assert least is not None
    assert fits(serving_load(on(one, least), accounting), accounting)
    assert not fits(serving_load(on(one, least - MIB), accounting), accounting)


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
@given(name=st.sampled_from(sorted(MODELS)), context_tokens=st.integers(4096, 60_000), concurrency=st.integers(1, 8))
@settings(max_examples=6, deadline=None)
def test_a_smaller_cache_format_never_holds_less(engine, name, context_tokens, concurrency):
    """The walk over formats takes the first that fits: fewer bits need no more memory."""
    one = candidate(name, engine.name, 16.0, context_tokens=context_tokens, concurrency=concurrency)
    needs = []
    for kv in cache_formats(engine.traits):
        load = serving_load(replace(one, precision=replace(one.precision, kv=kv)), engine.accounting)
        needs.append((load.cache_bytes_per_element, float(engine.accounting.memory(load).device_bytes())))
    in_order = sorted(needs)
    assert [total for _, total in in_order] == sorted(total for _, total in in_order)


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_column_gives_what_each_number_gives(engine, name):
    load = serving_load(candidate(name, engine.name, 24.0, context_tokens=4096, concurrency=4), engine.accounting)
    has_experts = "experts_cpu" in engine.traits.placements and name in ("hybrid", "latent")
    grid = [
        (tokens, tp, pp, experts)
        for tokens in (100, 5000)
        for tp in (1, 2)
        for pp in (1, 3)
        for experts in ((0, 7) if has_experts else (0,))
    ]
    columns = [np.array(column) for column in zip(*grid, strict=True)]
    many = replace(load, context_tokens=columns[0], tp=columns[1], pp=columns[2], num_cpu_expert_layers=columns[3])
    memory = engine.accounting.memory(many)
    times = serving_times(many, engine.accounting.rates(many), memory.cache_tokens)
    for i, (tokens, tp, pp, experts) in enumerate(grid):
        one = replace(load, context_tokens=tokens, tp=tp, pp=pp, num_cpu_expert_layers=experts)
        single = engine.accounting.memory(one)
        alone = serving_times(one, engine.accounting.rates(one), single.cache_tokens)
        assert np.broadcast_to(memory.device_bytes(), len(grid))[i] == pytest.approx(single.device_bytes())
        assert np.broadcast_to(times.tpot_seconds, len(grid))[i] == pytest.approx(float(alone.tpot_seconds))
        assert np.broadcast_to(times.prefill_seconds, len(grid))[i] == pytest.approx(float(alone.prefill_seconds))


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_pools_add_up_and_the_launch_says_what_was_assumed(engine):
    one = candidate("dense", engine.name, 24.0, context_tokens=6000, concurrency=3)
    found = estimate_serving(one, engine.accounting)
    device = sum(pool.bytes for pool in found.footprint.pools if not pool.is_on_host)
    assert found.footprint.total.best == pytest.approx(device)
    assert sum(part.seconds for part in found.step_time.parts) == pytest.approx(found.step_time.total.best)
    line = engine.launch(one)
    if engine.name not in ("transformers", "ollama"):
        assert any("6000" in word or "18000" in word for word in line.argv)


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_what_an_engine_does_not_do_is_refused_with_a_reason(engine):
    good = candidate("hybrid", engine.name, 24.0)
    assert engine.refuses(good) is None
    strange = replace(good, precision=Precision(weights="no_such_format", kv="fp16"))
    refusal = engine.refuses(strange)
    assert refusal is not None
    assert "no_such_format" in refusal.reason
    assert refusal.source
    away = engine.refuses(replace(good, offload=Offload(num_cpu_expert_layers=2)))
    assert (away is None) == ("experts_cpu" in engine.traits.placements)


def test_vllm_refuses_a_share_of_more_than_what_is_free():
    """A desktop that holds 2 GiB: 0.92 of the card is refused, the share that is found fits, by exactly the bytes."""
    vllm = ENGINES[0]
    one = candidate("dense", "vllm", 24.0, context_tokens=4096)
    node = replace(one.cluster.node, reserved_bytes=2 * GIB)
    one = replace(one, cluster=replace(one.cluster, node=node))
    asked = replace(one, settings=EngineSettings(utilization_ratio=0.95))
    load = serving_load(asked, vllm.accounting)
    short = float(short_by_bytes(load, vllm.accounting.memory(load)))
    assert short == pytest.approx(0.95 * vllm.accounting.visible_bytes(load) - load.free_bytes)
    assert short > 0
    assert fits(serving_load(one, vllm.accounting), vllm.accounting)
    assert fits(replace(load, version="0.7.3"), vllm.accounting)
    least = serving_limits(asked, vllm.accounting).least_utilization_ratio
    assert least is not None
    assert least < 0.92


def test_fewer_sequences_leave_more_cache():
    vllm = ENGINES[0]
    one = candidate("dense", "vllm", 24.0)
    few = serving_load(replace(one, settings=EngineSettings(max_num_seqs=16)), vllm.accounting)
    many = serving_load(replace(one, settings=EngineSettings(max_num_seqs=1024)), vllm.accounting)
    assert vllm.accounting.memory(few).cache_bytes > vllm.accounting.memory(many).cache_bytes
