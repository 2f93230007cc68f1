"""Solvers of training jobs are exact: the value found fits and the next one does not."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.estimate.test_compose_training import H100, MODEL, MOE, candidate

from tonnage.estimate.compose_training import case_of, columns_of, software
from tonnage.estimate.compose_training.solve import (
    Job,
    fewest,
    largest,
    largest_micro_batch,
    longest_sequence,
    needed_bytes,
    token_step,
)
from tonnage.workload.precision import Precision
from tonnage.workload.types import TrainingKind

JOBS = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["megatron", "transformers", "torchtitan", "deepspeed", "unsloth"]),
        "kind": st.sampled_from(list(TrainingKind)),
        "model": st.sampled_from([MODEL, MOE]),
        "gib": st.sampled_from([8, 16, 24, 48, 80, 141]),
        "margin": st.sampled_from([1.0, 1.08, 1.3]),
        "host_gib": st.sampled_from([16, 64, 2048]),
        "has_flash": st.booleans(),
        "columns": st.fixed_dictionaries(
            {
                "dp": st.sampled_from([1, 2, 8]),
                "tp": st.sampled_from([1, 2, 4, 8]),
                "pp": st.sampled_from([1, 2, 4]),
                "cp": st.sampled_from([1, 2]),
                "zero_stage": st.integers(0, 3),
                "has_sequence_parallel": st.integers(0, 1),
                "recompute": st.integers(0, 2),
                "num_micro_batches": st.sampled_from([1, 8]),
                "micro_batch_size": st.integers(1, 3),
                "seq_len": st.sampled_from([512, 4096]),
                "offload_optimizer": st.integers(0, 1),
                "offload_activations": st.integers(0, 1),
            }
        ),
    }
)


def job_of(drawn) -> Job:
    weights = {TrainingKind.QLORA: "nf4_dq"}.get(drawn["kind"], "bf16")
    base = case_of(candidate(precision=Precision(weights=weights, gradients="fp32")))
    case = replace(
        base,
        model=drawn["model"],
        kind=drawn["kind"],
        software=software(drawn["name"]),
        has_flash_attention=drawn["has_flash"],
        device=replace(H100, memory_bytes=drawn["gib"] * 2**30),
    )
    columns = {**columns_of(candidate()), **drawn["columns"]}
    return Job(case=case, columns=columns, host_memory_bytes=drawn["host_gib"] * 2**30, margin=drawn["margin"])


@given(st.integers(0, 100_000))
def test_largest_is_exact(bound: int) -> None:
    assert largest(lambda n: n <= bound) == bound


@settings(max_examples=60, deadline=None)
@given(JOBS)
def test_the_largest_micro_batch_fits_and_the_next_does_not(drawn) -> None:
    job = job_of(drawn)
    found = largest_micro_batch(job)
    assert found == 0 or job.fits(micro_batch_size=found)
    assert not job.fits(micro_batch_size=found + 1)


@settings(max_examples=60, deadline=None)
@given(JOBS)
def test_the_longest_sequence_fits_and_the_next_does_not(drawn) -> None:
    job = job_of(drawn)
    found, step = longest_sequence(job), token_step(job.columns)
    assert found % step == 0
    assert found == 0 or job.fits(seq_len=found)
    assert not job.fits(seq_len=found + step)


@settings(max_examples=60, deadline=None)
@given(JOBS)
def test_the_smallest_memory_fits_and_a_byte_less_does_not(drawn) -> None:
    job = replace(job_of(drawn), host_memory_bytes=float("inf"))
    need = needed_bytes(job)

    def fits(memory_bytes: float) -> bool:
        return bool(replace(job, case=replace(job.case, device=replace(H100, memory_bytes=memory_bytes))).fits())

    assert fits(int(need * (1 + 1e-12)) + 1)
    assert not fits(int(need * (1 - 1e-12)) - 1)


@settings(max_examples=60, deadline=None)
@given(JOBS, st.sampled_from(["dp", "tp", "pp"]))
def test_the_fewest_ranks_fit_and_no_fewer_do(drawn, way) -> None:
    job = job_of(drawn)
    numbers = range(1, 65) if way == "dp" else (1, 2, 4, 8)
    found = fewest(job, way, numbers)
    fitting = [n for n in numbers if job.fits(**{way: n})]
    assert found == (fitting[0] if fitting else 0)
