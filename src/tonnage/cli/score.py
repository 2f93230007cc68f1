"""`tonnage score FILE…`: predictions beside measurements."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tonnage.cli.options import common, emit_json, note
from tonnage.errors import BadFileError
from tonnage.messages import say

if TYPE_CHECKING:
    from tonnage.calibrate.types import Scored

_LARGEST_BYTES: Final = 256 << 20
# The names that people use for a breakdown, and its own.
_BY: Final = {
    "source": "source", "engine": "framework", "framework": "framework", "gpu": "gpu", "card": "gpu", "kind": "kind",
    "placement": "kind", "trust": "trust", "tier": "trust",
}  # fmt: skip
_FIGURES: Final = ("median_ape", "p90_ape", "bias", "interval_coverage", "relative_width")
_MOST_FAULTS: Final = 10


def _read(path: Path, fix: str) -> str:
    from tonnage.probe.plain_file import read_text

    return read_text(path, _LARGEST_BYTES, fix)


def _bounds(path: Path) -> list[dict[str, Any]]:
    import tomllib

    fix = "write [[bound]] tables with path and at_most or at_least"
    try:
        bounds = list(tomllib.loads(_read(path, fix))["bound"])
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise BadFileError(f"holds no bounds: {error}", where=str(path), fix=fix) from None
    for number, bound in enumerate(bounds, 1):
        limits = [bound.get(name) for name in ("at_most", "at_least")] if isinstance(bound, dict) else []
        is_sound = all(isinstance(limit, int | float) or limit is None for limit in limits) and any(
            limit is not None for limit in limits
        )
        if not is_sound or not isinstance(bound.get("path"), str):
            raise BadFileError(f"bound {number} is none", where=str(path), fix=fix)
    return bounds


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def _text(result: dict[str, Any], by: str | None) -> str:
    """Return the tables: of all rows, and where it is asked for of each part."""
    from tonnage.cli.tables import printable

    lines = _overview(result["metrics"])
    for metric, stats in result["metrics"].items() if by else ():
        parts = stats["by"][_BY[by or ""]]
        if metric == "oom":
            lines += [printable(f"{metric}, {value}: {_oom(part)}") for value, part in parts.items() if part["n"]]
            continue
        names = (by or "", "rows", "predicted", "median", "p90", "bias", "inside", "width")
        rows = [
            [value, str(part["n"]), str(part["covered"]), *(_percent(part[name]) for name in _FIGURES)]
            for value, part in parts.items()
        ]
        lines += ["", metric, *_table([say(f"score.{name}") if name != by else name for name in names], rows)]
    return "\n".join(lines)


def _overview(metrics: dict[str, Any]) -> list[str]:
    rows = [
        [metric, str(stats["n"]), str(stats["covered"]), *(_percent(stats[name]) for name in _FIGURES)]
        for metric, stats in metrics.items()
        if metric != "oom"
    ]
    names = ("metric", "rows", "predicted", "median", "p90", "bias", "inside", "width")
    lines = _table([say(f"score.{name}") for name in names], rows) if rows else []
    return [*lines, *(_oom(stats) for metric, stats in metrics.items() if metric == "oom")]


def _table(header: list[str], rows: list[list[str]]) -> list[str]:
    from tonnage.cli.tables import printable, table

    return list(table(header, [[printable(cell) for cell in row] for row in rows], right=range(1, 8)))


def _oom(stats: dict[str, Any]) -> str:
    if not stats["covered"]:
        return say("score.oom_none", n=stats["n"])
    return say(
        "score.oom_line",
        n=stats["n"],
        accuracy=_percent(stats["balanced_accuracy"]),
        false_fit=_percent(stats["false_fit"]),
        false_oom=_percent(stats["false_oom"]),
    )


def _worst(scored: Sequence[Scored], most: int) -> list[str]:
    """Return the rows that are farthest off, of each metric."""
    from tonnage.cli.tables import printable, table

    lines: list[str] = []
    for metric in sorted({one.metric for one in scored} - {"oom"}):
        far = sorted(
            (one for one in scored if one.metric == metric and one.ape is not None), key=lambda s: -(s.ape or 0)
        )
        rows = [
            [
                printable(one.id),
                f"{one.measured:.4g}",
                f"{one.predicted:.4g}",
                _percent(one.ape),
                *map(printable, (one.source, one.framework, one.gpu)),
            ]
            for one in far[:most]
        ]
        header = [say(f"score.{name}") for name in ("row", "measured", "told", "error", "source", "engine", "gpu")]
        lines += ["", say("score.worst", metric=metric), *table(header, rows, right=(1, 2, 3))] if rows else []
    refused = [one for one in scored if one.predicted is None]
    if refused:
        lines += [
            "",
            say("score.refused_rows"),
            *(printable(f"  {one.id} {one.metric}: {one.refused}") for one in refused[:most]),
        ]
    return lines


def _lines_of(text: str) -> list[int]:
    return [number for number, line in enumerate(text.splitlines(), 1) if line.strip()]


@click.command("score")
@click.argument("files", metavar="FILE…", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--leave-out", type=click.Choice(["unit", "source"]), help="Predict each row without its unit or source.")
@click.option("--by", type=click.Choice(tuple(_BY)), help="Break the errors down.")
@click.option("--worst", type=click.IntRange(1), metavar="N", help="Show the rows that are farthest off.")
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
    by: str | None,
    worst: int | None,
    is_check: bool,
    bounds_path: Path,
    is_json: bool,
    is_quiet: bool,
) -> int:
    """Predict measured runs and say how far off the predictions are.

    FILE holds one JSON object a line, as docs/reference/measurements.md describes. Exit code 3 says that --check found
    a bound that is not met.

    \b
    tonnage score src/tonnage/data/measurements/inference.jsonl --leave-out unit
    tonnage score mine.jsonl --by gpu --worst 5
    """
    from tonnage.calibrate.rows import METRICS, domain_of, faults_of, read_rows, score_rows
    from tonnage.calibrate.score import failed_bounds, row_object, statistics

    bounds = _bounds(bounds_path) if is_check else []
    rows: list[dict[str, Any]] = []
    for path in files:
        text = _read(path, "name a file of measurement rows, one JSON object a line")
        found = read_rows(text, str(path))
        if not found:
            raise BadFileError("holds no rows", where=str(path), fix="one JSON object a line")
        _tell_faults(faults_of(found), found, _lines_of(text), str(path), is_quiet=is_quiet)
        unclaimed = sum(domain_of(row) is None for row in found)
        if unclaimed:
            note(say("score.unclaimed", path=path, num=unclaimed, metrics=", ".join(METRICS)), is_quiet=is_quiet)
        rows += found
    _refuse_twice(rows)
    if leave_out:
        units = len({str(row.get("unit" if leave_out == "unit" else "source_key") or row["id"]) for row in rows})
        note(say("score.refitting", rows=len(rows), num=units, what=leave_out), is_quiet=is_quiet)
    scored = score_rows(rows, leave_out)
    result = {
        "file": [str(path) for path in files] if len(files) > 1 else str(next(iter(files))),
        "num_rows": len(rows),
        "leave_out": leave_out,
        "metrics": statistics(scored),
        "rows": [row_object(row) for row in scored],
    }
    if is_json:
        emit_json(result)
    else:
        print("\n".join([_text(result, by), *(_worst(scored, worst) if worst else ())]))
    failures = failed_bounds(result["metrics"], bounds)
    for line in failures:
        note(say("score.bound_missed", line=line), is_quiet=is_quiet)
    return 3 if failures else 0


def _refuse_twice(rows: Sequence[dict[str, Any]]) -> None:
    """Refuse an id that two files have."""
    seen: set[str] = set()
    for row in rows:
        if row["id"] in seen:
            raise BadFileError(f"the id '{row['id'][:60]}' is in two files", where="FILE", fix="name each file once")
        seen.add(row["id"])


def _tell_faults(
    faults: dict[str, str], rows: Sequence[dict[str, Any]], lines: Sequence[int], path: str, *, is_quiet: bool
) -> None:
    """Say which rows are not predicted because a field cannot be what it says, with the line."""
    where = {row["id"]: line for row, line in zip(rows, lines, strict=True)}
    for identity, fault in list(faults.items())[:_MOST_FAULTS]:
        note(say("score.fault", where=f"{path}:{where[identity]}", fault=fault), is_quiet=is_quiet)
    if len(faults) > _MOST_FAULTS:
        note(say("score.more_faults", num=len(faults) - _MOST_FAULTS), is_quiet=is_quiet)
