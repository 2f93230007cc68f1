"""Has a dump of torch's flight recorder or a memory snapshot taken apart by a process of its own (`unpickle.py`)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from tonnage.errors import BadFileError

_PROGRAM: Final = Path(__file__).with_name("unpickle.py")
_SECONDS: Final = 60


def read_dump(path: Path) -> dict[str, Any]:
    """Return what a dump says: `kind` and its values.

    Raises
    ------
    BadFileError
        It is no such dump, is damaged, or names classes or functions.
    """
    fix = "name a dump of the flight recorder or of torch.cuda.memory._dump_snapshot"
    try:
        with path.open("rb") as file:
            done = subprocess.run(  # noqa: S603  this interpreter and a program of this package
                [sys.executable, "-I", "-S", "-B", str(_PROGRAM)],
                stdin=file,
                capture_output=True,
                timeout=_SECONDS,
                check=False,
                env={},
            )
        told = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError, OSError):
        raise BadFileError("cannot be taken apart within the limits", where=str(path)[:200], fix=fix) from None
    if "error" in told:
        raise BadFileError(f"is no dump that is known: {told['error']}", where=str(path)[:200], fix=fix)
    return told
