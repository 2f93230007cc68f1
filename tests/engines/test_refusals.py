"""Every refusal of a data file is asked for, and answers with its reason; what lacks one of its traits is not refused so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.engines.grid import RECIPES, cluster, training

from tonnage import api
from tonnage.engines import ENGINES, TRAINERS, find_engine, find_trainer
from tonnage.engines.trainers import Trainer
from tonnage.engines.traits import holds, refusals_of, traits_of_candidate
from tonnage.engines.types import Refusal
from tonnage.errors import RequestError
from tonnage.estimate.types import Candidate, EngineSettings, Layout, Offload, Recompute
from tonnage.hardware.types import Cluster, Node
from tonnage.model import catalogue
from tonnage.model.types import Layer
from tonnage.plan.request import make_request
from tonnage.render.services import service_of
from tonnage.workload.precision import Precision
from tonnage.workload.types import Serving, TrainingKind

OWN = {"llama.cpp": "q4_k_m", "ik_llama.cpp": "q4_k_m", "ollama": "q4_k_m", "ktransformers": "bf16"}
FORMATS = {"nf4*": "nf4", "fp8*": "fp8", "int4*": "int4"}
BELOW = {10.0: "h100-sxm5", 8.9: "a100-sxm4-80gb", 8.0: "rtx-2080-ti", 7.5: "v100-sxm2-16gb"}
MAKERS = {"amd": "mi300x", "intel": "arc-b580", "apple": "m4-max-40-core"}
LEAST_REFUSALS = {"tensorflow": 2}  # a memory limit, and nothing that could be refused


def serving_base(engine: str) -> Candidate:
    return Candidate(
        model=catalogue.find("Qwen/Qwen3-30B-A3B" if engine == "ktransformers" else "Qwen/Qwen3-8B"),
        workload=Serving(context_tokens=4096),
        cluster=cluster(),
        engine=engine,
        precision=Precision(weights=OWN.get(engine, "fp16"), kv="fp16", compute="fp16"),
    )


def with_layout(one: Candidate, **ways: int | None) -> Candidate:
    layout = replace(one.layout, **ways)
    return replace(one, layout=replace(layout, dp=ways.get("dp") or max(one.layout.dp, 1)))


def with_offload(one: Candidate, **moved: Any) -> Candidate:
    return replace(one, offload=replace(one.offload, **moved))


def with_weights(one: Candidate, **fields: str) -> Candidate:
    return replace(one, precision=replace(one.precision, **fields))


def with_kind(one: Candidate, kind: str) -> Candidate:
    return replace(one, workload=replace(one.workload, kind=TrainingKind(kind)))


def with_settings(one: Candidate, **fields: Any) -> Candidate:
    return replace(one, settings=replace(one.settings, **fields))


def with_heads(one: Candidate, **heads: int) -> Candidate:
    layer = one.model.layers[0]
    mixer = replace(layer.mixers[0], **heads)
    return replace(
        one, model=replace(one.model, layers=(Layer(mixers=(mixer,), feed_forwards=layer.feed_forwards),) * 4)
    )


def with_model(one: Candidate, name: str) -> Candidate:
    return replace(one, model=catalogue.find(name))


def on(one: Candidate, device: str) -> Candidate:
    return replace(one, cluster=cluster(device, 8))


# What makes a candidate have a trait.
MAKE: dict[str, Any] = {
    **{way: lambda one, way=way: with_layout(one, **{way: 2}) for way in ("tp", "pp", "cp", "ep", "dp")},
    **{f"zero{n}": lambda one, n=n: with_layout(one, zero_stage=n, dp=8) for n in (1, 2, 3)},
    **{kind: lambda one, kind=kind: with_kind(one, kind) for kind in ("pretrain", "full", "lora", "qlora")},
    **{maker: lambda one, name=name: on(one, name) for maker, name in MAKERS.items()},
    **{f"engine:{name}": lambda one, name=name: replace(one, engine=name) for name in ("deepspeed", "transformers")},
    **{name: lambda one, name=name: replace(one, optimizer=name) for name in ("muon", "adamw_8bit")},
    **{name: lambda one, name=name: with_weights(one, weights=name) for name in ("fp16", "bf16", "int8", "awq", "gptq_int4")},
    **{f"compute:{n}": lambda one, n=n: with_weights(one, compute=n) for n in ("bf16", "fp16", "fp8")},
    "cpu": lambda one: replace(one, cluster=Cluster(node=Node(devices=(), host=one.cluster.node.host))),
    "kv:fp8": lambda one: with_weights(one, kv="fp8"),
    "kv_quantised": lambda one: with_weights(one, kv="q8_0"),
    "gguf_weights": lambda one: with_weights(one, weights="q4_k_m"),
    "gguf": lambda one: replace(one, model=replace(one.model, name="x.gguf")),
    "moe": lambda one: with_model(one, "Qwen/Qwen3-30B-A3B"),
    "dense": lambda one: one,
    "serving": lambda one: one,
    "trains_all": lambda one: with_kind(one, "full"),
    "states": lambda one: with_model(one, "Qwen/Qwen3-Next-80B-A3B-Instruct"),
    "windows": lambda one: with_model(one, "google/gemma-3-27b-it"),
    "heads_uneven": lambda one: with_layout(one, tp=3),
    "kv_heads_uneven": lambda one: with_layout(with_heads(one, num_heads=24, num_kv_heads=8), tp=3),
    "odd_head": lambda one: with_heads(one, head_dim=80),
    "experts_uneven": lambda one: with_layout(with_model(one, "Qwen/Qwen3-30B-A3B"), ep=7),
    "stages_uneven": lambda one: with_layout(one, pp=5),
    "tokens_uneven": lambda one: with_layout(one, cp=3),
    "virtual_stages": lambda one: with_layout(one, num_virtual_stages=2),
    "several_devices": lambda one: with_layout(one, dp=2),
    "several_requests": lambda one: replace(one, workload=replace(one.workload, concurrency=4)),
    "over_256_requests": lambda one: with_settings(one, max_num_seqs=300),
    "tp_over_4": lambda one: with_layout(one, tp=8),
    "no_flash_attention": lambda one: with_settings(one, has_flash_attention=False),
    "offload_optimizer": lambda one: with_offload(one, optimizer=True),
    "offload_parameters": lambda one: with_offload(one, parameters=True),
    "offload_nvme": lambda one: with_offload(one, optimizer=True, parameters=True, optimizer_nvme=True),
    "experts_on_host": lambda one: with_offload(one, num_cpu_expert_layers=4),
}  # fmt: skip


def candidate_of(base: Candidate, refusal: Refusal, weights: str, family: str) -> Candidate:
    """Return a candidate that a refusal is about, made of the refusal's own words."""
    one = base
    for trait in sorted(refusal.traits, key=lambda name: name in ("pp", "ep", "tp", "cp")):
        assert trait in MAKE, f"no maker of the trait {trait}"
        if trait not in traits_of_candidate(one):
            one = MAKE[trait](one)
    if "trains_all" in refusal.traits and "adamw" in refusal.lacks:
        one = replace(one, optimizer="adafactor")
    if refusal.below_capability:
        one = on(one, BELOW[refusal.below_capability])
    if weights:
        one = with_weights(one, weights=FORMATS.get(weights, weights))
    return replace(one, model=replace(one.model, family=family.replace("*", ""))) if family else one


