"""Why a run or a server is slow, by its own figures: steps of a run folder, a load test, an engine's /metrics page.

The shares from which something is called the reason are this project's own: no public rule sets them. Each answer
gives the share that was measured.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any, Final

from tonnage.diagnose.types import Hit
from tonnage.units import format_seconds

_DATA_SHARE: Final = 0.2
_COMMUNICATION_SHARE: Final = 0.4
_STRAGGLER: Final = 1.15  # of the median of all ranks
_SPREAD: Final = 2.0  # the slowest twentieth against the median
_QUEUE_SHARE: Final = 0.3
_FEWEST: Final = 20  # steps or requests
_LARGEST_LINES: Final = 200_000
_SUM: Final = re.compile(
    r"^(?:vllm:request_(queue|prefill|decode)_time|sglang:(queue)_time)_seconds_(sum|count)(?:\{[^}]{0,400}\})? ([\d.eE+]+)",
    re.MULTILINE,
)


def steps_of(text: str) -> list[dict[str, float]]:
    """Return the steps of a metrics file, one JSON object a line; what is no number is left out."""
    rows = []
    for line in text.split("\n", _LARGEST_LINES)[:_LARGEST_LINES]:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            rows.append({k: float(v) for k, v in row.items() if isinstance(v, int | float) and not isinstance(v, bool)})
    return [row for row in rows if row.get("step_seconds", 0.0) > 0]


def waits_of(page: str) -> dict[str, float]:
    """Return the mean seconds that requests spent in the queue, in prefill and in decoding, by an engine's page."""
    sums: dict[str, float] = {}
    counts: dict[str, float] = {}
    for vllm, sglang, kind, value in _SUM.findall(page):
        kept = sums if kind == "sum" else counts
        kept[vllm or sglang] = kept.get(vllm or sglang, 0.0) + float(value)
    return {name: total / counts[name] for name, total in sums.items() if counts.get(name, 0) >= _FEWEST}


