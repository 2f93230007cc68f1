"""A report as an object, as lines, and as a page with charts; a load test's file as values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import Any

from tonnage.errors import BadFileError
from tonnage.estimate.types import Interval
from tonnage.messages import say
from tonnage.plan.charts import Line, lines
from tonnage.plan.page import framed
from tonnage.units import format_bytes, format_seconds
from tonnage.verify.types import Check, Part, Report, ServingSeen, TrainingSeen, Verdict

__all__ = ["bench_of", "report_object", "report_page", "shown"]

LARGEST_BYTES = 512 << 20
_MOST_POINTS = 2000


def bench_of(text: str, name: str = "bench.json") -> ServingSeen:
    """Read what `tonnage bench --save` or `--json` wrote.

    Parameters
    ----------
    text : str
        The file's text.
    name : str
        Its name, for messages and as the evidence.

    Returns
    -------
    ServingSeen
        The values.

    Raises
    ------
    BadFileError
        It is no result of a load test.
    """
    fix = "give the file that tonnage bench --save wrote, or a run folder"
    try:
        table = json.loads(text)
        times = {what: table[f"{what}_seconds"] for what in ("ttft", "tpot", "e2e")}
        number, good = int(table["requests"]), int(table.get("ok", table["requests"] - sum(table["errors"].values())))
        return ServingSeen(
            evidence=name,
            num_requests=number,
            num_ok=good,
            ttft_p99_seconds=_number(times["ttft"].get("p99")),
            tpot_p99_seconds=_number(times["tpot"].get("p99")),
            e2e_p99_seconds=_number(times["e2e"].get("p99")),
            ttft_mean_seconds=_number(times["ttft"].get("mean")),
            tpot_mean_seconds=_number(times["tpot"].get("mean")),
            has_enough_for_p99="p99" not in table.get("too_few_samples_for", ()),
            kept_ratio=_number(table.get("kept_ratio")),
            requests_per_s=_number(table["qps"]),
            output_tokens_per_s=_number(table["output_tokens_per_s"]),
            is_client_limited=bool(table.get("client", {}).get("is_the_limit")),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadFileError(f"is no result of a load test: {error}"[:160], where=name, fix=fix) from None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def report_object(report: Report) -> dict[str, Any]:
    """Return the object that `tonnage verify --json` prints."""
    return {
        "kind": report.kind,
        "name": report.name,
        "passed": report.is_passed,
        "checks": [
            {
                "name": one.name,
                "part": str(one.part),
                "limit": _plain(one.limit),
                "origin": one.origin or None,
                "measured": _plain(one.measured),
                "predicted": _interval(one.predicted),
                "verdict": str(one.verdict),
                "required": one.is_required,
                "unit": one.unit or None,
                "evidence": one.evidence,
                "sentence": sentence(one),
            }
            for one in report.checks
        ],
    }


def _plain(value: float | None) -> float | str | None:
    """Return a number that JSON can hold: what is not finite as a word."""
    return value if value is None or abs(value) < float("inf") else str(value)


def _interval(interval: Interval | None) -> dict[str, float] | None:
    return None if interval is None else {"best": interval.best, "low": interval.low, "high": interval.high}


def shown(value: float | None, unit: str) -> str:
    """Return a number with its unit, as people read it."""
    if value is None:
        return "-"
    if not abs(value) < float("inf"):
        return str(value)
    if unit == "bytes":
        return format_bytes(value)
    if unit == "seconds":
        return format_seconds(value) if value > 0 else "0 s"
    if unit == "ratio":
        return f"{value:.1%}" if abs(value) >= 0.001 or value == 0 else f"{value:.2g}"
    words = {"tokens_per_s": " tokens/s", "celsius": " °C", "watts": " W", "usd": " USD"}
    return f"{value:,.4g}{words.get(unit, '')}"


def sentence(check: Check) -> str:
    """Return what a check found in a plain sentence."""
    values = {
        "what": say(f"verify.{check.name}"),
        "measured": shown(check.measured, check.unit),
        "limit": shown(check.limit, check.unit),
    }
    if check.part is Part.PREDICTION:
        if check.verdict is Verdict.NOT_MEASURED or check.predicted is None or check.measured is None:
            return say("verify.said_unmeasured", **values)
        best = check.predicted.best
        off = (best - check.measured) / check.measured if check.measured else 0.0
        kind = "inside" if check.verdict is Verdict.PASS else "outside"
        return say(f"verify.said_{kind}", **values, predicted=shown(best, check.unit), off=f"{off:+.1%}")
    return say(f"verify.said_{'unmeasured' if check.verdict is Verdict.NOT_MEASURED else str(check.verdict)}", **values)


def report_page(report: Report, seen: TrainingSeen | ServingSeen) -> str:
    """Return the report as one page that needs nothing beside itself.

    Parameters
    ----------
    report : Report
        The checks.
    seen : TrainingSeen or ServingSeen
        What they were made of, for the charts.

    Returns
    -------
    str
        HTML; every text is escaped.
    """
    title = say("verify.title", name=report.name, kind=say(f"verify.kind_{report.kind}"))
    head = f"<h1>{escape(title)}</h1>\n<p><strong>{escape(verdict_text(report))}</strong></p>"
    parts = []
    for part in Part:
        checks = [one for one in report.checks if one.part is part]
        if checks:
            rows = "".join(_row(one) for one in checks)
            parts.append(f"<h2>{escape(say(f'verify.part_{part}'))}</h2>\n<table>{rows}</table>")
    charts = _charts(seen) if isinstance(seen, TrainingSeen) else []
    return framed(title, "\n".join((head, *charts, *parts)))


def verdict_text(report: Report) -> str:
    """Return the verdict in a sentence."""
    failed = sum(one.verdict is Verdict.FAIL and one.part is not Part.PREDICTION for one in report.checks)
    missing = sum(one.verdict is Verdict.NOT_MEASURED and one.is_required for one in report.checks)
    passed = sum(one.verdict is Verdict.PASS and one.part is not Part.PREDICTION for one in report.checks)
    return say(f"verify.{'accepted' if report.is_passed else 'refused'}", passed=passed, failed=failed, missing=missing)


def _row(check: Check) -> str:
    mark = {Verdict.PASS: "✓", Verdict.FAIL: "✗", Verdict.NOT_MEASURED: "–"}[check.verdict]
    origin = f"{shown(check.limit, check.unit)} ({check.origin})" if check.limit is not None else ""
    cells = (mark, say(f"verify.{check.name}"), sentence(check), origin, check.evidence)
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"


def _charts(seen: TrainingSeen) -> list[str]:
    found = []
    for name, values in (("losses", seen.losses), ("grad_norms", seen.grad_norms), ("step_seconds", seen.step_seconds)):
        points = [
            (float(step), value)
            for step, value in zip(seen.steps, values, strict=False)
            if value is not None and abs(value) < float("inf")
        ]
        if len(points) > 1:
            label = say(f"verify.chart_{name}")
            found.append(lines(label, [Line(label=label, points=tuple(_thin(points)))], say("verify.axis_step"), label))
    return found


def _thin(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    return points if len(points) <= _MOST_POINTS else [*points[:: len(points) // _MOST_POINTS + 1], points[-1]]
