"""The nouns of `tonnage lint`: a document of one kind, what a rule found in it, and the change that mends it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from tonnage.nouns import noun


class Kind(StrEnum):
    """What a text is, whatever its file is called."""

    PYTHON = "python"
    SHELL = "shell"
    DOCKERFILE = "dockerfile"
    COMPOSE = "compose"
    KUBERNETES = "kubernetes"
    UNIT = "unit"
    DEEPSPEED = "deepspeed"
    ACCELERATE = "accelerate"
    PROMETHEUS = "prometheus"
    ALERTS = "alerts"
    DASHBOARD = "dashboard"
    MODPROBE = "modprobe"
    SETTINGS = "settings"  # YAML or JSON of no kind that is known
    PROSE = "prose"  # running text around snippets


class Severity(StrEnum):
    """`error`: refused, or without the effect meant; `warning`: works and harms; `note`: worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@noun
class Document:
    """A text of one kind: a file, or a snippet of one, with the place where its first line stands."""

    file: str
    kind: Kind
    text: str
    first_line: int = 1
    indent: int = 0  # columns that were taken from the start of each line
    lines_in_file: tuple[int, ...] = ()  # of a notebook: where each line stands; nothing of it is edited

    @property
    def lines(self) -> list[str]:
        """The lines, as editors count them."""
        return self.text.split("\n")


@noun
class Edit:
    """A stretch of a file and what takes its place: lines from 1, columns from 0 in characters."""

    line: int
    start: int
    end_line: int
    end: int
    text: str


@noun
class Hit:
    """What a check found, in the document's own lines; the rule holds the words."""

    rule: str
    line: int
    values: Mapping[str, object] = field(default_factory=dict[str, object])
    edit: Edit | None = None


@noun
class Finding:
    """One thing that is wrong today, in a file's lines."""

    id: str
    file: str
    line: int
    what: str
    today: str
    source: str
    severity: Severity
    edit: Edit | None = None  # only where the change is certain


@noun
class Unread:
    """A file or part of one that was not read, with the reason."""

    file: str
    line: int
    reason: str


@noun
class Report:
    """What lint answers."""

    findings: tuple[Finding, ...]
    unread: tuple[Unread, ...]
    num_documents: int


@noun
class Definitions:
    """Names that the software defines, by group; `installed` tells which releases were read on this machine."""

    names: Mapping[str, frozenset[str]]
    releases: Mapping[str, str]
    installed: Mapping[str, str] = field(default_factory=dict[str, str])

    def knows(self, group: str, name: str) -> bool:
        """Whether a group has a name."""
        return name in self.names.get(group, frozenset())


@noun
class Command:
    """One command of a script or of another file, as a shell reads it."""

    words: tuple[str, ...]
    line: int
    env: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def text(self) -> str:
        """The words with a space between."""
        return " ".join(self.words)


@noun
class Setting:
    """An environment variable that a file sets."""

    name: str
    value: str | None
    line: int
    edit: Edit | None = None  # the whole statement, where taking it out leaves a sound file


@noun
class Image:
    """A container image that a file names."""

    name: str
    line: int
    edit: Edit | None = None  # the stretch of the name
