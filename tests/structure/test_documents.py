"""Documents hold together: links lead somewhere, and a page and its Chinese twin show the same examples."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
RUN = re.compile(r"<!-- run: (.*?) -->")
HEADING = re.compile(r"^#+ ", re.MULTILINE)


def pages(root: Path) -> Iterator[Path]:
    yield from sorted([*root.glob("*.md"), *(root / "docs").rglob("*.md"), *(root / "validation").rglob("*.md")])


def broken_links(page: Path) -> list[str]:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    links = [link for link in LINK.findall(text) if "://" not in link and not link.startswith("mailto:")]
    return [link for link in links if not (page.parent / link).exists()]


def twins(root: Path) -> Iterator[tuple[Path, Path]]:
    """Yield each page with its Chinese twin: README.zh-CN.md beside README.md, `x.zh.md` beside `x.md`."""
    yield root / "README.md", root / "README.zh-CN.md"
    for page in sorted((root / "docs" / "how-to").glob("*.md")):
        if not page.name.endswith(".zh.md"):
            yield page, page.with_name(f"{page.stem}.zh.md")


def differences(english: str, chinese: str) -> list[str]:
    """Return what one page has and its twin lacks: examples, and the number of headings."""
    own = r""" --lang zh|(?<=grep -m1 -A )\d+ "[^"]*"$"""  # what is looked for is in the page's language
    shown = [[re.sub(own, "", command) for command in RUN.findall(text)] for text in (english, chinese)]
    headings = [len(HEADING.findall(FENCE.sub("", text))) for text in (english, chinese)]
    found = [] if shown[0] == shown[1] else [f"examples differ: {shown[0]} and {shown[1]}"]
    if headings[0] != headings[1]:
        found.append(f"{headings[0]} headings and {headings[1]}")
    return found + [f"an English example: {c}" for c in RUN.findall(chinese) if needs_language(c)]


def needs_language(command: str) -> bool:
    return command.startswith("tonnage ") and not {"--lang", "--version", "--json"} & set(command.split())


def test_links_lead_somewhere(root):
    assert {str(p.relative_to(root)): broken for p in pages(root) if (broken := broken_links(p))} == {}


def test_twins_show_the_same(root):
    found = {
        english.name: wrong
        for english, chinese in twins(root)
        if (wrong := differences(english.read_text("utf-8"), chinese.read_text("utf-8")))
    }
    assert found == {}


def test_a_planted_link_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("[here](page.md#part) [gone](gone.md) [out](https://example.org/x)\n```\n[code](no.md)\n```\n")
    assert broken_links(page) == ["gone.md"]


@pytest.mark.parametrize(
    ("chinese", "fault"),
    [
        ("# 一\n<!-- run: tonnage model x --lang zh -->\n## 二", "examples differ"),
        ("# 一\n<!-- run: tonnage gpus x --lang zh -->", "headings"),
        ("# 一\n<!-- run: tonnage gpus x -->\n## 二", "an English example"),
    ],
)
def test_a_planted_difference_is_found(chinese, fault):
    english = "# One\n<!-- run: tonnage gpus x -->\n## Two"
    assert differences(english, "# 一\n<!-- run: tonnage gpus x --lang zh -->\n## 二") == []
    assert any(fault in found for found in differences(english, chinese))
