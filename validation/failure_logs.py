"""How many of the given failure logs are diagnosed rightly, on the half that rules were written from and on the other.

    PYTHONPATH=src python validation/failure_logs.py ../shared/data/failures [--half tuning|checking] [--list]

A log is *right* when the first finding is the diagnosis that the index names, *near* when it is another that the index
says the log matches too, *unknown* when nothing was found, else *wrong*. Nothing of a log is printed, only its id.
"""

from __future__ import annotations

import argparse
import csv
from collections import Counter
from pathlib import Path

from tonnage import api

HERE = Path(__file__).parent


def verdict(row: dict[str, str], found: list[str]) -> str:
    if not found:
        return "unknown"
    if found[0] == row["expected_signature"]:
        return "right"
    return "near" if found[0] in row["also_matches"].split() else "wrong"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--half", choices=("tuning", "checking"))
    parser.add_argument("--list", action="store_true")
    asked = parser.parse_args()
    with (HERE / "failure_split.csv").open(encoding="utf-8", newline="") as file:
        halves = {row["id"]: row["half"] for row in csv.DictReader(file)}
    with (asked.folder / "samples" / "index.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for half in (asked.half,) if asked.half else ("tuning", "checking"):
        counted: Counter[str] = Counter()
        for row in rows:
            identity = row["file"].split("_")[0]
            if halves[identity] != half:
                continue
            answer = api.diagnose([str(asked.folder / "samples" / row["file"])])
            found = [finding.id for finding in answer.findings]
            told = verdict(row, found)
            counted[told] += 1
            if asked.list and told != "right":
                print(f"  {identity} {row['family']}: {told}, wanted {row['expected_signature']}, said {found[:3]}")
        total = sum(counted.values())
        print(
            f"{half}: {total} logs, "
            + ", ".join(f"{name} {counted[name]}" for name in ("right", "near", "unknown", "wrong"))
        )


if __name__ == "__main__":
    main()
