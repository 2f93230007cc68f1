"""The nouns of a diagnosis: a rule, a line that it met, and the finding that comes of them."""

from __future__ import annotations

from typing import Final

from tonnage.nouns import noun

# From worst to mildest; `--fail-on` names one of them.
SEVERITIES: Final = ("critical", "warning", "info")
# cause: enough by itself. effect: what something else usually did, and the answer where nothing else is found.
# echo: printed because of another failure. sign: noticed only beside a failure.
ROLES: Final = ("cause", "effect", "echo", "sign")


@noun
class Pattern:
    """One way in which a symptom is printed: literal texts, all of which the line holds, and a bounded expression."""

    find: tuple[str, ...]
    regex: str = ""  # what the line matches as well; compiled when a line first asks for it
    unless: str = ""  # what it must not match
    follows: str = ""  # a text that one of the lines before holds
    within: int = 40  # how many lines before


@noun
class Cure:
    """One thing to do, and the setting that does it."""

    text: tuple[str, str]  # in English and Chinese
    setting: str = ""


@noun
class Symptom:
    """A rule: how a fault is printed, what causes it, what to do, and what it leads to."""

    id: str
    layer: str
    severity: str
    role: str
    cause: tuple[str, str]
    cures: tuple[Cure, ...]
    against: tuple[str, str] | None
    explains: tuple[str, ...]
    patterns: tuple[Pattern, ...]
    source: str
    versions: str
    weight: int
    at_least: int = 1  # so many lines before it counts


@noun
class Hit:
    """One line that a symptom met."""

    symptom: str
    file: str
    line: int
    text: str
    groups: dict[str, str]
    rank: int | None = None
    time_seconds: float | None = None


@noun
class Seen:
    """What was looked at: a file, what it was taken for, and how much of it."""

    file: str
    kind: str
    num_lines: int
    num_bytes: int
    last_exception: str = ""
    last_exception_line: int = 0


@noun
class Evidence:
    """A place that shows something."""

    file: str
    line: int
    text: str


@noun
class Consequence:
    """What the cause led to, with the place where that is printed."""

    id: str
    what: tuple[str, str]
    evidence: tuple[Evidence, ...]


@noun
class Effect:
    """What one change to a plan frees on its fullest device."""

    setting: str
    before: int | float | str | bool
    after: int | float | str | bool
    freed_bytes: int
    fits: bool
    text: tuple[str, str]


@noun
class Finding:
    """One cause with what shows it, what speaks against it and what to do."""

    id: str
    layer: str
    cause: tuple[str, str]
    severity: str
    confidence: float
    evidence: tuple[Evidence, ...]
    fixes: tuple[Cure, ...]
    consequences: tuple[Consequence, ...]
    against: tuple[str, str] | None = None
    ranks: tuple[int, ...] = ()
    num_hits: int = 1
    also: tuple[str, ...] = ()
    source: str = ""
    effects: tuple[Effect, ...] = ()  # of changes to the plan that was named


@noun
class Diagnosis:
    """The answer: the primary cause first, what was looked at, and what would help where nothing was found."""

    findings: tuple[Finding, ...]
    looked_at: tuple[Seen, ...]
    would_help: tuple[tuple[str, str], ...]
