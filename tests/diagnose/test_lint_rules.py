"""Every rule finds its own bad example and nothing in its good one; the words and sources are there in both languages."""

from __future__ import annotations

import re

import pytest

from tonnage import datafiles
from tonnage.diagnose.lint import lint
from tonnage.diagnose.lint.checks import CHECKS
from tonnage.diagnose.lint.rules import rules
from tonnage.messages import choose_language

RULES = sorted(rules())
ROWS = {
    row["id"]: row for name in datafiles.names("lint", ".toml") for row in datafiles.table(f"lint/{name}.toml")["rule"]
}
OPEN = {"model", "args", "rows", "tok", "layer", "x", "q", "k", "v", "load", "m", "a", "d"}


def found(rule, text):
    row = ROWS[rule]
    files = {row["file"]: text.lstrip("\n"), **dict.fromkeys(row.get("beside", ()), "groups: []\n")}
    return lint(files)


@pytest.mark.parametrize("rule", RULES)
def test_the_bad_example_is_found(rule):
    report = found(rule, ROWS[rule]["bad"])
    assert rule in {f.id for f in report.findings}, report
    assert report.unread == ()


@pytest.mark.parametrize("rule", RULES)
def test_the_good_example_is_clean(rule):
    report = found(rule, ROWS[rule]["good"])
    assert [(f.id, f.what) for f in report.findings] == []
    assert report.unread == ()


def test_every_rule_has_a_finder():
    by_check = {rule for check in CHECKS for rule in check.rules}
    assert by_check <= set(rules())
    assert {name for name, rule in rules().items() if not rule.is_data} <= by_check


@pytest.mark.parametrize("rule", RULES)
def test_words_are_there(rule):
    one = rules()[rule]
    assert one.source
    for english, chinese in (one.what, one.today):
        assert english
        assert chinese
        fields = [sorted(re.findall(r"(?<!\{)\{(\w+)\}(?!\})", text)) for text in (english, chinese)]
        assert fields[0] == fields[1]
    assert re.search(r"[\u3400-\u9fff]", one.what[1]) or "{" in one.what[1]


def test_chinese_is_spoken():
    choose_language("zh")
    try:
        assert "默认值" in lint({"a.sh": "export NCCL_IB_DISABLE=0\n"}).findings[0].what
    finally:
        choose_language("en")
