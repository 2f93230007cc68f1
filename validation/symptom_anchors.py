"""Chooses the short texts by which the scanner passes over lines that no rule can meet.

    PYTHONPATH=src python validation/symptom_anchors.py > src/tonnage/data/symptoms/anchors.txt

A cover of the rules' literals by substrings, chosen greedily: few, and rare in logs of runs where nothing is wrong
(tests/diagnose/clean). Run it when rules were added; a literal that no text covers is looked for by itself, which is
right but slower.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from tonnage.diagnose.scan import DROPPED, keys
from tonnage.diagnose.symptoms import symptoms

CLEAN = Path(__file__).parent.parent / "tests" / "diagnose" / "clean"
SIZES = (3, 4, 5, 6, 7, 8)


def main() -> None:
    wanted = {key for key, *_ in keys(symptoms().values())}
    shapes = {
        line.translate(None, DROPPED) for path in sorted(CLEAN.glob("*.log")) for line in path.read_bytes().split(b"\n")
    }
    together = b"\n".join(sorted(shapes))
    holders: dict[bytes, set[bytes]] = defaultdict(set)
    for key in wanted:
        for word in key.split():
            for size in (*SIZES, len(word)):
                for i in range(len(word) - size + 1):
                    holders[word[i : i + size]].add(key)
    share = {text: together.count(text) / len(shapes) for text in holders}
    chosen = []
    while wanted:
        best = max(
            holders, key=lambda text: (len(new := holders[text] & wanted) / (1 + 4 * share[text] * len(new)), text)
        )
        chosen.append(best)
        wanted -= holders[best]
    print("\n".join(text.decode() for text in sorted(chosen)))


if __name__ == "__main__":
    main()