def cases(programs: Any, refusals_of: Any) -> list[Any]:
    return [
        pytest.param(program.name, refusal, weights, family, id=f"{program.name}: {refusal.reason[:50]} {weights}{family}")
        for program in programs
        for refusal in refusals_of(program)
        for weights in (refusal.formats or ("",))
        for family in (refusal.families or ("",))
    ]  # fmt: skip


def own_refusals(trainer: Trainer) -> tuple[Refusal, ...]:
    """Return what a trainer's own data file says; what it takes from another's is asked for there."""
    return refusals_of(trainer.table["trainer"].get("refusal", ()))


@pytest.mark.parametrize(
    ("name", "refusal", "weights", "family"), cases(ENGINES, lambda engine: engine.traits.refusals)
)
def test_a_server_s_refusal_answers(name, refusal, weights, family):
    engine = find_engine(name)
    one = candidate_of(serving_base(name), refusal, weights, family)
    assert holds(refusal, one, traits_of_candidate(one))
    told = engine.refuses(one)
    assert told is not None
    assert (told.reason, told.source) == (refusal.reason, refusal.source)


@pytest.fixture(scope="module")
def plans():
    """Plans by the kind of work, whose candidates the cases replace."""
    serve = api.plan(make_request("Qwen/Qwen3-8B", gpus=["h100-sxm5"]))
    train = api.plan(make_request("Qwen/Qwen3-8B", goal="finetune", finetune="full", gpus=["h100-sxm5:8"]))
    return {"serve": serve.plans[0], "train": train.plans[0]}


