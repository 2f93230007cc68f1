"""The one loader of package data: plain files under `tonnage/data`, read by name and kept.

Pure modules never open a file; they ask here.
"""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parent / "data"


def text(name: str) -> str:
    """Return a data file's text, as `hardware/gpus.csv`."""
    return (_ROOT / name).read_text(encoding="utf-8")


def packed(name: str) -> str:
    """Return the text of a data file that is compressed with xz, as `traces/azure-conv.csv.xz`."""
    import lzma  # noqa: PLC0415 - few verbs read one

    return lzma.decompress((_ROOT / name).read_bytes()).decode("utf-8")


def program(name: str) -> str:
    """Return the source of a program of `tonnage/jobs`, which a bundle carries beside its job."""
    return (Path(__file__).parent / "jobs" / f"{name}.py").read_text(encoding="utf-8")


def programs(name: str) -> dict[str, str]:
    """Return the sources of a program of several files: `name.py` and every `name_*.py`, by file name."""
    folder = Path(__file__).parent / "jobs"
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob(f"{name}*.py"))}


def names(folder: str, suffix: str) -> tuple[str, ...]:
    """List the data files of a folder with a suffix, sorted, without it."""
    return tuple(sorted(p.name.removesuffix(suffix) for p in (_ROOT / folder).glob(f"*{suffix}")))


@cache
def rows(name: str) -> tuple[dict[str, str], ...]:
    """Return a CSV file as dictionaries of text, one a row."""
    return tuple(csv.DictReader(text(name).splitlines()))


@cache
def table(name: str) -> dict[str, Any]:
    """Return a TOML file."""
    import tomllib  # noqa: PLC0415 - slow to import, and many verbs read no TOML

    return tomllib.loads(text(name))
