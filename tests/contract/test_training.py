"""What trains is configured in the words of DeepSpeed, Accelerate, Transformers and torchrun, as their own code says."""

from __future__ import annotations

import json
import sys
from functools import cache

import pytest
from tests.contract import readers
from tests.contract.cases import Offer, combinations, offers, rendered, words

pytestmark = [pytest.mark.contract, pytest.mark.slow]

SERVE = ("transformers", "serve")
READ = {"job.json", "deepspeed.json", "accelerate.json"}
FAULTS = (
    "a field that DeepSpeed's section does not know",
    "a field that DeepSpeed does not read",
    "a value that DeepSpeed does not allow",
    "a batch that does not add up",
    "an argument that the Trainer does not know",
    "an optimizer that the Trainer does not know",
    "a job that differs from its DeepSpeed file",
    "an adapter's field",
    "a key that Accelerate does not know",
    "a key of FSDP",
    "a value of FSDP",
    "a number of processes",
    "an option of accelerate",
    "an option of torchrun",
    "an option of transformers",
)
QUIET = {
    "DS_ACCELERATOR": "cpu",
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "passive",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}


def ask(cases: list[dict]) -> list[str]:
    """Return a complaint a case, from one process."""
    readers.module("torch", "transformers", "accelerate", "deepspeed", "peft")
    return readers.driven([sys.executable, str(readers.DRIVERS / "training.py")], cases, QUIET)


def cases_of(offer: Offer) -> list[dict]:
    """Return what of an offer the drivers can read."""
    line = words(offer)
    if offer.goal == "serve":
        return [{"check": "serve", "argv": line}] if tuple(line[:2]) == SERVE else []
    candidate = offer.plan.estimate.candidate
    held = {path: text for path, text in offer.files.items() if path in READ}
    shape = {"num_processes": candidate.layout.num_devices, "files": held}
    made = []
    if "job.json" in held:
        made.append({"check": "job", "text": held["job.json"], **shape})
    if "deepspeed.json" in held:
        made.append({"check": "deepspeed", "text": held["deepspeed.json"], "num_processes": candidate.layout.dp})
    if line[0] in ("torchrun", "accelerate"):
        made.append({"check": "command", "argv": line, **shape})
    return made


def key_of(case: dict) -> str:
    return json.dumps(case, sort_keys=True)


@cache
def answers() -> dict[str, str]:
    """Return the complaint of every case of every offer and of every planted fault; equal cases are asked once."""
    real = [case for offer in rendered() for case in cases_of(offer)]
    found = {key_of(case): case for case in (*real, *planted().values())}
    return dict(zip(found, ask(list(found.values())), strict=True))


@pytest.mark.parametrize(("program", "goal", "place"), combinations())
def test_the_programs_take_what_is_written(program, goal, place):
    cases = [(offer, case) for offer in offers(program, goal, place) if offer.bundle for case in cases_of(offer)]
    wrong = [f"{case['check']} of {offer.what}: {said}" for offer, case in cases if (said := answers()[key_of(case)])]
    assert not wrong, "\n".join(dict.fromkeys(wrong))


def a_case(check: str, **more: str) -> dict:
    """Return one real case of a kind."""
    return next(
        case
        for offer in rendered()
        for case in cases_of(offer)
        if case["check"] == check and all(text in json.dumps(case[key]) for key, text in more.items())
    )


def with_text(case: dict, *path: str, value: object = 1) -> dict:
    """Return a case whose JSON text has another value at a path."""
    table = json.loads(case["text"])
    at = table
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return {**case, "text": json.dumps(table)}


def with_file(case: dict, name: str, *path: str, value: object = 1) -> dict:
    """Return a case with another value in one of the files beside it."""
    text = with_text({"text": case["files"][name]}, *path, value=value)["text"]
    return {**case, "files": {**case["files"], name: text}}


@cache
def planted() -> dict[str, dict]:
    """Return faults that have to be refused."""
    deepspeed, job = a_case("deepspeed"), a_case("job", text="deepspeed.json")
    fsdp, torchrun = a_case("command", argv="accelerate"), a_case("command", argv="torchrun")
    serve = a_case("serve")
    broken = (
        with_text(deepspeed, "zero_optimization", "stages"),
        with_text(deepspeed, "gradient_clip"),
        with_text(deepspeed, "zero_optimization", "stage", value=4),
        with_text(deepspeed, "train_batch_size", value=7),
        with_text(job, "training_arguments", "learn_rate"),
        with_text(job, "training_arguments", "optim", value="adam8"),
        with_text(job, "training_arguments", "max_grad_norm", value=0.5),
        with_text(a_case("job", text='"r\\'), "lora", "rank"),
        with_file(fsdp, "accelerate.json", "num_process"),
        with_file(fsdp, "accelerate.json", "fsdp_config", "fsdp_reshard"),
        with_file(fsdp, "accelerate.json", "fsdp_config", "fsdp_state_dict_type", value="SHARDED"),
        with_file(fsdp, "accelerate.json", "num_processes", value=3),
        {**fsdp, "argv": [*fsdp["argv"][:2], "--config", *fsdp["argv"][2:]]},
        {**torchrun, "argv": ["torchrun", "--nproc", "x", *torchrun["argv"][1:]]},
        {**serve, "argv": [*serve["argv"], "--d-type", "auto"]},
    )
    return dict(zip(FAULTS, broken, strict=True))


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_refused(name):
    assert answers()[key_of(planted()[name])]
