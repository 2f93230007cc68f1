"""What a rule's pattern cannot tell by itself: numbers inside a message, proofs elsewhere, ranks against each other."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from tonnage.diagnose import hang
from tonnage.diagnose.memory import Shortage, kind_of, read_shortage
from tonnage.diagnose.types import Cure, Hit, Seen, Symptom
from tonnage.messages import choose_language, language, say
from tonnage.units import format_bytes

# The rule that says best why a request failed. A message of torch 1 keeps the name of its form.
_BY_KIND: Final = {
    "fragmented": "TORCH_OOM_FRAGMENTATION",
    "no_segment": "TORCH_OOM_FRAGMENTATION",
    "other_process": "TORCH_OOM_OTHER_PROC",
    "spilled": "TORCH_OOM_SYSMEM",
}
_WATCHDOG: Final = "NCCL_WATCHDOG_TIMEOUT"
_FIELD: Final = re.compile(r"<(\w+)>")
_TORCH_OOM: Final = ("TORCH_OOM", "TORCH_OOM_V1", "TORCH_OOM_V0", *sorted(set(_BY_KIND.values())))


def both(message_id: str, **values: object) -> tuple[str, str]:
    """Return a message in English and Chinese."""
    chosen = language()
    try:
        texts = []
        for one in ("en", "zh"):
            choose_language(one)
            texts.append(say(message_id, **values))
        return texts[0], texts[1]
    finally:
        choose_language(chosen)


def refined(hits: Sequence[Hit], rules: Mapping[str, Symptom]) -> list[Hit]:
    """Return hits whose rule was chosen by what the message says: the kind of a shortage, the code of an Xid."""
    named = [replace(hit, symptom=_better(hit, rules)) for hit in hits]
    counted = hang.of_counters(named)
    if not counted or not any(hit.symptom == _WATCHDOG for hit in named):
        return named + counted
    told = {"hang": counted[0].symptom, **counted[0].groups}
    return [replace(hit, groups=hit.groups | told) if hit.symptom == _WATCHDOG else hit for hit in named]


def _better(hit: Hit, rules: Mapping[str, Symptom]) -> str:
    if hit.symptom == "TORCH_OOM":
        return _BY_KIND.get(kind_of(read_shortage(hit.text)), "TORCH_OOM")
    name = f"XID_{int(hit.groups['xid'])}" if hit.symptom == "XID_ANY" else hit.symptom
    return name if name in rules else hit.symptom


def _texts(shortage: Shortage) -> dict[str, str]:
    def told(value: float | None) -> str:
        return "?" if value is None else format_bytes(value)

    return {
        "asked": told(shortage.request_bytes),
        "capacity": told(shortage.capacity_bytes),
        "free": told(shortage.free_bytes),
        "allocated": told(shortage.allocated_bytes),
        "unused": told(shortage.unused_bytes),
        "others": told(sum(shortage.others)),
    }


def cause_of(rule: Symptom, hits: Sequence[Hit]) -> tuple[tuple[str, str], tuple[Cure, ...]]:
    """Return what to say of a cause, with the numbers that the line tells, and the cures in order."""
    if rule.id in _TORCH_OOM:
        shortage = read_shortage(hits[0].text)
        kind = kind_of(shortage)
        if shortage.request_bytes is not None and shortage.capacity_bytes is not None:
            cures = (Cure(text=both("diagnose.chunk_it")), *rule.cures) if kind == "too_large" else rule.cures
            return both(f"diagnose.oom_{kind}", **_texts(shortage)), cures
    if hung := hits[0].groups.get("hang"):
        behind, values = (
            hung == "HANG_RANK_BEHIND",
            {n: hits[0].groups.get(n, "?") for n in ("late", "low", "high", "op")},
        )
        return both("diagnose.hang_behind" if behind else "diagnose.hang_all", **values), rule.cures
    return _filled(rule.cause, hits[0].groups), rule.cures


def _filled(texts: tuple[str, str], groups: dict[str, str]) -> tuple[str, str]:
    """Put what the pattern's named groups caught into texts that ask for it as <name>; what it did not catch is ?."""
    english, chinese = (_FIELD.sub(lambda field: groups.get(field[1], "?"), text) for text in texts)
    return english, chinese


def would_help(seen: Sequence[Seen]) -> tuple[tuple[str, str], ...]:
    """Return what else would let a cause be found, where nothing was."""
    kinds = {one.kind for one in seen}
    wanted = [both("diagnose.help_earlier")]
    if "kernel log" not in kinds:
        wanted.append(both("diagnose.help_kernel"))
    if "error file" not in kinds:
        wanted.append(both("diagnose.help_record"))
    if "flight recorder" not in kinds:
        wanted.append(both("diagnose.help_recorder"))
    return tuple(wanted)
