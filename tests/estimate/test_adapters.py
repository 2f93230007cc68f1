"""Adapters and frozen weights: which matrices carry one, and in how many bytes the rest is held."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.estimate.test_compose_training import MODEL, MOE, case

from tonnage.estimate.compose_training import software, training_columns
from tonnage.estimate.compose_training.memory import stored_bytes
from tonnage.estimate.weights import find_format, weights_bytes
from tonnage.workload.precision import Precision
from tonnage.workload.types import TrainingKind

HIDDEN, QUERY, KEY, MLP, EXPERT, EXPERTS = 4096, 4096, 1024, 14336, 1024, 64
ATTENTION = (HIDDEN + QUERY) + 2 * (HIDDEN + KEY) + (QUERY + HIDDEN)  # q, k, v, o: inputs and outputs of each
FEED_FORWARD = 3 * (HIDDEN + MLP)


def adapters(targets, model=MODEL, rank=16):
    """Return the parameters that are trained, from their gradients of 4 bytes."""
    one = case(
        kind=TrainingKind.LORA, model=model, software=software("transformers"), precision=Precision(gradients="fp32")
    )
    columns = {"lora_rank": rank, "num_micro_batches": 4}
    return training_columns(replace(one, lora_targets=targets), columns).pools["gradients"] / 4


def test_adapters_by_hand():
    assert adapters(("all-linear",)) == 16 * 32 * (ATTENTION + FEED_FORWARD)
    assert adapters(("attention",)) == 16 * 32 * ATTENTION
    assert adapters(("q", "v")) == 16 * 32 * ((HIDDEN + QUERY) + (HIDDEN + KEY))


def test_routed_experts_carry_adapters_only_where_asked():
    """transformers 5 stacks experts into one tensor; LLaMA-Factory's `all` and axolotl's `lora_target_linear` miss it."""
    moe_attention = (HIDDEN + QUERY) + 2 * (HIDDEN + 512) + (QUERY + HIDDEN)
    linear = 2 * (ATTENTION + FEED_FORWARD) + 30 * moe_attention
    assert adapters(("all-linear",), MOE) == 16 * linear
    assert adapters(("all",), MOE) == 16 * (linear + 30 * EXPERTS * 3 * (HIDDEN + EXPERT))


@pytest.mark.parametrize(
    ("name", "known"),
    [("nf4", "nf4"), ("nf4_dq", "nf4_double"), ("int8", "int8"), ("awq", "awq"), ("gptq_int4", "gptq")],
)
def test_frozen_weights_take_what_the_model_command_says(name, known):
    """One table of formats: the pool of a job on one card is the sum that `tonnage model` prints."""
    one = case(kind=TrainingKind.QLORA, software=software("transformers"), precision=Precision(weights=name))
    assert stored_bytes(one)[0] == find_format(name).bits_per_weight / 8
    model = replace(MODEL, other_parameters={"embedding": 128256 * 4096, "lm_head": 128256 * 4096, "norm": 4096})
    frozen = replace(one, model=model, lora_targets=("nothing",))
    expected = sum(weights_bytes(model, known).values())
    assert training_columns(frozen, {}).pools["weights"] == pytest.approx(expected, rel=2e-3)


def test_experts_that_a_format_passes_over_stay_in_16_bit():
    quantized = Precision(weights="nf4_dq")
    one = case(kind=TrainingKind.QLORA, model=MOE, software=software("transformers"), precision=quantized)
    kept = replace(one, precision=replace(quantized, experts="bf16"))
    experts = 30 * EXPERTS * 3 * HIDDEN * EXPERT
    more = training_columns(kept, {}).pools["weights"] - training_columns(one, {}).pools["weights"]
    assert more == pytest.approx(experts * (2 - find_format("nf4_dq").bits_per_weight / 8), rel=1e-9)


def test_weights_that_stream_from_the_host_pass_the_device():
    """A layer at work lies on the device, on one card as on many."""
    one = case(kind=TrainingKind.LORA, software=software("deepspeed"), precision=Precision())
    pools = training_columns(one, {"zero_stage": 3, "offload_parameters": 1, "seq_len": 64}).pools
    assert pools["gathered_weights"] > 2 * 2 * MODEL.vocab_size * HIDDEN  # embedding and head alone
