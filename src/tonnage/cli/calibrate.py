"""`tonnage calibrate LOG… --plan FILE`: what an engine printed while it started, beside the plan's prediction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tonnage.cli.options import common, emit_json, note
from tonnage.errors import BadFileError
from tonnage.messages import say


def _read(path: Path, fix: str) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise BadFileError(f"cannot be read: {error.strerror}", where=str(path), fix=fix) from error


def _amount(name: str, value: float) -> str:
    from tonnage.units import format_bytes

    return f"{value:,.0f}" if name.endswith("tokens") else format_bytes(value, 2)


@click.command("calibrate")
@click.argument("logs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--plan", "plan_path", required=True, type=click.Path(path_type=Path), help="The plan that was launched.")
@common
def command(logs: tuple[Path, ...], plan_path: Path, is_json: bool, is_quiet: bool) -> int:
    """Check start-up logs against the plan of the same launch: what differs, and by how much."""
    from tonnage.calibrate.log_check import differences, read_log
    from tonnage.cli.tables import table
    from tonnage.plan.file import read_plan

    plan = read_plan(_read(plan_path, "give the file that tonnage plan -o wrote"), str(plan_path))
    results: list[dict[str, Any]] = []
    for path in logs:
        facts = read_log(_read(path, "give what the engine printed while it started"), str(path))
        found = differences(plan.estimate.candidate, facts)
        quantities = [
            {"name": one.name, "predicted": one.predicted, "measured": one.measured, "relative": one.relative}
            for one in found
        ]
        results.append({"file": str(path), "engine": facts.engine, "quantities": quantities})
        if not found:
            note(say("calibrate.nothing"), is_quiet=is_quiet)
    if is_json:
        emit_json({"logs": results})
        return 0
    header = [say(f"calibrate.{name}") for name in ("quantity", "predicted", "measured", "difference")]
    for result in results:
        rows = [
            [
                say(f"calibrate.{one['name']}"),
                _amount(one["name"], one["predicted"]),
                _amount(one["name"], one["measured"]),
                "–" if one["relative"] is None else f"{100 * one['relative']:+.1f} %",
            ]
            for one in result["quantities"]
        ]
        if rows:
            print("\n".join([result["file"], *table(header, rows, right=range(1, 4))]))
    return 0
