"""Every share of memory and time that an estimate names has a name and a meaning in both languages."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import tonnage
from tonnage.estimate.compose_training import memory, timing
from tonnage.messages import knows, share
from tonnage.plan.explain import _meaning
from tonnage.plan.scene import share_label

SOURCES = Path(tonnage.__file__).parent


def named(calls: set[str], *folders: str) -> set[str]:
    """Return the literal `name=` of every call of some constructors."""
    return {
        keyword.value.value
        for folder in folders
        for path in sorted((SOURCES / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in calls
        for keyword in node.keywords
        if keyword.arg == "name" and isinstance(keyword.value, ast.Constant) and isinstance(keyword.value.value, str)
    }


HOST_POOLS = set(re.findall(r'"(host_[a-z_]+)"', Path(memory.__file__).read_text("utf-8")))
POOLS = {*memory.FORMULAS} | HOST_POOLS | named({"ServingPool", "Pool"}, "engines", "estimate")
TIMES = {*timing.FORMULAS} | named({"TimePart"}, "engines", "estimate")


@pytest.mark.parametrize(("kind", "names"), [("pool", POOLS), ("time", TIMES)])
def test_every_share_has_words(kind, names):
    assert len(names) > 10
    words = {name: f"share.{kind}_{name.replace(' ', '_').replace('-', '_')}" for name in names}
    assert {name for name, known in words.items() if not (knows(known) and knows(f"{known}_is"))} == set()


def test_a_share_without_words_keeps_its_name():
    assert not knows("share.pool_moon_dust")
    assert share_label("pool", "moon_dust") == "moon dust"
    assert _meaning("pool", "moon_dust", "weights.plain_bytes").startswith("Bytes of weights")
    assert share_label("pool", "kv_cache") == share.MESSAGES["pool_kv_cache"][0]