def of_steps(ranks: Mapping[int, Sequence[Mapping[str, float]]], files: Mapping[int, str]) -> list[Hit]:
    """Return what the steps of a run's ranks say of its speed; the first steps, which compile and warm up, left out."""
    warm = {rank: rows[len(rows) // 10 :] for rank, rows in ranks.items() if len(rows) >= _FEWEST}
    if not warm:
        return []
    hits = [*_shares(warm, files), *_straggler(warm, files)]
    slowest = max(warm, key=lambda rank: _spread(warm[rank]))
    if (spread := _spread(warm[slowest])) > _SPREAD:
        groups = {"times": f"{spread:.1f}", "typical": format_seconds(median(r["step_seconds"] for r in warm[slowest]))}
        hits.append(_hit("STEP_SPREAD", files[slowest], groups, slowest))
    retries = {
        rank: rows[-1].get("num_alloc_retries", 0.0) - rows[0].get("num_alloc_retries", 0.0)
        for rank, rows in warm.items()
    }
    if (most := max(retries, key=lambda rank: retries[rank])) is not None and retries[most] >= 3:
        hits.append(_hit("ALLOC_RETRIES", files[most], {"n": f"{retries[most]:.0f}"}, most))
    return hits


def _shares(ranks: Mapping[int, Sequence[Mapping[str, float]]], files: Mapping[int, str]) -> list[Hit]:
    hits = []
    for field, limit, name in (
        ("data_seconds", _DATA_SHARE, "DATA_STALL"),
        ("communication_seconds", _COMMUNICATION_SHARE, "COMMUNICATION_BOUND"),
    ):
        share = {
            rank: median(row[field] / row["step_seconds"] for row in rows if field in row)
            for rank, rows in ranks.items()
            if any(field in row for row in rows)
        }
        if share and (most := max(share, key=lambda rank: share[rank])) is not None and share[most] > limit:
            hits.append(_hit(name, files[most], {"share": f"{100 * share[most]:.0f} %"}, most))
    return hits


def _straggler(ranks: Mapping[int, Sequence[Mapping[str, float]]], files: Mapping[int, str]) -> list[Hit]:
    """Return the rank whose own work takes longest: step time is equal on all, as they wait for each other."""
    own = {
        rank: median(
            row["step_seconds"] - row["communication_seconds"] for row in rows if "communication_seconds" in row
        )
        for rank, rows in ranks.items()
        if any("communication_seconds" in row for row in rows)
    }
    if len(own) < 2:
        return []
    slow = max(own, key=lambda rank: own[rank])
    usual = median(value for rank, value in own.items() if rank != slow)
    if usual <= 0 or own[slow] < _STRAGGLER * usual:
        return []
    groups = {"late": str(slow), "times": f"{own[slow] / usual:.2f}", "typical": format_seconds(usual)}
    return [_hit("STRAGGLER", files[slow], groups, slow)]


def _spread(rows: Sequence[Mapping[str, float]]) -> float:
    times = sorted(row["step_seconds"] for row in rows)
    return times[min(len(times) - 1, round(0.95 * len(times)))] / median(times)


def of_page(page: str, file: str) -> list[Hit]:
    """Return which part of a request's time an engine's page says is the longest, where it is the queue or the prompt."""
    waits = waits_of(page)
    total = sum(waits.values())
    if total <= 0 or "queue" not in waits:
        return []
    share = {name: value / total for name, value in waits.items()}
    groups = {name: format_seconds(value) for name, value in waits.items()}
    if share["queue"] > _QUEUE_SHARE:
        return [_hit("SERVER_QUEUE", file, {**groups, "share": f"{100 * share['queue']:.0f} %"}, None)]
    if share.get("prefill", 0.0) > 0.5:
        return [_hit("SERVER_PREFILL", file, {**groups, "share": f"{100 * share['prefill']:.0f} %"}, None)]
    return []


def of_bench(told: Mapping[str, Any], file: str) -> list[Hit]:
    """Return what a load test says of a server: errors, waiting before the first token, prompts, or decoding.

    A first token that comes much later for some than for most is waiting, as the work of a prompt differs less;
    one that takes the larger part of the whole for everybody is the prompt's own work.
    """
    ttft, tpot, e2e = (told.get(f"{name}_seconds") or {} for name in ("ttft", "tpot", "e2e"))
    requests, errors = told.get("requests") or 0, told.get("errors") or 0
    if isinstance(errors, Mapping):
        errors = sum(value for value in errors.values() if isinstance(value, int))
    hits = []
    if requests and errors / requests > 0.01:
        hits.append(_hit("SERVER_ERRORS", file, {"n": str(errors), "of": str(requests)}, None))
    middle, late, whole = ttft.get("p50"), ttft.get("p95"), e2e.get("p50")
    if not (middle and late and whole) or requests < _FEWEST:
        return hits
    groups = {
        "middle": format_seconds(middle),
        "late": format_seconds(late),
        "tpot": format_seconds(tpot.get("p50") or 0.0),
    }
    if late > 4 * middle and late > 0.3 * whole:
        hits.append(_hit("SERVER_QUEUE", file, {**groups, "queue": groups["late"], "share": "p95"}, None))
    elif middle > 0.5 * whole:
        hits.append(
            _hit(
                "SERVER_PREFILL",
                file,
                {**groups, "prefill": groups["middle"], "share": f"{100 * middle / whole:.0f} %"},
                None,
            )
        )
    return hits


def of_report(told: Mapping[str, Any], file: str) -> list[Hit]:
    """Return a hit for every check of an acceptance report that failed."""
    return [
        _hit(
            "CHECK_FAILED",
            file,
            {"what": str(one.get("name")), "measured": str(one.get("measured")), "limit": str(one.get("limit"))},
            None,
        )
        for one in told.get("checks", [])
        if isinstance(one, Mapping) and one.get("verdict") == "fail"
    ]


def of_figures(figures: Iterable[Mapping[str, Any]]) -> list[Hit]:
    """Return what all figures that were read say."""
    hits: list[Hit] = []
    ranks: dict[int, Sequence[Mapping[str, float]]] = {}
    files: dict[int, str] = {}
    for one in figures:
        if one["kind"] == "steps":
            ranks[one["rank"]], files[one["rank"]] = one["rows"], one["file"]
        elif one["kind"] == "page":
            hits += of_page(one["text"], one["file"])
        elif one["kind"] == "bench":
            hits += of_bench(one["told"], one["file"])
        else:
            hits += of_report(one["told"], one["file"])
    return hits + of_steps(ranks, files)


def _hit(name: str, file: str, groups: dict[str, str], rank: int | None) -> Hit:
    text = ", ".join(f"{key} {value}" for key, value in groups.items())
    return Hit(symptom=name, file=file, line=0, text=text, groups=groups, rank=rank)
