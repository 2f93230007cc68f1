"""Each plan names the limit it comes nearest to, what is next best, and what speaks against it; wishes are heard."""

from __future__ import annotations

import pytest

from tonnage import api
from tonnage.cli.plan_text import to_lines
from tonnage.errors import RequestError
from tonnage.plan.request import arguments, make_request
from tonnage.plan.scene import objective
from tonnage.plan.stand import binding
from tonnage.plan.today import Stack
from tonnage.search import rank
from tonnage.units import GIB

DENSE, MOE, SMALL = "Qwen/Qwen3.5-27B", "Qwen/Qwen3.5-35B-A3B", "Qwen/Qwen3-0.6B"


@pytest.fixture(scope="module")
def answer():
    return api.plan(make_request(MOE, gpus=["rtx-4080"]))


def test_every_plan_says_how_it_stands(answer):
    for plan in answer.plans:
        assert plan.binding.startswith("nearest limit: ")
        assert plan.rival
        assert any("mixture of experts" in text for text in plan.risks)


def test_the_rival_is_no_plan_before_it(answer):
    for plan in answer.plans:
        for number in range(1, plan.rank + 1):
            assert f"#{number}" not in plan.rival.replace(",", " ").split()


def test_the_nearest_limit_is_the_one_that_is_used_most(answer):
    first = answer.plans[0].estimate
    held = first.footprint
    assert f"device memory {100 * held.total.high / held.capacity_bytes:.0f} %" in answer.plans[0].binding
    tight = make_request(SMALL, gpus=["rtx-4090"], load={"tpot": "7ms"}, limits={"engines": ["vllm"]})
    plan = api.plan(tight).plans[0]
    assert "--tpot" in binding(plan.estimate, tight.limits)


def test_the_front_beats_what_is_shown_in_something(answer):
    assert answer.front
    shown = [plan.estimate for plan in answer.plans]
    best = min(shown, key=lambda one: rank.objective_of(one, "throughput"))
    assert min(rank.objective_of(one, "throughput") for one in answer.front) <= rank.objective_of(best, "throughput")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ({"gpus": ["rtx-4080"]}, "speed"),
        ({"gpus": ["rtx-4080"], "load": {"concurrency": "8"}}, "throughput"),
        ({"gpus": ["rtx-4080"], "limits": {"intent": "batch"}}, "throughput"),
        ({"limits": {"intent": "batch"}}, "cost"),
        ({"gpus": ["rtx-4080"], "goal": "pretrain", "limits": {"intent": "train"}}, "time"),
        ({"goal": "pretrain", "limits": {"intent": "train"}}, "cost"),
        ({"gpus": ["rtx-4080"], "limits": {"intent": "experiment"}}, "value"),
        ({}, "value"),
        ({"limits": {"intent": "batch", "objective": "energy"}}, "energy"),
    ],
)
def test_what_is_wanted_follows_from_what_is_said(words, expected):
    assert objective(make_request(SMALL, **words)) == expected


def test_an_objective_is_part_of_the_command():
    request = make_request(SMALL, limits={"objective": "latency"})
    assert arguments(request)[-2:] == ("--objective", "latency")


def test_the_least_change_needs_to_know_what_runs_today():
    with pytest.raises(RequestError) as refused:
        api.plan(make_request(SMALL, gpus=["rtx-4090"], limits={"objective": "change"}))
    assert refused.value.where == "--today"


def test_the_least_change_keeps_the_engine():
    request = make_request(SMALL, gpus=["rtx-4090"], limits={"objective": "change"})
    today = Stack(gpu="rtx-3090", engine="llama.cpp", strategy=("single",))
    plans = api.plan(request, today=today).plans
    assert plans[0].estimate.candidate.engine in ("llama.cpp", "vllm", "ollama", "sglang", "transformers")
    changed = [sum("changes" in reason for reason in plan.reasons) for plan in plans]
    assert changed == sorted(changed)


def test_an_unofficial_board_is_a_risk():
    plan = api.plan(make_request(SMALL, gpus=["rtx-4090-48gb-mod"])).plans[0]
    assert any("unofficial" in text for text in plan.risks)


def test_what_cannot_be_is_counted_by_its_reason():
    answer = api.plan(make_request(SMALL, goal="pretrain", gpus=["h100-sxm5:8"]))
    counts = [one.num_candidates for one in answer.why_not]
    assert counts == sorted(counts, reverse=True)
    assert 0 < sum(counts) < answer.num_candidates
    assert len({(one.engine, one.reason) for one in answer.why_not}) == len(counts)


def test_behind_says_what_slower_says():
    plans = api.plan(make_request(SMALL, goal="pretrain", gpus=["rtx-4090"])).plans
    rates = [plan.estimate.performance.tokens_per_s.best for plan in plans]
    number = next(i for i in range(2, len(plans) + 1) if f"#{i}," in plans[0].rival)
    percent = round(100 * (1 - rates[number - 1] / rates[0]))
    assert plans[0].rival.endswith(f", {percent} % behind")
    assert f"{percent} % slower than #1" in plans[number - 1].reasons


def test_what_fits_at_the_best_estimate_only_is_told_by_its_need_and_its_upper_end():
    request = make_request("Qwen/Qwen3.5-27B", goal="finetune", finetune="qlora", gpus=["a10"])
    plan = api.plan(request).plans[0]
    held = plan.estimate.footprint
    assert held.fits
    assert not held.fits_surely
    assert held.least_bytes < held.capacity_bytes
    cell = f"{held.least_bytes / GIB:.1f}, up to {held.total.high / GIB:.1f} of {held.capacity_bytes / GIB:.1f} GiB"
    assert any(cell in line for line in to_lines(api.plan(request)))
    assert f"{100 * held.total.high / held.capacity_bytes:.0f} % at the upper end" in plan.binding


@pytest.mark.parametrize("words", [{"goal": "pretrain"}, {"goal": "finetune", "finetune": "full"}])
def test_pure_bf16_training_stands_behind_fp32_and_says_why(words):
    plans = api.plan(make_request(SMALL, gpus=["rtx-4090"], limits={"engines": ["transformers"]}, **words)).plans
    pure = [plan.estimate.candidate.optimizer == "adamw_bf16" for plan in plans]
    assert any(pure)
    assert pure == sorted(pure)
    rates = [plan.estimate.performance.tokens_per_s.best for plan in plans]
    assert rates[pure.index(True)] > rates[0]
    for plan, is_pure in zip(plans, pure, strict=True):
        assert any("small updates are lost to rounding" in text for text in plan.risks) == is_pure
