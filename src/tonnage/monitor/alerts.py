"""Prometheus' rules for a plan: what is recorded, and what alerts, with the plan's own numbers as thresholds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from tonnage import datafiles
from tonnage.messages import LANGUAGES, language
from tonnage.nouns import noun
from tonnage.plan.types import Plan
from tonnage.units import Bytes, BytesPerS, Ratio, Seconds, TokensPerS
from tonnage.workload.types import Serving

__all__ = [
    "Rule",
    "alert_rules",
    "planned_numbers",
    "promtool_tests",
    "routing_config",
    "rules_for",
    "runbook_of",
    "scrape_config",
]

_HOLE: Final = re.compile(r"\$\{(\w+)(?:\*([\d.]+))?\}")  # a number of the plan, or a multiple of it
_DEVICES: Final = "devices"
SAVE_SECONDS: Final = 1800.0  # assumed: how often a job saves where nobody says
TRAINING_MEMORY_RATIO: Final = 0.90
EVERY_SECONDS: Final = 15  # between two evaluations


@noun
class Rule:
    """One alert, its thresholds filled in."""

    id: str
    group: str
    severity: str
    expr: str
    for_: str
    summary: str
    wrong: str  # evidence that would make it wrong
    runbook: str
    fires: tuple[str, ...]
    quiet: tuple[str, ...]
    at: str


@noun
class Planned:
    """Numbers of a plan that rules are held against; what it does not have is None."""

    communication_ratio: Ratio | None = None
    tokens_per_s: TokensPerS | None = None
    save_seconds: Seconds | None = None
    memory_ratio: Ratio | None = None
    bus_bandwidth_bytes_per_s: BytesPerS | None = None
    checkpoint_bytes: Bytes | None = None
    ttft_seconds: Seconds | None = None
    tpot_seconds: Seconds | None = None
    output_tokens_per_s: TokensPerS | None = None


def planned_numbers(plan: Plan, save_seconds: Seconds = SAVE_SECONDS) -> Planned:
    """Return the numbers of a plan that alerts are held against.

    Parameters
    ----------
    plan : Plan
        Any plan.
    save_seconds : numeric
        Time between two checkpoints. [s]

    Returns
    -------
    Planned
        The numbers.

    Notes
    -----
    Derived. A server takes the share of memory that it was given: its limit is that share and a fiftieth; a training
    job's is nine tenths. Latency limits are those asked for, else the plan's 99th percentiles at their upper end.
    """
    estimate = plan.estimate
    candidate, performance = estimate.candidate, estimate.performance
    link = candidate.cluster.inter_link if candidate.cluster.num_nodes > 1 else candidate.cluster.node.intra_link
    bus = None if link is None or candidate.cluster.num_devices < 2 else link.bytes_per_s * link.achieved_ratio
    device = candidate.cluster.node.devices[0] if candidate.cluster.node.devices else None
    rate = None if performance.tokens_per_s is None else performance.tokens_per_s.best
    if isinstance(candidate.workload, Serving):
        taken = estimate.footprint.allocated_bytes or estimate.footprint.total.high
        ttft, tpot = performance.ttft_p99_seconds, performance.tpot_p99_seconds
        return Planned(
            memory_ratio=None if device is None else min(taken / device.memory_bytes + 0.02, 0.999),
            bus_bandwidth_bytes_per_s=bus,
            ttft_seconds=candidate.workload.ttft_limit_seconds or (None if ttft is None else ttft.high),
            tpot_seconds=candidate.workload.tpot_limit_seconds or (None if tpot is None else tpot.high),
            output_tokens_per_s=rate,
        )
    whole = estimate.step_time.total.best
    waits = sum(part.seconds for part in estimate.step_time.parts if "communication" in part.name)
    return Planned(
        communication_ratio=waits / whole if whole > 0 else None,
        tokens_per_s=rate,
        save_seconds=save_seconds,
        memory_ratio=TRAINING_MEMORY_RATIO,
        bus_bandwidth_bytes_per_s=bus,
        checkpoint_bytes=estimate.storage.checkpoints_bytes,
    )


def rules_for(kind: str, planned: Planned) -> tuple[Rule, ...]:
    """Return the alerts of a kind of job, with a plan's numbers.

    Parameters
    ----------
    kind : str
        training or serving.
    planned : Planned
        The numbers; a rule whose number is not there is left out.

    Returns
    -------
    tuple of Rule
        The rules, the kind's own first.
    """
    found = []
    for group in (kind, _DEVICES):
        for row in datafiles.table(f"alerts/{group}.toml")["rule"]:
            expr = _filled(row["expr"], planned)
            if expr is not None:
                found.append(_rule(row, group, expr, planned))
    return tuple(found)


def _rule(row: Mapping[str, Any], group: str, expr: str, planned: Planned) -> Rule:
    at = LANGUAGES.index(language())
    return Rule(
        id=row["id"],
        group=group,
        severity=row["severity"],
        expr=expr,
        for_=row["for"],
        summary=row["summary"][at],
        wrong=row["wrong"][at],
        runbook=row["runbook"],
        fires=tuple(_filled(one, planned) or one for one in row["fires"]),
        quiet=tuple(_filled(one, planned) or one for one in row["quiet"]),
        at=row["at"],
    )


def _filled(expr: str, planned: Planned) -> str | None:
    """Put the plan's numbers in; None where one is not known."""
    values = {name: getattr(planned, name) for name, _ in _HOLE.findall(expr)}
    if any(value is None for value in values.values()):
        return None
    return _HOLE.sub(lambda match: f"{values[match[1]] * float(match[2] or 1):.6g}", expr)


