"""Which given failure logs rules may be written from, and which only judge them.

    python validation/split_failures.py ../shared/data/failures/samples/index.csv > validation/failure_split.csv

Families are taken in the order of their name's SHA-256 and each goes whole to the half that holds
fewer logs so far, so that no family is in both and nobody chose. Only the columns `file` and `family`
are read; the table that is committed holds ids and families, never a line of a log.
"""

from __future__ import annotations

import csv
import hashlib
import sys
from collections import defaultdict
from pathlib import Path


def halves(rows: list[dict[str, str]]) -> dict[str, str]:
    """Give every family its half: `tuning` or `checking`."""
    members: dict[str, int] = defaultdict(int)
    for row in rows:
        members[row["family"]] += 1
    sizes = {"tuning": 0, "checking": 0}
    chosen = {}
    for family in sorted(members, key=lambda name: hashlib.sha256(name.encode()).hexdigest()):
        half = min(sizes, key=lambda name: (sizes[name], name != "tuning"))
        chosen[family] = half
        sizes[half] += members[family]
    return chosen


def main() -> None:
    """Print the table."""
    with Path(sys.argv[1]).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    chosen = halves(rows)
    print("id,family,half")
    for row in rows:
        print(f"{row['file'].split('_')[0]},{row['family']},{chosen[row['family']]}")


if __name__ == "__main__":
    main()
