"""Today's stack held against a plan: what carries over to the new hardware, and what has to change first.

A stack is a TOML table: gpu, driver, cuda, engine, precision, strategy, monitoring. All of it may be left out; what is not
said is not compared. The same comparison joins the stages of a plan: a consumer card now, a data-centre card later.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Final, Literal

from tonnage.engines import ENGINES, TRAINERS
from tonnage.engines.drivers import why_card_cannot, why_engine_cannot
from tonnage.errors import BadFileError
from tonnage.estimate.types import Estimate
from tonnage.hardware.catalogue import find_device
from tonnage.hardware.ecosystem import driver_class, engines
from tonnage.hardware.types import Device
from tonnage.messages import say
from tonnage.nouns import noun
from tonnage.plan.types import Answer
from tonnage.search.training_space import training_ways
from tonnage.workload.types import Serving

FIELDS: Final = ("gpu", "driver", "cuda", "engine", "precision", "strategy", "monitoring")
STRATEGIES: Final = ("single", "ddp", "zero1", "zero2", "zero3", "fsdp", "tp", "pp", "ep")
_LARGEST: Final = 200
Verdict = Literal["carries", "changes", "unknown"]


@noun
class Stack:
    """What runs today; empty where it is not said."""

    gpu: str = ""
    driver: str = ""  # 535.154.05, or R535
    cuda: str = ""  # 12.2: what the framework was built for
    engine: str = ""  # vllm, llama.cpp, transformers, deepspeed, …
    precision: str = ""  # fp16, bf16, fp8, …
    strategy: tuple[str, ...] = ()
    monitoring: tuple[str, ...] = ()  # dcgm, nvidia-smi, nvml, rocm-smi, prometheus, …


@noun
class Carry:
    """One part of today's stack under a plan: whether it stays, and what is to be done where it does not."""

    part: str  # of `FIELDS`
    verdict: Verdict
    text: str


def is_stack(table: dict[str, Any]) -> bool:
    """Whether a TOML table describes a stack rather than something else."""
    return bool(table) and set(table) <= set(FIELDS)


def read_stack(table: dict[str, Any], where: str) -> Stack:
    """Return the stack of a table, each value checked.

    Raises
    ------
    BadFileError
        A field or value that is none.
    UnknownNameError
        A card that is none.
    """
    values: dict[str, Any] = {}
    for name, value in table.items():
        if name not in FIELDS:
            raise BadFileError(f"no field is called '{name[:40]}'", where=where, fix=f"one of {', '.join(FIELDS)}")
        many = name in ("strategy", "monitoring")
        given = value if isinstance(value, list) and many else [value]
        if not all(isinstance(one, (str, int, float)) and not isinstance(one, bool) for one in given):
            raise BadFileError(f"{name} is not text", where=where, fix=f'write {name} = "…"')
        words = tuple(str(one).strip()[:_LARGEST] for one in given)
        values[name] = tuple(w.lower() for w in words) if many else words[0]
    stack = Stack(**values)
    for name in ("driver", "cuda"):
        if (said := getattr(stack, name)) and not _version(said):
            raise BadFileError(
                f"{name} '{said[:40]}' is no version", where=where, fix='write it like "570.86" or "12.8"'
            )
    unknown = [name for name in stack.strategy if name not in STRATEGIES]
    if unknown:
        raise BadFileError(f"'{unknown[0][:40]}' is no strategy", where=where, fix=f"one of {', '.join(STRATEGIES)}")
    if stack.gpu:
        find_device(stack.gpu)
    return stack


def stack_of(estimate: Estimate) -> Stack:
    """Return a plan as a stack, for the stage after it."""
    candidate = estimate.candidate
    return Stack(
        gpu=candidate.cluster.node.devices[0].slug,
        engine=candidate.engine,
        precision=candidate.precision.compute,
        strategy=_strategy(estimate),
    )


def held(stack: Stack, estimate: Estimate) -> tuple[Carry, ...]:
    """Return what of a stack carries over to a plan, part by part; what is not said, or not known, is left out."""
    device = estimate.candidate.cluster.node.devices[0]
    checks = (
        _driver(stack, device, estimate.candidate.engine),
        _cuda(stack, device),
        _engine(stack, estimate, device),
        _precision(stack, device),
        _strategies(stack, estimate),
        _monitoring(stack, device),
    )
    return tuple(one for one in checks if one is not None)


def with_stack(answer: Answer, stack: Stack) -> Answer:
    """Return the answer with, to each plan, what of today's stack carries over and what changes."""
    return replace(
        answer, plans=tuple(replace(p, reasons=(*p.reasons, *told(stack, p.estimate))) for p in answer.plans)
    )


def told(stack: Stack, estimate: Estimate) -> tuple[str, ...]:
    """Say what of a stack carries over to a plan, and what changes."""
    return tuple(say(f"today.{one.verdict}", text=one.text) for one in held(stack, estimate))


def staged(now: Estimate, later: Estimate) -> tuple[str, ...]:
    """Say what carries over where one plan follows another: a consumer card now, a data-centre card later."""
    names = (one.candidate.cluster.node.devices[0].name for one in (now, later))
    return (say("today.stages", now=next(names), later=next(names)), *told(stack_of(now), later))


def _version(text: str) -> tuple[int, ...]:
    found = re.fullmatch(r"[Rr]?(\d{1,4}(?:\.\d{1,4}){0,3})(?:\.x)?", text.strip(), re.ASCII)
    return tuple(int(part) for part in found[1].split(".")) if found else ()


