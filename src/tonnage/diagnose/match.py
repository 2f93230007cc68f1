"""From lines that rules met to an answer: which of them is the cause, and which only followed.

A symptom is a *cause* (enough by itself), an *effect* (something else usually did it, and the answer where nothing
else is found), an *echo* (printed because of another failure) or a *sign* (noticed only beside a failure). A cause
explains every echo, every effect that does not come before it, and whatever its rule names under `explains`.
What nothing explains is a finding.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from tonnage.diagnose import refine
from tonnage.diagnose.lines import mask
from tonnage.diagnose.types import (
    ROLES,
    Consequence,
    Cure,
    Diagnosis,
    Evidence,
    Finding,
    Hit,
    Seen,
    Symptom,
)

_MOST_EVIDENCE: Final = 4
_LONGEST_TEXT: Final = 400
_ENOUGH: Final = {"cause": 0.9, "effect": 0.6, "echo": 0.35, "sign": 0.45}


class Book:
    """The symptoms that were met, each with its lines in order."""

    def __init__(self, hits: Iterable[Hit], rules: Mapping[str, Symptom]) -> None:
        self.rules = rules
        met: dict[str, list[Hit]] = {}
        for hit in _timed(hits):
            met.setdefault(hit.symptom, []).append(hit)
        self.met = {
            name: sorted(found, key=_order) for name, found in met.items() if len(found) >= rules[name].at_least
        }

    def first(self, name: str) -> Hit:
        """Return the first line that met a rule."""
        return self.met[name][0]

    def role(self, name: str) -> str:
        """Return a rule's role."""
        return self.rules[name].role


def _order(hit: Hit) -> tuple[float, str, int]:
    return (hit.time_seconds if hit.time_seconds is not None else float("inf"), hit.file, hit.line)


def _timed(hits: Iterable[Hit]) -> list[Hit]:
    """Return hits by file and line, those without a time with that of the nearest line before, else after, that has one."""
    by_file: dict[str, list[Hit]] = {}
    for hit in hits:
        by_file.setdefault(hit.file, []).append(hit)
    timed: list[Hit] = []
    for found in by_file.values():
        found.sort(key=lambda hit: hit.line)
        last = next((hit.time_seconds for hit in found if hit.time_seconds is not None), None)
        for hit in found:
            last = hit.time_seconds if hit.time_seconds is not None else last
            timed.append(replace(hit, time_seconds=last))
    return timed


def before(one: Hit, other: Hit) -> bool | None:
    """Whether a line was printed before another; None where that cannot be told."""
    if one.file == other.file:
        return one.line <= other.line
    if one.time_seconds is None or other.time_seconds is None or one.rank is None or other.rank is None:
        return None  # a machine's log and a job's may be hours apart by their time zones
    return one.time_seconds <= other.time_seconds


def _names(rule: Symptom, other: Symptom) -> bool:
    """Whether a rule says that it leads to another: by its id or the beginning of it."""
    return any(other.id == word or (word.endswith("*") and other.id.startswith(word[:-1])) for word in rule.explains)


_LONG_SECONDS: Final = 60.0


def _is_long_after(one: Hit, other: Hit) -> bool:
    """Whether a line stands a minute or more after another of the same log."""
    times = one.time_seconds, other.time_seconds
    return one.file == other.file and None not in times and (times[0] or 0.0) > (times[1] or 0.0) + _LONG_SECONDS


def explains(book: Book, one: str, other: str) -> bool:
    """Whether a symptom that was met accounts for another."""
    if one == other:
        return False
    cause, led_to = book.rules[one], book.rules[other]
    if _names(cause, led_to):
        is_late = led_to.role == "effect" and _is_long_after(book.first(one), book.first(other))
        return not is_late and not _names(led_to, cause)
    if _names(led_to, cause) or cause.role == "sign" or cause.severity == "info":
        return False
    if led_to.role == "echo":
        return cause.role in {"cause", "effect"}
    if led_to.role == "effect" and cause.role == "cause" and cause.severity == "critical":
        return before(book.first(one), book.first(other)) is not False
    return False


def _explained_by(book: Book) -> dict[str, str]:
    """Return for each symptom that something accounts for, what does."""
    order = sorted(book.met, key=lambda name: (ROLES.index(book.role(name)), _order(book.first(name))))
    found: dict[str, str] = {}
    for name in order:
        for cause in order:
            if explains(book, cause, name):
                found[name] = cause
                break
    return found


def _root(name: str, explained: Mapping[str, str]) -> str:
    walked = {name}
    while name in explained and explained[name] not in walked:
        name = explained[name]
        walked.add(name)
    return name


def _same_line(roots: Sequence[str], book: Book) -> dict[str, str]:
    """Return for each root that another says better of the same line, that other."""
    better: dict[str, str] = {}
    for name in roots:
        lines = {(hit.file, hit.line) for hit in book.met[name] if hit.line}
        for other in roots:
            if other == name or book.rules[other].weight <= book.rules[name].weight:
                continue
            if lines & {(hit.file, hit.line) for hit in book.met[other]}:
                better[name] = other
    return better


def evidence_of(hits: Sequence[Hit], hide: Callable[[str], str]) -> tuple[Evidence, ...]:
    """Return the first lines that met a rule, one of each rank before a second of any, with secrets masked."""
    seen: set[tuple[str, int | None]] = set()
    first, again = [], []
    for hit in hits:
        place = (hit.file, hit.rank)
        (again if place in seen else first).append(hit)
        seen.add(place)
    chosen = sorted((first + again)[:_MOST_EVIDENCE], key=_order)
    return tuple(Evidence(file=h.file, line=h.line, text=hide(h.text.strip())[:_LONGEST_TEXT]) for h in chosen)


