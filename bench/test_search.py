"""How long the search takes on one core, as multiples of a fixed piece of array arithmetic run beside it.

Processor time counts, not the clock, and runs of both alternate, so that another program on the machine disturbs
both alike. Each ratio is held against the last recorded one in `search_ratios.toml`; more than a fifth worse shows
in the report. `BENCH_RECORD=1 python -m pytest -s bench/test_search.py` records anew.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tonnage
from tonnage import api
from tonnage.estimate.cost import usd_per_million_tokens
from tonnage.estimate.types import Candidate
from tonnage.plan.request import make_request
from tonnage.plan.types import Where
from tonnage.plan.where import place
from tonnage.search.explore import Fixed
from tonnage.search.training import Grid, bases
from tonnage.search.training_space import training_space, training_ways
from tonnage.workload.types import Training, TrainingKind

RECORDED = Path(__file__).parent / "search_ratios.toml"
WORSE = 1.2
MOST_RSS_BYTES = 1 << 30
NUM_ROUNDS = 3
LLAMA, GPT3, BIG = "meta-llama/Meta-Llama-3.1-8B", "openai/GPT-3-175B", "meta-llama/Meta-Llama-3.1-405B"
# Name, seconds that it may take on one core, and the request.
PLANS = {
    "GPT-3 175B on 64 A100": (2.0, make_request(GPT3, goal="pretrain", gpus=["a100-sxm4-80gb:8"], nodes=8)),
    "Llama 8B on 8 H100, trained": (2.0, make_request(LLAMA, goal="pretrain", gpus=["h100-sxm5:8"])),
    "Llama 8B on 8 H100, served": (2.0, make_request(LLAMA, goal="serve", gpus=["h100-sxm5:8"])),
    "Llama 405B on 16,384 H100": (
        2.0,
        make_request(
            BIG, goal="pretrain", gpus=["h100-sxm5:8"], nodes=2048, load={"global_batch": "2048", "seq_len": "8192"}
        ),
    ),
    "the catalogue for a budget, served": (3.0, make_request(LLAMA, goal="serve", limits={"budget": "25000 CNY"})),
    "the whole catalogue, experts served": (3.0, make_request("Qwen/Qwen3.5-35B-A3B", goal="serve")),
    "DeepSeek-V3 on 1,024 H100": (
        2.0,
        make_request(
            "deepseek-ai/DeepSeek-V3", goal="pretrain", gpus=["h100-sxm5:8"], nodes=128, load={"global_batch": "8192"}
        ),
    ),
    "the catalogue for a budget, trained": (
        3.0,
        make_request(LLAMA, goal="finetune", finetune="lora", limits={"budget": "60000 CNY"}),
    ),
}


def reference() -> None:
    """Do arithmetic on arrays that fit the cache: what a columnar search is made of."""
    a = np.linspace(1.0, 2.0, 16_384)
    for _ in range(1500):
        a = np.sqrt(a * a + 1.0) / 1.1


def seconds(function: Callable[[], object]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def compare(name: str, bound: float, function: Callable[[], object]) -> None:
    """Measure, report beside what was recorded, and hold the seconds to the bound."""
    rounds = [(seconds(reference), seconds(function)) for _ in range(NUM_ROUNDS)]
    beside, ours = (min(times) for times in zip(*rounds, strict=True))
    ratio = ours / beside
    known = tomllib.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    last = known.get(name)
    told = "not recorded" if last is None else f"recorded {last:.1f}"
    if last is not None and ratio > WORSE * last:
        told += f", {100 * (ratio / last - 1):.0f} % WORSE"
    print(f"\n{name}: {ours:.2f} s of one core, {ratio:.1f} x the reference ({told}), bound {bound:g} s")
    if os.environ.get("BENCH_RECORD"):
        known[name] = round(ratio, 2)
        RECORDED.write_text("".join(f'"{key}" = {value}\n' for key, value in sorted(known.items())))
    assert ours <= bound


def million() -> int:
    """Evaluate memory, time and cost of more than a million candidates of one software; return their number."""
    model = api.read_model(GPT3)
    load = Training(kind=TrainingKind.PRETRAIN, seq_len=2048, global_batch_size=1920)
    cluster = place(Where(gpus=(("h100-sxm5", 8),), num_nodes=60)).cluster
    ways = next(one for one in training_ways() if one.name == "megatron")
    base = Candidate(model=model, workload=load, cluster=cluster, engine=ways.name)
    space = training_space(bases(base, ways, Fixed())[0], ways, cluster, {})
    grid = Grid(space)
    number, cheapest = 0, float("inf")
    for start in range(0, space.shape[0], 64):
        some = np.arange(start, min(start + 64, space.shape[0]))
        device, _ = grid.memory(some)
        rates = grid.rates(some)
        money = usd_per_million_tokens(2.0 * cluster.num_devices, rates)
        cheapest = min(cheapest, float(np.where(device < grid.case.device.memory_bytes, money, np.inf).min()))
        number += rates.size
    assert cheapest < float("inf")
    return number


def test_a_million_candidates():
    number = million()
    assert number >= 1_000_000
    print(f"\n{number:,} candidates")
    compare("memory, time and cost of candidates by the million", 4.0 * number / 1e6, million)


@pytest.mark.parametrize("name", PLANS)
def test_a_plan(name):
    bound, request = PLANS[name]
    compare(name, bound, lambda: api.plan(request))


def test_a_million_candidates_stay_within_a_gibibyte():
    code = "import sys; sys.path.insert(0, 'bench'); import test_search, resource; test_search.million(); "
    code += "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    environment = os.environ | {"PYTHONPATH": str(Path(tonnage.__file__).parent.parent)}
    folder = Path(__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env=environment, cwd=folder)
    peak = int(done.stdout.split()[-1]) * 1024
    print(f"\npeak of a million candidates: {peak / (1 << 20):.0f} MiB")
    assert peak <= MOST_RSS_BYTES
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 <= MOST_RSS_BYTES
