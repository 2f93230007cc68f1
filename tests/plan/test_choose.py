"""Answers: what is pinned is what is answered, every command that is offered does what it says, limits hold."""

from __future__ import annotations

import shlex
from dataclasses import replace

import click
import pytest

from tonnage import api
from tonnage.cli.plan import command as plan_command
from tonnage.model.catalogue import names
from tonnage.plan.choose import pinned
from tonnage.plan.request import arguments, make_request
from tonnage.plan.types import Request
from tonnage.search.rank import placement
from tonnage.units import GIB

DENSE, MOE, SMALL = "Qwen/Qwen3.5-27B", "Qwen/Qwen3.5-35B-A3B", "Qwen/Qwen3-0.6B"


def read_back(command: str) -> Request:
    """Read a command as the command line does, without running it."""
    from tonnage.cli import group
    from tonnage.cli import plan as cli

    words = shlex.split(command)
    assert words[:2] == ["tonnage", "plan"]
    context = plan_command.make_context(
        "plan", words[2:], obj={}, parent=click.Context(group, info_name="tonnage", **group.context_settings)
    )
    given = dict(context.params)
    for name in ("pick", "output", "is_json", "is_quiet"):
        given.pop(name)
    return cli._request(given.pop("spec"), given, None)


@pytest.mark.parametrize(
    "words",
    [
        {"gpus": ["rtx-4080"], "load": {"context": "32k", "ttft": "2s"}, "pins": {"precision.kv": "q8_0"}},
        {
            "gpus": ["h100-sxm5:8"],
            "nodes": 2,
            "goal": "pretrain",
            "load": {"tokens": "15T"},
            "sets": ["recompute_every=2"],
        },
        {"goal": "finetune", "finetune": "qlora", "limits": {"rent": "3 USD/h", "require": ["ecc"], "deadline": "3d"}},
        {"limits": {"budget": "25000 CNY", "prices": ["rtx-4090=12000 CNY"], "engines": ["vllm,sglang"]}},
        {"gpus": ["rtx-4090", "rtx-3090:2"], "host": "128 GiB ddr4-3200 x8", "reserve": "0"},
    ],
)
def test_a_command_reads_back_to_its_request(words):
    request = make_request(SMALL, **words)
    assert arguments(replace(read_back(shlex.join(["tonnage", *arguments(request)])))) == arguments(request)


def test_everything_pinned_is_one_candidate_answered():
    first = api.plan(make_request(MOE, gpus=["rtx-4080"])).plans[0]
    again = api.plan(pinned(make_request(MOE, gpus=["rtx-4080"]), first.estimate))
    assert [plan.estimate.candidate for plan in again.plans] == [first.estimate.candidate]
    assert again.plans[0].estimate.footprint == first.estimate.footprint


@pytest.mark.parametrize(
    "request_",
    [
        make_request(MOE, gpus=["h100-sxm5:2"], load={"concurrency": "8"}),
        make_request(SMALL, goal="finetune", finetune="full", gpus=["rtx-4090:2"]),
        make_request(SMALL, goal="pretrain", gpus=["h100-sxm5:8"], nodes=2),
        make_request(DENSE, goal="finetune", finetune="lora", gpus=["h100-sxm5"]),
    ],
    ids=["serve", "full", "pretrain", "lora"],
)
def test_each_plan_is_had_again_by_its_command(request_):
    for plan in api.plan(request_).plans[:3]:
        again = api.plan(pinned(request_, plan.estimate))
        assert [p.estimate.candidate for p in again.plans] == [plan.estimate.candidate]


def test_a_pinned_candidate_that_does_not_fit_says_what_is_missing():
    request = make_request(DENSE, gpus=["rtx-4080"], pins={"precision.weights": "bf16", "offload.num_cpu_layers": 0})
    answer = api.plan(request)
    assert not answer.plans
    first = answer.rejections[0]
    held = first.estimate.footprint
    assert first.short_by_bytes == round(held.total.best - held.capacity_bytes) > 30 * GIB
    assert first.changes
    assert first.command == first.changes[0].command


def test_every_change_fits_when_its_command_is_asked():
    answer = api.plan(make_request(SMALL, goal="finetune", finetune="full", gpus=["gtx-1050-ti"]))
    assert not answer.plans
    changes = answer.rejections[0].changes
    assert len(changes) >= 3
    for change in changes:
        again = api.plan(read_back(change.command))
        assert again.plans, change.command
        assert again.plans[0].estimate.footprint == change.estimate.footprint


def test_the_nearest_command_of_each_rejection_fits():
    answer = api.plan(make_request(MOE, gpus=["rtx-4080"]))
    commands = {one.command for one in answer.rejections if one.command}
    assert commands
    for command in commands:
        assert api.plan(read_back(command)).plans, command


