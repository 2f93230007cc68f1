"""Pure modules compute values: they open no file and import nothing that reaches outside."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import tonnage

SOURCES = Path(tonnage.__file__).parent
PURE = ("units.py", "errors.py", "metric_names.py", "messages", "model", "workload", "hardware", "estimate", "engines",
        "search", "plan", "simulate", "monitor", "render", "verify", "diagnose", "calibrate")  # fmt: skip
FORBIDDEN = {"subprocess", "socket", "urllib", "http", "time", "random", "torch", "transformers", "pandas", "pickle",
             "ctypes", "shutil", "tempfile", "requests", "httpx"}  # fmt: skip
OPENERS = {"open", "read_text", "read_bytes", "write_text", "write_bytes", "fdopen", "fromfile", "loadtxt", "memmap",
           "iterdir", "glob", "rglob", "listdir", "scandir", "unlink", "mkdir"}  # fmt: skip


def faults(source: str) -> list[str]:
    """Return the imports and calls that a pure module must not have, with their lines."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            imported = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imported = [node.module or ""]
        else:
            imported = []
        found += [f"{node.lineno}: imports {name}" for name in imported if name.split(".")[0] in FORBIDDEN]
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in OPENERS:
                found.append(f"{node.lineno}: calls {called}")
    return found


def files(name: str) -> list[Path]:
    path = SOURCES / name
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


@pytest.mark.parametrize("name", PURE)
def test_pure_modules_touch_nothing(name):
    found = {str(p.relative_to(SOURCES)): wrong for p in files(name) if (wrong := faults(p.read_text("utf-8")))}
    assert files(name)
    assert found == {}


@pytest.mark.parametrize(
    "source",
    [
        "import subprocess",
        "def f():\n    from urllib.request import urlopen",
        "import os, socket",
        "def f(path):\n    return path.read_text()",
        "x = open('f')",
        "import numpy as np\nnp.memmap('f')",
    ],
)
def test_a_planted_fault_is_found(source):
    assert faults(source)


def test_honest_lines_pass():
    assert faults("import numpy as np\nfrom tonnage import datafiles\nrows = datafiles.rows('a.csv')") == []
