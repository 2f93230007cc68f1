"""A user's scripts and configurations held against today's interfaces: what is wrong, what is right, since when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache

from tonnage import datafiles
from tonnage.diagnose.lint.checks import CHECKS
from tonnage.diagnose.lint.checks.types import Context
from tonnage.diagnose.lint.kinds import documents_of
from tonnage.diagnose.lint.rules import hits_of, rules, words_of
from tonnage.diagnose.lint.seen import Seen, look
from tonnage.diagnose.lint.types import Definitions, Document, Edit, Finding, Hit, Report, Severity, Unread

__all__ = ["definitions", "lint"]

_ORDER = (Severity.ERROR, Severity.WARNING, Severity.NOTE)


@cache
def definitions() -> Definitions:
    """Return the names that today's releases define, as on record in `data/lint/known.csv`."""
    names: dict[str, set[str]] = {}
    releases: dict[str, str] = {}
    for row in datafiles.rows("lint/known.csv"):
        names.setdefault(row["group"], set()).add(row["name"])
        releases[row["group"]] = row["release"]
    return Definitions(names={group: frozenset(held) for group, held in names.items()}, releases=releases)


def lint(files: Mapping[str, str], known: Definitions | None = None) -> Report:
    """Hold texts against the rules; files of one call may explain each other (a launch line and its script).

    Parameters
    ----------
    files : mapping
        Texts by the name under which they are reported.
    known : Definitions
        What the software defines; by default today's releases.

    Returns
    -------
    Report
        Findings by file and line.

    Examples
    --------
    >>> lint({"run.sh": "export NCCL_IB_DISABLE=0"}).findings[0].id
    'nccl-ib-disable-zero'
    """
    looked = [look(document) for name, text in files.items() for document in documents_of(name, _plain(text))]
    context = Context(known=known or definitions(), seen=tuple(looked))
    findings: dict[tuple[str, int, str, str], Finding] = {}
    for seen in looked:
        for hit in _hits(seen, context):
            finding = _finding(seen, hit)
            findings.setdefault((finding.file, finding.line, finding.id, finding.what), finding)
    order = {name: place for place, name in enumerate(files)}
    kept = sorted(findings.values(), key=lambda f: (order[f.file], f.line, _ORDER.index(f.severity), f.id))
    return Report(
        findings=tuple(kept),
        unread=tuple(
            Unread(file=s.document.file, line=s.document.first_line, reason=s.trouble) for s in looked if s.trouble
        ),
        num_documents=len(looked),
    )


def _plain(text: str) -> str:
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _hits(seen: Seen, context: Context) -> Iterable[Hit]:
    for rule in rules().values():
        if rule.is_data:
            yield from hits_of(rule, seen)
    for check in CHECKS:
        if seen.kind in check.kinds:
            yield from check.find(seen, context)


def _finding(seen: Seen, hit: Hit) -> Finding:
    rule = rules()[hit.rule]
    what, today = words_of(rule, hit)
    document = seen.document
    return Finding(
        id=rule.id,
        file=document.file,
        line=_line(document, hit.line),
        what=what,
        today=today,
        source=rule.source,
        severity=rule.severity,
        edit=None
        if hit.edit is None or document.lines_in_file
        else _in_file(hit.edit, document.first_line - 1, document.indent),
    )


def _line(document: Document, line: int) -> int:
    """Return a document's line as one of its file."""
    if document.lines_in_file:
        return document.lines_in_file[min(line, len(document.lines_in_file)) - 1]
    return document.first_line + line - 1


def _in_file(edit: Edit, lines: int, columns: int) -> Edit:
    """Return an edit of a snippet as one of its file."""
    is_line = edit.start == 0 and edit.end == 0 and edit.end_line == edit.line + 1
    return replace(
        edit,
        line=edit.line + lines,
        end_line=edit.end_line + lines,
        start=0 if is_line else edit.start + columns,
        end=0 if edit.end == 0 else edit.end + columns,
    )
