"""Leave each measured device out in turn and predict it from its nearest sibling.

    python validation/siblings.py

Fractions of peak: what the sibling rule of `tonnage.hardware.siblings` says of a device without its own measurement.
Runs: constants fitted without the device's runs, and fractions of peak borrowed as well.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from tonnage import datafiles  # noqa: E402
from tonnage.calibrate.rows import read_rows  # noqa: E402
from tonnage.calibrate.sibling_check import CURVES, borrowed_curves, covered_share, is_inside  # noqa: E402
from tonnage.calibrate.training_score import left_out, prepare  # noqa: E402
from tonnage.estimate.compose_training import training_constants  # noqa: E402
from tonnage.hardware.siblings import STEPS  # noqa: E402


def figures(errors: list[float], inside: float) -> dict[str, Any]:
    apart = np.abs(np.exp(-np.array(errors)) - 1)
    return {
        "n": len(errors),
        "median_ape": float(np.median(apart)),
        "p90_ape": float(np.quantile(apart, 0.9)),
        "inside": inside,
    }


def checked(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the errors of fractions of peak by step of the rule, and of runs by device."""
    c = training_constants()
    found: dict[str, Any] = {"curves": {}, "runs": {}}
    for name in CURVES:
        curves = borrowed_curves(name, c)
        for step, title in enumerate(STEPS):
            if some := [one for one in curves if one.step == step]:
                errors = [-one.error for one in some]
                found["curves"].setdefault(name, {})[title] = figures(errors, covered_share(some, c))
    items = {item.row.row["id"]: item for item in prepare(rows)[0]}
    runs: dict[str, list] = {}
    for one in left_out("time", rows, items, "device"):
        runs.setdefault(one.fold, []).append(one)
    for device, some in runs.items():
        lender = some[0].item.case.matmul_lender
        inside = float(np.mean([is_inside(one, c) for one in some]))
        about = {"lender": lender.slug, "step": STEPS[lender.step]} if lender else {}
        found["runs"][device] = figures([one.error for one in some], inside) | about
    return found


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def section(found: dict[str, Any]) -> Iterator[str]:
    """Yield the part of SCORES.md on devices without data."""
    yield "| fraction of peak | borrowed from a device of | devices | median | 90 % | inside |"
    yield "|---|---|--:|--:|--:|--:|"
    for name, steps in found["curves"].items():
        for title in (title for title in STEPS if title in steps):
            s = steps[title]
            yield f"| {name} | {title} | {s['n']} | {percent(s['median_ape'])} | {percent(s['p90_ape'])} | {percent(s['inside'])} |"
    yield ""
    yield "| device left out | borrows from | by | runs | median | 90 % | inside |"
    yield "|---|---|---|--:|--:|--:|--:|"
    for device, s in sorted(found["runs"].items()):
        shown = " | ".join(percent(s[name]) for name in ("median_ape", "p90_ape", "inside"))
        yield f"| {device} | {s['lender']} | {s['step']} | {s['n']} | {shown} |"


def main() -> None:
    rows = read_rows(datafiles.text("measurements/training.jsonl"), "measurements/training.jsonl")
    print("\n".join(section(checked(rows))))


if __name__ == "__main__":
    main()
