"""A verb that answers in a moment imports nothing that does not: no torch, and for `model` not even numpy."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tonnage

HEAVY = {"torch", "transformers", "pandas", "scipy", "pydantic", "requests", "huggingface_hub"}
LATE = {
    "numpy",
    "rich",
    "asyncio",
    "urllib.request",
    "http.client",
    "ssl",
}  # fine where needed, not to say what a model is
IMPORT = re.compile(r"^import time:\s+\d+ \|\s+\d+ \|\s+(\S+)$", re.MULTILINE)


def imported(*arguments: str) -> set[str]:
    """Return the modules that a fresh interpreter imports for a command."""
    environment = os.environ | {"PYTHONPATH": str(Path(tonnage.__file__).parent.parent)}
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode in {0, 3}, done.stderr[-400:]
    return set(IMPORT.findall(done.stderr))


def unwanted(modules: set[str], names: set[str]) -> set[str]:
    return {m for m in modules if m in names or m.partition(".")[0] in names}


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (("--version",), HEAVY | LATE),
        (("model", "Qwen/Qwen3.5-35B-A3B"), HEAVY | LATE),
        (("gpus", "4080"), HEAVY | LATE),
        (("plan", "Qwen/Qwen3.5-35B-A3B", "--serve", "--gpu", "rtx-4080"), HEAVY | (LATE - {"numpy"})),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_verb_imports_only_what_it_needs(arguments, names):
    modules = imported("-m", "tonnage", *arguments)
    assert "tonnage.cli" in modules
    assert unwanted(modules, names) == set()


def test_a_planted_import_is_found():
    modules = imported("-c", "import tonnage, numpy")
    assert unwanted(modules, HEAVY | LATE) >= {"numpy"}
    assert "tonnage" in modules


def test_serving_one_card_needs_no_numpy():
    """Columns need it; one answer does not, and importing it takes as long as all else together."""
    modules = imported("-m", "tonnage", "plan", "Qwen/Qwen3.5-35B-A3B", "--serve", "--gpu", "rtx-4080")
    assert unwanted(modules, {"numpy"}) == set()
