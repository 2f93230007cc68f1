"""Statistics of predictions beside measurements: errors, coverage of intervals, and their breakdowns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from tonnage.calibrate.types import Scored

BREAKDOWNS: Final[dict[str, Callable[[Scored], str]]] = {
    "source": lambda s: s.source,
    "framework": lambda s: s.framework,
    "gpu": lambda s: s.gpu,
    "kind": lambda s: s.kind,
    "trust": lambda s: s.trust,
}
HEADLINE_TRUST: Final = "AB"
_POOL: Final = "kv_cache_gib"
_TOO_MUCH_GIB: Final = 0.3


def _grouped(rows: Sequence[Scored]) -> list[list[Scored]]:
    groups: dict[str, list[Scored]] = {}
    for row in rows:
        groups.setdefault(row.group or f"\0{row.id}", []).append(row)
    return list(groups.values())


def error_statistics(rows: Sequence[Scored]) -> dict[str, Any]:
    """Return the statistics of one metric; rows of one group are averaged before medians are taken."""
    errors, signed, inside, widths = [], [], [], []
    for group in _grouped([r for r in rows if r.ape is not None]):
        errors.append(float(np.mean([r.ape for r in group if r.ape is not None])))
        signed.append(float(np.mean([float(r.predicted or 0) / r.measured - 1 for r in group])))
        known = [r for r in group if r.is_inside is not None]
        if known:
            inside.append(float(np.mean([bool(r.is_inside) for r in known])))
            widths.append(float(np.mean([_relative_width(r) for r in known])))
    return {
        "n": len(rows),
        "covered": sum(r.predicted is not None for r in rows),
        "median_ape": _quantile(errors, 0.5),
        "p90_ape": _quantile(errors, 0.9),
        "mean_ape": float(np.mean(errors)) if errors else None,
        "bias": _quantile(signed, 0.5),
        "interval_coverage": float(np.mean(inside)) if inside else None,
        "relative_width": _quantile(widths, 0.5),
    }


def _relative_width(row: Scored) -> float:
    assert row.low is not None
    assert row.high is not None
    return (row.high - row.low) / max(float(row.predicted or 0), 1e-30)


def _quantile(values: Sequence[float], at: float) -> float | None:
    return float(np.quantile(values, at)) if values else None


def oom_statistics(rows: Sequence[Scored]) -> dict[str, Any]:
    """Return how well "does not fit" is told from "fits"; a refused row counts as wrong."""
    failing = [r for r in rows if r.measured]
    fitting = [r for r in rows if not r.measured]
    caught = sum(r.predicted is True for r in failing)
    passed = sum(r.predicted is False for r in fitting)
    return {
        "n": len(rows),
        "covered": sum(r.predicted is not None for r in rows),
        "num_oom": len(failing),
        "balanced_accuracy": (caught / len(failing) + passed / len(fitting)) / 2 if failing and fitting else None,
        "false_fit": 1 - caught / len(failing) if failing else None,
        "false_oom": 1 - passed / len(fitting) if fitting else None,
        "always_fits": {"balanced_accuracy": 0.5, "false_fit": 1.0, "false_oom": 0.0} if failing and fitting else None,
    }


def metric_statistics(metric: str, rows: Sequence[Scored]) -> dict[str, Any]:
    """Return the statistics of one metric's rows; `oom` over trust A and B only."""
    if metric == "oom":
        return oom_statistics([r for r in rows if r.trust in HEADLINE_TRUST])
    found = error_statistics(rows)
    return {**found, "optimistic_ratio": _optimistic(rows)} if metric == _POOL else found


def _optimistic(rows: Sequence[Scored]) -> float | None:
    """Return the share of pools told larger than they are by more than a request or two would hide."""
    known = [r for r in rows if r.predicted is not None]
    return sum(float(r.predicted or 0) - r.measured > _TOO_MUCH_GIB for r in known) / len(known) if known else None


def statistics(scored: Iterable[Scored]) -> dict[str, dict[str, Any]]:
    """Return for each metric its statistics and the same broken down by source, framework, GPU, kind and trust."""
    by_metric: dict[str, list[Scored]] = {}
    for row in scored:
        by_metric.setdefault(row.metric, []).append(row)
    result = {}
    for metric, rows in sorted(by_metric.items()):
        by: dict[str, dict[str, Any]] = {}
        for name, key in BREAKDOWNS.items():
            parts: dict[str, list[Scored]] = {}
            for row in rows:
                parts.setdefault(key(row) or "unknown", []).append(row)
            by[name] = {value: metric_statistics(metric, part) for value, part in sorted(parts.items())}
        by["trust"]["A+B"] = metric_statistics(metric, [r for r in rows if r.trust in HEADLINE_TRUST])
        result[metric] = {**metric_statistics(metric, rows), "by": by}
    return result


def row_object(row: Scored) -> dict[str, Any]:
    """Return the JSON object of one row."""
    if row.predicted is None:
        return {"id": row.id, "metric": row.metric, "refused": row.refused or "not predicted"}
    base = {"id": row.id, "metric": row.metric, "measured": row.measured, "predicted": row.predicted}
    if row.metric == "oom":
        return base
    return {**base, "low": row.low, "high": row.high, "ape": row.ape}


def looked_up(metrics: Mapping[str, Any], path: str) -> float | None:
    """Return a statistic by its path, as `peak_mem_gib/trust=A/median_ape` or `oom/false_fit`; None if there is none."""
    metric, *middle, statistic = path.split("/")
    node: Any = metrics.get(metric)
    for step in middle:
        name, _, value = step.partition("=")
        node = (node or {}).get("by", {}).get(name, {}).get(value)
    return None if node is None else node.get(statistic)


def failed_bounds(metrics: Mapping[str, Any], bounds: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return one line for each bound that is not met or whose statistic is missing."""
    failures = []
    for bound in bounds:
        value = looked_up(metrics, bound["path"])
        if value is None:
            failures.append(f"{bound['path']}: no such statistic")
        elif "at_most" in bound and value > bound["at_most"]:
            failures.append(f"{bound['path']}: {value:.4g} is above {bound['at_most']:g}")
        elif "at_least" in bound and value < bound["at_least"]:
            failures.append(f"{bound['path']}: {value:.4g} is below {bound['at_least']:g}")
    return failures
