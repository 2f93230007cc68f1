"""Refit the constants of the training estimate to measured rows and write them into the shipped calibration.

    python validation/fit_training.py [ROWS.jsonl …] [--part memory|time] [--dry]

Without files the measurements shipped with the package are used.
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
from tonnage.calibrate.training_score import PARTS, fit_part, is_fit_row, measured_for, prepare  # noqa: E402

CALIBRATION = ROOT / "src/tonnage/data/calibration/training.toml"


def fitted(rows: list[dict], part: str) -> tuple[dict[str, float], int]:
    """Return the constants of one part fitted to all clear rows, and how many these are."""
    items = {item.row.row["id"]: item for item in prepare(rows)[0]}
    used = [row for row in rows if row["id"] in items and is_fit_row(part, row, items[row["id"]])]
    chosen = [items[row["id"]] for row in used]
    measured = np.array([measured_for(part, row, item) for row, item in zip(used, chosen, strict=True)])
    return fit_part(part, chosen, measured, used, None).values, len(used)


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
    parser.add_argument("--part", choices=PARTS)
    parser.add_argument("--dry", action="store_true", help="print, write nothing")
    arguments = parser.parse_args()
    if arguments.files:
        rows = [row for path in arguments.files for row in read_rows(path.read_text(encoding="utf-8"), str(path))]
    else:
        rows = read_rows(datafiles.text("measurements/training.jsonl"), "measurements/training.jsonl")
    text = CALIBRATION.read_text(encoding="utf-8")
    for part in [arguments.part] if arguments.part else PARTS:
        values, count = fitted(rows, part)
        print(f"{part}: {len(values)} constants from {count} rows")
        for name, value in values.items():
            print(f"  {name:34s} {value:.4g}")
        text = rewritten(text, values)
    if not arguments.dry:
        CALIBRATION.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
