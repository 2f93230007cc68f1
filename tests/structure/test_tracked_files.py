"""What is in the repository belongs there: no path of one machine, no private registry, nothing left to do later."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

# Each pattern is put together here so that this file does not hold what it looks for.
FAULTS = {
    "a path of one machine": re.compile(r"(?<![\w.])/(?:wor" + r"k|ro" + r"ot|ho" + r"me/(?!you\b|user\b)\w+|Us" + r"ers/\w+)/"),
    "a package registry's address": re.compile(r"--(?:extra-)?index" + r"-url|(?<!respects )PIP_INDEX" + r"_URL|registry\s*=\s*https?:"),
    "a note to do it later": re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b"),
    "a conflict's mark": re.compile(r"^(?:<{7}|>{7}) ", re.MULTILINE),
    "a secret": re.compile(r"\bhf_[A-Za-z]{34}\b|\bghp_\w{36}\b|BEGIN (?:RSA |OPENSSH )?PRIVATE KEY"),
}  # fmt: skip
BINARY = {".png", ".gz", ".xz", ".zst", ".gguf", ".safetensors", ".ico", ".woff2", ".npz"}


def tracked(root: Path) -> list[Path]:
    """Return the files of the repository, tracked or about to be."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, check=True).stdout.decode()
    return [path for name in listed.split("\0") if name and (path := root / name).is_file()]


def faults(text: str) -> list[str]:
    return [f"{what}: {match[0]!r}" for what, pattern in FAULTS.items() for match in pattern.finditer(text)]


def test_the_repository_holds_what_belongs_there(root):
    if not (root / ".git").exists():
        pytest.skip("platform: an unpacked archive has no list of tracked files")
    files = [path for path in tracked(root) if path.suffix not in BINARY]
    assert len(files) > 20
    found = {str(p.relative_to(root)): wrong for p in files if (wrong := faults(p.read_text(encoding="utf-8")))}
    assert found == {}


def test_no_file_is_large(root):
    if not (root / ".git").exists():
        pytest.skip("platform: an unpacked archive has no list of tracked files")
    assert {p.name: p.stat().st_size for p in tracked(root) if p.stat().st_size > 3 << 20} == {}


@pytest.mark.parametrize(
    "text",
    [
        "see /wor" + "k/shared/data",
        "cd /ro" + "ot/x",
        "open('/ho" + "me/jane/x')",
        "pip install --index" + "-url https://x/simple y",
        "# TO" + "DO later",
        "<<<<<<< HEAD\n",
        "hf_" + "a" * 34,
    ],
)
def test_a_planted_fault_is_found(text):
    assert faults(text)


def test_honest_lines_pass():
    assert faults("the framework/engine, https://pypi.org/project/numpy, ../shared/data, /home/you/model") == []
