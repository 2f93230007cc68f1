"""Say which measured layout of each job an estimate would have chosen, and what that gives away.

    python validation/regret.py [--check] [--leave-out source|unit] [ROWS.jsonl …]

The constants are fitted without the source of the job. With --check it exits with 1 where the bounds of
`validation/bounds.toml`, table `regret`, are not met.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from tonnage import datafiles  # noqa: E402
from tonnage.calibrate.regret import Choice, choices, failed, summary  # noqa: E402
from tonnage.calibrate.rows import domain_of, read_rows  # noqa: E402


def bounds() -> dict[str, float]:
    """Return the bounds on choices."""
    return tomllib.loads((ROOT / "validation/bounds.toml").read_text(encoding="utf-8"))["regret"]


def table(found: list[Choice]) -> list[str]:
    """Return a row a job."""
    lines = [
        "| job | card | source | layouts | regret | tau | chosen | best |",
        "|---|---|---|--:|--:|--:|---|---|",
    ]
    for choice in found:
        tau = "–" if choice.tau is None else f"{choice.tau:.2f}"
        regret = "out of memory" if choice.ran_out else f"{100 * choice.regret_ratio:.1f} %"
        cells = (choice.model, choice.gpu, choice.source, len(choice.ways), regret, tau, choice.chosen.id, choice.best.id)
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return lines


def sentence(found: list[Choice]) -> str:
    """Return the figures in words."""
    within, figures = bounds()["within"], summary(found, bounds()["within"])
    near, tau = round(figures["within"] * figures["n"]), figures["mean_tau"]
    return (
        f"Of {figures['n']} jobs measured in several layouts, {near} ({100 * figures['within']:.0f} %, bound "
        f"{100 * bounds()['share_at_least']:.0f} %) would have been given a layout within {100 * within:.0f} % of the best "
        f"measured; {figures['ran_out']} one that ran out of memory. Mean regret {100 * figures['mean_regret']:.1f} %, mean "
        f"Kendall's tau {tau:.2f}."
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
    found = choices([row for row in rows if (d := domain_of(row)) and d.name == "training"], arguments.leave_out)
    print("\n".join(table(found)))
    if found:
        print(f"\n{sentence(found)}")
    failures = failed(summary(found, bounds()["within"]), bounds())
    print(*failures, sep="\n", file=sys.stderr) if failures else None
    sys.exit(1 if arguments.check and failures else 0)


if __name__ == "__main__":
    main()
