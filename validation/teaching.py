"""What one measurement on a machine tells of another there: the figures of data/calibration/teaching.toml.

    python validation/teaching.py RESULT.json [ROWS.jsonl …]

RESULT.json is what `tonnage score ROWS --leave-out unit --json` printed. For each measure, pairs of rows on one machine
(source, cards, engine, processor) are compared, once with different models and once with the same one: `share` is the
part of one row's error (a logarithm, of pools in GiB) that predicts the other's best, and the mean error is given
without and with it. `narrowed` is their ratio.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from tonnage import datafiles  # noqa: E402
from tonnage.calibrate.rows import read_rows  # noqa: E402

_MEASURES = ("decode_tps_single", "prefill_tps", "throughput_tps", "kv_cache_gib", "total_used_mib")
_MOST_OF_A_MODEL = 12  # rows of one model on one machine
_HOSTED = ("experts_cpu", "layers_cpu")


def errors_by_machine(result: dict, rows: dict, metric: str) -> dict:
    found = defaultdict(lambda: defaultdict(list))
    for one in result["rows"]:
        row = rows.get(one["id"])
        if row is None or one["metric"] != metric or not one.get("predicted") or one["measured"] <= 0:
            continue
        is_hosted = row.get("placement") in _HOSTED
        if row.get("tier") not in ("A", "B") or row.get("spec_decode") or (metric == "decode_tps_single" and is_hosted):
            continue
        machine = tuple(str(row.get(key)) for key in ("source_key", "gpu", "engine", "cpu", "n_gpus"))
        is_pool = metric == "kv_cache_gib"
        error = one["predicted"] - one["measured"] if is_pool else math.log(one["measured"] / one["predicted"])
        found[machine][f"{row['model']} {row.get('quant')}"].append(error)
    return found


def pairs(by_machine: dict, *, is_same_model: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return errors of the one row, of the other, and weights that count each row once."""
    found = []
    for models in by_machine.values():
        groups = (
            [errors[:_MOST_OF_A_MODEL] for errors in models.values()]
            if is_same_model
            else [[float(np.median(errors)) for errors in models.values()]]
        )
        for group in groups:
            found += [(a, b, 1 / (len(group) - 1)) for a, b in itertools.permutations(group, 2)]
    columns = np.array(found, dtype=float).reshape(-1, 3)
    return columns[:, 0], columns[:, 1], columns[:, 2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", type=Path)
    parser.add_argument("files", nargs="*", type=Path)
    arguments = parser.parse_args()
    texts = [path.read_text(encoding="utf-8") for path in arguments.files]
    read = [
        row for text in texts or [datafiles.text("measurements/inference.jsonl")] for row in read_rows(text, "rows")
    ]
    rows = {row["id"]: row for row in read}
    result = json.loads(arguments.result.read_text(encoding="utf-8"))
    for metric in _MEASURES:
        by_machine = errors_by_machine(result, rows, metric)
        for is_same_model in (False, True):
            one, other, weight = pairs(by_machine, is_same_model=is_same_model)
            if not len(one):
                continue
            means = {
                share: float((weight * np.abs(other - share * one)).sum() / weight.sum())
                for share in np.linspace(0, 1, 21)
            }
            best = min(means, key=lambda share: means[share])
            which = "same model" if is_same_model else "other model"
            print(
                f"{metric:20s} {which:11s} {len(one):5d} pairs  share {best:.2f}  "
                f"mean error {means[0.0]:.3f} -> {means[best]:.3f}  narrowed {means[best] / max(means[0.0], 1e-9):.2f}"
            )


if __name__ == "__main__":
    main()
