"""Laws of training memory that hold whatever the calibrated constants are within their plausible ranges.

Each example is a few hundred random candidates evaluated as columns, so that rare corners are met too: near-full cards,
pipeline ranks of one layer, optimizer steps that take more than backward.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.estimate.test_compose_training import DENSE, H100, MODEL, MOE, ROUTED, case

from tonnage import datafiles
from tonnage.estimate.compose_training import software, training_columns
from tonnage.estimate.compose_training.constants import CALIBRATION
from tonnage.workload.types import TrainingKind

CHOICES = {
    "dp": [1, 2, 8, 64], "tp": [1, 2, 4, 8], "pp": [1, 2, 4, 8, 32], "cp": [1, 2], "ep": [1, 2, 8],
    "micro_batch_size": [1, 2, 3, 5, 8], "num_micro_batches": [1, 4, 16, 128], "seq_len": [512, 1000, 4096, 32768],
    "zero_stage": [0, 1, 2, 3], "has_sequence_parallel": [0, 1], "num_virtual_stages": [1, 2],
    "recompute": [0, 1, 2], "offload_optimizer": [0, 1], "offload_activations": [0, 1], "offload_parameters": [0, 1],
}  # fmt: skip
NUM = 300
JOBS = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**31),
        "name": st.sampled_from(
            ["megatron", "transformers", "torchtitan", "litgpt", "unsloth", "deepspeed", "torchtune"]
        ),
        "kind": st.sampled_from(list(TrainingKind)),
        "model": st.sampled_from([MODEL, MOE]),
        "gib": st.sampled_from([24, 80, 1000]),
        "has_flash": st.booleans(),
        "has_fused_loss": st.booleans(),
    }
)


def drawn(job):
    """Return a case, columns of many candidates, and constants anywhere in their ranges."""
    rng = np.random.default_rng(job["seed"])
    constants = {
        name: rng.uniform(row["low"], row["high"]) if "low" in row else row["value"]
        for name, row in datafiles.table(CALIBRATION).items()
    }
    columns = {name: rng.choice(values, NUM) for name, values in CHOICES.items()}
    one = case(
        software=software(job["name"]),
        kind=job["kind"],
        model=job["model"],
        device=replace(H100, memory_bytes=job["gib"] * 2**30),
        has_flash_attention=job["has_flash"],
        has_fused_loss=job["has_fused_loss"],
    )
    return one, columns, constants


def never_more(less, more):
    assert np.all(less <= more * (1 + 1e-9)), float(np.max(less / more - 1))


@settings(max_examples=40, deadline=None)
@given(JOBS)
def test_recomputing_more_never_needs_more(job):
    """None ≥ selective ≥ full layer by layer; in segments of several layers, which hold one whole, none ≥ full."""
    one, columns, constants = drawn(job)
    none, selective, full = (
        training_columns(one, {**columns, "recompute": mode}, constants).device_bytes for mode in (0, 1, 2)
    )
    segments = training_columns(one, {**columns, "recompute": 2, "recompute_every": 4}, constants).device_bytes
    never_more(selective, none)
    never_more(full, selective)
    never_more(segments, none)


@settings(max_examples=40, deadline=None)
@given(JOBS)
def test_more_work_never_needs_less(job):
    one, columns, constants = drawn(job)
    base = training_columns(one, columns, constants).device_bytes
    for name in ("micro_batch_size", "seq_len", "num_micro_batches"):
        never_more(base, training_columns(one, {**columns, name: columns[name] + 1}, constants).device_bytes)
    deeper = replace(one, model=replace(one.model, layers=(*one.model.layers, *one.model.layers)))
    never_more(base, training_columns(deeper, columns, constants).device_bytes)


@settings(max_examples=30, deadline=None)
@given(JOBS)
def test_a_column_is_its_scalars_and_pools_are_their_total(job):
    one, columns, constants = drawn(job)
    many = training_columns(one, columns, constants)
    total = sum(np.broadcast_to(v, (NUM,)) for v in many.pools.values())
    np.testing.assert_allclose(total, many.device_bytes, rtol=1e-12)
    np.testing.assert_allclose(sum(many.time_parts.values()), many.step_seconds, rtol=1e-12)
    for i in range(0, NUM, 61):
        single = training_columns(one, {name: int(v[i]) for name, v in columns.items()}, constants)
        assert many.device_bytes[i] == pytest.approx(single.device_bytes, rel=1e-12)
        assert many.host_bytes[i] == pytest.approx(single.host_bytes, rel=1e-12)
        assert many.step_seconds[i] == pytest.approx(single.step_seconds, rel=1e-12)
        for name, value in single.pools.items():
            assert np.broadcast_to(many.pools[name], (NUM,))[i] == pytest.approx(value, rel=1e-12, abs=1e-3)


@settings(max_examples=30, deadline=None)
@given(JOBS)
def test_doubling_tensor_parallelism_halves_what_it_divides(job):
    """The logits, and with sequence parallelism everything that a layer keeps; of weights all but the norms."""
    one, columns, constants = drawn(job)
    layers = (DENSE,) * 32 if one.model is MODEL else (ROUTED,) * 32
    one = replace(one, model=replace(one.model, layers=layers))
    columns = {
        **columns,
        "tp": 2,
        "ep": 1,
        "etp": 2,
        "has_sequence_parallel": 1,
        "recompute": 0,
        "num_micro_batches": 16,
    }
    two = training_columns(one, columns, constants, quantity="allocated").pools
    four = training_columns(one, {**columns, "tp": 4, "etp": 4}, constants, quantity="allocated").pools
    names = ["weights", "optimizer_states"] if job["kind"] in (TrainingKind.PRETRAIN, TrainingKind.FULL) else []
    for name in names:
        np.testing.assert_allclose(np.broadcast_to(four[name], NUM), np.broadcast_to(two[name], NUM) / 2, rtol=0.01)
    # A phase other than backward's start may be the fullest with either: compare where both say the same.
    same = (np.broadcast_to(two["logits"], NUM) > 0) == (np.broadcast_to(four["logits"], NUM) > 0)
    both = same & (np.broadcast_to(two["activations"], NUM) > 0) & (np.broadcast_to(four["activations"], NUM) > 0)
    for name in ("logits", "attention_scores"):
        np.testing.assert_allclose(
            np.broadcast_to(four[name], NUM)[both], np.broadcast_to(two[name], NUM)[both] / 2, rtol=1e-9
        )
