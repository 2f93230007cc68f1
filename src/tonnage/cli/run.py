"""`tonnage run`: start a plan here and see it to its end."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tonnage.cli.options import common

if TYPE_CHECKING:
    from tonnage.record.types import Run


@click.command("run")
@click.argument("target", metavar="DIR|PLAN")
@click.option("--to", "place", metavar="DIR", help="Where the run is kept. [runs/NAME of a plan, DIR/run of a bundle]")
@click.option("--data", metavar="PATH", help="Text to train on: a file or a folder.")
@click.option("--steps", "num_steps", type=click.IntRange(1), help="End after so many optimizer steps.")
@click.option("--cpu", "is_cpu", is_flag=True, help="Train on this machine's processors, to try a plan for other ones.")
@click.option(
    "--grace",
    "grace_seconds",
    metavar="SECONDS",
    type=click.FloatRange(1),
    help="Time to write a checkpoint when it is stopped. [by its size]",
)
@click.option(
    "--hang-after",
    "hang_seconds",
    metavar="SECONDS",
    type=click.FloatRange(1),
    help="A step without a sign of life for so long is hung. [120, or ten times a step]",
)
@click.option(
    "--spot",
    "cloud",
    type=click.Choice(("off", "auto", "aws", "gcp", "azure", "aliyun", "tencent")),
    default="off",
    show_default=True,
    help="Stop with a checkpoint when this cloud announces that it takes the machine.",
)
@click.option("--textfile", metavar="FILE", help="Write the figures for Prometheus' textfile collector, every 15 s.")
@click.option("--mlflow", metavar="URI", help="Tell an MLflow store: parameters, figures, files, the model.")
@common
def command(
    target: str, place: str | None, data: str | None, num_steps: int | None, is_cpu: bool, grace_seconds: float | None,
    hang_seconds: float | None, cloud: str, textfile: str | None, mlflow: str | None, is_json: bool, is_quiet: bool,
) -> int:  # fmt: skip
    """Start a plan here and see it to its end: watched, restarted where that helps, resumed from its checkpoints.

    DIR is a folder that `tonnage deploy` wrote, or a run: then it goes on. Ctrl-C stops it with a checkpoint (exit code
    75), a second one at once. Exit code 3 says that starting again cannot help.

    With --json each step and event is an object on a line of its own, the run the last one.

    \b
    tonnage run plan.toml --data corpus/ --steps 1000
    tonnage run bundle
    tonnage run runs/qwen3-8b-transformers
    """
    from tonnage import api
    from tonnage.cli.progress import Progress
    from tonnage.errors import RequestError

    if place is not None and not place.strip():
        raise RequestError("names no folder", where="--to", fix="write --to runs/mine")
    progress = Progress(is_json=is_json, is_quiet=is_quiet)
    run = api.run(
        target,
        to=None if place is None else Path(place),
        data=None if data is None else Path(data),
        num_steps=num_steps,
        is_cpu=is_cpu,
        watch=progress,
        grace_seconds=grace_seconds,
        least_step_seconds=hang_seconds,
        notice=cloud,
        textfile=None if textfile is None else Path(textfile).resolve(),
        mlflow=mlflow,
    )
    progress.end(run)
    return _code(run)


def _code(run: Run) -> int:
    return 1 if run.exit_code is None else run.exit_code
