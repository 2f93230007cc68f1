"""`tonnage diagnose PATH…`: the cause in what a failed run left behind."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tonnage.cli.options import common, emit_json
from tonnage.messages import LANGUAGES, language, say

if TYPE_CHECKING:
    from tonnage.diagnose.types import Cure, Diagnosis, Evidence, Finding, Seen

_MOST_FILES: Final = 8
_MOST_OTHERS: Final = 3


def _spoken(pair: tuple[str, str]) -> str:
    return pair[LANGUAGES.index(language())]


def _fix(cure: Cure) -> str:
    text = _spoken(cure.text)
    return f"{text} [{cure.setting}]" if cure.setting else text


def _evidence(places: Sequence[Evidence]) -> list[dict[str, Any]]:
    return [{"file": one.file, "line": one.line or None, "text": one.text} for one in places]


def _object(finding: Finding) -> dict[str, Any]:
    return {
        "id": finding.id,
        "layer": finding.layer,
        "cause": _spoken(finding.cause),
        "severity": finding.severity,
        "confidence": finding.confidence,
        "evidence": _evidence(finding.evidence),
        "fixes": [_fix(cure) for cure in finding.fixes],
        "consequences": [
            {"id": one.id, "what": _spoken(one.what), "evidence": _evidence(one.evidence)}
            for one in finding.consequences
        ],
        "effects": [
            {
                "setting": one.setting,
                "before": one.before,
                "after": one.after,
                "frees_bytes": one.freed_bytes,
                "fits": one.fits,
            }
            for one in finding.effects
        ],
        "against": _spoken(finding.against) if finding.against else None,
        "ranks": list(finding.ranks),
        "num_lines": finding.num_hits,
        "also": list(finding.also),
        "source": finding.source,
    }


def _answer(diagnosis: Diagnosis) -> dict[str, Any]:
    return {
        "findings": [_object(finding) for finding in diagnosis.findings],
        "looked_at": [
            {
                "file": one.file,
                "kind": one.kind,
                "num_lines": one.num_lines,
                "num_bytes": one.num_bytes,
                "last_exception": {"line": one.last_exception_line, "text": one.last_exception}
                if one.last_exception
                else None,
            }
            for one in diagnosis.looked_at
        ],
        "would_help": [_spoken(one) for one in diagnosis.would_help],
    }


def _of_finding(finding: Finding, *, is_first: bool) -> list[str]:
    from tonnage.cli.tables import printable, style, wrap

    head = say("diagnose.cause") if is_first else say("diagnose.also_found")
    facts = [say(f"diagnose.{finding.severity}"), say("diagnose.confidence", value=finding.confidence)]
    if finding.ranks:
        facts.append(say("diagnose.ranks", ranks=", ".join(map(str, finding.ranks[:8]))))
    colour = {"critical": "red", "warning": "yellow"}.get(finding.severity, "dim")
    lines = [f"{style(head, colour)}  {finding.id}  ({', '.join(facts)})"]
    lines += wrap(printable(_spoken(finding.cause)), indent="  ")
    lines.append(style(f"  {say('diagnose.evidence')}", "dim"))
    for one in finding.evidence:
        lines.append(f"    {printable(one.file)}:{one.line}: {printable(one.text)[:200]}")
    lines.append(style(f"  {say('diagnose.cures')}", "dim"))
    for number, cure in enumerate(finding.fixes, 1):
        lines += [
            f"    {f'{number}.' if i == 0 else '  '} {line}" for i, line in enumerate(wrap(_fix(cure), columns=94))
        ]
    if finding.effects:
        lines.append(style(f"  {say('diagnose.effects')}", "dim"))
        lines += [f"    {_spoken(one.text)}" for one in finding.effects]
    if finding.against:
        lines += wrap(f"{say('diagnose.against')}: {_spoken(finding.against)}", indent="  ")
    if finding.consequences:
        lines.append(style(f"  {say('diagnose.followed')}", "dim"))
        for one in finding.consequences:
            place = f" ({printable(one.evidence[0].file)}:{one.evidence[0].line})" if one.evidence else ""
            lines.append(f"    {one.id}{place}")
    return lines


def _of_seen(seen: Sequence[Seen]) -> list[str]:
    from tonnage.cli.tables import printable, style
    from tonnage.units import format_bytes

    lines = [style(say("diagnose.looked_at"), "dim")]
    for one in seen[:_MOST_FILES]:
        size = format_bytes(one.num_bytes)
        lines.append("  " + say("diagnose.looked_line", file=printable(one.file), kind=one.kind, lines=one.num_lines, size=size))  # fmt: skip
        if one.last_exception:
            lines.append("    " + say("diagnose.last_error", text=printable(one.last_exception)))
    if len(seen) > _MOST_FILES:
        lines.append("  " + say("diagnose.more_files", num=len(seen) - _MOST_FILES))
    return lines


def _text(diagnosis: Diagnosis, *, is_all: bool) -> str:
    findings = diagnosis.findings
    if not findings:
        lines = [say("diagnose.nothing"), *_of_seen(diagnosis.looked_at), say("diagnose.would_help")]
        return "\n".join([*lines, *(f"  - {_spoken(one)}" for one in diagnosis.would_help)])
    lines: list[str] = []
    for place, finding in enumerate(findings if is_all else findings[: 1 + _MOST_OTHERS]):
        lines += ["", *_of_finding(finding, is_first=place == 0)]
    left = len(findings) - 1 - _MOST_OTHERS
    if left > 0 and not is_all:
        lines += ["", say("diagnose.more_files", num=left) + " (--all)"]
    return "\n".join(lines[1:])


@click.command("diagnose")
@click.argument("paths", metavar="PATH…", nargs=-1, required=True)
@click.option(
    "--for",
    "plan_path",
    type=click.Path(path_type=Path),
    metavar="PLAN",
    help="The run's plan: compute what cures free.",
)
@click.option("--redact", is_flag=True, help="Hide host names, addresses and user names as well as secrets.")
@click.option("--all", "is_all", is_flag=True, help="Show every finding.")
@click.option(
    "--fail-on",
    type=click.Choice(("critical", "warning", "info")),
    help="Exit 3 when a finding is of this severity or worse.",
)
@common
def command(
    paths: tuple[str, ...],
    plan_path: Path | None,
    redact: bool,
    is_all: bool,
    fail_on: str | None,
    is_json: bool,
    is_quiet: bool,
) -> int:
    """Find the cause in what a failed run left behind: logs, journals, error files, dumps, folders, - for a pipe.

    The cause is told apart from its consequences, with the lines that show it, what speaks against it and what to do.
    Tokens, keys and passwords are never shown.

    \b
    tonnage diagnose train.log
    tonnage diagnose logs/ dumps/ --json
    tonnage diagnose train.log --for plan.toml
    journalctl -u vllm | tonnage diagnose - --fail-on critical
    """
    from tonnage import api
    from tonnage.cli.options import waiting
    from tonnage.diagnose.types import SEVERITIES

    plan = None
    if plan_path is not None:
        from tonnage.plan.file import LARGEST_BYTES
        from tonnage.probe.plain_file import read_text

        plan = api.read_plan(read_text(plan_path, LARGEST_BYTES, "name a plan file"), str(plan_path))
    with waiting("…", is_quiet=is_quiet):
        diagnosis = api.diagnose(paths, stdin=sys.stdin.buffer if "-" in paths else None, redact=redact, plan=plan)
    if is_json:
        emit_json(_answer(diagnosis))
    else:
        print(_text(diagnosis, is_all=is_all))
    worst = min((SEVERITIES.index(one.severity) for one in diagnosis.findings), default=len(SEVERITIES))
    return 3 if fail_on and worst <= SEVERITIES.index(fail_on) else 0
