"""Logs of runs where nothing is wrong give no finding, however scary their words."""

from __future__ import annotations

from pathlib import Path

import pytest

CLEAN = sorted((Path(__file__).parent / "clean").glob("*.log"))


@pytest.mark.parametrize("path", CLEAN, ids=lambda path: path.stem)
def test_a_clean_log_gives_no_finding(path, diagnose):
    answer = diagnose(path.read_bytes())
    assert [one.id for one in answer.findings] == []
    assert answer.would_help


def test_there_are_thirty():
    assert len(CLEAN) >= 30


def test_all_of_them_together_give_no_finding(diagnose):
    assert [one.id for one in diagnose(*(path.read_bytes() for path in CLEAN)).findings] == []
