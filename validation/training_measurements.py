"""Write the training measurements that are shipped: bare facts with a public address, from the collected rows.

    python validation/training_measurements.py ROWS.jsonl

Left out: rows without a public address, remarks, checks and the words in which a source describes its meter.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "src/tonnage/data/measurements/training.jsonl"
PROSE = (
    "notes", "notes_add", "check", "mem_kind", "mem_unit", "peak_mem_raw", "flops_convention", "oom_kind", "score",
    "max_feasible",
)  # fmt: skip
NOT_PUBLIC = ("universal-llm-trainer", "public logs")
MEASURED = ("peak_mem_gib", "tokens_per_s_per_gpu", "step_time_s")


def address(row: dict[str, Any]) -> str:
    """Return where a row can be looked up, as a URL where its source names a repository."""
    source = str(row["source"])
    if source.startswith(("http", "arXiv", "PyPI")):
        return source
    if match := re.match(r"([\w.-]+/[\w.-]+)/(\S+?)@([0-9a-f]{7,40})", source):
        return f"https://github.com/{match[1]}/blob/{match[3]}/{match[2]}"
    if match := re.match(r"([\w.-]+/[\w.-]+)", source):
        return f"https://github.com/{match[1]}"
    return source


def shipped(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows that are shipped, without prose."""
    return [
        {k: v for k, v in row.items() if k not in PROSE and v is not None} | {"source": address(row)}
        for row in rows
        if row["source_key"] not in NOT_PUBLIC and "not resolved" not in str(row["source"])
        if any(row.get(name) for name in MEASURED) or row.get("oom")
    ]


def main() -> None:
    lines = Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()
    rows = shipped([json.loads(line) for line in lines if line.strip()])
    text = "".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows)
    TARGET.write_text(text, encoding="utf-8")
    print(f"{len(rows)} rows, {len(text) / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
