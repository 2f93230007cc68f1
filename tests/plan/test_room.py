"""How far a plan reaches and what hardware would do: exact by asking again, in text, JSON and plan file."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace

import pytest
from tests.conftest import call_tonnage

from tonnage import api
from tonnage.hardware.catalogue import devices
from tonnage.plan.choose import pinned
from tonnage.plan.request import make_request
from tonnage.plan.scene import explore, set_scene
from tonnage.plan.where import place

JOBS = (
    ("Qwen/Qwen3-8B", "qlora", "rtx-4090"),
    ("Qwen/Qwen3-8B", "full", "h100-sxm5:8"),
    ("Qwen/Qwen3-30B-A3B", "lora", "h200:2"),
)


def plan(words):
    got = call_tonnage("plan", *shlex.split(words), "--json", "--quiet")
    return got.code, json.loads(got.out)


@pytest.mark.parametrize(("model", "method", "gpu"), JOBS)
def test_the_sizes_found_fit_and_the_next_do_not(model, method, gpu):
    answer = api.plan(make_request(model, goal="finetune", finetune=method, gpus=[gpu]))
    for one in answer.plans[:2]:
        candidate, room = one.estimate.candidate, one.room
        load = candidate.workload
        steps = load.global_batch_size // (candidate.layout.dp * candidate.micro_batch_size)
        exact = pinned(answer.request, one.estimate)

        def fits(
            seq_len=load.seq_len, micro=candidate.micro_batch_size, exact=exact, load=load, steps=steps, c=candidate
        ):
            batch = micro * c.layout.dp * steps
            request = replace(
                exact,
                workload=replace(load, seq_len=seq_len, global_batch_size=batch),
                pins={**exact.pins, "micro_batch_size": micro},
            )
            found = explore(set_scene(request, c.model, c.cluster)).kept
            return bool(found), any(e.footprint.fits_surely for e in found)

        step = 2 if room.seq_len.best % 2 == 0 and candidate.layout.tp > 1 else 1
        assert fits(micro=room.micro_batch_size.best)[0]
        assert not fits(micro=room.micro_batch_size.best + 1)[0]
        assert fits(seq_len=room.seq_len.best)[0]
        assert not fits(seq_len=room.seq_len.best + step)[0]
        assert fits(micro=room.micro_batch_size.surely)[1]
        assert not fits(micro=room.micro_batch_size.surely + 1)[1]
        assert room.device_bytes.best <= one.estimate.footprint.capacity_bytes


def test_the_room_is_in_text_json_and_plan_file():
    words = "Qwen/Qwen3-8B --finetune qlora --gpu rtx-4090"
    _, said = plan(words)
    limits = said["plans"][0]["limits"]
    assert limits["micro_batch_size"]["best"] >= limits["micro_batch_size"]["surely"] > 0
    text = call_tonnage("plan", *shlex.split(words)).out
    assert f"micro-batch {limits['micro_batch_size']['best']}" in text
    assert f"{limits['seq_len']['best']:,}" in " ".join(text.split())
    first = api.plan(make_request("Qwen/Qwen3-8B", goal="finetune", finetune="qlora", gpus=["rtx-4090"])).plans[0]
    assert api.read_plan(api.write_plan(first)) == first
    explained = {part.id: part for part in api.explain(first).parts}["room"]
    assert [item.value for item in explained.items][:2] == [
        first.room.micro_batch_size.best,
        first.room.seq_len.best,
    ]


def kept(request, model):
    """Return the ways that fit."""
    return explore(set_scene(request, model, place(request.where).cluster)).kept


def stays(request, model):
    """Whether some way surely holds the job on the devices."""
    on_device = (
        e for e in kept(request, model) if not (e.candidate.offload.optimizer or e.candidate.offload.parameters)
    )
    return any(e.footprint.fits_surely for e in on_device)


@pytest.mark.parametrize(
    ("model", "method", "gpu"), [("Qwen/Qwen3-14B", "full", "rtx-4090"), ("Qwen/Qwen3-32B", "qlora", "rtx-4060")]
)
def test_the_hardware_that_a_refusal_names_is_the_least_that_does(model, method, gpu):
    request = make_request(model, goal="finetune", finetune=method, gpus=[gpu])
    _, said = plan(f"{model} --finetune {method} --gpu {gpu}")
    limits, read = said["rejections"][0]["limits"], api.read_model(model)
    fewest, smallest = limits["fewest_gpus"], limits["smallest_gpu"]
    if fewest is not None:
        assert plan(fewest["command"].removeprefix("tonnage plan "))[0] == 0
        for number in range(2, fewest["num_gpus"]) if fewest["num_nodes"] == 1 else range(2, 9):
            for batch in (8, number * -(-8 // number)):
                load = replace(request.workload, global_batch_size=batch)
                fewer = replace(request, workload=load, where=replace(request.where, gpus=((gpu, number),)))
                assert not kept(fewer, read)
    assert plan(smallest["command"].removeprefix("tonnage plan "))[0] == 0
    found = next(d for d in devices() if d.slug == smallest["gpu"])
    smaller = [d for d in devices() if d.vendor == found.vendor and not d.is_unofficial]
    smaller = [d for d in smaller if d.memory_bytes < found.memory_bytes]
    assert len(smaller) > 20
    for device in sorted(smaller, key=lambda d: -d.memory_bytes)[:12]:
        assert not stays(replace(request, where=replace(request.where, gpus=((device.slug, 1),))), read)


def test_a_sequence_that_is_too_long_is_cut_to_the_longest_that_fits():
    _, said = plan("Qwen/Qwen3-8B --finetune qlora --gpu rtx-3060 --seq-len 16384")
    change = next(
        c for c in said["rejections"][0]["changes"] if "--seq-len" in c["command"] and "rtx-3060" in c["command"]
    )
    words = change["command"].removeprefix("tonnage plan ").split()
    length = int(words[words.index("--seq-len") + 1])
    assert length % 128 == 0
    assert plan(" ".join(words))[0] == 0
    words[words.index("--seq-len") + 1] = str(length + 128)
    assert plan(" ".join(words))[0] == 3
