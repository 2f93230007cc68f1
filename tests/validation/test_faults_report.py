"""The committed report of the fault campaign is what its rows say, and its rows are what was asked for."""

from __future__ import annotations

from collections import Counter

from validation import faults


def rows():
    return faults.from_csv((faults.HERE / "faults.csv").read_text(encoding="utf-8"))


def test_the_page_is_what_the_rows_say():
    page = (faults.HERE / "FAULTS.md").read_text(encoding="utf-8")
    assert page == faults.as_page(rows(), 1), "python validation/faults.py --report … --write"


def test_rows_read_back():
    text = (faults.HERE / "faults.csv").read_text(encoding="utf-8")
    assert faults.as_csv(faults.from_csv(text)) == text


def test_a_hundred_faults_in_equal_shares():
    fake = [row for row in rows() if row["job"] in faults.FAKES]
    shares = Counter(row["kind"] for row in fake)
    assert len(fake) >= 100
    assert set(shares) == set(faults.KINDS)
    assert max(shares.values()) == min(shares.values())


def test_every_kind_met_a_training():
    real = [row for row in rows() if row["job"] in faults.REALS]
    assert {row["job"] for row in real} == set(faults.REALS)
    assert {row["kind"] for row in real} == set(faults.KINDS)
    assert [row for row in rows() if row["verdict"] != "ok"] == []
