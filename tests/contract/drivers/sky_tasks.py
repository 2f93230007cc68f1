"""Holds SkyPilot tasks against its own loader: reads a list of texts as JSON, prints one complaint each ("" for none).

SkyPilot stands in an environment of its own (`make .venv-sky/.installed`). Its loader leaves two things to the time of a launch: the
strategies of recovery, looked up here in its own table, and the names of devices, which are in a catalogue on the network
and looked for here in its own source.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from functools import cache
from pathlib import Path


def complaint(text: str) -> str:
    """Return what SkyPilot says against a task."""
    import sky
    from sky.jobs import recovery_strategy
    from sky.utils import registry

    del recovery_strategy  # imported for what it enters into the table
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "task.yaml")
        path.write_text(text, encoding="utf-8")
        home = Path.cwd()
        os.chdir(folder)
        try:
            task = sky.Task.from_yaml(str(path))
        except Exception as error:  # noqa: BLE001  whatever SkyPilot says
            return f"{type(error).__name__}: {error}"
        finally:
            os.chdir(home)
    if not task.run:
        return "nothing is run"
    for one in task.resources:
        strategy = (one.job_recovery or {}).get("strategy")
        if strategy is not None and str(strategy).lower() not in registry.JOBS_RECOVERY_STRATEGY_REGISTRY:
            return f"job_recovery: {strategy} is no strategy"
        for name in one.accelerators or {}:
            if not re.search(rf"""['"]{re.escape(name)}['":]""", source()):
                return f"accelerators: SkyPilot's source names no {name}"
    return ""


@cache
def source() -> str:
    """Return SkyPilot's own source."""
    import sky

    return "\n".join(path.read_text(errors="replace") for path in Path(sky.__file__).parent.rglob("*.py"))


if __name__ == "__main__":
    print(json.dumps([complaint(text) for text in json.load(sys.stdin)]))