def _driver(stack: Stack, device: Device, engine: str) -> Carry | None:
    """Compare the driver's branch with what card and engine need, and with the last that serves the card."""
    if not stack.driver:
        return None
    if device.min_driver_branch is None:
        verdict: Verdict = "unknown" if device.vendor == "NVIDIA" else "changes"
        return Carry(
            part="driver", verdict=verdict, text=say("today.driver_other", name=device.name, kind=driver_class(device))
        )
    serving = next((one for one in ENGINES if one.name == engine), None)
    text = why_card_cannot(device, stack.driver) or (
        why_engine_cannot(engine, serving.traits.title, serving.traits.version, device, stack.driver)
        if serving
        else None
    )
    if text is not None:
        return Carry(part="driver", verdict="changes", text=text)
    return Carry(part="driver", verdict="carries", text=say("today.driver_ok", driver=stack.driver, name=device.name))


def _cuda(stack: Stack, device: Device) -> Carry | None:
    if not stack.cuda:
        return None
    if device.min_cuda is None:
        text = say("today.cuda_other", name=device.name)
        return Carry(part="cuda", verdict="unknown" if device.vendor == "NVIDIA" else "changes", text=text)
    have, least, last = _version(stack.cuda), _version(device.min_cuda), _version(device.max_cuda or "")
    if have < least:
        text = say("today.cuda_old", cuda=stack.cuda, name=device.name, least=device.min_cuda)
        return Carry(part="cuda", verdict="changes", text=text)
    if last and have[: len(last)] > last:
        text = say("today.cuda_new", cuda=stack.cuda, name=device.name, last=device.max_cuda)
        return Carry(part="cuda", verdict="changes", text=text)
    return Carry(part="cuda", verdict="carries", text=say("today.cuda_ok", cuda=stack.cuda, name=device.name))


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "", name.lower())


def _engine(stack: Stack, estimate: Estimate, device: Device) -> Carry | None:
    if not stack.engine:
        return None
    new = estimate.candidate.engine
    if _is_of_another_goal(stack.engine, is_serving=isinstance(estimate.candidate.workload, Serving)):
        return None
    if _plain(stack.engine) == _plain(new):
        return Carry(part="engine", verdict="carries", text=say("today.engine_ok", name=new))
    supported = {_plain(one.engine) for one in engines(device)}
    is_listed = _plain(stack.engine) in supported
    text = say("today.engine_also" if is_listed else "today.engine_new", old=stack.engine, new=new, name=device.name)
    return Carry(part="engine", verdict="changes", text=text)


def _is_of_another_goal(engine: str, *, is_serving: bool) -> bool:
    """Whether an engine only serves where the plan trains, or only trains where it serves: then neither replaces the other."""
    serving, training = {_plain(e.name) for e in ENGINES}, {_plain(t.name) for t in (*training_ways(), *TRAINERS)}
    here, there = (serving, training) if is_serving else (training, serving)
    return _plain(engine) in there - here


def _precision(stack: Stack, device: Device) -> Carry | None:
    if not stack.precision or not device.formats:
        return None
    if stack.precision.lower() in device.formats:
        text = say("today.precision_ok", precision=stack.precision, name=device.name)
        return Carry(part="precision", verdict="carries", text=text)
    text = say("today.precision_no", precision=stack.precision, name=device.name, formats=", ".join(device.formats))
    return Carry(part="precision", verdict="changes", text=text)


def _strategy(estimate: Estimate) -> tuple[str, ...]:
    """Return how a plan splits its work, in the words of a stack."""
    layout = estimate.candidate.layout
    found = [way for way in ("tp", "pp", "ep") if getattr(layout, way) > 1]
    if layout.dp > 1:
        is_serving = isinstance(estimate.candidate.workload, Serving)
        found.append("ddp" if is_serving or not layout.zero_stage else f"zero{layout.zero_stage}")
    return tuple(found) or ("single",)


def _strategies(stack: Stack, estimate: Estimate) -> Carry | None:
    if not stack.strategy:
        return None
    old = {"zero3" if name == "fsdp" else name for name in stack.strategy}
    new = set(_strategy(estimate))
    if old == new:
        return Carry(part="strategy", verdict="carries", text=say("today.strategy_ok", names=", ".join(sorted(new))))
    text = say("today.strategy_new", old=", ".join(stack.strategy), new=", ".join(sorted(new)))
    return Carry(part="strategy", verdict="changes", text=text)


_OF_NVIDIA: Final = ("dcgm", "nvidia-smi", "nvml", "nvitop", "gpustat")
_OF_AMD: Final = ("rocm-smi", "amd-smi", "rocm")


def _monitoring(stack: Stack, device: Device) -> Carry | None:
    """Compare what watches the cards: tools belong to a maker, and DCGM is whole on data-centre cards alone."""
    if not stack.monitoring:
        return None
    own = {"NVIDIA": _OF_NVIDIA, "AMD": _OF_AMD}.get(device.vendor, ())
    foreign = [
        tool
        for tool in stack.monitoring
        if any(tool.startswith(t) for t in (*_OF_NVIDIA, *_OF_AMD)) and not any(tool.startswith(t) for t in own)
    ]
    if foreign:
        text = say("today.monitoring_foreign", tools=", ".join(foreign), name=device.name)
        return Carry(part="monitoring", verdict="changes", text=text)
    if any(tool.startswith("dcgm") for tool in stack.monitoring) and driver_class(device) != "datacenter":
        return Carry(part="monitoring", verdict="changes", text=say("today.monitoring_dcgm", name=device.name))
    return Carry(
        part="monitoring", verdict="carries", text=say("today.monitoring_ok", tools=", ".join(stack.monitoring))
    )
