"""Every engine, goal and place that is offered, from the product's own tables: a new one is covered without a line here.

`offers()` plans each program for each goal on each machine, and writes each plan down in each place: the outcome is a
bundle, or the reason why there is none.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from tonnage import api
from tonnage.engines import ENGINES, TRAINERS, find_trainer
from tonnage.errors import RequestError
from tonnage.plan.request import make_request
from tonnage.plan.types import Plan
from tonnage.render.targets import PLACES
from tonnage.render.types import Bundle
from tonnage.workload.types import TrainingKind

SERVE = "serve"
GOALS = (SERVE, *(str(kind) for kind in TrainingKind))
HOST = "1024 GiB ddr5-5600 x8"
DENSE, SPARSE, SMALL = "Qwen/Qwen3-8B", "Qwen/Qwen3-30B-A3B", "Qwen/Qwen3-0.6B"
# What a machine is asked for: devices, how many machines, limits beside the engine.
MACHINES: Mapping[str, dict] = {
    "one card": {"gpus": ["rtx-4090:1"]},
    "eight cards": {"gpus": ["h100-sxm5-80gb:8"]},
    "two machines": {"gpus": ["h100-sxm5-80gb:8"], "nodes": 2},
    "eight cards of AMD": {"gpus": ["mi300x:8"]},
    "spot": {"gpus": ["a100-sxm4-80gb:8"], "limits": {"spot": True}},
}
PLAIN = [(machine, DENSE, {}) for machine in MACHINES]
# What a plan is varied in beside the machine, so that each part of its files is written by some plan.
JOB_WAYS = [
    ("eight cards", DENSE, pins)
    for pins in (
        {"layout.zero_stage": 0},
        {"layout.zero_stage": 1},
        {"layout.zero_stage": 2},
        {"layout.zero_stage": 3},
        {"recompute": "full"},
        {"recompute": "none"},
        {"offload.optimizer": True},
        {"offload.optimizer": True, "offload.parameters": True},
        {"layout.tp": 2},
        {"layout.pp": 2},
        {"layout.cp": 2},
        {"optimizer": "adamw_8bit"},
        {"precision.compute": "fp16"},
    )
] + [
    ("eight cards", SPARSE, {}),
    ("two machines", SPARSE, {"layout.ep": 8}),
    ("one card", SMALL, {}),
    ("eight cards", SMALL, {"layout.zero_stage": 0}),
]
ADAPTER_WAYS = [
    ("eight cards", DENSE, pins)
    for pins in (
        {"layout.zero_stage": 0},
        {"layout.zero_stage": 2},
        {"layout.zero_stage": 3},
        {"recompute": "full"},
        {"layout.tp": 2},
    )
]
SERVER_WAYS = [
    ("eight cards", SPARSE, pins)
    for pins in (
        {},
        {"layout.tp": 2},
        {"layout.pp": 2},
        {"layout.dp": 2},
        {"layout.tp": 2, "layout.ep": 2},
        {"precision.weights": "fp8"},
        {"precision.weights": "nf4"},
        {"precision.weights": "awq"},
        {"precision.weights": "q4_k_m"},
        {"precision.kv": "fp8"},
        {"precision.kv": "q8_0"},
    )
] + [("one card", SPARSE, {})]


@dataclass(frozen=True, eq=False)
class Offer:
    """One plan of one program for one goal in one place, and what became of it."""

    program: str
    goal: str
    place: str
    what: str  # machine, pins and replicas, for a person who reads a failure
    plan: Plan
    num_replicas: int
    bundle: Bundle | None
    refusal: str | None

    @property
    def key(self) -> tuple[str, str, str]:
        return self.program, self.goal, self.place

    @property
    def files(self) -> dict[str, str]:
        assert self.bundle is not None
        return {file.path: file.text for file in self.bundle.files}


def programs(goal: str) -> tuple[str, ...]:
    """Return the names of the programs that a goal can be asked of."""
    return tuple(one.name for one in (ENGINES if goal == SERVE else TRAINERS))


def combinations() -> list[tuple[str, str, str]]:
    """Return program, goal and place of everything that can be asked for."""
    return [(program, goal, place) for goal in GOALS for program in programs(goal) for place in PLACES]


def ways_of(goal: str) -> list[tuple[str, str, dict]]:
    """Return what the plans for a goal are varied in."""
    if goal == SERVE:
        return PLAIN + SERVER_WAYS
    return PLAIN + (JOB_WAYS if goal in ("pretrain", "full") else ADAPTER_WAYS)


def counted_for(program: str, goal: str) -> tuple[str, ...]:
    """Return the engines whose plans a program runs: its own, or those that a trainer names."""
    trainer = None if goal == SERVE else find_trainer(program)
    return getattr(trainer, "plans_of", (program,))


def plans(program: str, goal: str, ways: Iterable[tuple[str, str, dict]]) -> tuple[list[tuple[str, Plan]], list[str]]:
    """Return the best plan of each way with what was asked, equal ones once, and the reasons of refusals."""
    found: dict[str, tuple[str, Plan]] = {}
    reasons: list[str] = []
    for number, engine in enumerate(counted_for(program, goal)):
        for machine, model, pins in ways:
            if number and pins:  # the first engine's plans show what the program makes of each
                continue
            made, refused = _asked(engine, goal, model, machine, tuple(pins.items()))
            reasons += refused
            asked = f"{model} on {machine}, {pins or 'nothing'} pinned"
            for plan in made:
                found.setdefault(f"{engine} {machine} {_told_apart(plan)}", (asked, plan))
    return list(found.values()), reasons


@cache
def _asked(engine: str, goal: str, model: str, machine: str, pins: tuple) -> tuple[tuple[Plan, ...], tuple[str, ...]]:
    """Return the best plan, or none, and why others were refused."""
    wanted = MACHINES[machine]
    load = {} if goal == SERVE else {"global_batch": 32, "tokens": 1_000_000}
    goals = {"goal": goal} if goal in (SERVE, "pretrain") else {"goal": "finetune", "finetune": goal}
    limits = {"engines": [engine], **wanted.get("limits", {})}
    asked = {**wanted, "host": HOST, "limits": limits}
    request = make_request(model, **goals, load=load, pins=dict(pins), **asked)
    try:
        answer = api.plan(request)
    except RequestError as error:
        return (), (str(error),)
    return tuple(answer.plans[:1]), tuple(one.reason for one in answer.rejections)


def _told_apart(plan: Plan) -> str:
    """Return what files can depend on, as text."""
    one = plan.estimate.candidate
    held = (one.layout, one.precision, one.offload, one.recompute, one.optimizer, one.micro_batch_size, one.settings)
    return f"{one.model.name} {held}"


@cache
def asked(program: str, goal: str) -> tuple[tuple[tuple[str, Plan], ...], tuple[str, ...]]:
    """Return the plans of everything that a program is tried in, once a session."""
    found, reasons = plans(program, goal, ways_of(goal))
    return tuple(found), tuple(reasons)


@cache
def offers(program: str, goal: str, place: str) -> tuple[Offer, ...]:
    """Return what became of every plan in a place, once a session."""
    return tuple(written_down(program, goal, place, asked(program, goal)[0]))


def written_down(program: str, goal: str, place: str, found: Iterable[tuple[str, Plan]]) -> Iterator[Offer]:
    """Yield what becomes of plans in a place; a server as one and as two replicas."""
    for what, plan in found:
        for num_replicas in (1, 2) if goal == SERVE and "nothing" in what else (1,):
            bundle, refusal = None, None
            try:
                bundle = api.deploy(plan, place=place, num_replicas=num_replicas, **_by(program, plan))
            except RequestError as error:
                refusal = str(error)
            yield Offer(
                program=program, goal=goal, place=place, what=f"{what}, {num_replicas} at a time", plan=plan,
                num_replicas=num_replicas, bundle=bundle, refusal=refusal,
            )  # fmt: skip


def _by(program: str, plan: Plan) -> dict[str, str]:
    return {} if plan.estimate.candidate.engine == program else {"engine": program}


def rendered(place: str | None = None, goal: str | None = None) -> list[Offer]:
    """Return everything that was written down, of a place or of all."""
    return [
        offer
        for key in combinations()
        if place in (None, key[2]) and goal in (None, key[1])
        for offer in offers(*key)
        if offer.bundle is not None
    ]


VARIABLES = {"MASTER_ADDR": "node-0", "NODE_RANK": "0", "JOB_ID": "17", "TONNAGE_PORT": "8001"}


def documents(text: str) -> list[Any]:
    """Return the documents of a YAML text, by libyaml where it is there: ten times as fast."""
    return list(yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


@cache
def words(offer: Offer) -> list[str]:
    """Return the command as the place's own reader understands it, with the words that are known late filled in."""
    if "start.sh" in offer.files:
        return shell_command(offer.files["start.sh"])
    if offer.place == "compose":
        (project,) = documents(offer.files["compose.yaml"])
        services = project["services"]
        held = next(one for name, one in services.items() if name.startswith(offer.bundle.name) and "command" in one)
        found = [*held["entrypoint"], *held["command"]]
    else:
        objects = documents(offer.files["kubernetes.yaml"])
        pod = next(one["spec"]["template"]["spec"] for one in objects if one["kind"] in ("Deployment", "Job"))
        held = next(one for one in pod["containers"] if one["name"] == "engine")
        found = [*held["command"], *held["args"]]
        if found[:2] == ["bash", "-c"]:
            (config,) = (one for one in documents(offer.files["kubernetes.yaml"]) if one["kind"] == "ConfigMap")
            return shell_command(config["data"]["start.sh"])
    return [word.replace("$$", "$") for word in found]


def shell_command(text: str) -> list[str]:
    """Return the words that a start script replaces itself with, where every condition in it holds."""
    more = [word for held in re.findall(r"\bmore\+=\(([^)]*)\)", text) for word in shlex.split(held)]
    command = text.partition("\nexec ")[2].partition("\n\n")[0].replace(" \\\n", " ")
    found = [more if word == "${more[@]}" else [_expanded(word)] for word in shlex.split(command)]
    return [word for words in found for word in words]


def _expanded(word: str) -> str:
    for name, value in VARIABLES.items():
        word = re.sub(rf"\$\{{{name}(:-[^}}]*)?\}}|\${name}\b", value, word)
    return word
