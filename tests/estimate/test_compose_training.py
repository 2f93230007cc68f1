"""Training estimates: pools sum, more is never less, modes are ordered, columns equal scalars."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tonnage.errors import RequestError
from tonnage.estimate.compose_training import TrainingCase, estimate_training, software, training_columns
from tonnage.estimate.types import Candidate, Layout, Recompute
from tonnage.hardware.types import Cluster, Device, Host, Node
from tonnage.model.types import Attention, Layer, Mlp, Model, Moe
from tonnage.workload.precision import Precision
from tonnage.workload.types import Serving, Training, TrainingKind

H100 = Device(
    slug="h100-sxm5",
    name="H100 SXM",
    vendor="NVIDIA",
    architecture="Hopper",
    form_factor="SXM",
    memory_bytes=81559 * 2**20,
    memory_type="HBM3",
    bandwidth_bytes_per_s=3.35e12,
    flop_per_s={"fp32": 67e12, "bf16": 989e12, "fp16": 989e12, "fp8": 1979e12},
    nvlink_bytes_per_s=450e9,
    power_watts=700,
)
DENSE = Layer(
    mixers=(Attention(num_heads=32, num_kv_heads=8, head_dim=128),),
    feed_forwards=(Mlp(intermediate_size=14336),),
    norm_parameters=8192,
)
ROUTED = Layer(
    mixers=(Attention(num_heads=32, num_kv_heads=4, head_dim=128, qk_norm="head"),),
    feed_forwards=(Moe(num_experts=64, top_k=4, expert_size=1024),),
    norm_parameters=8192,
)
MODEL = Model(name="dense", family="llama", hidden_size=4096, vocab_size=128256, layers=(DENSE,) * 32)
MOE = Model(name="moe", family="qwen3_moe", hidden_size=4096, vocab_size=128256, layers=(DENSE,) * 2 + (ROUTED,) * 30)
MIXED = Precision(weights="bf16", gradients="fp32", has_fp32_master=True)


def candidate(**changes) -> Candidate:
    node = Node(devices=(H100,) * 8, host=Host(memory_bytes=2**40, bandwidth_bytes_per_s=3e11))
    base = Candidate(
        model=MODEL,
        workload=Training(kind=TrainingKind.PRETRAIN, seq_len=4096, global_batch_size=64),
        cluster=Cluster(node=node),
        engine="megatron",
        layout=Layout(dp=2, tp=4, zero_stage=1, has_sequence_parallel=True),
        precision=MIXED,
    )
    return replace(base, **changes)


def case(**changes) -> TrainingCase:
    base = TrainingCase(
        model=MODEL, kind=TrainingKind.PRETRAIN, device=H100, software=software("megatron"), precision=MIXED
    )
    return replace(base, **changes)


def test_pools_sum_to_the_total():
    estimate = estimate_training(candidate())
    total = sum(p.bytes for p in estimate.footprint.pools if not p.is_on_host)
    assert total == pytest.approx(estimate.footprint.total.best, rel=1e-12)
    assert sum(p.seconds for p in estimate.step_time.parts) == pytest.approx(estimate.step_time.total.best, rel=1e-9)


COLUMNS = {
    "dp": st.sampled_from([1, 2, 8, 64]),
    "tp": st.sampled_from([1, 2, 4, 8]),
    "pp": st.sampled_from([1, 2, 4, 8]),
    "cp": st.sampled_from([1, 2]),
    "ep": st.sampled_from([1, 2, 8]),
    "micro_batch_size": st.integers(1, 8),
    "num_micro_batches": st.sampled_from([1, 4, 16, 128]),
    "seq_len": st.sampled_from([512, 1000, 4096, 32768]),
    "zero_stage": st.integers(0, 3),
    "has_sequence_parallel": st.integers(0, 1),
    "recompute": st.integers(0, 2),
    "offload_optimizer": st.integers(0, 1),
    "offload_activations": st.integers(0, 1),
}
SOFTWARE = st.sampled_from(["megatron", "transformers", "torchtitan", "litgpt", "unsloth"])
KINDS = st.sampled_from(list(TrainingKind))


@settings(max_examples=60, deadline=None)
@given(st.fixed_dictionaries(COLUMNS), SOFTWARE, KINDS, st.sampled_from([MODEL, MOE]))
def test_more_work_never_needs_less_memory(columns, name, kind, model):
    one = case(software=software(name), kind=kind, model=model)
    base = training_columns(one, columns).device_bytes
    for name_of_more in ("micro_batch_size", "seq_len"):
        more = training_columns(one, {**columns, name_of_more: columns[name_of_more] * 2}).device_bytes
        assert more >= base
    deeper = replace(one, model=replace(model, layers=(*model.layers, *model.layers[-8:])))
    assert training_columns(deeper, columns).device_bytes >= base


@settings(max_examples=60, deadline=None)
@given(st.fixed_dictionaries(COLUMNS), SOFTWARE, KINDS, st.sampled_from([MODEL, MOE]), st.booleans())
def test_recomputing_more_never_needs_more_memory_or_less_time(columns, name, kind, model, has_flash):
    one = case(software=software(name), kind=kind, model=model, has_flash_attention=has_flash)
    none, selective, full = (training_columns(one, {**columns, "recompute": mode}) for mode in (0, 1, 2))
    assert none.device_bytes * (1 + 1e-9) >= selective.device_bytes
    assert selective.device_bytes * (1 + 1e-9) >= full.device_bytes
    assert none.step_seconds <= selective.step_seconds * (1 + 1e-9)
    assert selective.step_seconds <= full.step_seconds * (1 + 1e-9)


def test_tensor_parallelism_halves_what_it_divides():
    columns = {"tp": 2, "has_sequence_parallel": 1, "seq_len": 8192}
    two = training_columns(case(), columns).pools
    four = training_columns(case(), {**columns, "tp": 4}).pools
    for name in ("weights", "gradients", "optimizer_states", "activations", "logits"):
        assert four[name] == pytest.approx(two[name] / 2, rel=0.01)


def test_columns_equal_scalars():
    rng = np.random.default_rng(7)
    n = 200
    choices = {
        "dp": [1, 2, 8, 64], "tp": [1, 2, 4, 8], "pp": [1, 2, 4], "cp": [1, 2], "ep": [1, 2, 4],
        "micro_batch_size": [1, 2, 3], "num_micro_batches": [1, 4, 32], "seq_len": [512, 4096],
        "zero_stage": [0, 1, 2, 3], "has_sequence_parallel": [0, 1], "recompute": [0, 1, 2],
        "num_virtual_stages": [1, 2], "offload_parameters": [0, 1],
    }  # fmt: skip
    columns = {name: rng.choice(values, n) for name, values in choices.items()}
    for model in (MODEL, MOE):
        many = training_columns(case(model=model), columns)
        for i in range(0, n, 7):
            one = training_columns(case(model=model), {name: int(v[i]) for name, v in columns.items()})
            assert many.device_bytes[i] == pytest.approx(one.device_bytes, rel=1e-12)
            assert many.host_bytes[i] == pytest.approx(one.host_bytes, rel=1e-12)
            assert many.step_seconds[i] == pytest.approx(one.step_seconds, rel=1e-12)
            for name, value in one.pools.items():
                assert np.broadcast_to(many.pools[name], n)[i] == pytest.approx(value, rel=1e-12)


def test_states_of_a_mixed_precision_run_are_eighteen_bytes_a_parameter():
    layout = Layout(dp=1, tp=1, pp=1)
    estimate = estimate_training(candidate(layout=layout, workload=replace(candidate().workload, global_batch_size=1)))
    pools = {p.name: p.bytes for p in estimate.footprint.pools}
    states = sum(pools[name] for name in ("weights", "gradients", "master_weights", "optimizer_states"))
    assert states / 8_030_257_152 == pytest.approx(18.0, rel=1e-4)


def test_a_serving_candidate_and_an_unknown_engine_are_refused():
    with pytest.raises(RequestError, match="no training job"):
        estimate_training(candidate(workload=Serving()))
    with pytest.raises(RequestError, match="megatronx"):
        estimate_training(candidate(engine="megatronx"))


@pytest.mark.parametrize("mode", list(Recompute))
def test_every_mode_and_kind_gives_finite_numbers(mode):
    for kind in TrainingKind:
        weights = {"qlora": "nf4"}.get(kind.value, "bf16")
        estimate = estimate_training(
            candidate(
                recompute=mode,
                workload=Training(kind=kind, seq_len=2048, global_batch_size=16, num_tokens=10**9),
                precision=replace(MIXED, weights=weights),
            )
        )
        assert 0 < estimate.footprint.total.best < 1e13
        assert 0 < estimate.performance.tokens_per_s_per_gpu.best < 1e7
        assert estimate.performance.job_seconds.best > 0


def test_a_checkpoint_holds_what_the_plan_trains_with():
    """Weights, masters and states: 2+4+8 B of mixed precision, 4+8 of fp32, 2+4 of bf16 states, 2+2 of 8-bit states."""

    def size(kind=TrainingKind.PRETRAIN, **changes) -> float:
        load = Training(kind=kind, seq_len=4096, global_batch_size=64)
        return estimate_training(candidate(workload=load, **changes)).storage.checkpoints_bytes or 0.0

    plain, fp32 = Precision(weights="bf16", gradients="bf16"), Precision(weights="fp32", gradients="fp32")
    number = size() / 14
    assert size(precision=fp32) == pytest.approx(12 * number)
    assert size(precision=plain, optimizer="adamw_bf16") == pytest.approx(6 * number)
    assert size(precision=plain, optimizer="adamw_8bit") == pytest.approx(4 * number)
    assert size(precision=plain, optimizer="sgd") == pytest.approx(2 * number)
    assert 2 * number < size(precision=plain, optimizer="adafactor") < 2.1 * number
    adapters = size(TrainingKind.LORA, precision=plain, engine="transformers", layout=Layout())
    assert adapters < 0.02 * size(precision=plain)


def test_weights_that_are_gathered_in_16_bits_are_not_cast_again():
    """FSDP2 gathers in the type that computes (torch 2.13 MixedPrecisionPolicy); copies and one device cast."""
    precision = Precision(weights="fp32", gradients="fp32")

    def casts(layout):
        told = estimate_training(candidate(engine="transformers", layout=layout, precision=precision))
        return {pool.name: pool.bytes for pool in told.footprint.pools}.get("cast_weights", 0.0)

    assert casts(Layout(dp=8)) > 6e9
    assert casts(Layout(dp=8, zero_stage=2)) > 6e9
    assert casts(Layout(dp=8, zero_stage=3)) == 0
