"""Writes a bundle whose job is `fake_job.py`, as `tonnage deploy` writes one."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

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
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    entries = [
        {
            "path": name,
            "sha256": hashlib.sha256(text.encode()).hexdigest(),
            "purpose": name,
            "is_executable": name == "start.sh",
        }
        for name, text in files.items()
    ]
    manifest = {
        "format": 1,
        "written_by": "tonnage",
        "name": "fake",
        "place": "local",
        "start": "bash start.sh",
        "stop": "",
    }
    (folder / "manifest.json").write_text(json.dumps({**manifest, "files": entries}), encoding="utf-8")
    return folder
