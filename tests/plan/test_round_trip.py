"""A launch read back gives what was planned: the flags say what the prediction assumed, no more and no less."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest
from tests.engines.grid import cluster, servings, trainings

from tonnage import api
from tonnage.engines import find_engine, find_trainer
from tonnage.estimate.compose_serving import serving_load
from tonnage.estimate.types import Candidate, EngineSettings, Layout, Offload, Recompute
from tonnage.plan.adopt import adopt
from tonnage.plan.pins import as_stored, get, read_pin, settle, with_pins
from tonnage.plan.request import make_request
from tonnage.render.services import with_weights
from tonnage.render.weights import weights_of
from tonnage.workload.precision import Precision
from tonnage.workload.types import Serving

LAYOUT = ("layout.tp", "layout.pp", "layout.cp", "layout.ep")
TRAINED = {
    "megatron": (
        *LAYOUT, "layout.zero_stage", "layout.num_virtual_stages", "layout.first_stage_layers", "layout.last_stage_layers",
        "micro_batch_size", "recompute", "recompute_every", "precision.compute", "offload.optimizer",
    ),
    "torchtitan": (
        *LAYOUT, "layout.zero_stage", "micro_batch_size", "recompute", "offload.parameters", "settings.has_compile",
    ),
    "deepspeed": ("layout.zero_stage", "micro_batch_size", "precision.compute", "offload.optimizer", "offload.parameters",
                  "offload.optimizer_nvme", "offload.parameters_nvme"),
    "accelerate": ("layout.zero_stage", "offload.parameters"),
}  # fmt: skip
FILES = {"deepspeed": "deepspeed.json", "accelerate": "accelerate.json"}


def line(launch):
    """Return a launch as a script's line."""
    return " ".join(shlex.quote(str(word)) for word in launch.argv)


def read_back(adopted, num_layers):
    words = {**adopted.defaults, **adopted.pins}
    return settle(dict(read_pin(path, value) for path, value in words.items()), num_layers)


def blank(one: Candidate) -> Candidate:
    """Return the same model on the same machine, with nothing decided."""
    return replace(
        one, layout=Layout(), precision=Precision(), offload=Offload(), settings=EngineSettings(),
        recompute=Recompute.NONE, recompute_every=1, micro_batch_size=1, optimizer="adamw",
    )  # fmt: skip


@pytest.mark.parametrize("name", ["vllm", "sglang", "llama.cpp", "tensorrt-llm"])
def test_a_server_s_line_reserves_the_very_same(name):
    """The memory counted from the line alone is the memory of the plan."""
    engine, number = find_engine(name), 0
    for planned in servings(name):
        if engine.refuses(planned) is not None or planned.precision.weights == "fp8_channel":
            continue
        if name == "tensorrt-llm" and planned.precision.kv == "fp8":
            continue  # stands in the options file
        one = with_weights(planned, weights_of(planned))
        got = adopt(line(engine.launch(one)), "start.sh")
        assert find_engine(got.engine).name == name
        assert got.goal == "serve"
        pins = as_stored(read_back(got, one.model.num_layers), one.model)
        load = Serving(
            context_tokens=int(got.load["context"]),
            concurrency=int(got.load.get("concurrency", one.workload.concurrency)),
        )
        read = with_pins(replace(blank(one), workload=load), pins)
        memory, again = (
            engine.accounting.memory(serving_load(each, engine.accounting)).device_bytes() for each in (planned, read)
        )
        assert float(again) == pytest.approx(float(memory), rel=1e-9), (one.layout, one.precision, one.offload, pins)
        number += 1
    assert number >= 12


@pytest.mark.parametrize("name", sorted(TRAINED))
def test_a_trainer_s_line_or_file_says_the_plan(name):
    trainer = find_trainer("transformers" if name == "accelerate" else name)
    number = 0
    for one in trainings(trainer.plans_of[0]):
        if trainer.refuses(one) is not None:
            continue
        launch = trainer.launch(one)
        if name in FILES and FILES[name] not in launch.files:
            continue
        got = adopt(launch.files[FILES[name]], FILES[name]) if name in FILES else adopt(line(launch), "start.sh")
        pins = read_back(got, one.model.num_layers)
        read = with_pins(replace(blank(one), precision=one.precision), pins)
        for path in TRAINED[name]:
            planned = get(one, path)
            moves = one.offload.parameters or one.offload.optimizer
            if path == "layout.zero_stage" and one.layout.zero_stage == 0 and moves:
                continue  # on one card the stage is what moves parameters or states
            if path == "recompute_every" and one.recompute is not Recompute.FULL:
                continue
            assert get(read, path) == planned, (path, one.layout, one.offload, pins)
        if name != "deepspeed":
            devices = (got.num_devices or 1) * (got.num_nodes or 1)
            assert devices == one.cluster.num_devices or name == "accelerate"
        if "global_batch" in got.load:
            assert int(got.load["global_batch"]) == one.workload.global_batch_size
        if "seq_len" in got.load:
            assert int(got.load["seq_len"]) == one.workload.seq_len
        number += 1
    assert number >= 10


def test_a_planted_difference_is_found():
    """A line that says another share of the card reserves something else."""
    engine = find_engine("vllm")
    one = next(c for c in servings("vllm") if engine.refuses(c) is None)
    text = line(engine.launch(one))
    ratio = text.split("--gpu-memory-utilization ")[1].split()[0]
    pins = read_back(adopt(text.replace(ratio, "0.5"), "start.sh"), one.model.num_layers)
    read = with_pins(blank(one), as_stored(pins, one.model))
    memories = [engine.accounting.memory(serving_load(each, engine.accounting)) for each in (one, read)]
    assert len({repr(memory) for memory in memories}) == 2


def test_one_layer_on_the_host_is_one_layer():
    for name, word in (("llama.cpp", "all"), ("ik_llama.cpp", "layers alone")):
        engine = find_engine(name)
        one = Candidate(
            model=next(servings(name)).model, workload=Serving(context_tokens=4096), cluster=cluster("rtx-4090", 1),
            engine=name, precision=Precision(weights="q4_k_m", kv="fp16"), offload=Offload(num_cpu_layers=1),
        )  # fmt: skip
        argv = engine.launch(one).argv
        layers = int(argv[argv.index("-ngl") + 1])
        assert layers == one.model.num_layers - (word != "all")


@pytest.mark.parametrize("engine", ["vllm", "llama.cpp", "megatron"])
def test_a_bundle_s_start_script_is_a_plan_again(engine):
    goal = "pretrain" if engine == "megatron" else "serve"
    gpus = ["h100-sxm5:8"] if engine == "megatron" else ["rtx-4090"]
    asked = make_request("Qwen/Qwen3-8B", goal=goal, gpus=gpus, limits={"engines": [engine]})
    plan = api.plan(asked).plans[0]
    start = next(file.text for file in api.deploy(plan).files if file.path == "start.sh")
    got, one = adopt(start, "start.sh"), plan.estimate.candidate
    pins = {**got.defaults, **got.pins} if got.goal == goal else {}
    again = make_request("Qwen/Qwen3-8B", goal=goal, gpus=gpus, limits={"engines": [engine]}, load=got.load, pins=pins)
    read = api.plan(again).plans[0].estimate
    if goal == "serve":
        assert read.candidate.precision.weights == one.precision.weights
    assert read.footprint.total.best == pytest.approx(plan.estimate.footprint.total.best, rel=1e-6)
