"""`tonnage prices`, called as a person calls it."""

from __future__ import annotations

import csv
import io

import pytest


@pytest.fixture(autouse=True)
def own(monkeypatch, tmp_path):
    """Give each test a price file of its own and one day."""
    monkeypatch.setenv("TONNAGE_PRICES", str(tmp_path / "own" / "prices.csv"))
    monkeypatch.setenv("TONNAGE_TODAY", "2026-11-30")
    return tmp_path / "own" / "prices.csv"


def test_it_shows_prices_with_source_and_age(tonnage):
    answer = tonnage("prices", "4090", "h100-sxm5")
    assert answer.code == 0
    assert "1,599  the maker, at launch      2022-09-20 !" in answer.out
    assert "gpu_8x_h100_sxm5" in answer.out
    assert "older than 60 days" in answer.out
    assert tonnage("prices", "show", "4090").out == tonnage("prices", "4090").out


def test_as_an_object(tonnage):
    found = tonnage("prices", "h100-sxm5", "--num", "8", "--json").json
    assert found["schema"] == 1
    assert {offer["num_gpus"] for offer in found["offers"]} == {8}
    one = next(o for o in found["offers"] if o["provider"] == "nebius")
    assert (one["usd_per_hour"], one["spot_usd_per_hour"], one["is_old"]) == (23.6, 10.0, True)
    assert found["purchases"][0]["kind"] == "third-party"
    assert {r["currency"] for r in found["rates"]} >= {"USD", "CNY", "EUR"}


def test_the_whole_catalogue(tonnage):
    answer = tonnage("prices")
    assert answer.code == 0
    assert len(answer.out.splitlines()) > 100


def test_export_edit_and_import(tonnage, own, tmp_path):
    exported = tonnage("prices", "4090", "--csv").out
    rows = list(csv.DictReader(io.StringIO(exported)))
    assert {row["kind"] for row in rows} == {"buy", "rent"}
    edited = tmp_path / "edited.csv"
    edited.write_text(exported.replace("1599", "1400"))
    answer = tonnage("prices", "import", str(edited), "--json")
    assert answer.json == {"schema": 1, "path": str(own), "num_prices": len(rows), "num_left_out": 0}
    assert "1,400  you" in tonnage("prices", "4090").out
    assert "1,400" in tonnage("gpus", "4090").out


def test_an_imported_price_counts_in_a_plan(tonnage, tmp_path):
    mine = tmp_path / "mine.csv"
    mine.write_text("gpu,price\nrtx-4080,700\n")
    words = ("plan", "Qwen/Qwen3.5-35B-A3B", "--gpu", "rtx-4080", "--json")
    before = tonnage(*words).json["plans"][0]["cost"]["purchase_usd"]["best"]
    assert tonnage("prices", "import", str(mine)).code == 0
    after = tonnage(*words).json["plans"][0]["cost"]["purchase_usd"]["best"]
    assert before - after == pytest.approx(1199 - 700)


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (("prices", "rtx-9999"), "9999"),
        (("prices", "import", "/no/such.csv"), "No such file"),
        (("prices", "import", "/"), "cannot be read"),
        (("prices", "refresh", "--source", "moon"), "moon"),
        (("prices", "show", "--num", "0"), "--num"),
    ],
)
def test_mistakes_get_one_line(tonnage, words, fault):
    answer = tonnage(*words)
    assert answer.code == 2
    assert answer.out == ""
    assert fault in answer.err
    assert len(answer.err.strip().splitlines()) == 1


def test_a_broken_price_file_is_named(tonnage, own):
    own.parent.mkdir()
    own.write_text("gpu,price\n???,1\n")
    for words in (("prices",), ("plan", "Qwen/Qwen3.5-27B", "--gpu", "4090"), ("gpus", "4090")):
        answer = tonnage(*words)
        assert answer.code == 2
        assert "line 2" in answer.err
        assert str(own) in answer.err


def test_without_a_network_a_refresh_says_so(tonnage, monkeypatch, own):
    for name in ("GPUHUNT", "SKYPILOT", "ECB"):
        monkeypatch.setenv(f"TONNAGE_{name}_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    answer = tonnage("prices", "refresh", "--json", "--quiet")
    assert answer.code == 4
    assert set(answer.json["error"]) == {"what", "where", "fix"}
    assert not own.exists()


def test_assumptions_are_shown_with_their_reasons(tonnage):
    answer = tonnage("prices", "show", "--assumptions")
    assert "--assume tariff.home" in answer.out
    found = {a["name"]: a for a in tonnage("prices", "show", "--assumptions", "--json").json["assumptions"]}
    assert found["tariff.home"]["best"] == 0.187
    assert all(a["why"] and a["sources"] for a in found.values())


def test_in_chinese(tonnage):
    answer = tonnage("prices", "4090", "--lang", "zh")
    assert "购入单价" in answer.out
    assert "厂商首发价" in answer.out
