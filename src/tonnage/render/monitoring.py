"""The files that watch a plan: Prometheus' and Alertmanager's configuration, the rules with the plan's numbers."""

from __future__ import annotations

from tonnage.messages import say
from tonnage.monitor import alerts
from tonnage.plan.types import Plan
from tonnage.render.quote import to_yaml
from tonnage.render.types import BundleFile, Service
from tonnage.workload.types import Serving

__all__ = ["EXPORTER_PORT", "monitoring_files"]

EXPORTER_PORT = 9460  # of `tonnage watch --listen`
_FOLDER = "monitoring"


def monitoring_files(plan: Plan, service: Service) -> tuple[BundleFile, ...]:
    """Return what Prometheus and Alertmanager read, and a page on every alert.

    Parameters
    ----------
    plan : Plan
        Whose predictions are the thresholds.
    service : Service
        What runs, and where its metrics are.

    Returns
    -------
    tuple of BundleFile
        Files in a folder of their own.
    """
    kind = "serving" if isinstance(plan.estimate.candidate.workload, Serving) else "training"
    rules = alerts.rules_for(kind, alerts.planned_numbers(plan))
    targets = {"tonnage": (f"127.0.0.1:{EXPORTER_PORT}",)}
    if service.probe is not None and service.probe.metrics_path is not None:
        targets["engine"] = (f"127.0.0.1:{service.probe.port}",)
    texts = (
        ("prometheus.yml", to_yaml(alerts.scrape_config(targets))),
        ("rules.yml", to_yaml(alerts.alert_rules(plan))),
        ("rules_test.yml", to_yaml(alerts.promtool_tests(rules, ["rules.yml"]))),
        ("alertmanager.yml", to_yaml(alerts.routing_config())),
        ("alerts.md", page(rules)),
    )
    return tuple(
        BundleFile(path=f"{_FOLDER}/{name}", text=text, purpose=say(f"monitoring.{name.partition('.')[0]}"))
        for name, text in texts
    )


def page(rules: tuple[alerts.Rule, ...]) -> str:
    """Return what each alert means, what would make it wrong, and what to do.

    Parameters
    ----------
    rules : tuple of Rule
        The alerts.

    Returns
    -------
    str
        Markdown.
    """
    lines = [f"# {say('monitoring.title')}", ""]
    for rule in rules:
        lines += [f"## {rule.id}", "", f"{rule.summary} ({rule.severity}, {rule.for_}).", ""]
        lines += [f"    {rule.expr}", "", f"{say('monitoring.wrong')}: {rule.wrong}", ""]
        lines += [f"{number}. {cure}" for number, cure in enumerate(alerts.runbook_of(rule), 1)]
        lines.append("")
    return "\n".join(lines)
