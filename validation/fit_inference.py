"""Refit the rates of the serving engines to measured rows and write them into their data files.

    python validation/fit_inference.py [ROWS.jsonl …] [--dry]

Each constant of `src/tonnage/data/engines/*.toml` with a `prior` and a `spread` is fitted; its value is rewritten, all
else stays. Relative errors become what 80 % of the series (a series counts once) stay under when their unit is left out.
Without files the measurements shipped with the package are used.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from tonnage import datafiles  # noqa: E402
from tonnage.calibrate.inference_fit import fitted  # noqa: E402
from tonnage.calibrate.inference_score import (  # noqa: E402
    DOMAIN,
    ERROR_NAMES,
    MEMORY_ERROR_NAMES,
    family_of,
    is_fit_row,
    limits_of_row,
    observed,
    scope_of_row,
)
from tonnage.calibrate.rows import read_rows  # noqa: E402

ENGINES = ROOT / "src/tonnage/data/engines"
_INSIDE = 0.8
_FEWEST_SERIES = 5
_FITTED_SPEEDS = ("decode_tps_single", "prefill_tps", "throughput_tps")
_LEAST_WIDTH = 0.002  # what logs round away
_LIMITED = frozenset({"vllm", "sglang"})  # the cache takes what the limits leave: rows that tell none are another kind
_ENTRY = re.compile(r"\[\[constant\]\]\n(?:(?!\n\[).)*", re.DOTALL)


def _field(entry: str, name: str) -> str:
    match = re.search(rf"^{name} = (.*)$", entry, re.MULTILINE)
    return match[1].strip('"') if match else ""


def _key(engine: str, entry: str) -> str:
    """Return the key that `Constant.key` gives an entry of a data file."""
    scope = sorted(re.findall(r'(\w+) = "([^"]*)"', _field(entry, "scope")))
    parts = [engine, _field(entry, "name"), *(f"{key}={value}" for key, value in scope)]
    return ":".join(part for part in [*parts, _field(entry, "from"), _field(entry, "before")] if part)


def rewritten(engine: str, text: str, values: dict[str, float]) -> str:
    """Return a data file with new values, three digits each."""

    def one(match: re.Match[str]) -> str:
        value = values.get(_key(engine, match[0]))
        if value is None:
            return match[0]
        return re.sub(r"^value = .*$", f"value = {float(f'{value:.3g}')!r}", match[0], flags=re.MULTILINE)

    return _ENTRY.sub(one, text)


def measured_in(text: str, architectures: set[str]) -> str:
    """Return a data file that names the kinds of device whose speeds decided its constants."""
    line = f"architectures = [{', '.join(f'{chr(34)}{name}{chr(34)}' for name in sorted(architectures))}]"
    table = f"[measured]\n{line}\n\n"
    text = re.sub(r"\[measured\]\narchitectures = .*\n\n", "", text)
    return text.replace("[[constant]]", f"{table}[[constant]]", 1) if architectures else text


def architectures_of(rows: list[dict]) -> dict[str, set[str]]:
    """Return by data file the kinds of device that its engine's clear rows were measured on."""
    found: dict[str, set[str]] = defaultdict(set)
    for _, _, one in observed([row for row in rows if is_fit_row(row)]):
        found[one.constants.engine].add(one.load.architecture)
    return found


def fitted_to(rows: list[dict]) -> dict[str, float]:
    """Return the constants of all engines fitted to all clear rows."""
    families = defaultdict(list)
    for _, _, one in observed([row for row in rows if is_fit_row(row)]):
        families[family_of(one)].append(one)
    values: dict[str, float] = {}
    for members in families.values():
        values |= fitted(members)
    return values


def errors_of(rows: list[dict]) -> dict[str, float]:
    """Return by a constant's key the half-width of the interval that holds 80 % of the series."""
    by_id = {row["id"]: row for row in rows}
    series = defaultdict(lambda: defaultdict(list))
    for one in DOMAIN.score([row for row in rows if row.get("tier") in ("A", "B")], "unit"):
        is_known = one.metric in MEMORY_ERROR_NAMES or (one.metric in _FITTED_SPEEDS and one.trust in ("A", "B"))
        if one.ape is None or not one.predicted or not is_known:
            continue
        engine, placement = scope_of_row(by_id[one.id])
        series[_width_key(engine, one.metric, placement, limits_of_row(by_id[one.id]))][one.group or one.id].append(
            abs(one.measured / one.predicted - 1)
        )
    found: dict[str, float] = {}
    for key, groups in sorted(series.items()):
        errors = [error for group in groups.values() for error in group]
        weights = np.array([1 / len(group) for group in groups.values() for _ in group])
        order = np.argsort(errors)
        share = np.cumsum(weights[order]) / weights.sum()
        width = float(np.array(errors)[order][np.searchsorted(share, _INSIDE)])
        print(f"  {key:60s} {len(groups):4d} series  80 % within {width:.3f}")
        if len(groups) >= _FEWEST_SERIES:
            found[key] = min(max(width, _LEAST_WIDTH), 1.0)
    return found


def _width_key(engine: str, metric: str, placement: str, limits: str) -> str:
    """Return the key of the constant that holds a metric's half-width."""
    name = re.sub(r"[.-]", "_", engine)
    if metric in ERROR_NAMES:
        return f"{name}:{ERROR_NAMES[metric]}:placement={placement}"
    is_assumed = limits == "assumed" and engine in _LIMITED and metric != "weights_gib"
    return f"{name}:{MEMORY_ERROR_NAMES[metric]}" + ":limits=assumed" * is_assumed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--dry", action="store_true", help="print, write nothing")
    arguments = parser.parse_args()
    if arguments.files:
        rows = [row for path in arguments.files for row in read_rows(path.read_text(encoding="utf-8"), str(path))]
    else:
        rows = read_rows(datafiles.text("measurements/inference.jsonl"), "measurements/inference.jsonl")
    values = fitted_to(rows)
    for key, value in values.items():
        print(f"  {key:70s} {value:.3g}")
    values |= errors_of(rows)
    measured = architectures_of(rows)
    if not arguments.dry:
        for path in sorted(ENGINES.glob("*.toml")):
            text = path.read_text(encoding="utf-8")
            text = measured_in(rewritten(path.stem, text, values), measured[path.stem])
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
