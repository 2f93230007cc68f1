"""Writes a bundle whose job is `fake_job.py`, as `tonnage deploy` writes one."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from validation.train_bundle import write_files

HERE = Path(__file__).resolve().parent


def write_bundle(folder: Path, *, num_ranks: int = 2, num_steps: int = 20, **job) -> Path:
    """Write the bundle and return its folder."""
    table = {"ranks": num_ranks, "training_arguments": {"max_steps": num_steps}, **job}
    start = f'#!/usr/bin/env bash\nset -euo pipefail\ncd "$(dirname "$0")"\nexec {sys.executable} -S -E fake_job.py job.json\n'
    files = {
        "start.sh": start,
        "fake_job.py": (HERE / "fake_job.py").read_text(encoding="utf-8"),
        "job.json": json.dumps(table, indent=2) + "\n",
    }
    return write_files(folder, "fake", files)
