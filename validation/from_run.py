"""How much two measured runs of one source have in common, by the steps between them; and what that is worth.

    python validation/from_run.py

Prints, for memory and for time, the correlation of the errors of pairs of shipped rows by distance, the law of
`data/calibration/from_run.toml` beside it, and the median error of a row before and after a nearest other run of its
source corrected it.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from itertools import combinations
from math import log
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from tonnage import datafiles  # noqa: E402
from tonnage.calibrate.rows import read_rows  # noqa: E402
from tonnage.calibrate.training_score import predicted_bytes, predicted_step, prepare  # noqa: E402
from tonnage.estimate.compose_training import training_constants  # noqa: E402
from tonnage.plan.distance import steps_apart  # noqa: E402
from tonnage.plan.measured import correlation  # noqa: E402
from tonnage.units import GIB  # noqa: E402

BINS = (0.0, 1e-9, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 99.0)
MOST = 0.3  # an error beyond it is another cause
MOST_OF_A_SOURCE = 70


def errors(part: str) -> dict[str, list[tuple[float, object]]]:
    """Return by source the logarithm of measured over predicted with the candidate of each clear row."""
    rows = read_rows(datafiles.text("measurements/training.jsonl"), "measurements/training.jsonl")
    items = {item.row.row["id"]: item for item in prepare(rows)[0]}
    c = training_constants()
    field = {"memory": "peak_mem_gib", "time": "tokens_per_s_per_gpu"}[part]
    found: dict[str, list[tuple[float, object]]] = defaultdict(list)
    for row in rows:
        item = items.get(row["id"])
        if item is None or row.get("trust") not in ("A", "B") or row.get("oom") or not row.get(field):
            continue
        if part == "memory":
            error = log(row[field] * GIB / float(predicted_bytes(item, c)))
        else:
            seconds, tokens = predicted_step(item, c)
            error = log(row[field] / (tokens / float(seconds)))
        found[str(row.get("source_key"))].append((error, item.row.candidate))
    rng = np.random.default_rng(0)
    return {
        key: rows if len(rows) <= MOST_OF_A_SOURCE else [rows[i] for i in rng.permutation(len(rows))[:MOST_OF_A_SOURCE]]
        for key, rows in found.items()
    }


def main() -> None:
    for part in ("memory", "time"):
        by_source = errors(part)
        shared, total, number = (np.zeros(len(BINS)) for _ in range(3))
        before: list[float] = []
        after: list[float] = []
        for rows in by_source.values():
            nearest = {i: (float("inf"), 0) for i in range(len(rows))}
            for i, j in combinations(range(len(rows)), 2):
                steps = steps_apart(rows[i][1], rows[j][1])
                place = int(np.searchsorted(BINS, steps, side="right")) - 1
                x, y = (float(np.clip(rows[k][0], -MOST, MOST)) for k in (i, j))
                shared[place] += x * y / len(rows)
                total[place] += (x * x + y * y) / 2 / len(rows)
                number[place] += 1
                for one, other in ((i, j), (j, i)):
                    if 0 < steps < nearest[one][0]:
                        nearest[one] = steps, other
            for i, (steps, j) in nearest.items():
                if steps <= 3:
                    before.append(abs(rows[i][0]))
                    after.append(abs(rows[i][0] - correlation(part, steps) * rows[j][0]))
        print(f"{part}: {sum(map(len, by_source.values()))} rows")
        for place, least in enumerate(BINS):
            if number[place]:
                law = correlation(part, least)
                print(
                    f"  from {least:4.0f} steps: {number[place]:5.0f} pairs, {shared[place] / total[place]:6.2f}; law {law:.2f}"
                )
        medians = np.median(before), np.median(after)
        print(
            f"  {len(before)} rows with another within 3 steps: median error {medians[0]:.3f} before, {medians[1]:.3f} after"
        )


if __name__ == "__main__":
    main()
