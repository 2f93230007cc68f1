"""Score the shipped measurements and write SCORES.md: errors by measure, source, engine and card, and the worst rows.

    python validation/scores.py [--only serving|training|choice|siblings|replay]   score again (minutes), write scores.json and SCORES.md
    python validation/scores.py --write                     write SCORES.md from scores.json alone
    python validation/scores.py --check                     exit 1 when SCORES.md is not what scores.json says
    python validation/scores.py --compare FILE…             exit 1 when figures of `tonnage score --json` have moved

Every text of SCORES.md stands here, in scoreboard.toml (what was asked) or in reasons.toml (why rows are far off).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "validation")]

import regret  # noqa: E402
import siblings  # noqa: E402
import simulated  # noqa: E402

from tonnage import datafiles  # noqa: E402
from tonnage.calibrate.rows import read_rows, score_rows  # noqa: E402
from tonnage.calibrate.score import looked_up, statistics  # noqa: E402
from tonnage.calibrate.types import Scored  # noqa: E402

HERE = ROOT / "validation"
TARGET, STORED = ROOT / "SCORES.md", HERE / "scores.json"
PARTS = {
    "serving": ("inference.jsonl", "bounds_inference.toml"),
    "training": ("training.jsonl", "bounds.toml"),
}
CHOICE = "choice"
SIBLINGS = "siblings"
REPLAY = "replay"
NUM_WORST = 10
FAR = 0.05  # a smaller error needs no reason
FEWEST_ROWS = 5  # a smaller group is in scores.json only
DIGITS = 4
STALE = 0.002  # how far a headline figure may move before the page is stale
BREAKDOWNS = {"source": "By source", "framework": "By engine", "gpu": "By card", "kind": "By kind"}
TITLES = {"kind": {"serving": "By placement and what is stated"}, "framework": {"training": "By framework"}}
# What a reason may be told by.
FIELDS = ("engine", "framework", "model", "quant", "gpu", "placement", "spec_decode", "engine_version")
# Figures of a part of the rows: name in scoreboard.toml, statistic, whether less is better.
FIGURES = {
    "median": ("median_ape", True), "p90": ("p90_ape", True), "mean": ("mean_ape", True),
    "optimistic": ("optimistic_ratio", True), "balanced_accuracy": ("balanced_accuracy", False),
    "false_fit": ("false_fit", True), "false_oom": ("false_oom", True),
}  # fmt: skip
WORDS = {
    "median": "median", "p90": "90 %", "mean": "mean", "optimistic": "share", "balanced_accuracy": "balanced accuracy",
    "false_fit": "false fit", "false_oom": "false OOM",
}  # fmt: skip


def table(name: str) -> dict[str, Any]:
    return tomllib.loads((HERE / name).read_text(encoding="utf-8"))


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def rounded(value: Any) -> Any:
    """Return figures with few digits, so that the stored file changes only where something did."""
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def measured(part: str) -> list[dict[str, Any]]:
    name = f"measurements/{PARTS[part][0]}"
    return read_rows(datafiles.text(name), name)


def worst(scored: list[Scored], rows: dict[str, Any], metric: str) -> list[dict[str, Any]]:
    far = [r for r in scored if r.metric == metric and r.ape is not None and r.ape > FAR and r.trust in ("A", "B")]
    far.sort(key=lambda r: -(r.ape or 0))
    return [
        {
            "id": r.id,
            "measured": rounded(float(r.measured)),
            "predicted": rounded(float(r.predicted or 0)),
            "row": {key: str(rows[r.id][key]) for key in FIELDS if rows[r.id].get(key) is not None},
        }
        for r in far[:NUM_WORST]
    ]


def scored_part(part: str) -> dict[str, Any]:
    """Score one file of measurements without each unit and without each source."""
    rows = measured(part)
    by_id = {row["id"]: row for row in rows}
    found: dict[str, Any] = {"num_rows": len(rows)}
    for leave_out in ("unit", "source"):
        scored = score_rows(rows, leave_out)
        metrics = statistics(scored)
        found[leave_out] = rounded(metrics)
        if leave_out == "unit":
            found["worst"] = {metric: worst(scored, by_id, metric) for metric in metrics if metric != "oom"}
            wrong = [r for r in scored if r.metric == "oom" and r.predicted != r.measured and r.trust in ("A", "B")]
            found["misses"] = [
                {"id": r.id, "oom": bool(r.measured), "refused": r.refused if r.predicted is None else ""}
                for r in wrong
            ]
    return found


def scored(part: str) -> dict[str, Any]:
    """Score one part of the page."""
    if part == CHOICE:
        return rounded(regret.chosen(measured("training")))
    if part == REPLAY:
        return rounded(simulated.checked(measured("serving")))
    return rounded(siblings.checked(measured("training"))) if part == SIBLINGS else scored_part(part)


def reason(row: dict[str, Any], identity: str, metric: str) -> str:
    """Return why a row is far off, by the first entry of reasons.toml that matches it."""
    for one in table("reasons.toml")["reason"]:
        if (
            (metric in one.get("metric", (metric,)))
            and re.search(one.get("id", ""), identity)
            and all(fnmatchcase(str(row.get(key, "")).lower(), wanted) for key, wanted in one.get("where", {}).items())
        ):
            return one["why"]
    return "not explained"


def part_of(metrics: dict[str, Any], metric: str, by: str) -> dict[str, Any]:
    """Return the statistics of a part of a metric's rows."""
    node = metrics.get(metric) or {}
    if not by:
        return node
    name, _, value = by.partition("=")
    return node.get("by", {}).get(name, {}).get(value) or {}


