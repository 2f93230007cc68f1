"""Say which measured layout of each job an estimate would have chosen, and what that gives away.

    python validation/regret.py [--check] [--leave-out source|unit] [ROWS.jsonl …]

The constants are fitted without the source of the job. With --check it exits with 1 where the bounds of
`validation/bounds.toml`, table `regret`, are not met.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from tonnage import datafiles  # noqa: E402
from tonnage.calibrate.regret import choice_object, choices, failed, summary  # noqa: E402
from tonnage.calibrate.rows import domain_of, read_rows  # noqa: E402


def bounds() -> dict[str, float]:
    """Return the bounds on choices."""
    return tomllib.loads((ROOT / "validation/bounds.toml").read_text(encoding="utf-8"))["regret"]


def chosen(rows: Sequence[dict[str, Any]], leave_out: str = "source") -> dict[str, Any]:
    """Return the figures of all jobs and each job's."""
    found = choices([row for row in rows if (d := domain_of(row)) and d.name == "training"], leave_out)
    return {
        "figures": summary(found, bounds()["within"]),
        "jobs": {one.sweep: choice_object(one) for one in found},
    }


def table(found: dict[str, Any]) -> Iterator[str]:
    """Yield a row a job."""
    yield "| job | card | source | layouts | regret [%] | tau | chosen | best |"
    yield "|---|---|---|--:|--:|--:|---|---|"
    for one in found["jobs"].values():
        tau = "–" if one["tau"] is None else f"{one['tau']:.2f}"
        regret = "out of memory" if one["ran_out"] else f"{100 * one['regret_ratio']:.1f}"
        cells = (one["model"], one["gpu"], one["source"], one["num_ways"], regret, tau, one["chosen"], one["best"])
        yield "| " + " | ".join(str(cell) for cell in cells) + " |"


def sentence(found: dict[str, Any]) -> str:
    """Return the figures in words."""
    figures, held = found["figures"], bounds()
    if not figures["n"]:
        return "No job was measured in several layouts."
    near = round(figures["within"] * figures["n"])
    return (
        f"Of {figures['n']} jobs measured in several layouts, {near} ({100 * figures['within']:.0f} %, asked: "
        f"{100 * held['share_at_least']:.0f} %) would have been given a layout within {100 * held['within']:.0f} % of the "
        f"best measured, and {figures['ran_out']} one that ran out of memory (asked: {held['ran_out_at_most']}). Mean "
        f"regret {100 * figures['mean_regret']:.1f} %, mean Kendall's tau {figures['mean_tau']:.2f}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--leave-out", choices=("source", "unit"), default="source")
    arguments = parser.parse_args()
    rows = [row for path in arguments.files for row in read_rows(path.read_text(encoding="utf-8"), str(path))]
    if not arguments.files:
        rows = read_rows(datafiles.text("measurements/training.jsonl"), "measurements/training.jsonl")
    found = chosen(rows, arguments.leave_out)
    print(*table(found), "", sentence(found), sep="\n")
    failures = failed(found["figures"], bounds())
    print(*failures, sep="\n", file=sys.stderr) if failures else None
    sys.exit(1 if arguments.check and failures else 0)


if __name__ == "__main__":
    main()
