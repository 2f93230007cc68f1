"""How long estimates take: a million training candidates as columns, one estimate by itself, serving estimates a second.

Each is held against a piece of work of its own kind that runs beside it, turn about: array arithmetic for columns, plain
Python for single estimates. Processor time is measured, and the least of several rounds taken, so that other programs
on the machine disturb neither. The ratios of the last recording stand in `recorded.json`; the report says where one
became worse by more than a fifth. TONNAGE_BENCH_RECORD=1 records anew.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tonnage.engines import find_engine
from tonnage.estimate.compose_serving import estimate_serving, serving_load
from tonnage.estimate.compose_training import case_of, columns_of, estimate_training, training_columns
from tonnage.estimate.serving_speed import serving_times
from tonnage.estimate.types import Candidate, Layout
from tonnage.model import catalogue
from tonnage.plan.types import Where
from tonnage.plan.where import place
from tonnage.workload.precision import Precision
from tonnage.workload.types import Serving, Training, TrainingKind

RECORDED = Path(__file__).parent / "recorded.json"
NUM_ROUNDS = 5
WORSE = 1.2
DENSE, MOE = "Qwen/Qwen3-32B", "Qwen/Qwen3-30B-A3B"
MILLION, MANY = 1_000_000, 200_000


def training(name: str) -> Candidate:
    load = Training(kind=TrainingKind.PRETRAIN, seq_len=4096, global_batch_size=64)
    cluster = place(Where(gpus=(("h100-sxm5", 8),))).cluster
    precision = Precision(weights="bf16", gradients="fp32", has_fp32_master=True)
    layout = Layout(dp=2, tp=4, zero_stage=1, has_sequence_parallel=True)
    return Candidate(
        model=catalogue.find(name),
        workload=load,
        cluster=cluster,
        engine="megatron",
        layout=layout,
        precision=precision,
    )


def serving(name: str) -> Candidate:
    load, cluster = Serving(context_tokens=8192, concurrency=8), place(Where(gpus=(("h100-sxm5", 1),))).cluster
    return Candidate(
        model=catalogue.find(name), workload=load, cluster=cluster, engine="vllm", precision=Precision(weights="fp8")
    )


def training_million(name: str) -> Callable[[], object]:
    candidate, rng = training(name), np.random.default_rng(1)
    choices = {
        "dp": [1, 2, 8, 64], "tp": [1, 2, 4, 8], "pp": [1, 2, 4], "cp": [1, 2], "micro_batch_size": [1, 2, 4],
        "num_micro_batches": [1, 4, 32], "seq_len": [512, 4096], "zero_stage": [0, 1, 2, 3],
        "has_sequence_parallel": [0, 1], "recompute": [0, 1, 2],
    }  # fmt: skip
    columns = {**columns_of(candidate), **{k: rng.choice(v, MILLION) for k, v in choices.items()}}
    case = case_of(candidate)
    return lambda: training_columns(case, columns)


def serving_many(name: str) -> Callable[[], object]:
    candidate, rng = serving(name), np.random.default_rng(1)
    accounting = find_engine("vllm").accounting
    load = accounting.with_concurrency(serving_load(candidate, accounting), rng.integers(1, 256, MANY))
    return lambda: (accounting.memory(load).device_bytes(), serving_times(load, accounting.rates(load)))


def arrays() -> object:
    values = np.linspace(1.0, 2.0, 8192)
    return sum(float(np.sqrt(values * values + i).sum()) for i in range(4000))


def plain() -> object:
    return sum(len(str(i)) for i in range(3000))


# What is measured, times of it in one measurement, what runs beside it, and the bound in seconds of one.
BENCHES = {
    "training, a million candidates, dense": (lambda: training_million(DENSE), 1, arrays, 4.0),
    "training, a million candidates, experts": (lambda: training_million(MOE), 1, arrays, 4.0),
    "training, one estimate": (lambda: partial(estimate_training, training(DENSE)), 100, plain, 1e-3),
    "serving, one estimate": (
        lambda: partial(estimate_serving, serving(DENSE), find_engine("vllm").accounting), 100, plain, 1e-3,
    ),
    "serving, 200,000 estimates": (lambda: serving_many(DENSE), 1, arrays, 1.0),
}  # fmt: skip


def seconds(work: Callable[[], object], times: int) -> float:
    start = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - start) / times


@pytest.mark.parametrize("name", BENCHES)
def test_an_estimate(name, record_property):
    make, times, beside, bound = BENCHES[name]
    work = make()
    work()
    rounds = [(seconds(work, times), seconds(beside, 10 if beside is plain else 1)) for _ in range(NUM_ROUNDS)]
    ours, reference = (min(column) for column in zip(*rounds, strict=True))
    ratio = ours / reference
    record_property("ratio", ratio)
    recorded = json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.exists() else {}
    last = recorded.get(name)
    said = f"\n{name}: {ours:.3g} s, bound {bound:g} s; {ratio:.2f} x what runs beside it"
    if last is not None:
        said += f", {last['ratio']:.2f} recorded" + (" – WORSE" if ratio > WORSE * last["ratio"] else "")
    print(said)
    if os.environ.get("TONNAGE_BENCH_RECORD"):
        recorded[name] = {"ratio": round(ratio, 3), "reference_seconds": float(f"{reference:.3g}")}
        RECORDED.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    # On a slower machine the bound is what it was on the one that recorded, in units of what runs beside it.
    slower = reference / last["reference_seconds"] if last else 1.0
    assert ours <= bound * max(slower, 1.0)