def training_base(trainer: str) -> Candidate:
    name = find_trainer(trainer).plans_of[0]
    return training(
        kind="lora" if trainer == "unsloth" else "full", engine=name, layout=Layout(), precision=RECIPES["mixed"]
    )


@pytest.mark.parametrize(("name", "refusal", "weights", "family"), cases(TRAINERS, own_refusals))
def test_a_trainer_s_refusal_answers_a_deploy(name, refusal, weights, family, plans):
    trainer = find_trainer(name)
    one = candidate_of(training_base(name), refusal, weights, family)
    if one.engine not in trainer.plans_of:
        one = replace(one, engine=trainer.plans_of[0])
    assert holds(refusal, one, traits_of_candidate(one))
    plan = replace(plans["train"], estimate=replace(plans["train"].estimate, candidate=one))
    with pytest.raises(RequestError) as told:
        service_of(plan, engine=name)
    if name == "torchtitan" and one.model.name.endswith(".gguf"):
        assert "builds the models that it lists" in str(told.value)
    else:
        assert refusal.reason in str(told.value)


def test_a_server_s_refusal_answers_a_deploy(plans):
    for engine in ENGINES:
        refusal = engine.traits.refusals[0]
        one = candidate_of(
            serving_base(engine.name), refusal, *(refusal.formats[:1] or ("",)), *(refusal.families[:1] or ("",))
        )
        plan = replace(plans["serve"], estimate=replace(plans["serve"].estimate, candidate=one))
        with pytest.raises(RequestError) as told:
            service_of(plan)
        assert refusal.reason in str(told.value)


def test_every_program_has_five_refusals_each_with_a_source():
    for name, found in [(e.name, e.traits.refusals) for e in ENGINES] + [(t.name, t.refusals) for t in TRAINERS]:
        assert len(found) >= LEAST_REFUSALS.get(name, 5), name
        for one in found:
            assert one.source, one
            assert one.reason[0] != " "
            assert not one.reason.endswith("."), one.reason
            assert one.traits or one.formats or one.families or one.below_capability, one.reason


def test_a_model_that_torchtitan_does_not_build_is_refused_with_who_does():
    told = find_trainer("torchtitan").refuses(training("google/gemma-2b", engine="torchtitan"))
    assert told is not None
    assert "Megatron-LM" in told.reason


def test_another_program_s_plan_is_refused(plans):
    candidate = training(engine="megatron")
    plan = replace(plans["train"], estimate=replace(plans["train"].estimate, candidate=candidate))
    with pytest.raises(RequestError, match="counted for megatron"):
        service_of(plan, engine="axolotl")
    with pytest.raises(RequestError, match="counted for"):
        service_of(plans["serve"], engine="sglang" if plans["serve"].estimate.candidate.engine != "sglang" else "vllm")
    with pytest.raises(RequestError, match="no launch is known"):
        service_of(plan, engine="no-such-program")


def test_a_refusal_needs_all_that_it_names():
    """Taking one trait away lifts the refusal."""
    refusal = next(one for one in find_trainer("deepspeed").refusals if one.traits == ("ep", "zero3"))
    one = candidate_of(training_base("deepspeed"), refusal, "", "")
    assert holds(refusal, one, traits_of_candidate(one))
    for less in (with_layout(one, ep=1), with_layout(one, zero_stage=2)):
        assert not holds(refusal, less, traits_of_candidate(less))


def test_traits_say_what_a_candidate_is():
    one = training(
        "Qwen/Qwen3-30B-A3B", "qlora", layout=Layout(dp=4, tp=2, zero_stage=3), precision=Precision(weights="nf4"),
        recompute=Recompute.FULL, offload=Offload(activations=True), settings=EngineSettings(has_compile=True),
        cluster=cluster(nodes=2),
    )  # fmt: skip
    assert traits_of_candidate(one) >= {
        "qlora", "moe", "nf4", "zero3", "tp", "dp", "recompute_full", "offload_activations", "compile", "nvidia",
        "several_devices", "several_nodes", "engine:transformers", "compute:bf16",
    }  # fmt: skip
    assert "trains_all" not in traits_of_candidate(one)


def test_a_plan_says_what_deploy_would_refuse():
    asked = make_request(
        "google/gemma-3-27b-it", goal="pretrain", gpus=["h100-sxm5:8"], limits={"engines": ["megatron"]},
        load={"tokens": 10**9},
    )  # fmt: skip
    plan = api.plan(asked).plans[0]
    assert any("does not start it: layers with windows" in text for text in plan.warnings)
    with pytest.raises(RequestError, match="layers with windows"):
        service_of(plan)