def asked_of(one: dict[str, Any]) -> list[str]:
    return [name for name in FIGURES if name in one] or ["median", "p90"]


def is_met(one: dict[str, Any], stats: dict[str, Any]) -> bool:
    for name, (key, is_less) in FIGURES.items():
        value = stats.get(key)
        if name in one and (value is None or (value > one[name] if is_less else value < one[name])):
            return False
    return stats.get("covered", 0) >= one.get("covered", 0) * stats.get("n", 0)


def headline(part: str, found: dict[str, Any]) -> Iterator[str]:
    """Yield the table of what was asked and what is reached."""
    yield "| measure | rows | asked | without the row's unit | without its source | met | predicted | inside | width |"
    yield "|---|---|---|---|---|---|--:|--:|--:|"
    for one in table("scoreboard.toml")[part]:
        unit, source = (part_of(found[way], one["metric"], one["by"]) for way in ("unit", "source"))
        names = asked_of(one)
        asked = " / ".join(f"{'≤' if FIGURES[n][1] else '≥'} {percent(one[n])}" for n in names if n in one) or "–"
        if asked != "–":
            asked = ("aim " if one.get("aim") else "") + f"{asked} ({', '.join(WORDS[n] for n in names)})"
        reached = [" / ".join(percent(s.get(FIGURES[n][0])) for n in names) for s in (unit, source)]
        met = "–" if asked == "–" else "yes" if is_met(one, unit) else "**no**"
        covered = f"{unit.get('covered', 0)} of {unit.get('n', 0)}"
        inside, width = percent(unit.get("interval_coverage")), percent(unit.get("relative_width"))
        yield f"| `{one['metric']}` | {one['title']} | {asked} | {reached[0]} | {reached[1]} | {met} | {covered} | {inside} | {width} |"


def unmet(part: str, found: dict[str, Any]) -> Iterator[str]:
    """Yield what is not reached, with the rows that stand against it."""
    for one in table("scoreboard.toml")[part]:
        stats = part_of(found["unit"], one["metric"], one["by"])
        if not is_met(one, stats):
            figures = ", ".join(
                f"{WORDS[n]} {percent(stats.get(FIGURES[n][0]))} % (asked {percent(one[n])} %)"
                for n in asked_of(one)
                if n in one
            )
            yield f"- `{one['metric']}`, {one['title']}: {figures}. {one.get('note', 'Not explained.')}"


def held(part: str, found: dict[str, Any]) -> Iterator[str]:
    """Yield the bounds that `make score-check` holds."""
    yield "| figure | bound | reached |"
    yield "|---|--:|--:|"
    for bound in table(PARTS[part][1])["bound"]:
        value = looked_up(found["unit"], bound["path"])
        limits = [f"≥ {percent(bound['at_least'])}"] if "at_least" in bound else []
        limits += [f"≤ {percent(bound['at_most'])}"] if "at_most" in bound else []
        yield f"| `{bound['path']}` | {', '.join(limits)} | {percent(value)} |"


