"""Metrics and alerts: names that no exporter has, thresholds that are never reached, windows too short to hold two samples."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from tonnage import datafiles
from tonnage.diagnose.lint.checks.types import Context, alike
from tonnage.diagnose.lint.seen import Seen, rules_of
from tonnage.diagnose.lint.types import Hit, Kind
from tonnage.diagnose.lint.yaml_text import Table, at

__all__ = ["blind_alerts", "expressions", "prometheus_config"]

_NAME: Final = re.compile(r"(?<![\w:{$\"'])((?:DCGM_[A-Z0-9_]+)|(?:(?:vllm|sglang):[a-z0-9_]+))")
_SUFFIX: Final = re.compile(r"_(?:total|bucket|sum|count|created)$")
_COMPARED: Final = re.compile(
    r"((?:DCGM_[A-Z0-9_]+)|(?:(?:vllm|sglang):[a-z0-9_]+))\s*(?:\{[^{}]{0,400}\})?\s*(>=|<=|==|>|<)\s*(-?\d{1,12}(?:\.\d{1,9})?)(?!\s*[*/+-])"
)
_NUMERIC: Final = re.compile(r"\b([a-zA-Z_:][\w:]{0,80}(?:grad_norm|loss)\w{0,40})\s*>=?\s*([\d.eE+]{1,20})")
_WINDOW: Final = re.compile(
    r"\b(rate|irate|increase|delta|deriv|changes|resets)\s*\([^()\[\]]{0,400}\[(\d{1,6})(ms|s|m|h|d)\]"
)
_SECONDS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_KEYS: Final = frozenset(
    (
        "global",
        "rule_files",
        "scrape_configs",
        "scrape_config_files",
        "alerting",
        "remote_write",
        "remote_read",
        "storage",
        "tracing",
        "runtime",
        "otlp",
    )
)  # fmt: skip  prometheus.io/docs, configuration


@cache
def _ranges() -> Mapping[str, Mapping[str, str]]:
    return {row["name"]: row for row in datafiles.rows("lint/metric_ranges.csv")}


def expressions(seen: Seen, context: Context) -> Iterator[Hit]:
    """Look at every expression of rule files and dashboards."""
    interval = _scrape_seconds(context)
    for expression, line, is_alert in _expressions(seen):
        yield from _names(expression, line, context)
        if is_alert:
            yield from _thresholds(expression, line)
        for function, number, unit in _WINDOW.findall(expression):
            window = int(number) * _SECONDS[unit]
            if interval is not None and window < 2 * interval:
                yield Hit(rule="window-too-short", line=line,
                          values={"function": function, "window": f"{number}{unit}", "interval": f"{interval:g}s"})  # fmt: skip


def blind_alerts(seen: Seen, context: Context) -> Iterator[Hit]:
    """Find thresholds on losses and norms that have no companion for NaN in the same file."""
    del context
    text = seen.document.text
    if re.search(r"nan|nonfinite|not_finite|isfinite", text, re.IGNORECASE):
        return
    for rule in rules_of(seen.tables):
        match = _NUMERIC.search(str(rule.get("expr", ""))) if "alert" in rule else None
        if match and not re.search(rf"{re.escape(match[1])}\s*!=\s*{re.escape(match[1])}", text):
            yield Hit(rule="alert-blind-to-nan", line=rule.lines["expr"], values={"name": match[1], "value": match[2]})


def _expressions(seen: Seen) -> Iterator[tuple[str, int, bool]]:
    if seen.kind is Kind.DASHBOARD:
        for table in seen.tables:
            for expression, line in _found(table, 0):
                yield expression, line, False
        return
    for rule in rules_of(seen.tables):
        if isinstance(rule.get("expr"), str):
            yield rule["expr"], rule.lines["expr"], "alert" in rule


def _found(value: Any, depth: int) -> Iterator[tuple[str, int]]:
    if depth > 40:
        return
    if isinstance(value, Table):
        for key, inner in value.items():
            if key == "expr" and isinstance(inner, str):
                yield inner, value.lines[key]
            else:
                yield from _found(inner, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            yield from _found(inner, depth + 1)


def _names(expression: str, line: int, context: Context) -> Iterator[Hit]:
    old = {r["name"]: r for r in datafiles.rows("lint/renamed.csv") if r["group"] == "metric"}
    names = context.known.names
    for name in dict.fromkeys(_NAME.findall(expression)):
        plain = _SUFFIX.sub("", name)
        row = old.get(name) or old.get(plain)
        if row is not None:
            yield Hit(
                rule="metric-gone", line=line, values={"name": name, "today": row["today"], "since": row["since"]}
            )
        elif name.startswith("DCGM_"):
            if name in names["dcgm_off"] and name not in names["dcgm_metric"]:
                yield Hit(rule="metric-not-exported", line=line, values={"name": name})
            elif name not in names["dcgm_metric"]:
                yield _unknown(
                    name, line, names["dcgm_metric"] | names["dcgm_off"], context.known.releases["dcgm_metric"]
                )
        else:
            group = f"{name.partition(':')[0]}_metric"
            known = names.get(group, frozenset())
            if known and not {name, plain, f"{plain}_total"} & known:
                yield _unknown(name, line, known, context.known.releases[group])


def _unknown(name: str, line: int, known: frozenset[str], release: str) -> Hit:
    near = alike(name, known)
    return Hit(rule="metric-unknown", line=line,
               values={"name": name, "release": release, "alike": f" ({', '.join(near)}?)" if near else ""})  # fmt: skip


def _thresholds(expression: str, line: int) -> Iterator[Hit]:
    """Find comparisons that are never true, or always, given what a metric can be."""
    for name, sign, text in _COMPARED.findall(expression):
        value = float(text)
        if name == "DCGM_FI_DEV_XID_ERRORS" and sign in (">", ">=") and value <= 1:
            yield Hit(rule="xid-gauge", line=line)
            continue
        row = _ranges().get(name)
        if row is None:
            continue
        low, high = float(row["low"]), float(row["high"])
        never = {">": value >= high, ">=": value > high, "<": value <= low, "<=": value < low,
                 "==": not low <= value <= high}[sign]  # fmt: skip
        if never:
            yield Hit(rule="alert-never-fires", line=line,
                      values={"name": name, "sign": sign, "value": text, "low": row["low"], "high": row["high"]})  # fmt: skip


def _scrape_seconds(context: Context) -> float | None:
    """Return the scrape interval that a Prometheus configuration among the files gives."""
    found = set[float]()
    for seen in context.seen:
        if seen.kind is Kind.PROMETHEUS:
            for table in seen.tables:
                text = str(at(table, "global.scrape_interval") or "1m")
                match = re.fullmatch(r"(\d{1,6})(ms|s|m|h|d)", text)
                if match:
                    found.add(int(match[1]) * _SECONDS[match[2]])
    return found.pop() if len(found) == 1 else None


def prometheus_config(seen: Seen, context: Context) -> Iterator[Hit]:
    """Find keys that Prometheus refuses, and a configuration that watches nothing."""
    del context
    for table in seen.tables:
        if not isinstance(table, Table):
            continue
        for key in table:
            if key not in _KEYS and (near := alike(key, set(_KEYS))):
                yield Hit(rule="prometheus-unknown-key", line=table.lines[key],
                          values={"name": key, "alike": ", ".join(near)})  # fmt: skip
        jobs = table.get("scrape_configs")
        for job in jobs if isinstance(jobs, list) else ():
            if isinstance(job, Table):
                yield from _job(job)


def _job(job: Table) -> Iterator[Hit]:
    for target, line in _targets(job):
        if re.match(r"https?://", target):
            yield Hit(rule="target-with-scheme", line=line, values={"target": target})


def _targets(job: Table) -> Iterator[tuple[str, int]]:
    for group in job.get("static_configs") or ():
        if isinstance(group, Table):
            for target in group.get("targets") or ():
                yield str(target), group.lines["targets"]
