"""Write the training part of SCORES.md: how far off training estimates are on the shipped measurements, and which rows are worst, and why.

    python validation/scores.py [--check] [ROWS.jsonl …]

With --check the file is not written: a difference from what stands there exits with 1.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from tonnage import datafiles  # noqa: E402
from tonnage.calibrate.rows import read_rows, score_rows  # noqa: E402
from tonnage.calibrate.score import looked_up, statistics  # noqa: E402
from tonnage.calibrate.types import Scored  # noqa: E402

TARGET = ROOT / "SCORES.md"
NUM_WORST = 12
HEADING = "## Training"  # everything before it belongs to others
# Likely causes by a pattern of ids: judgements, not measurements.
REASONS = (
    (
        "_1node-dgx_gb200",
        "functional test on one GB200 node: 200 ms for each micro-batch whatever the work; not modelled",
    ),
    ("dgxc2505.*BF16.*GB200|DeepSeekV3-BF16-.*GB200", "first GB200 release of experts, half the speed of the next"),
    ("HybridEP", "HybridEP dispatch, which the row's fields do not tell"),
    ("moonlight", "small experts, bound by the host's launches; their number is assumed"),
    ("L582-0|L621-0", "recipe of one release: token dropping or MXFP8 experts"),
    ("cross_entropy_loss_fusion|entropy_loss_fusion", "the test's fused loss, told only by its name"),
    ("kt-v2lite", "experts on the host or loaded one by one, by software that is not modelled"),
    ("foundry-L(118|126|130|194|202|210|218)", "65,536 tokens a sample, attention kernels of 2023"),
    ("hybrid", "state-space layers: kernels without calibration of their own"),
    ("gpt3_7b|tunable_overlap", "not settled: slower than its neighbours in one run"),
    ("fq-3090|fq-4090|fq-", "gathering over PCIe without peer access: speed differs by machine"),
    ("zephyr|8192-1-16", "not settled: perhaps samples below the stated length"),
    (
        "bs-prequel",
        "not settled: eight cards in tensor parallel run slower here than four, perhaps a matter of the nodes' links",
    ),
    ("deepseekv3.*release", "not settled: perhaps fewer layers than the row states"),
    ("titan", "software of 2024 on a long context or with asynchronous tensor parallelism"),
    ("SmolLM|TinyLlama|Qwen2.5", "a T4 in a shared machine: host and clock vary"),
)


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def reason(identity: str) -> str:
    """Return why a row is far off, by its id."""
    return next((why for pattern, why in REASONS if re.search(pattern, identity)), "not explained")


def metric_lines(metrics: dict[str, Any]) -> list[str]:
    lines = [
        "| metric | trust | rows | predicted | median | p90 | bias | inside | width |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for metric, stats in metrics.items():
        for trust in ("A", "A+B", "C") if metric != "oom" else ():
            s = stats["by"]["trust"].get(trust)
            if s and s["n"]:
                names = ("median_ape", "p90_ape", "bias", "interval_coverage", "relative_width")
                figures = " | ".join(percent(s[name]) for name in names)
                lines.append(f"| {metric} | {trust} | {s['n']} | {s['covered']} | {figures} |")
    oom = metrics.get("oom")
    if oom:
        lines += [
            "",
            (
                f"Fits or does not, {oom['n']} rows, {oom['num_oom']} of which do not: balanced accuracy "
                f'{percent(oom["balanced_accuracy"])} (always "fits": 50 %), false fit {percent(oom["false_fit"])}, '
                f"false refusal {percent(oom['false_oom'])}."
            ),
        ]
    return lines


def broken_down(metrics: dict[str, Any], name: str) -> list[str]:
    lines = [f"| {name} | metric | rows | median | p90 | inside |", "|---|---|--:|--:|--:|--:|"]
    for metric in ("peak_mem_gib", "tokens_per_s_per_gpu"):
        for value, s in metrics[metric]["by"][name].items():
            figures = " | ".join(percent(s[k]) for k in ("median_ape", "p90_ape", "interval_coverage"))
            lines.append(f"| {value} | {metric} | {s['n']} | {figures} |")
    return lines


def worst(scored: list[Scored], metric: str) -> list[str]:
    rows = [r for r in scored if r.metric == metric and r.ape is not None and r.trust in ("A", "B")]
    rows.sort(key=lambda r: -(r.ape or 0))
    table = [f"| {r.id} | {r.measured:.4g} | {r.predicted:.4g} | {reason(r.id)} |" for r in rows[:NUM_WORST]]
    return ["| row | measured | predicted | likely cause |", "|---|--:|--:|---|", *table]


def missed_fits(scored: list[Scored]) -> list[str]:
    wrong = [r for r in scored if r.metric == "oom" and r.predicted != r.measured and r.trust in ("A", "B")]
    return [f"- {r.id}: {'did not fit' if r.measured else 'fitted'}" for r in wrong]


def document(rows: list[dict[str, Any]]) -> str:
    """Return the text of SCORES.md."""
    bounds = tomllib.loads((ROOT / "validation/bounds.toml").read_text(encoding="utf-8"))["bound"]
    parts = [
        HEADING,
        "",
        f"Made by `validation/scores.py` from {len(rows)} measured rows; each predicted by constants fitted without it.",
        "Errors are absolute, over the measurement; *inside* is the share of measurements in the 80 % interval.",
    ]
    for leave_out in ("unit", "source"):
        scored = score_rows(rows, leave_out)
        metrics = statistics(scored)
        parts += ["", f"### `--leave-out {leave_out}`", "", *metric_lines(metrics)]
        if leave_out == "unit":
            parts += ["", "#### Bounds", "", "| figure | bound | reached |", "|---|--:|--:|"]
            for bound in bounds:
                value = looked_up(metrics, bound["path"])
                limits = [f"≥ {percent(bound['at_least'])}"] if "at_least" in bound else []
                limits += [f"≤ {percent(bound['at_most'])}"] if "at_most" in bound else []
                parts.append(f"| {bound['path']} | {', '.join(limits)} | {percent(value)} |")
            for name in ("source", "kind", "gpu"):
                parts += ["", f"#### By {name}", "", *broken_down(metrics, name)]
            for metric in ("peak_mem_gib", "tokens_per_s_per_gpu"):
                parts += ["", f"#### Worst rows: {metric}", "", *worst(scored, metric)]
            parts += ["", "#### Fits and refusals told wrong", "", *missed_fits(scored)]
    return "\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if arguments.files:
        rows = [row for path in arguments.files for row in read_rows(path.read_text(encoding="utf-8"), str(path))]
    else:
        rows = read_rows(datafiles.text("measurements/training.jsonl"), "measurements/training.jsonl")
    before = TARGET.read_text(encoding="utf-8") if TARGET.exists() else "# Scores\n"
    text = before.partition(f"\n{HEADING}\n")[0].rstrip() + "\n\n" + document(rows)
    if arguments.check:
        is_same = before == text
        print("SCORES.md is current" if is_same else "SCORES.md differs: run validation/scores.py")
        sys.exit(0 if is_same else 1)
    TARGET.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
