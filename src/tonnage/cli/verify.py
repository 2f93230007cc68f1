"""`tonnage verify`: the acceptance report of a run or a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tonnage.cli.options import common, emit_json, note, put_text
from tonnage.messages import say

if TYPE_CHECKING:
    from tonnage.verify.types import Report


@click.command("verify")
@click.argument("path", metavar="RUN|BENCH")
@click.option("--plan", "plan_path", metavar="PLAN", help="Whose predictions and limits count; a run's own by default.")
@click.option(
    "--baseline", "baselines", multiple=True, metavar="RUN", help="A run whose final loss this one is held against."
)
@click.option("--limit", "limits", multiple=True, metavar="NAME=VALUE", help="Set a limit: temperature_celsius=80.")
@click.option("--hardware", metavar="FILE", help="Readings of the devices during a load test, one JSON object a line.")
@click.option("--no-logs", is_flag=True, help="Do not look for faults in the logs.")
@click.option("--all", "is_all", is_flag=True, help="Show what was not measured, too.")
@click.option("--html", metavar="FILE", help="Write a report that needs nothing beside itself; - prints it.")
@common
def command(
    path: str,
    plan_path: str | None,
    baselines: tuple[str, ...],
    limits: tuple[str, ...],
    hardware: str | None,
    no_logs: bool,
    is_all: bool,
    html: str | None,
    is_json: bool,
    is_quiet: bool,
) -> int:
    """Accept or refuse a training run, or a server by its load test: each limit, measured, predicted, pass or fail.

    RUN is a folder that `tonnage run` made, BENCH the file that `tonnage bench --save` wrote. Limits come from the
    acceptance lists that this tool answers, from the plan, or from you: `--limit`, or a table [verify] in the plan
    file. What was not measured is never passed. Exits with 3 where the report is refused.

    \b
    tonnage verify runs/llama
    tonnage verify runs/llama --baseline runs/reference --limit temperature_celsius=80 --html report.html
    tonnage verify bench.json --plan plan.toml --limit ttft_p99_seconds=2
    """
    from tonnage import api
    from tonnage.verify.report import report_object, report_page

    report, seen = api.verify(
        path,
        plan=plan_path,
        baselines=baselines,
        limits=_given(limits),
        hardware=hardware,
        reads_logs=not no_logs,
    )
    if html is not None:
        _write(html, report_page(report, seen), is_quiet=is_quiet)
    if is_json:
        emit_json(report_object(report))
    elif html != "-":
        print("\n".join(to_lines(report, is_all=is_all)))
    return 0 if report.is_passed else 3


def _given(limits: tuple[str, ...]) -> dict[str, str]:
    from tonnage.errors import RequestError

    found = {}
    for one in limits:
        name, equals, value = one.partition("=")
        if not equals:
            raise RequestError(
                f"'{one[:60]}' sets nothing", where="--limit", fix="write --limit temperature_celsius=80"
            )
        found[name.strip()] = value.strip()
    return found


def _write(path: str, page: str, *, is_quiet: bool) -> None:

    if put_text(path, page):
        note(say("verify.page", path=path), is_quiet=is_quiet)


def to_lines(report: Report, *, is_all: bool = True) -> list[str]:
    """Return the lines of the terminal's answer; without `is_all` only what is required of the unmeasured."""
    from tonnage.cli.tables import printable, style, table
    from tonnage.verify.report import sentence, verdict_text
    from tonnage.verify.types import Part, Verdict

    marks = {
        Verdict.PASS: style("✓", "green"),
        Verdict.FAIL: style("✗", "red"),
        Verdict.NOT_MEASURED: style("–", "dim"),
    }
    text = [printable(say("verify.title", name=report.name, kind=say(f"verify.kind_{report.kind}")))]
    for part in Part:
        checks = [
            one
            for one in report.checks
            if one.part is part and (is_all or one.verdict is not Verdict.NOT_MEASURED or one.is_required)
        ]
        if not checks:
            continue
        rows = [
            (marks[one.verdict], say(f"verify.{one.name}"), sentence(one), one.origin, printable(one.evidence))
            for one in checks
        ]
        header = ("", say("verify.check"), say("verify.found"), say("verify.origin"), "")
        text += ["", say(f"verify.part_{part}"), *table(header, rows, indent="  ")]
    return [*text, "", style(verdict_text(report), "bold")]
