"""The documents' examples are run, and a stale one is found."""

from __future__ import annotations

import csv
import importlib.util
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def generate(root) -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", root / "docs" / "generate.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


EXAMPLE = "before\n<!-- run: tonnage --version -->\n{}<!-- end -->\nafter\n"


def test_an_example_is_run(generate):
    page = generate.refresh(EXAMPLE.format("stale\n"))
    assert "```console\n$ tonnage --version\ntonnage, version " in page
    assert page.startswith("before\n")
    assert page.endswith("<!-- end -->\nafter\n")
    assert generate.refresh(page) == page


def test_a_stale_page_is_found(generate, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    monkeypatch.setattr(generate, "PAGES", {})
    monkeypatch.setattr("sys.argv", ["generate.py", "--check"])
    (tmp_path / "README.md").write_text(EXAMPLE.format("stale\n"))
    assert generate.main() == 1
    assert "stale: README.md" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["generate.py"])
    assert generate.main() == 0
    monkeypatch.setattr("sys.argv", ["generate.py", "--check"])
    assert generate.main() == 0


def test_the_claims_page_shows_every_claim(generate):
    page = generate.claims_page()
    assert all(f"| {number} |" in page for number in range(1, 149))
    assert generate.cell("a | b\nc") == "a \\| b c"


def test_the_glossary_is_bilingual_and_complete(root):
    rows = list(csv.DictReader((root / "src/tonnage/data/glossary.csv").read_text("utf-8").splitlines()))
    assert len({r["term"] for r in rows}) == len(rows) > 50
    assert [r["term"] for r in rows if not all(r[c] for c in ("term_zh", "meaning_en", "meaning_zh"))] == []
