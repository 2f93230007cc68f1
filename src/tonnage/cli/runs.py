"""`tonnage runs`: the runs below a folder."""

from __future__ import annotations

from pathlib import Path

import click

from tonnage.cli.options import common, emit_json
from tonnage.messages import say


@click.command("runs")
@click.argument("place", metavar="[DIR]", default=".", required=False)
@common
def command(place: str, is_json: bool, is_quiet: bool) -> int:
    """List runs, the newest first: status, step, attempts, last checkpoint.

    \b
    tonnage runs
    tonnage runs runs --json
    """
    from tonnage import api
    from tonnage.cli.progress import finite
    from tonnage.cli.tables import printable, table

    del is_quiet
    found = api.runs(Path(place))
    if is_json:
        emit_json({"runs": [finite(dict(one)) for one in found]})
        return 0
    if not found:
        print(say("run.none", path=printable(place)))
        return 0
    heads = [say(f"run.head_{name}") for name in ("run", "status", "step", "attempts", "checkpoint", "engine")]
    rows = [
        (
            printable(one["path"]),
            say(f"run.status_{one['status']}"),
            _step(one["last_step"], one["num_steps"]),
            str(one["num_attempts"]),
            printable(one["last_checkpoint"] or ""),
            printable(one["engine"]),
        )
        for one in found
    ]
    print("\n".join(table(heads, rows, right=(2, 3))))
    return 0


def _step(step: int | None, number: int | None) -> str:
    done = "" if step is None else str(step)
    return done if number is None else f"{done}/{number}"
