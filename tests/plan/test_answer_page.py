"""The page and the table of an answer: whole in themselves, charts that add up, no markup and no formula from names."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.plan.nouns import make_estimate

from tonnage import api
from tonnage.plan.answer_page import points, write_answer_page
from tonnage.plan.charts import Bar, Point, scatter, waterfall
from tonnage.plan.request import make_request
from tonnage.plan.sheet import write_sheet
from tonnage.plan.types import Answer, Plan

CLOSED = make_request("Qwen/Qwen3.5-35B-A3B", gpus=["rtx-4080"])
OPEN = make_request("Qwen/Qwen3-8B", limits={"budget": "4000 USD"})


@pytest.fixture(scope="module", params=["closed", "open"])
def answer(request):
    return api.plan(CLOSED if request.param == "closed" else OPEN)


def test_the_page_needs_nothing_beside_itself(answer):
    page = write_answer_page(answer)
    assert page.startswith("<!doctype html>")
    assert not re.findall(r'\b(?:src|href|action)="', page)
    assert not re.search(r"<script|url\(|@import|https?://[^<\s]*\.(?:js|css|woff)", page)
    assert "color-scheme: light dark" in page
    assert page.count("<svg") >= 3  # the chart, memory, time


def test_every_plan_is_a_numbered_point_and_a_row(answer):
    page, shown = write_answer_page(answer), points(answer)
    assert sorted(int(p.label) for p in shown if p.label) == [p.rank for p in answer.plans]
    assert page.count('class="plan"') == len(answer.plans)
    assert all(f"<td>{plan.rank}</td>" in page for plan in answer.plans)


def test_the_front_is_what_nothing_beats(answer):
    shown = points(answer)
    is_open = answer.request.where.is_open  # cheaper is better; without money more bits are
    for one in shown:
        better = [
            p
            for p in shown
            if p.y >= one.y and (p.x <= one.x if is_open else p.x >= one.x) and (p.x, p.y) != (one.x, one.y)
        ]
        assert one.is_front == (not better)


def test_a_waterfall_ends_where_its_total_does():
    drawn = waterfall("t", [Bar(label="a", value=3, text="3"), Bar(label="b", value=1, text="1")], 4.0, 5.0, "5")
    boxes = [tuple(map(float, box)) for box in re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', drawn)]
    (first, wide), (second, narrow) = boxes
    assert second == pytest.approx(first + wide, abs=0.02)
    assert wide == pytest.approx(3 * narrow, rel=1e-3)
    limit = float(re.findall(r'<line x1="([\d.]+)" x2="[\d.]+" y1="0"', drawn)[0])
    assert limit - first == pytest.approx(1.25 * (second + narrow - first), rel=1e-3)


def test_nothing_known_draws_nothing():
    assert scatter("t", [Point(x=0, y=1, title="a")], "x", "y") == ""
    assert waterfall("t", [], 0.0) == ""


@given(st.floats(1e-3, 1e9), st.floats(1e-3, 1e9))
def test_points_lie_inside_the_frame(x, y):
    drawn = scatter("t", [Point(x=x, y=y, title="a"), Point(x=2 * x, y=3 * y, title="b")], "x", "y")
    for cx, cy in re.findall(r'cx="([\d.-]+)" cy="([\d.-]+)"', drawn):
        assert 74 <= float(cx) <= 700
        assert 16 <= float(cy) <= 334


def hostile(text: str) -> Answer:
    request = make_request("m", gpus=["rtx-4080"])
    made = make_estimate()
    model = replace(made.candidate.model, name=text)
    estimate = replace(made, candidate=replace(made.candidate, model=model, engine="llama.cpp"))
    plan = Plan(rank=1, request=request, estimate=estimate, kind=text, warnings=(text,), reasons=(text,))
    return Answer(
        request=replace(request, model=text), plans=(plan,), rejections=(), num_candidates=1, warnings=(text,)
    )


@given(st.text(max_size=30))
def test_no_name_becomes_markup(text):
    page = write_answer_page(hostile(f"<script>alert(1)</script>\"'&{text}"))
    assert "<script" not in page


@pytest.mark.parametrize("first", ["=", "+", "-", "@", "\t", "\r"])
def test_no_name_becomes_a_formula(first):
    """A model file may be called =HYPERLINK(…): a spreadsheet must take it for text."""
    text = write_sheet(hostile(f'{first}HYPERLINK("http://x","y")'))
    (row,) = csv.DictReader(io.StringIO(text, newline=""))
    for cell in row.values():
        assert not str(cell).startswith(("=", "+", "-", "@", "\t", "\r"))
    assert row["model"].startswith("'" + first)


def test_the_table_has_a_line_for_each_plan(answer):
    rows = list(csv.DictReader(io.StringIO(write_sheet(answer))))
    assert [int(row["rank"]) for row in rows] == [plan.rank for plan in answer.plans]
    first, estimate = rows[0], answer.plans[0].estimate
    assert float(first["tokens_per_s_best"]) == pytest.approx(estimate.performance.tokens_per_s.best, rel=1e-5)
    assert first["job_seconds_best"] == ""  # not known is empty, never 0
    assert first["command"].startswith("tonnage plan ")


def test_the_command_writes_both(tonnage, tmp_path):
    page, sheet = tmp_path / "a.html", tmp_path / "a.csv"
    got = tonnage("plan", "Qwen/Qwen3-8B", "--gpu", "rtx-4090", "--html", str(page), "--csv", str(sheet))
    assert got.code == 0
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert sheet.read_text(encoding="utf-8").startswith("rank,model,")


def test_one_thing_at_a_time_goes_to_standard_output(tonnage):
    words = ("plan", "Qwen/Qwen3-8B", "--gpu", "rtx-4090")
    assert tonnage(*words, "--csv", "-").out.startswith("rank,model,")
    assert tonnage(*words, "--html", "-").out.startswith("<!doctype html>")
    for both in (("--csv", "-", "--json"), ("--csv", "-", "--html", "-"), ("-o", "-", "--html", "-")):
        got = tonnage(*words, *both)
        assert got.code == 2
        assert got.out == "" or "error" in got.out


def test_where_nothing_fits_the_page_says_what_would():
    refused = api.plan(make_request("Qwen/Qwen3.5-27B", gpus=["rtx-4080"], pins={"precision.weights": "fp16"}))
    page = write_answer_page(refused)
    assert "what would make it fit" in page
    assert page.count("<code>tonnage plan ") >= 1 + len(refused.rejections[0].changes)


def test_the_page_speaks_chinese(tonnage):
    assert (
        "速度与权重位数"
        in tonnage("plan", "Qwen/Qwen3.5-35B-A3B", "--gpu", "rtx-4080", "--html", "-", "--lang", "zh").out
    )
