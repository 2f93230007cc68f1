"""Edits applied to a text, and the difference shown."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable

from tonnage.diagnose.lint.types import Edit

__all__ = ["apply_edits", "difference"]


def apply_edits(text: str, edits: Iterable[Edit], name: str = "") -> tuple[str, int]:
    """Return a text with edits applied and how many were; of edits that overlap the first in the file counts.

    A Python file that would no longer parse is returned as it was.

    >>> apply_edits("a b c", [Edit(line=1, start=2, end_line=1, end=3, text="x")])
    ('a x c', 1)
    """
    lines = text.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)

    def place(line: int, column: int) -> int:
        return min(len(text), starts[min(line, len(lines) + 1) - 1] + column)

    spans = sorted({(place(e.line, e.start), place(e.end_line, e.end), e.text) for e in edits})
    pieces: list[str] = []
    last, num = 0, 0
    for start, end, new in spans:
        if start < last or end < start:
            continue
        pieces += [text[last:start], new]
        last, num = end, num + 1
    fixed = "".join([*pieces, text[last:]])
    return (text, 0) if name.endswith(".py") and _parses(text) and not _parses(fixed) else (fixed, num)


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def difference(old: str, new: str, name: str) -> str:
    """Return the unified difference between a file and its corrected copy."""
    lines = difflib.unified_diff(old.splitlines(keepends=True), new.splitlines(keepends=True), name, f"{name}.fixed")
    return "".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines)