def test_more_of_the_same_card_holds_everything():
    answer = api.plan(make_request(DENSE, gpus=["rtx-4080"], pins={"precision.weights": "fp16"}))
    larger = [c for c in answer.rejections[0].changes if ":" in c.command and "--gpu rtx-4080" in c.command]
    assert len(larger) == 1
    assert placement(larger[0].estimate) == "gpu"


@pytest.mark.parametrize(
    ("load", "limits", "flag"),
    [
        ({"tpot": "1us"}, {}, "--tpot"),
        ({"ttft": "1us"}, {}, "--ttft"),
        ({}, {"max_power": "100W"}, "--max-power"),
        ({}, {"budget": "100 USD"}, "--budget"),
    ],
)
def test_a_limit_that_no_plan_keeps_is_named(load, limits, flag):
    answer = api.plan(make_request(SMALL, gpus=["rtx-4080"], load=load, limits={"engines": ["vllm"], **limits}))
    assert not answer.plans
    assert all(flag in one.reason for one in answer.rejections if one.short_by_bytes is None)
    assert any(flag in one.reason for one in answer.rejections)


def test_a_deadline_is_held_against_the_job():
    words = {"goal": "finetune", "finetune": "lora", "gpus": ["rtx-4090"], "load": {"tokens": "100M"}}
    assert api.plan(make_request(SMALL, limits={"deadline": "30d"}, **words)).plans
    answer = api.plan(make_request(SMALL, limits={"deadline": "1s"}, **words))
    assert not answer.plans
    assert any("--deadline" in one.reason for one in answer.rejections)


def test_a_feature_that_the_card_lacks_is_named():
    answer = api.plan(make_request(SMALL, gpus=["rtx-4090"], limits={"require": ["nvlink"]}))
    assert not answer.plans
    assert "nvlink" in answer.rejections[0].reason


def test_only_the_engines_that_were_named_are_looked_at():
    answer = api.plan(make_request(SMALL, gpus=["rtx-4090"], limits={"engines": ["vllm"]}))
    assert {plan.estimate.candidate.engine for plan in answer.plans} == {"vllm"}


def test_offline_batches_have_no_reading_speed():
    words = {"gpus": ["rtx-4080"], "pins": {"precision.weights": "bf16"}}
    assert not api.plan(make_request(DENSE, **words)).plans
    assert api.plan(make_request(DENSE, limits={"intent": "batch"}, **words)).plans


def test_without_hardware_the_catalogue_is_searched_and_a_budget_kept():
    answer = api.plan(make_request(SMALL, limits={"budget": "600 USD", "engines": ["llama.cpp"]}))
    assert answer.plans
    for plan in answer.plans:
        price = plan.estimate.cost.purchase_usd
        assert price is None or price.best <= 600
        assert plan.request.where.gpus
    known = [plan.estimate.cost.purchase_usd is None for plan in answer.plans]
    assert known == sorted(known), "a card without a price comes after those with one"
    assert any("--budget" in one.reason for one in answer.rejections)


def test_a_given_price_counts():
    cheap = api.plan(make_request(SMALL, gpus=["h100-sxm5"], limits={"prices": ["h100-sxm5=7100 CNY"]}))
    devices, *around = cheap.plans[0].estimate.cost.own.parts
    assert devices.usd.best == devices.usd.high == pytest.approx(7100 * 1.1761 / 7.9989)
    assert around


def test_the_pools_add_up_to_the_total():
    for plan in api.plan(make_request(MOE, gpus=["rtx-4080"])).plans:
        held = plan.estimate.footprint
        for is_on_host, total in ((False, held.total.best), (True, held.host_total.best)):
            assert sum(p.bytes for p in held.pools if p.is_on_host == is_on_host) == pytest.approx(total, rel=1e-9)


def one_of_each_family():
    """Return the first model of each family that the catalogue has."""
    found: dict[str, str] = {}
    for name in names():
        found.setdefault(api.read_model(name).family, name)
    return sorted(found.values())


@pytest.mark.slow
def test_every_family_is_answered():
    for name in one_of_each_family():
        for words in (
            {"limits": {"engines": ["vllm,llama.cpp"]}},
            {"goal": "finetune", "finetune": "lora", "limits": {"engines": ["transformers"]}},
        ):
            answer = api.plan(make_request(name, gpus=["rtx-4090"], **words))
            assert answer.plans or answer.rejections, name


@pytest.mark.parametrize(
    "words",
    [
        {"gpus": ["rtx-4080"]},
        {"gpus": ["h100-sxm5:8"], "nodes": 2, "goal": "pretrain", "load": {"tokens": "1T"}},
        {"gpus": ["rtx-4090"], "goal": "finetune", "finetune": "lora"},
    ],
    ids=["serve", "pretrain", "lora"],
)
def test_plans_that_were_found_read_back_from_their_files(words):
    for plan in api.plan(make_request(SMALL, **words)).plans:
        assert api.read_plan(api.write_plan(plan)) == plan
