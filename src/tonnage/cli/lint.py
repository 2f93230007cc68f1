"""`tonnage lint`: scripts and configurations held against today's interfaces."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tonnage.cli.options import common, emit_json, note
from tonnage.cli.tables import printable, style, wrap
from tonnage.messages import say

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tonnage.diagnose.lint.rules import Rule
    from tonnage.diagnose.lint.types import Finding, Report

_COLOURS = {"error": "red", "warning": "yellow", "note": "dim"}


@click.command("lint")
@click.argument("paths", metavar="PATH…", nargs=-1)
@click.option("--fix", "is_fix", is_flag=True, help="Write a corrected copy, PATH.fixed, where the change is certain.")
@click.option("--diff", "is_diff", is_flag=True, help="Show the changes that --fix would make.")
@click.option(
    "--fail-on", type=click.Choice(("error", "warning", "note")), help="Exit code 3 where something so grave was found."
)
@click.option("--explain", "rule", metavar="RULE", help="Show a rule with an example that it finds; all lists them.")
@common
def command(
    paths: tuple[str, ...],
    is_fix: bool,
    is_diff: bool,
    fail_on: str | None,
    rule: str | None,
    is_json: bool,
    is_quiet: bool,
) -> int:
    """Hold training scripts, configurations and launch lines against today's interfaces; nothing of them is run.

    PATH is a file, a folder, or - for standard input: Python scripts and notebooks, shell scripts, Dockerfiles, Compose and Kubernetes files, systemd units, DeepSpeed and accelerate configurations, Prometheus configurations and rules, Markdown with snippets.

    \b
    tonnage lint train.py ds_config.json run.sh
    tonnage lint . --fail-on error
    tonnage lint train.py --fix
    tonnage lint --explain nccl-ib-disable-zero
    """
    from tonnage import api
    from tonnage.errors import RequestError

    if rule is not None:
        return _explain(rule, is_json=is_json)
    if not paths:
        raise RequestError(
            "nothing is named", where="tonnage lint", fix="name files or folders, or - for standard input"
        )
    report = api.lint(paths, sys.stdin.buffer if "-" in paths else None)
    for one in report.unread:
        values = {"file": printable(one.file), "reason": one.reason, "line": one.line}
        note(say("lint.unread_part" if one.line else "lint.unread", **values), is_quiet=is_quiet)
    if is_json:
        emit_json(_object(report))
    elif not is_diff:
        _print(report)
    if is_fix or is_diff:
        _mend(report, is_fix=is_fix, is_diff=is_diff and not is_json, is_quiet=is_quiet)
    return 3 if fail_on and _is_reached(report.findings, fail_on) else 0


def _is_reached(findings: Iterable[Finding], limit: str) -> bool:
    order = ("error", "warning", "note")
    return any(order.index(f.severity) <= order.index(limit) for f in findings)


def _object(report: Report) -> dict[str, object]:
    return {
        "findings": [
            {
                "id": f.id,
                "file": f.file,
                "line": f.line,
                "what": f.what,
                "today": f.today,
                "source": f.source,
                "severity": str(f.severity),
                "fixable": f.edit is not None,
            }
            for f in report.findings
        ],
        "unread": [{"file": u.file, "line": u.line or None, "reason": u.reason} for u in report.unread],
        "num_documents": report.num_documents,
    }


def _print(report: Report) -> None:
    for f in report.findings:
        severity = style(say(f"lint.severity_{f.severity}"), _COLOURS[f.severity])
        print(f"{printable(f.file)}:{f.line}: {severity} [{f.id}]")
        for text in (f.what, say("lint.today", today=f.today), say("lint.source", source=f.source)):
            print("\n".join(wrap(printable(text), indent="  ")))
    if not report.num_documents:
        print(say("lint.nothing"))
    elif report.findings:
        held = [str(f.severity) for f in report.findings]
        print(
            say(
                "lint.summary",
                documents=report.num_documents,
                errors=held.count("error"),
                warnings=held.count("warning"),
                notes=held.count("note"),
                fixable=sum(f.edit is not None for f in report.findings),
            )
        )
    else:
        print(say("lint.clean", documents=report.num_documents))


def _mend(report: Report, *, is_fix: bool, is_diff: bool, is_quiet: bool) -> None:
    """Write or show the corrected copies."""
    from tonnage import api
    from tonnage.diagnose.lint.edits import difference
    from tonnage.probe.plain_file import replace_text

    for name, (old, new, num) in api.lint_fixes(report).items():
        if is_diff:
            print(difference(old, new, name), end="")
        if not is_fix or name == "-":
            continue
        if num:
            path = Path(f"{name}.fixed")
            replace_text(path, new, fix="write to a folder that is yours")
            note(say("lint.fixed", path=path, num=num), is_quiet=is_quiet)
        else:
            note(say("lint.unfixed", path=name), is_quiet=is_quiet)


def _explain(name: str, *, is_json: bool) -> int:
    from tonnage.diagnose.lint.checks.types import alike
    from tonnage.diagnose.lint.rules import rules
    from tonnage.errors import UnknownNameError

    known = rules()
    if name == "all":
        if is_json:
            emit_json({"rules": [{"id": r.id, "severity": str(r.severity), "what": r.what[0]} for r in known.values()]})
        else:
            _list(known)
        return 0
    if name not in known:
        raise UnknownNameError(
            f"no rule is called {name[:60]!r}", where="--explain", fix="--explain all lists them",
            suggestions=alike(name, set(known)),
        )  # fmt: skip
    rule = known[name]
    if is_json:
        emit_json({"id": rule.id, "severity": str(rule.severity), "what": rule.what[0], "today": rule.today[0],
                   "source": rule.source, "bad": rule.bad.strip("\n"), "good": rule.good.strip("\n")})  # fmt: skip
        return 0
    from tonnage.messages import language

    place = 1 if language() == "zh" else 0
    print(say("lint.rule", id=rule.id, severity=say(f"lint.severity_{rule.severity}"), what=rule.what[place]))
    print(say("lint.today", today=rule.today[place]))
    print(say("lint.source", source=rule.source))
    for title, text in (("example_bad", rule.bad), ("example_good", rule.good)):
        print(say(f"lint.{title}"))
        print("\n".join(f"  {line}" for line in text.strip("\n").split("\n")))
    return 0


def _list(known: Mapping[str, Rule]) -> None:
    from tonnage.messages import language

    place = 1 if language() == "zh" else 0
    for rule in known.values():
        print(say("lint.rule", id=rule.id, severity=say(f"lint.severity_{rule.severity}"), what=rule.what[place]))
