"""Runs `docker-compose config` on each file that is named: docker-compose 1.29's own code, in its own Python."""

from __future__ import annotations

import contextlib
import io
import json
import sys


def complaint(path: str) -> str:
    """Return what docker-compose says, "" where it takes the file."""
    from compose.cli import main as cli

    said = io.StringIO()
    sys.argv = ["docker-compose", "-f", path, "config", "-q"]
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        try:
            cli.main()
        except SystemExit as end:
            if end.code:
                return said.getvalue() or f"exit code {end.code}"
    return said.getvalue()


if __name__ == "__main__":
    print(json.dumps([complaint(path) for path in json.load(sys.stdin)]))
