"""What of today's set-up a plan keeps, and what it changes: the price of switching, item by item."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tonnage.estimate.types import Estimate
from tonnage.messages import say
from tonnage.plan.adopt import Adopted
from tonnage.plan.pins import get
from tonnage.plan.today import Stack, held, with_stack
from tonnage.plan.types import Answer, Plan

_COMPARED = (
    "layout.tp", "layout.pp", "layout.dp", "layout.zero_stage", "precision.compute", "precision.weights",
    "precision.kv", "recompute", "optimizer", "micro_batch_size",
)  # fmt: skip


def held_against(answer: Answer, today: Adopted | Stack) -> Answer:
    """Return the answer with, to each plan, what carries over from what runs today."""
    return with_stack(answer, today) if isinstance(today, Stack) else carried(answer, today)


def carried(answer: Answer, today: Adopted) -> Answer:
    """Return the answer with, to each plan, what carries over from today's set-up.

    Parameters
    ----------
    answer : Answer
        Any answer.
    today : Adopted
        What a configuration or launch line of today says.

    Returns
    -------
    Answer
        The same plans in the same order, one reason more to each.
    """
    return replace(answer, plans=tuple(_with_reason(plan, today) for plan in answer.plans))


def counter(today: Adopted | Stack) -> Callable[[Estimate], int]:
    """Return what counts the parts of today's set-up that an estimate changes."""
    if isinstance(today, Stack):
        return lambda estimate: sum(one.verdict == "changes" for one in held(today, estimate))
    return lambda estimate: sum(old != new for _, old, new in _pairs(estimate, today))


def _pairs(estimate: Estimate, today: Adopted) -> list[tuple[str, object, object]]:
    """Return each compared part by name, as it is today and as it would be."""
    candidate = estimate.candidate
    pairs: list[tuple[str, object, object]] = [("engine", today.engine, candidate.engine)] if today.engine else []
    for path in _COMPARED:
        if path in today.pins:
            value = get(candidate, path)
            pairs.append((path.rpartition(".")[2], today.pins[path], str(getattr(value, "value", value))))
    return pairs


def _with_reason(plan: Plan, today: Adopted) -> Plan:
    pairs = _pairs(plan.estimate, today)
    same = [f"{name} {new}" for name, old, new in pairs if old == new]
    changed = [f"{name} {old} → {new}" for name, old, new in pairs if old != new]
    nothing = say("plan.nothing")
    text = say("plan.carries", same=", ".join(same) or nothing, changed=", ".join(changed) or nothing)
    return replace(plan, reasons=(*plan.reasons, text))
