"""The plans of an answer as a table for a spreadsheet: one line a plan, base units, no cell that is a formula."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Final

from tonnage.estimate.types import Interval
from tonnage.hardware.price_tables import safe_cell
from tonnage.plan.choose import pinned
from tonnage.plan.request import command
from tonnage.plan.types import Answer, Plan
from tonnage.workload.types import Serving

_LAYOUT: Final = ("dp", "tp", "pp", "cp", "ep", "zero_stage")
_PERFORMANCE: Final = (
    "tokens_per_s", "tokens_per_s_per_gpu", "step_seconds", "mfu_ratio", "ttft_seconds", "tpot_seconds",
    "max_concurrency", "job_seconds",
)  # fmt: skip
_COST: Final = ("usd_per_hour", "usd_per_million_tokens", "purchase_usd", "usd_total")


def write_sheet(answer: Answer) -> str:
    """Return the plans as CSV; a value with an interval has three columns, what is not known is empty.

    Parameters
    ----------
    answer : Answer
        Of any request; names in it may come from a stranger's file.

    Returns
    -------
    str
        CSV with a header row.
    """
    rows = [_row(plan) for plan in answer.plans]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(rows[0] if rows else ("rank",))
    for row in rows:
        writer.writerow([safe_cell(cell) for cell in row.values()])
    return out.getvalue()


def _row(plan: Plan) -> Mapping[str, str]:
    estimate = plan.estimate
    candidate, held, storage = estimate.candidate, estimate.footprint, estimate.storage
    is_serving = isinstance(candidate.workload, Serving)
    row = {
        "rank": str(plan.rank),
        "model": candidate.model.name,
        "engine": candidate.engine,
        "gpu": candidate.cluster.node.devices[0].slug,
        "num_gpus": str(candidate.cluster.num_devices),
        "num_nodes": str(candidate.cluster.num_nodes),
        **{name: str(getattr(candidate.layout, name)) for name in _LAYOUT},
        "weights": candidate.precision.weights,
        "kv": candidate.precision.kv if is_serving else "",
        "compute": candidate.precision.compute,
        "optimizer": "" if is_serving else candidate.optimizer,
        "recompute": "" if is_serving else candidate.recompute.value,
        "micro_batch_size": str(candidate.micro_batch_size),
        "place": plan.kind,
        "fits": "surely" if held.fits_surely else "best estimate",
        **_interval("device_bytes", held.total),
        "device_capacity_bytes": str(held.capacity_bytes),
        **_interval("host_bytes", held.host_total),
        **{
            name: _number(getattr(storage, name))
            for name in ("weights_bytes", "data_bytes", "checkpoints_bytes", "read_bytes_per_s", "feed_bytes_per_s")
        },
    }
    for name in _PERFORMANCE:
        row |= _interval(name, getattr(estimate.performance, name))
    for name in _COST:
        row |= _interval(name, getattr(estimate.cost, name))
    own = estimate.cost.own
    row |= _interval("own_usd_per_hour", None if own is None else own.usd_per_hour)
    row |= _interval("break_even_hours", None if own is None else own.break_even_hours)
    return row | {"warnings": "; ".join(plan.warnings), "command": command(pinned(plan.request, estimate))}


def _interval(name: str, value: Interval | None) -> dict[str, str]:
    bounds = ("best", "low", "high")
    return {f"{name}_{bound}": _number(None if value is None else getattr(value, bound)) for bound in bounds}


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
