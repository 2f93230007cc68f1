"""Alert rules: whole, in both languages, with the plan's numbers, and each with a cure."""

import re

import pytest
import yaml

from tonnage import api, datafiles
from tonnage.messages import choose_language
from tonnage.metric_names import METRICS
from tonnage.monitor.alerts import Planned, alert_rules, planned_numbers, rules_for, runbook_of
from tonnage.plan.request import make_request

EVERYTHING = Planned(
    communication_ratio=0.15, tokens_per_s=1000.0, save_seconds=1800.0, memory_ratio=0.9,
    bus_bandwidth_bytes_per_s=1e11, checkpoint_bytes=1e11, ttft_seconds=2.0, tpot_seconds=0.05, output_tokens_per_s=1e3,
)  # fmt: skip
ROWS = [row for name in ("training", "serving", "devices") for row in datafiles.table(f"alerts/{name}.toml")["rule"]]
TRAINING = "tonnage_(?:train|torch|run|checkpoint|process)_"


@pytest.fixture(scope="module")
def training():
    request = make_request(
        "meta-llama/Llama-3.1-8B",
        goal="finetune",
        finetune="full",
        gpus=["a100-80gb-sxm:8"],
        load={"tokens": "1000000000"},
    )
    return api.plan(request).plans[0]


@pytest.fixture(scope="module")
def serving():
    return api.plan(make_request("Qwen/Qwen3-8B", gpus=["rtx-4090"], limits={"engines": ("vllm",)})).plans[0]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_a_rule_is_whole(row):
    assert set(row) == {"id", "severity", "expr", "for", "summary", "wrong", "runbook", "fires", "quiet", "at"}
    assert re.fullmatch(r"Tonnage[A-Z]\w+", row["id"])
    assert row["severity"] in ("info", "warning", "critical")
    assert len(row["summary"]) == len(row["wrong"]) == 2
    assert row["fires"] != row["quiet"]
    minutes = re.fullmatch(r"(\d+)(m|h)", row["for"])
    assert minutes
    assert int(minutes[1]) * (60 if minutes[2] == "h" else 1) * 60 >= 2 * 15  # two scrapes at least


def test_ids_are_unique():
    assert len({row["id"] for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_rule_has_a_cure_in_both_languages(lang):
    choose_language(lang)
    try:
        rules = {rule.id: rule for kind in ("training", "serving") for rule in rules_for(kind, EVERYTHING)}
        assert set(rules) == {row["id"] for row in ROWS}
        assert [rule.id for rule in rules.values() if not runbook_of(rule)] == []
    finally:
        choose_language("en")


def test_training_rules_name_metrics_that_the_job_gives():
    known = {metric.name for metric in METRICS}
    for row in datafiles.table("alerts/training.toml")["rule"]:
        named = set(re.findall(rf"\b{TRAINING}\w+", row["expr"]))
        assert named, row["id"]
        assert named <= known, row["id"]


def test_serving_rules_name_what_is_recorded_of_every_engine():
    recorded = {row["name"] for row in datafiles.table("alerts/recording.toml")["record"]}
    for row in datafiles.table("alerts/serving.toml")["rule"]:
        assert set(re.findall(r"tonnage:[\w:]+", row["expr"])) <= recorded, row["id"]


def test_thresholds_are_the_plans_own(training, serving):
    text = str(alert_rules(training))
    rate = training.estimate.performance.tokens_per_s.best
    assert f"0.8 * {rate:.6g}" in text
    assert "${" not in text
    text = str(alert_rules(serving))
    assert "tonnage_train" not in text
    assert "vllm:num_requests_waiting" in text
    share = planned_numbers(serving).memory_ratio
    assert 0.5 < share < 1.0
    assert f"> {share:.6g}" in text


def test_a_rule_without_its_number_is_left_out(serving):
    ids = {rule.id for rule in rules_for("serving", planned_numbers(serving))}
    assert "TonnageNcclSlow" not in ids  # one device talks to nobody
    assert "TonnageDiskFillsUp" not in ids
    assert "TonnageTtftSlow" in ids


def test_a_bundle_carries_what_watches_it_only_when_asked(training):
    plain, watched = api.deploy(training), api.deploy(training, is_monitored=True)
    added = {file.path for file in watched.files} - {file.path for file in plain.files}
    assert added == {
        f"monitoring/{name}"
        for name in ("prometheus.yml", "rules.yml", "rules_test.yml", "alertmanager.yml", "alerts.md")
    }
    texts = {file.path: file.text for file in watched.files}
    for path in added:
        if path.endswith(".yml"):
            assert yaml.safe_load(texts[path])
    assert "## TonnageNotFinite" in texts["monitoring/alerts.md"]
