"""Write which measured rows constrain each constant of the training estimate, and how much is left to its prior.

    python validation/constant_evidence.py

At the shipped values every constant is moved by a ten-thousandth of its plausible range; what a row's prediction does in
answer, squared and weighed as the fit weighs rows, is the information that the row gives. The prior gives the rest.
"""

from __future__ import annotations

import csv
import sys
from collections import Counter
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from tonnage import datafiles  # noqa: E402
from tonnage.calibrate.fit import prior_strength, weights_of  # noqa: E402
from tonnage.calibrate.rows import read_rows  # noqa: E402
from tonnage.calibrate.training_score import (  # noqa: E402
    PARTS,
    PRIOR_SHARES,
    configuration_key,
    constants_to_fit,
    is_fit_row,
    predicted_bytes,
    predicted_step,
    prepare,
)
from tonnage.estimate.compose_training import training_constants  # noqa: E402
from tonnage.estimate.compose_training.constants import CALIBRATION  # noqa: E402

TABLE = ROOT / "src/tonnage/data/calibration/constant_evidence.csv"
STEP = 1e-4  # of a constant's range
LEAST = 1e-3  # change of a prediction for the whole range from which a row says something
MOST_SOURCES = 3
FIELDS = ("constant", "num_rows", "num_sources", "measured_ratio", "sources")


def evidence(rows: list[dict], part: str) -> list[dict[str, object]]:
    """Return what rows say of the constants of one part."""
    items = {item.row.row["id"]: item for item in prepare(rows)[0]}
    used = [row for row in rows if row["id"] in items and is_fit_row(part, row, items[row["id"]])]
    families = [str(row.get("family") or row.get("source_key") or row["id"]) for row in used]
    weights = weights_of([configuration_key(row) for row in used], families)
    fixed = training_constants()
    found: list[dict[str, object]] = []

    def predicted(constants: dict[str, float]) -> np.ndarray:
        chosen = (items[row["id"]] for row in used)
        values = (
            predicted_bytes(i, constants) if part == "memory" else predicted_step(i, constants)[0] for i in chosen
        )
        return np.log(np.array([float(value) for value in values]))

    base = predicted(dict(fixed))
    for constant in constants_to_fit(part):
        span = constant.high - constant.low
        step = STEP if fixed[constant.name] + STEP * span <= constant.high else -STEP
        slope = (predicted({**fixed, constant.name: fixed[constant.name] + step * span}) - base) / step
        information = weights * slope**2
        prior = prior_strength(weights, PRIOR_SHARES[part])
        speaking = [row for row, s in zip(used, slope, strict=True) if abs(s) >= LEAST]
        by_source = Counter()
        for row, amount in zip(used, information, strict=True):
            by_source[str(row.get("source_key"))] += float(amount)
        total = float(information.sum())
        sources = [key for key, amount in by_source.most_common(MOST_SOURCES) if amount > 0.01 * total > 0]
        found.append(
            {
                "constant": constant.name,
                "num_rows": len(speaking),
                "num_sources": len({row.get("source_key") for row in speaking}),
                "measured_ratio": f"{total / (total + prior):.3f}",
                "sources": " | ".join(sources) if speaking else "",
            }
        )
    return found


def main() -> None:
    rows = read_rows(datafiles.text("measurements/training.jsonl"), "measurements/training.jsonl")
    lines = [line for part in PARTS for line in evidence(rows, part)]
    named = {str(line["constant"]) for line in lines}
    lines += [
        {"constant": name, "num_rows": 0, "num_sources": 0, "measured_ratio": "", "sources": ""}
        for name in datafiles.table(CALIBRATION)
        if name not in named
    ]
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(lines, key=lambda line: str(line["constant"])))
    print(f"{TABLE.relative_to(ROOT)}: {len(lines)} constants")


if __name__ == "__main__":
    main()