def broken_down(found: dict[str, Any], name: str, leave_out: str = "unit") -> Iterator[str]:
    yield f"| {name} | metric | rows | median | 90 % | bias | inside | width |"
    yield "|---|---|--:|--:|--:|--:|--:|--:|"
    for metric, stats in found[leave_out].items():
        for value, s in stats["by"][name].items() if metric != "oom" else ():
            if s["n"] >= FEWEST_ROWS and s["covered"]:
                keys = ("median_ape", "p90_ape", "bias", "interval_coverage", "relative_width")
                figures = " | ".join(percent(s[k]) for k in keys)
                yield f"| {value.replace('|', '/')} | `{metric}` | {s['n']} | {figures} |"


def by_trust(metrics: dict[str, Any]) -> Iterator[str]:
    yield "| metric | trust | rows | predicted | median | 90 % | bias | inside | width |"
    yield "|---|---|--:|--:|--:|--:|--:|--:|--:|"
    for metric, stats in metrics.items():
        for trust in ("A", "A+B", "C") if metric != "oom" else ():
            s = stats["by"]["trust"].get(trust)
            if s and s["n"]:
                keys = ("median_ape", "p90_ape", "bias", "interval_coverage", "relative_width")
                figures = " | ".join(percent(s[k]) for k in keys)
                yield f"| `{metric}` | {trust} | {s['n']} | {s['covered']} | {figures} |"


def worst_rows(found: dict[str, Any], metric: str) -> Iterator[str]:
    yield "| row | what | measured | predicted | likely cause |"
    yield "|---|---|--:|--:|---|"
    for one in found["worst"][metric]:
        row = one["row"]
        what = ", ".join(
            row[key] for key in ("engine", "framework", "model", "quant", "gpu") if key in row and row[key] != "None"
        ).replace("|", "/")
        why = reason(row, one["id"], metric)
        yield f"| {one['id']} | {what} | {one['measured']:.4g} | {one['predicted']:.4g} | {why} |"


def misses(found: dict[str, Any]) -> Iterator[str]:
    oom = found["unit"]["oom"]
    yield (
        f"{oom['n']} rows, {oom['num_oom']} of which do not fit: balanced accuracy {percent(oom['balanced_accuracy'])} % "
        f'(always "fits": 50 %), false fit {percent(oom["false_fit"])} %, false OOM {percent(oom["false_oom"])} %.'
    )
    yield ""
    for one in found["misses"]:
        yield f"- {one['id']}: {'did not fit' if one['oom'] else 'fitted'}" + (
            f" (refused: {one['refused']})" if one["refused"] else ""
        )


def section(part: str, found: dict[str, Any]) -> Iterator[str]:
    """Yield one half of SCORES.md."""
    yield from (f"## {part.capitalize()}", "")
    yield (
        f"`tonnage score src/tonnage/data/measurements/{PARTS[part][0]} --leave-out unit`, {found['num_rows']} measured "
        "rows: each is predicted by constants fitted without its unit (one model on one card in one source), and beside "
        "it without any row of its source. Errors are |predicted − measured| / measured in percent; rows of one series "
        "are averaged first. *Inside* is the share of measurements in the 80 % interval, *width* its width over the "
        "prediction."
    )
    yield from ("", *headline(part, found))
    yield from ("", "### What is not met, and what stands against it", "")
    yield from tuple(unmet(part, found)) or ("All that was asked is met.",)
    yield from ("", "### What is held in CI", "", *held(part, found))
    for name, usual in BREAKDOWNS.items():
        title = TITLES.get(name, {}).get(part, usual)
        yield from (
            "",
            f"### {title}",
            "",
            f"Groups of {FEWEST_ROWS} rows or more; all are in `validation/scores.json`.",
        )
        yield from ("", *broken_down(found, name))
    for metric, rows in found["worst"].items():
        if not rows:
            continue
        yield from ("", f"### Worst rows: `{metric}`", "", *worst_rows(found, metric))
    yield from ("", "### Fits and failures told wrong", "", *misses(found))
    for leave_out in ("unit", "source"):
        yield from ("", f"### By trust, `--leave-out {leave_out}`", "", *by_trust(found[leave_out]))
    if part == "training":
        for name in ("source", "gpu"):
            yield from ("", f"### {BREAKDOWNS[name]}, `--leave-out source`", "", *broken_down(found, name, "source"))


def choice_section(found: dict[str, Any]) -> Iterator[str]:
    """Yield which of several measured layouts would have been chosen."""
    yield from ("## Choice", "")
    yield (
        "`python validation/regret.py`: of jobs that were measured in several layouts, the one that the estimate makes "
        "fastest of those that fit, with the job's source left out of the fit. *Regret* is the share of the best "
        "measured speed that is given away, *tau* Kendall's rank correlation of predicted and measured speeds."
    )
    yield from ("", regret.sentence(found), "", *regret.table(found))


