"""The test house itself: a skip is refused where tools are required, golden files are compared."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.conftest import refuse_skip


def report(reason: str) -> SimpleNamespace:
    return SimpleNamespace(skipped=True, outcome="skipped", longrepr=("file", 1, f"Skipped: {reason}"))


@pytest.mark.parametrize(
    ("required", "reason", "outcome"),
    [
        ("1", "could not import 'torch'", "failed"),
        ("1", "platform: needs another user than root", "skipped"),
        ("", "could not import 'torch'", "skipped"),
    ],
)
def test_a_skip_is_refused_only_where_tools_are_required(monkeypatch, required, reason, outcome):
    monkeypatch.setenv("TONNAGE_REQUIRE_TOOLS", required)
    skipped = report(reason)
    refuse_skip(skipped)
    assert skipped.outcome == outcome


def test_golden_tells_a_difference(golden, tmp_path, monkeypatch):
    monkeypatch.setattr("tests.conftest.GOLDEN", tmp_path)
    (tmp_path / "a.txt").write_text("one")
    with pytest.raises(AssertionError):
        golden("a.txt", "two")
    with pytest.raises(AssertionError):
        golden("b.txt", "two")


def test_the_command_line_runs_in_this_process(tonnage):
    assert tonnage("--version").out.startswith("tonnage, version ")
    assert tonnage("no-such-verb").code == 2
