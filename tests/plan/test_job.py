"""Time, energy and money of a whole job, by hand from the plan's own figures and the stated assumptions."""

from __future__ import annotations

import json
import shlex

import pytest
from tests.conftest import call_tonnage

from tonnage.estimate.cost.assumptions import stated

WORDS = "Qwen/Qwen3-8B --finetune qlora --gpu rtx-4090 --tokens 100M"


def plan(words):
    return json.loads(call_tonnage("plan", *shlex.split(words), "--json", "--quiet").out)["plans"][0]


def test_a_job_by_hand():
    first = plan(WORDS)
    job, cost = first["job"], first["cost"]
    assert job["num_tokens"] == 100_000_000
    assert job["work_seconds"]["best"] == pytest.approx(1e8 / first["performance"]["tokens_per_s"]["best"], rel=1e-9)
    assert job["work_seconds"]["best"] <= job["held_seconds"]["best"] <= 1.05 * job["work_seconds"]["best"]
    watts = 450 * stated().best("draw_ratio", "training") + stated().best("host_power", "desktop")
    joules = watts * stated().best("pue", "home") * job["held_seconds"]["best"]
    assert job["joules"]["best"] == pytest.approx(joules, rel=1e-6)
    assert job["electricity_usd"]["best"] == pytest.approx(joules * stated().best("tariff", "home"), rel=1e-6)
    assert job["rent_usd"] == cost["usd_total"]
    hours = job["held_seconds"]["best"] / 3600
    assert job["rent_usd"]["best"] == pytest.approx(cost["usd_per_hour"]["best"] * hours, rel=1e-6)
    assert job["own_usd"]["best"] == pytest.approx(first["money"]["own"]["usd_per_hour"]["best"] * hours, rel=1e-6)


def test_a_tariff_is_the_person_s():
    dear = plan(f"{WORDS} --assume tariff=1.0")["job"]["electricity_usd"]["best"]
    assert dear == pytest.approx(plan(WORDS)["job"]["joules"]["best"] / 3.6e6, rel=1e-6)


def test_it_is_in_the_text_and_explained(tmp_path):
    path = tmp_path / "plan.toml"
    said = call_tonnage("plan", *shlex.split(WORDS), "-o", str(path))
    assert "100.0 M tokens take" in " ".join(said.out.split())
    parts = json.loads(call_tonnage("explain", str(path), "--json").out)["parts"]
    items = {item["name"]: item for part in parts if part["id"] == "job" for item in part["items"]}
    assert set(items) == {"work_seconds", "held_seconds", "joules", "electricity_usd", "rent_usd", "own_usd"}
    assert items["joules"]["formula"] == "power.job_joules"
    assert all(items[name]["source"] for name in items if name != "work_seconds")


def test_without_tokens_there_is_no_job():
    assert plan("Qwen/Qwen3-8B --finetune qlora --gpu rtx-4090")["job"] is None