def sibling_section(found: dict[str, Any]) -> Iterator[str]:
    """Yield how well devices without data are told by their siblings."""
    yield from ("## Devices without data", "")
    yield (
        "`python validation/siblings.py`: each measured device is left out in turn and borrows from the nearest measured "
        "one, by architecture, memory type and form, then by how much power it has for its peak. Above: fractions of "
        "specified peak. Below: training runs, with the constants fitted without any run of the device. Errors in percent."
    )
    yield from ("", *siblings.section(found))


def replay_section(found: dict[str, Any]) -> Iterator[str]:
    """Yield how far off replays are beside the closed form."""
    yield from ("## Replay", "")
    yield (
        "`python validation/simulated.py`: every measured throughput at a stated number of requests in flight, replayed "
        "as clients that ask again as soon as they are answered, beside the closed form that `tonnage plan` prints. "
        "Output tokens a second; no bound is set."
    )
    yield from ("", *simulated.section(found))


def compact(value: Any, depth: int = 0) -> str:
    """Return JSON with a line for each metric's figures, so that a diff shows which of them moved."""
    if depth == 3 or not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False, sort_keys=True)
    inner = (f"{' ' * (depth + 1)}{json.dumps(key)}: {compact(value[key], depth + 1)}" for key in sorted(value))
    return "{\n" + ",\n".join(inner) + "\n" + " " * depth + "}"


def document(stored: dict[str, Any]) -> str:
    """Return the text of SCORES.md."""
    lines = [
        "# Scores",
        "",
        (
            "Made by `make scores` from the measurements that ship with the package; nothing here is written by hand. "
            "`make score-check` predicts them again, and fails where a bound is missed or this page is stale."
        ),
    ]
    for part in PARTS:
        lines += ["", *section(part, stored[part])]
    lines += ["", *choice_section(stored[CHOICE])]
    lines += ["", *sibling_section(stored[SIBLINGS])]
    lines += ["", *replay_section(stored[REPLAY])]
    return "\n".join(lines) + "\n"


def headline_figures(metrics: dict[str, Any], part: str) -> dict[str, float | None]:
    return {
        f"{one['metric']}/{one['by']}/{name}": part_of(metrics, one["metric"], one["by"]).get(FIGURES[name][0])
        for one in table("scoreboard.toml")[part]
        for name in asked_of(one)
    }


def compared(paths: list[Path]) -> list[str]:
    """Return which headline figures of `tonnage score --json` are no longer those of the page."""
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    stale = []
    for path in paths:
        metrics = json.loads(path.read_text(encoding="utf-8"))["metrics"]
        part = next(part for part in PARTS if set(metrics) & (set(stored[part]["unit"]) - {"oom"}))
        then = headline_figures(stored[part]["unit"], part)
        for name, now in headline_figures(metrics, part).items():
            if (now is None) != (then[name] is None) or abs((now or 0) - (then[name] or 0)) > STALE:
                stale.append(f"{name}: {percent(then[name])} % on the page, {percent(now)} % now")
    return stale


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=(*PARTS, CHOICE, SIBLINGS, REPLAY), help="leave the rest as it is stored")
    parser.add_argument("--write", action="store_true", help="do not score again")
    parser.add_argument("--check", action="store_true", help="compare SCORES.md with scores.json")
    parser.add_argument("--compare", nargs="+", type=Path, metavar="FILE", help="results of tonnage score --json")
    arguments = parser.parse_args()
    parts = [arguments.only] if arguments.only else [*PARTS, CHOICE, SIBLINGS, REPLAY]
    if arguments.compare:
        stale = compared(arguments.compare)
        print("\n".join(f"stale: {line}; run make scores" for line in stale) or "SCORES.md tells these figures")
        sys.exit(1 if stale else 0)
    stored = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}
    if arguments.check:
        is_same = TARGET.read_text(encoding="utf-8") == document(stored)
        print("SCORES.md is current" if is_same else "SCORES.md differs: run python validation/scores.py --write")
        sys.exit(0 if is_same else 1)
    if not arguments.write:
        for part in parts:
            stored[part] = scored(part)
        text = compact(stored)
        STORED.write_text(text + "\n", encoding="utf-8")
        stored = json.loads(text)  # in the order in which it will be read again
    TARGET.write_text(document(stored), encoding="utf-8")


if __name__ == "__main__":
    main()
