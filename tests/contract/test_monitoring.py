"""What watches a plan, held against Prometheus' and Alertmanager's own tools; each rule fires, and stays quiet."""

from __future__ import annotations

import subprocess

import pytest
from tests.contract.readers import tool
from tests.monitor.test_alerts import EVERYTHING

from tonnage import api
from tonnage.monitor.alerts import promtool_tests, recorded, rule_file, rules_for
from tonnage.plan.request import make_request
from tonnage.render.quote import to_yaml

pytestmark = pytest.mark.contract
RULES = {rule.id: rule for kind in ("training", "serving") for rule in rules_for(kind, EVERYTHING)}


def run(folder, *words):
    done = subprocess.run(
        [tool(words[0]), *words[1:]], check=False, cwd=folder, capture_output=True, text=True, timeout=120
    )
    return done.returncode, done.stdout + done.stderr


def write(folder, rules):
    records = [
        one
        for kind, engine in (("training", ""), ("serving", "vllm"), ("serving", "sglang"), ("serving", "llama.cpp"))
        for one in recorded(kind, engine)
    ]
    (folder / "rules.yml").write_text(to_yaml(rule_file(rules, records)), encoding="utf-8")
    (folder / "test.yml").write_text(to_yaml(promtool_tests(rules, ["rules.yml"])), encoding="utf-8")


def test_every_rule_fires_on_its_fault_and_stays_quiet_without(tmp_path):
    write(tmp_path, tuple(RULES.values()))
    for words in (("promtool", "check", "rules", "rules.yml"), ("promtool", "test", "rules", "test.yml")):
        code, said = run(tmp_path, *words)
        assert code == 0, said


@pytest.mark.parametrize("swapped", ["fires", "quiet"])
def test_a_rule_that_does_not_do_so_is_found(tmp_path, swapped):
    """Each rule with the other's series: not one of them may pass."""
    from dataclasses import replace

    rules = tuple(
        replace(rule, **{swapped: rule.quiet if swapped == "fires" else rule.fires}) for rule in RULES.values()
    )
    write(tmp_path, rules)
    code, said = run(tmp_path, "promtool", "test", "rules", "test.yml")
    assert code != 0
    assert said.count("exp:") == len(rules), said


@pytest.mark.parametrize(
    "request_",
    [
        make_request("Qwen/Qwen3-8B", gpus=["rtx-4090"]),
        make_request(
            "meta-llama/Llama-3.1-8B",
            goal="finetune",
            finetune="full",
            gpus=["a100-80gb-sxm:8"],
            load={"tokens": "1000000000"},
        ),
    ],
    ids=["serving", "training"],
)
def test_a_bundles_files_are_taken(tmp_path, request_):
    bundle = api.deploy(api.plan(request_).plans[0], is_monitored=True)
    for file in bundle.files:
        if file.path.startswith("monitoring/"):
            (tmp_path / file.path.removeprefix("monitoring/")).write_text(file.text, encoding="utf-8")
    for words in (
        ("promtool", "check", "config", "prometheus.yml"),
        ("promtool", "test", "rules", "rules_test.yml"),
        ("amtool", "check-config", "alertmanager.yml"),
    ):
        code, said = run(tmp_path, *words)
        assert code == 0, said
    (tmp_path / "alertmanager.yml").write_text("route: {receiver: nobody}\n", encoding="utf-8")
    assert run(tmp_path, "amtool", "check-config", "alertmanager.yml")[0] != 0