def recorded(kind: str, engine: str) -> list[dict[str, str]]:
    """Return what is recorded for a job: the engine's names as ours.

    Parameters
    ----------
    kind : str
        training or serving.
    engine : str
        The engine that gives the metrics.

    Returns
    -------
    list of dict
        Rules of Prometheus.
    """
    wanted = kind if kind == "training" else engine
    rows = datafiles.table("alerts/recording.toml")["record"]
    return [{"record": row["name"], "expr": row["expr"]} for row in rows if row["of"] == wanted]


def alert_rules(plan: Plan) -> dict[str, Any]:
    """Return the rule file of a plan.

    Parameters
    ----------
    plan : Plan
        Any plan.

    Returns
    -------
    dict
        Groups of recording and alert rules, as Prometheus reads them.

    References
    ----------
    .. [1] prometheus.io/docs/prometheus/latest/configuration/recording_rules and alerting_rules.
    """
    kind = "serving" if isinstance(plan.estimate.candidate.workload, Serving) else "training"
    return rule_file(rules_for(kind, planned_numbers(plan)), recorded(kind, plan.estimate.candidate.engine))


def rule_file(rules: tuple[Rule, ...], records: list[dict[str, str]]) -> dict[str, Any]:
    """Return rules in the form of Prometheus' file.

    Parameters
    ----------
    rules : tuple of Rule
        The alerts.
    records : list of dict
        What is recorded.

    Returns
    -------
    dict
        The file's content.
    """
    groups: list[dict[str, Any]] = []
    if records:
        groups.append({"name": "tonnage-recorded", "interval": f"{EVERY_SECONDS}s", "rules": records})
    groups += [
        {
            "name": f"tonnage-{group}",
            "interval": f"{EVERY_SECONDS}s",
            "rules": [_alert(rule) for rule in rules if rule.group == group],
        }
        for group in dict.fromkeys(rule.group for rule in rules)
    ]
    return {"groups": groups}


def _alert(rule: Rule) -> dict[str, Any]:
    return {
        "alert": rule.id,
        "expr": rule.expr,
        "for": rule.for_,
        "labels": {"severity": rule.severity},
        "annotations": {
            "summary": rule.summary,
            "wrong_if": rule.wrong,
            "runbook": f"alerts.md#{rule.id.lower()}",
            "diagnosis": rule.runbook,
        },
    }


