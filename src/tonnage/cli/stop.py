"""`tonnage stop`: end a run with a checkpoint."""

from __future__ import annotations

from pathlib import Path

import click

from tonnage.cli.options import common, emit_json
from tonnage.messages import say


@click.command("stop")
@click.argument("run", metavar="RUN")
@click.option(
    "--wait",
    "wait_seconds",
    metavar="SECONDS",
    default=600.0,
    show_default=True,
    type=click.FloatRange(0),
    help="How long to wait for the checkpoint.",
)
@common
def command(run: str, wait_seconds: float, is_json: bool, is_quiet: bool) -> int:
    """End a run with a checkpoint, and say what became of it; `tonnage run RUN` goes on from there.

    \b
    tonnage stop runs/mine
    """
    from tonnage import api
    from tonnage.cli.progress import finite
    from tonnage.cli.tables import printable

    del is_quiet
    with_state = api.stop(Path(run), wait_seconds=wait_seconds)
    if is_json:
        emit_json(finite(dict(with_state)))
        return 0
    message = f": {printable(with_state['message'])}" if with_state["message"] else ""
    status = say(f"run.status_{with_state['status']}")
    print(say("run.ended", path=printable(run), status=status, message=message))
    return 0
