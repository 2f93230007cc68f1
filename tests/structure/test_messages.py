"""Both languages say the same: the same fields, nothing left untranslated, every id that is asked for exists."""

from __future__ import annotations

import ast
import importlib
import re
import string
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import tonnage

SOURCES = Path(tonnage.__file__).parent
AREAS = sorted(p.stem for p in (SOURCES / "messages").glob("*.py") if p.stem != "__init__")
CHINESE = re.compile(r"[\u3400-\u9fff]")
# Three English words in a row, outside fields and code in backquotes, are a sentence that wants translating.
SENTENCE = re.compile(r"[A-Za-z]{2,} [a-z]{2,} [a-z]{2,}")


def fields(text: str) -> list[str]:
    """Return the fields of a text, in the order of their names, with their formats."""
    return sorted(f"{name}:{spec}" for _, name, spec, _ in string.Formatter().parse(text) if name is not None)


def faults(messages: Mapping[str, tuple[str, str]]) -> list[str]:
    found: list[str] = []
    for name, pair in messages.items():
        if not (isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(text, str) and text for text in pair)):
            found.append(f"{name}: not a pair of texts")
            continue
        english, chinese = pair
        if fields(english) != fields(chinese):
            found.append(f"{name}: the fields differ: {fields(english)} and {fields(chinese)}")
        if CHINESE.search(english):
            found.append(f"{name}: Chinese in the English text")
        plain = re.sub(r"`[^`]*`|\{[^}]*\}", "", english)
        if SENTENCE.search(plain) and not CHINESE.search(chinese):
            found.append(f"{name}: not translated")
    return found


def asked_for(source: str) -> Iterator[str]:
    """Yield the ids that `say("area.name")` names literally."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and node.args:
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            first = node.args[0]
            if called == "say" and isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield first.value


def messages(area: str) -> Mapping[str, tuple[str, str]]:
    return importlib.import_module(f"tonnage.messages.{area}").MESSAGES


@pytest.mark.parametrize("area", AREAS)
def test_both_languages_say_the_same(area):
    assert faults(messages(area)) == []


def test_every_id_exists():
    wanted = {i for p in SOURCES.rglob("*.py") for i in asked_for(p.read_text("utf-8"))}
    assert {i for i in wanted if i.partition(".")[2] not in messages(i.partition(".")[0])} == set()


@pytest.mark.parametrize(
    "pair",
    [
        ("short by {missing}", "缺 {lacking}"),
        ("short by {missing:.1f}", "缺 {missing}"),
        ("this card does not hold it", "this card does not hold it"),
        ("装不下", "装不下"),
        ("only one",),
        ("one", ""),
    ],
)
def test_a_planted_fault_is_found(pair):
    assert faults({"name": pair})


def test_honest_pairs_pass():
    assert faults({"a": ("short by {missing}", "缺 {missing}"), "b": ("{a} / {b}", "{a} / {b}")}) == []
    assert list(asked_for('say("plan.fits", x=1)\nmessages.say("model.name")\nsay(name)')) == [
        "plan.fits",
        "model.name",
    ]