def diagnose(
    hits: Iterable[Hit], seen: Sequence[Seen], rules: Mapping[str, Symptom], hide: Callable[[str], str] = mask
) -> Diagnosis:
    """Return the causes behind the lines that rules met, primary first.

    Parameters
    ----------
    hits : iterable of Hit
        Lines that met a rule.
    seen : sequence of Seen
        What was looked at.
    rules : mapping
        The rules by id.
    hide : function
        Makes secrets of a shown line unreadable.

    Returns
    -------
    Diagnosis
        Findings, each with its consequences.
    """
    book = Book(refine.refined(list(hits), rules), rules)
    explained = _explained_by(book)
    roots = [name for name in book.met if _root(name, explained) == name]
    better = _same_line(roots, book)
    roots = [name for name in roots if name not in better]
    failed = any(book.role(name) != "sign" for name in roots) or any(one.last_exception for one in seen)
    roots = [name for name in roots if failed or book.role(name) != "sign" or book.rules[name].severity == "critical"]
    roots.sort(key=lambda name: _rank(book, name))
    findings = []
    for place, name in enumerate(roots):
        led_to = [other for other in book.met if other != name and _root(other, explained) == name]
        also = [other for other, by in better.items() if by == name]
        findings.append(_finding(book, name, led_to, also, seen, hide, rivals=place))
    return Diagnosis(
        findings=tuple(findings),
        looked_at=tuple(replace(one, last_exception=hide(one.last_exception)) for one in seen),
        would_help=() if findings else refine.would_help(seen),
    )


# What comes first: a critical cause, a critical effect, then milder ones; what is for information comes last.
_FIRST: Final = {
    ("cause", "critical"): 0, ("effect", "critical"): 1, ("cause", "warning"): 2, ("effect", "warning"): 3,
    ("echo", "critical"): 4, ("echo", "warning"): 5, ("sign", "critical"): 6, ("sign", "warning"): 7,
}  # fmt: skip


# Lines that call themselves warnings, and rules that say little: after the others of their kind.
_WARNING: Final = re.compile(r"(?i)\bwarn(?:ing)?\b|userwarning|^\S{0,24}\[?W\d{4}|\[W[ \d]")
_LITTLE: Final = 32


def _is_mild(rule: Symptom, hits: Sequence[Hit]) -> bool:
    return rule.weight <= _LITTLE or all(
        _WARNING.search(hit.text[:200]) and "NCCL WARN" not in hit.text for hit in hits[:20]
    )


def _rank(book: Book, name: str) -> tuple[int, int, tuple[float, str, int], int]:
    rule = book.rules[name]
    place = _FIRST.get((rule.role, rule.severity), 8 + ROLES.index(rule.role))
    if rule.role == "echo":  # among wrappers the one that says most
        return (4, -rule.weight, _order(book.first(name)), 0)
    return (place, int(_is_mild(rule, book.met[name])), _order(book.first(name)), -rule.weight)


def _finding(
    book: Book,
    name: str,
    led_to: Sequence[str],
    also: Sequence[str],
    seen: Sequence[Seen],
    hide: Callable[[str], str],
    *,
    rivals: int,
) -> Finding:
    rule = book.rules[name]
    hits = book.met[name]
    (english, chinese), cures = refine.cause_of(rule, hits)
    consequences = tuple(
        Consequence(id=other, what=book.rules[other].cause, evidence=evidence_of(book.met[other], hide)[:2])
        for other in sorted(led_to, key=lambda other: _order(book.first(other)))
    )
    return Finding(
        id=name,
        layer=rule.layer,
        cause=(hide(english), hide(chinese)),
        severity=rule.severity,
        confidence=_confidence(rule, hits, seen, rivals, len(consequences)),
        evidence=evidence_of(hits, hide),
        fixes=cures,
        consequences=consequences,
        against=_against(rule, hits, seen),
        ranks=tuple(sorted({hit.rank for hit in hits if hit.rank is not None})),
        num_hits=len(hits),
        also=tuple(also),
        source=rule.source,
    )


def _lines_after(hits: Sequence[Hit], seen: Sequence[Seen]) -> int:
    lengths = {one.file: one.num_lines for one in seen}
    return min((lengths.get(hit.file, hit.line) - hit.line for hit in hits), default=0)


_WENT_ON: Final = 3000  # lines after the last such line: whoever printed it did not end then


def _confidence(rule: Symptom, hits: Sequence[Hit], seen: Sequence[Seen], rivals: int, num_followed: int) -> float:
    """Return how sure the answer is, from 0 to 1: a judgement by the kind of evidence, no measured frequency."""
    sure = _ENOUGH[rule.role] - 0.1 * min(rivals, 3) + (0.04 if num_followed else 0.0)
    if rule.role == "cause" and _lines_after(hits, seen) > _WENT_ON:
        sure -= 0.25
    return round(min(0.97, max(0.1, sure)), 2)


def _against(rule: Symptom, hits: Sequence[Hit], seen: Sequence[Seen]) -> tuple[str, str] | None:
    after = _lines_after(hits, seen)
    if after <= _WENT_ON or rule.role != "cause":
        return rule.against
    said = (
        f"the log goes on for {after:,} lines after it: it may have been caught",
        f"此后日志仍有 {after:,} 行：可能已被程序捕获",
    )
    return said if rule.against is None else (f"{rule.against[0]}; {said[0]}", f"{rule.against[1]}；{said[1]}")


__all__ = ["Book", "Cure", "before", "diagnose", "evidence_of", "explains"]
