"""Refit the constants of the training estimate to measured rows and write them into the shipped calibration.

    python validation/fit_training.py [ROWS.jsonl …] [--part memory|time|width] [--dry]

Without files the measurements shipped with the package are used. The widths of intervals come last: they are fitted to
errors of predictions without each row's unit, without its source and without its device, together. What was measured
is written beside.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from tonnage import datafiles  # noqa: E402
from tonnage.calibrate.rows import read_rows  # noqa: E402
from tonnage.calibrate.sibling_check import CURVES, borrowed_curves  # noqa: E402
from tonnage.calibrate.training_score import (  # noqa: E402
    PARTS,
    fit_part,
    fit_rows,
    item_setup,
    left_out,
    measured_for,
    prepare,
    width_ranges,
)
from tonnage.calibrate.width_fit import fit_widths  # noqa: E402
from tonnage.estimate.compose_training import training_constants  # noqa: E402

CALIBRATION = ROOT / "src/tonnage/data/calibration/training.toml"
EVIDENCE = ROOT / "src/tonnage/data/calibration/training_evidence.csv"
EVIDENCE_COLUMNS = (
    "part", "device", "compute", "software", "trained", "model", "num_runs", "least_parameters", "most_parameters",
    "least_tokens", "most_tokens",
)  # fmt: skip


def fitted(rows: list[dict], part: str) -> tuple[dict[str, float], int]:
    """Return the constants of one part fitted to all clear rows, and how many these are."""
    items = {item.row.row["id"]: item for item in prepare(rows)[0]}
    used = fit_rows(part, rows, items)
    chosen = [items[row["id"]] for row in used]
    measured = np.array([measured_for(part, row, item) for row, item in zip(used, chosen, strict=True)])
    return fit_part(part, chosen, measured, used, None).values, len(used)


def fitted_widths(rows: list[dict], part: str) -> tuple[dict[str, float], int]:
    """Return what each cause adds to a half-width of one part, and how many errors it was fitted to."""
    items = {item.row.row["id"]: item for item in prepare(rows)[0]}
    folds = ("unit", "source", "device") if part == "time" else ("unit", "source")
    found = [one for leave_out in folds for one in left_out(part, rows, items, leave_out)]
    causes, errors = [one.causes for one in found], [abs(one.error) for one in found]
    if part == "time":  # fractions of peak alone count as well: more devices were measured so than trained on
        curves = [one for name in CURVES for one in borrowed_curves(name, training_constants())]
        causes += [{"base": 1.0, one.cause: 1.0} for one in curves]
        errors += [abs(one.error) for one in curves]
    values = fit_widths(causes, np.array(errors), width_ranges(part))
    return {f"width.{part}.{name}": value for name, value in values.items()}, len(errors)


def evidence_table(rows: list[dict]) -> str:
    """Return the set-ups of the rows that constants rest on, as a table."""
    items = {item.row.row["id"]: item for item in prepare(rows)[0]}
    found: dict[tuple[str, ...], list] = {}
    for part in PARTS:
        for row in fit_rows(part, rows, items):
            one = item_setup(items[row["id"]])
            trained, model = "adapters" if one.is_adapter else "all", "experts" if one.is_moe else "dense"
            found.setdefault((part, one.device, one.compute, one.software, trained, model), []).append(one)
    lines = [",".join(EVIDENCE_COLUMNS)]
    for key, setups in sorted(found.items()):
        sizes, lengths = [s.num_parameters for s in setups], [s.seq_len for s in setups]
        figures = (len(setups), min(sizes), max(sizes), min(lengths), max(lengths))
        lines.append(",".join((*key, *(f"{figure:.0f}" for figure in figures))))
    return "\n".join(lines) + "\n"


def rewritten(text: str, values: dict[str, float]) -> str:
    """Return the calibration with new values, four digits each."""
    for name, value in values.items():
        pattern = re.compile(rf'(\["?{re.escape(name)}"?\]\nvalue = )[^\n]+')
        text, count = pattern.subn(lambda m, v=value: f"{m[1]}{float(f'{v:.4g}')!r}", text)
        assert count == 1, name
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--part", choices=(*PARTS, "width"))
    parser.add_argument("--dry", action="store_true", help="print, write nothing")
    arguments = parser.parse_args()
    if arguments.files:
        rows = [row for path in arguments.files for row in read_rows(path.read_text(encoding="utf-8"), str(path))]
    else:
        rows = read_rows(datafiles.text("measurements/training.jsonl"), "measurements/training.jsonl")
    text = CALIBRATION.read_text(encoding="utf-8")

    def show(name: str, values: dict[str, float], count: int) -> None:
        print(f"{name}: {len(values)} constants from {count} rows")
        for constant, value in values.items():
            print(f"  {constant:34s} {value:.4g}")

    for part in [arguments.part] if arguments.part in PARTS else PARTS if arguments.part is None else ():
        values, count = fitted(rows, part)
        show(part, values, count)
        text = rewritten(text, values)
    if not arguments.dry:
        CALIBRATION.write_text(text, encoding="utf-8")
        EVIDENCE.write_text(evidence_table(rows), encoding="utf-8")
        datafiles.table.cache_clear()
        training_constants.cache_clear()
    for part in PARTS if arguments.part in (None, "width") else ():
        values, count = fitted_widths(rows, part)
        show(f"width of {part}", values, count)
        text = rewritten(text, values)
    if not arguments.dry:
        CALIBRATION.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
