"""An explanation accounts for every byte and second; its page needs nothing beside itself and trusts no text."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.plan.nouns import make_estimate

from tonnage import api
from tonnage.plan.explain import explain, explanation_object, meaning_of
from tonnage.plan.page import write_page
from tonnage.plan.request import make_request
from tonnage.plan.types import Plan

REQUESTS = {
    "serve": make_request("Qwen/Qwen3.5-35B-A3B", gpus=["rtx-4080"]),
    "train": make_request(
        "Qwen/Qwen3-0.6B", goal="finetune", finetune="full", gpus=["rtx-4090:2"], load={"tokens": "1B"}
    ),
}


@pytest.fixture(scope="module", params=REQUESTS)
def plan(request):
    return api.plan(REQUESTS[request.param]).plans[0]


def test_the_items_add_up_to_their_part(plan):
    for part in explain(plan).parts:
        if part.total is not None:
            assert sum(item.value for item in part.items) == pytest.approx(part.total.best, rel=1e-6), part.id


def test_every_byte_has_a_formula_and_every_formula_a_meaning(plan):
    for part in explain(plan).parts:
        if part.id in ("device", "host", "step"):
            for item in part.items:
                assert item.formula, item.name
                assert item.meaning, item.formula
                assert item.source, item.formula


def test_the_object_carries_the_plan(plan):
    found = explanation_object(explain(plan))
    assert found["plan"]["engine"] == plan.estimate.candidate.engine
    assert {part["id"] for part in found["parts"]} >= {"device", "step", "performance"}


def test_the_page_needs_nothing_beside_itself(plan):
    page = write_page(explain(plan))
    assert page.startswith("<!doctype html>")
    for attribute, address in re.findall(r'\b(src|href|action)="([^"]*)"', page):
        pytest.fail(f"{attribute} points at {address}")
    assert "<script" not in page
    assert "url(" not in page
    assert "default-src 'none'" in page


@given(st.text(max_size=40))
def test_no_text_of_a_plan_becomes_markup(text):
    hostile = f"<script>alert(1)</script>\"'&{text}"
    made = make_estimate()
    pools = tuple(replace(pool, name=hostile, detail=hostile) for pool in made.footprint.pools)
    estimate = replace(made, footprint=replace(made.footprint, pools=pools))
    request = make_request("m", gpus=["rtx-4080"])
    page = write_page(explain(Plan(rank=1, request=request, estimate=estimate, kind=hostile, warnings=(hostile,))))
    assert "<script" not in page


@given(st.text(max_size=60))
def test_a_formula_name_is_only_looked_up(text):
    assert isinstance(meaning_of(text), tuple)


@pytest.mark.parametrize(
    "name", ["os.system", "tonnage.cli.main", "..cli", "compose_serving.__builtins__", "tonnage.estimate"]
)
def test_names_outside_the_formulae_mean_nothing(name):
    assert meaning_of(name)[0] == "" or name == "tonnage.estimate"
