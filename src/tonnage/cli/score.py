"""`tonnage score FILE…`: predictions beside measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tonnage.cli.options import common, emit_json, note
from tonnage.errors import BadFileError
from tonnage.messages import say


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadFileError(
            f"cannot be read: {error}", where=str(path), fix="name a file of measurement rows"
        ) from error


def _bounds(path: Path) -> list[dict[str, Any]]:
    import tomllib

    try:
        return list(tomllib.loads(_read(path))["bound"])
    except (tomllib.TOMLDecodeError, KeyError) as error:
        raise BadFileError(f"holds no bounds: {error}", where=str(path), fix="write [[bound]] tables") from error


def _text(result: dict[str, Any]) -> str:
    from tonnage.cli.tables import table

    def percent(value: float | None) -> str:
        return "–" if value is None else f"{100 * value:.1f} %"

    rows: list[list[str]] = []
    more: list[str] = []
    for metric, stats in result["metrics"].items():
        if metric == "oom":
            more.append(
                say(
                    "score.oom_line",
                    n=stats["n"],
                    accuracy=percent(stats["balanced_accuracy"]),
                    false_fit=percent(stats["false_fit"]),
                    false_oom=percent(stats["false_oom"]),
                )
            )
            continue
        figures = ("median_ape", "p90_ape", "bias", "interval_coverage", "relative_width")
        rows.append([metric, str(stats["n"]), str(stats["covered"]), *(percent(stats[name]) for name in figures)])
    names = ("metric", "rows", "predicted", "median", "p90", "bias", "inside", "width")
    lines = table([say(f"score.{name}") for name in names], rows, right=range(1, 8)) if rows else []
    return "\n".join([*lines, *more])


@click.command("score")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--leave-out", type=click.Choice(["unit", "source"]), help="Predict each row without its unit or source.")
@click.option("--check", "is_check", is_flag=True, help="Exit 3 when a bound is not met.")
@click.option(
    "--bounds",
    "bounds_path",
    type=click.Path(path_type=Path),
    default=Path("validation/bounds.toml"),
    show_default=True,
    help="The bounds that --check holds.",
)
@common
def command(
    files: tuple[Path, ...],
    leave_out: str | None,
    is_check: bool,
    bounds_path: Path,
    is_json: bool,
    is_quiet: bool,
) -> int:
    """Predict measured runs and say how far off the predictions are."""
    from tonnage.calibrate.rows import read_rows, score_rows
    from tonnage.calibrate.score import failed_bounds, row_object, statistics

    bounds = _bounds(bounds_path) if is_check else []
    rows = [row for path in files for row in read_rows(_read(path), str(path))]
    scored = score_rows(rows, leave_out)
    result = {
        "file": [str(path) for path in files] if len(files) > 1 else str(next(iter(files))),
        "num_rows": len(rows),
        "leave_out": leave_out,
        "metrics": statistics(scored),
        "rows": [row_object(row) for row in scored],
    }
    emit_json(result) if is_json else print(_text(result))
    failures = failed_bounds(result["metrics"], bounds)
    for line in failures:
        note(say("score.bound_missed", line=line), is_quiet=is_quiet)
    return 3 if failures else 0