def runbook_of(rule: Rule) -> tuple[str, ...]:
    """Return what to do about an alert, first things first.

    Parameters
    ----------
    rule : Rule
        The alert.

    Returns
    -------
    tuple of str
        Cures of the symptom that it names, or of the runbook that stands for one.
    """
    at = LANGUAGES.index(language())
    for row in datafiles.table("alerts/runbooks.toml")["runbook"]:
        if row["id"] == rule.runbook:
            return (row["todo"][at],)
    for name in datafiles.names("symptoms", ".toml"):
        for row in datafiles.table(f"symptoms/{name}.toml").get("symptom", ()):
            if row["id"] == rule.runbook:
                return tuple(cure[at] for cure in row["cures"])
    return ()


def promtool_tests(rules: tuple[Rule, ...], rule_files: list[str]) -> dict[str, Any]:
    """Return promtool's unit tests: each rule fires on one load of series, and stays quiet on another.

    Parameters
    ----------
    rules : tuple of Rule
        The alerts.
    rule_files : list of str
        The files that hold them.

    Returns
    -------
    dict
        The content of a test file.

    References
    ----------
    .. [1] prometheus.io/docs/prometheus/latest/configuration/unit_testing_rules.
    """
    tests = []
    for rule in rules:
        for name, series, number in (("fires", rule.fires, 1), ("quiet", rule.quiet, 0)):
            firing = f'count(ALERTS{{alertname="{rule.id}",alertstate="firing"}} > 0) > bool 0 or vector(0)'
            tests.append(
                {
                    "name": f"{rule.id} {name}",
                    "interval": "1m",
                    "input_series": [_series(one) for one in series],
                    "promql_expr_test": [
                        {"expr": firing, "eval_time": rule.at, "exp_samples": [{"labels": "{}", "value": number}]}
                    ],
                }
            )
    return {"rule_files": rule_files, "evaluation_interval": "1m", "tests": tests}


def _series(text: str) -> dict[str, str]:
    cut = text.index("} ") + 1 if "{" in text else text.index(" ")
    return {"series": text[:cut], "values": text[cut:].strip()}


def scrape_config(targets: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """Return Prometheus' own configuration: where the metrics are, which rules, who is told.

    Parameters
    ----------
    targets : mapping
        Addresses (host:port) by job: the exporter, the engine's own page.

    Returns
    -------
    dict
        The content of prometheus.yml; everything on loopback.

    References
    ----------
    .. [1] prometheus.io/docs/prometheus/latest/configuration/configuration.
    """
    return {
        "global": {"scrape_interval": f"{EVERY_SECONDS}s", "evaluation_interval": f"{EVERY_SECONDS}s"},
        "rule_files": ["rules.yml"],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": ["127.0.0.1:9093"]}]}]},
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": list(addresses)}]} for job, addresses in targets.items()
        ],
    }


def routing_config() -> dict[str, Any]:
    """Return Alertmanager's configuration: who is told what, how often.

    Returns
    -------
    dict
        The content of alertmanager.yml. A webhook on loopback stands for where a team is reached; a critical alert
        silences the lesser ones of the same run or device.

    References
    ----------
    .. [1] prometheus.io/docs/alerting/latest/configuration.
    """
    return {
        "route": {
            "receiver": "team",
            "group_by": ["alertname", "run", "instance"],
            "group_wait": "30s",
            "group_interval": "5m",
            "repeat_interval": "4h",
            "routes": [{"receiver": "team", "matchers": ['severity="info"'], "repeat_interval": "24h"}],
        },
        "receivers": [
            {"name": "team", "webhook_configs": [{"url": "http://127.0.0.1:9095/alerts", "send_resolved": True}]}
        ],
        "inhibit_rules": [
            {
                "source_matchers": ['severity="critical"'],
                "target_matchers": ['severity=~"warning|info"'],
                "equal": ["run", "instance", "gpu"],
            }
        ],
    }
