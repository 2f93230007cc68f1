"""Nouns for tests that need no formula: a small mixed model, two cards, an estimate with round numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tonnage.estimate.types import (
    Candidate,
    Cost,
    Estimate,
    Footprint,
    Interval,
    Offload,
    Performance,
    Pool,
    Provenance,
    StepTime,
    Storage,
    TimePart,
)
from tonnage.hardware.types import Cluster, Device, Host, Link, Node
from tonnage.model.types import Attention, GatedDeltaNet, Layer, Mlp, Model, Moe
from tonnage.units import GIB
from tonnage.workload.types import Serving

DENSE = Layer(
    mixers=(Attention(num_heads=8, num_kv_heads=2, head_dim=64),),
    feed_forwards=(Mlp(intermediate_size=1024),),
    norm_parameters=1024,
)
SPARSE = Layer(
    mixers=(GatedDeltaNet(num_key_heads=4, num_value_heads=8, key_head_dim=64, value_head_dim=64, conv_kernel=4),),
    feed_forwards=(Moe(num_experts=16, top_k=2, expert_size=256, shared=Mlp(intermediate_size=256)),),
)
MODEL = Model(
    name="tiny",
    family="tiny",
    hidden_size=512,
    vocab_size=1000,
    layers=(SPARSE, SPARSE, SPARSE, DENSE) * 2,
    other_parameters={"embedding": 512_000, "lm_head": 512_000},
)
DEVICE = Device(
    slug="card-16",
    name="Card 16",
    vendor="NVIDIA",
    architecture="Ada",
    form_factor="PCIe card",
    memory_bytes=16 * GIB,
    memory_type="GDDR6X",
    bandwidth_bytes_per_s=7e11,
    flop_per_s={"bf16": 9.7e13},
)
HOST = Host(
    memory_bytes=64 * GIB,
    bandwidth_bytes_per_s=8e10,
    pcie=Link(name="PCIe 4 x16", kind="pcie", bytes_per_s=31.5e9),
)
CLUSTER = Cluster(node=Node(devices=(DEVICE, DEVICE), host=HOST))


def make_candidate(**changes: Any) -> Candidate:
    return replace(
        Candidate(
            model=MODEL, workload=Serving(), cluster=CLUSTER, engine="llama.cpp", offload=Offload(num_cpu_layers=1)
        ),
        **changes,
    )


def make_estimate(candidate: Candidate | None = None, *, total: float = 10 * GIB) -> Estimate:
    pools = (
        Pool(name="weights", bytes=total * 0.75, formula="weights.weights_bytes", detail="1 x 2", relative_error=0.01),
        Pool(name="kv_cache", bytes=total * 0.25, formula="kv_cache.kv_cache_bytes"),
        Pool(name="experts", bytes=3.0 * GIB, formula="weights.weights_bytes", is_on_host=True),
    )
    return Estimate(
        candidate=candidate or make_candidate(),
        footprint=Footprint(
            capacity_bytes=16 * GIB,
            pools=pools,
            total=Interval.around(total, 0.05),
            host_capacity_bytes=60 * GIB,
            host_total=Interval.exact(3.0 * GIB),
        ),
        step_time=StepTime(
            parts=(TimePart(name="read weights", seconds=0.01, formula="offload.decode_seconds"),),
            total=Interval.around(0.01, 0.2),
        ),
        performance=Performance(tokens_per_s=Interval.around(100.0, 0.2), tpot_seconds=Interval.around(0.01, 0.2)),
        cost=Cost(),
        storage=Storage(weights_bytes=9.5e9),
        provenance=Provenance(formulae=("weights.weights_bytes",), assumptions=("desktop takes 512 MiB (--reserve)",)),
    )
