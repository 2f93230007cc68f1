"""Every rule fires on its own line, stays quiet on its near-miss, and is written whole."""

from __future__ import annotations

import re

import pytest

from tonnage import datafiles
from tonnage.diagnose.scan import Scanner, key_of
from tonnage.diagnose.symptoms import RuleError, entries, read_symptom, symptoms

ENTRIES = entries()
CHINESE = re.compile(r"[\u3400-\u9fff]")


def found(diagnosis) -> set[str]:
    ids = {one.id for one in diagnosis.findings}
    ids |= {name for one in diagnosis.findings for name in one.also}
    return ids | {led.id for one in diagnosis.findings for led in one.consequences}


def met(text: str) -> set[str]:
    return {rule for rule, *_ in Scanner().hits([text.encode()])}


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["id"])
def test_a_rule_fires_on_its_line_and_not_on_its_near_miss(entry, diagnose):
    if not entry.get("patterns") and not entry["id"].startswith("TORCH_"):
        assert entry["fires"] == entry["quiet"] == []  # what the code tells: test_hang.py
        return
    assert entry["fires"]
    assert entry["quiet"]
    count = entry.get("at_least", 1)
    for line in entry["fires"]:
        hits = met(line)
        refined = found(diagnose("\n".join([line] * count)))
        alone = entry["role"] == "sign" and entry["severity"] != "critical"
        assert entry["id"] in (hits if alone else refined), line
    for line in entry["quiet"]:
        assert entry["id"] not in met(line) | found(diagnose(line)), line


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["id"])
def test_a_rule_is_written_whole(entry):
    rule = read_symptom(entry)
    assert rule.source.startswith("https://")
    for english, chinese in (
        rule.cause,
        *(cure.text for cure in rule.cures),
        *([rule.against] if rule.against else []),
    ):
        assert not CHINESE.search(english)
        assert CHINESE.search(chinese)
    assert rule.cures
    for pattern in rule.patterns:
        key = key_of(pattern.find[0])
        assert len(key) >= 3 or key.isupper(), pattern.find
        assert re.compile(pattern.regex)
        assert re.compile(pattern.unless)


def test_links_name_rules_that_exist():
    rules = symptoms()
    for rule in rules.values():
        for word in rule.explains:
            assert word in rules or (word.endswith("*") and any(n.startswith(word[:-1]) for n in rules)), (
                rule.id,
                word,
            )


def test_the_fields_in_a_text_are_caught_by_its_patterns():
    for rule in symptoms().values():
        wanted = {name for text in rule.cause for name in re.findall(r"<(\w+)>", text)}
        if rule.patterns and not rule.id.startswith("XID_"):
            caught = {name for one in rule.patterns for name in re.compile(one.regex).groupindex}
            assert wanted <= caught, rule.id


@pytest.mark.parametrize(
    "change",
    [
        {"severity": "bad"},
        {"role": "culprit"},
        {"cause": ["only English"]},
        {"colour": "red"},
        {"patterns": [{"find": "ab"}]},
        {"patterns": [{"find": "text", "flags": "i"}]},
        {"patterns": ["text"]},
    ],
)
def test_a_rule_that_is_written_wrongly_is_refused(change):
    with pytest.raises(RuleError):
        read_symptom({**ENTRIES[0], **change})


def test_a_rule_without_a_source_is_refused():
    with pytest.raises(RuleError):
        read_symptom({name: value for name, value in ENTRIES[0].items() if name != "source"})


def test_every_code_of_the_xid_catalogue_has_meaning_and_action(diagnose):
    rows = datafiles.rows("xid/catalogue.csv")
    assert len(rows) == 109
    for row in rows:
        line = f"[ 12.3] NVRM: Xid (PCI:0000:41:00): {row['code']}, pid=4711, name=python, something"
        first = diagnose(line + "\nCUDA error: unspecified launch failure").findings[0]
        rule = symptoms()[f"XID_{row['code']}"]
        assert rule.cures[0].text[0]
        if row["severity"] == "critical":
            assert first.id == rule.id
            assert "0000:41:00" in first.cause[0]
