"""`tonnage doctor`: this machine held against what a plan needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tonnage.cli.options import common, emit_json, note, waiting
from tonnage.cli.tables import printable, style, table, wrap
from tonnage.messages import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tonnage.diagnose.doctor.types import Check

_COLOURS = {"ok": "green", "warning": "yellow", "fail": "red", "not found": "dim", "not measured": "dim"}


@click.command("doctor")
@click.option("--for", "path", metavar="PLAN", help="A plan file: check what it needs, and nothing else.")
@click.option(
    "--measure",
    "is_measured",
    is_flag=True,
    help="Measure memory, disk and the cards' memory too, within half a minute.",
)
@click.option(
    "--folder", default=".", show_default=True, metavar="DIR", help="Where weights and checkpoints are to lie."
)
@click.option(
    "--place",
    default="local",
    show_default=True,
    help="Where it is to start: local, compose, systemd, kubernetes, slurm, skypilot.",
)
@common
def command(path: str | None, is_measured: bool, folder: str, place: str, is_json: bool, is_quiet: bool) -> int:
    """Hold this machine against what a plan needs: system, driver, cards, links, processor, memory, disk, network.

    Nothing is changed. Exit code 3 says that something failed.

    \b
    tonnage doctor
    tonnage doctor --for plan.toml --measure
    """
    from tonnage import api
    from tonnage.cli.plan import read_text
    from tonnage.plan.file import LARGEST_BYTES

    plan = None if path is None else api.read_plan(read_text(path, LARGEST_BYTES), path)
    with waiting(say("doctor.measuring"), is_quiet=is_quiet or not is_measured):
        checks = api.doctor(plan, folder=folder, place=place, is_measured=is_measured)
    if is_json:
        emit_json({"checks": [_object(check) for check in checks]})
    else:
        if plan is not None:
            note(say("doctor.for_plan", plan=f"{plan.estimate.candidate.model.name}, {plan.estimate.candidate.engine}"),
                 is_quiet=is_quiet)  # fmt: skip
        _print(checks)
    return 0 if all(check.verdict != "fail" for check in checks) else 3


def _object(check: Check) -> dict[str, str | None]:
    return {
        "name": check.name,
        "required": check.required or None,
        "found": check.found or None,
        "verdict": str(check.verdict),
        "fix": check.fix or None,
    }


def _print(checks: Sequence[Check]) -> None:
    words = {v: say(f"doctor.verdict_{v.replace(' ', '_')}") for v in _COLOURS}
    rows = [
        (
            style(words[str(c.verdict)], _COLOURS[str(c.verdict)]),
            c.name,
            printable(c.found)[:60],
            printable(c.required)[:40],
        )
        for c in checks
    ]
    header = ("", say("doctor.check"), say("doctor.found"), say("doctor.required"))
    print("\n".join(table(header, rows)))
    mends = [c for c in checks if c.fix and c.verdict != "ok"]
    if mends:
        print()
    for check in mends:
        print("\n".join(wrap(say("doctor.fix", name=check.name, fix=check.fix))))
    held = [str(c.verdict) for c in checks]
    unknown = held.count("not found") + held.count("not measured")
    print()
    print(
        say(
            "doctor.summary",
            ok=held.count("ok"),
            warning=held.count("warning"),
            fail=held.count("fail"),
            unknown=unknown,
        )
    )
