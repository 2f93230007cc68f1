"""A trace as a person reads it: the formulae beside it, or how a family without formulae fits."""

from __future__ import annotations

from tonnage.cli.tables import style, table, wrap
from tonnage.messages import say
from tonnage.oracle.compare import Comparison, Row
from tonnage.oracle.fit import Fits
from tonnage.oracle.timeline import STEP
from tonnage.oracle.types import Job, Traced
from tonnage.plan.types import Request
from tonnage.units import format_bytes, format_count


def comparison_lines(comparison: Comparison) -> list[str]:
    """Return the lines that follow a plan: what was traced, and each pool by formula and by trace."""
    job, traced = comparison.job, comparison.traced
    header = [say(f"oracle.{name}") for name in ("pool", "formula", "traced", "apart")]
    lines = [*_head(job, traced), *table(header, [_row(row) for row in comparison.rows], right=(1, 2, 3), indent="  ")]
    if STEP in traced.phases:
        lines += _said(say("oracle.peak_in", phase=phase_name(traced.peak_phase)))
    else:
        lines += _said(say("oracle.not_stepped"))
    return [*lines, *_allocator(traced)]


def fits_lines(found: Fits, request: Request) -> list[str]:
    """Return the lines that answer for a family without formulae."""
    job, best = found.job, found.ways[0]
    where = ", ".join(name if number == 1 else f"{number} x {name}" for name, number in request.where.gpus)
    if best.short_by_bytes:
        verdict = say("oracle.short", model=request.model, where=where, short=format_bytes(best.short_by_bytes))
    else:
        verdict = say("oracle.fits", model=request.model, where=where)
    header = [say(f"oracle.{name}") for name in ("recompute", "micro_batch", "memory", "fullest")]
    rows = [
        (
            say("oracle.recompute_full" if way.recomputes else "oracle.recompute_none"),
            say("oracle.none_fits") if way.short_by_bytes else str(way.micro_batch_size),
            f"{format_bytes(way.total_bytes)} / {format_bytes(way.capacity_bytes)}",
            phase_name(way.peak_phase),
        )
        for way in found.ways
    ]
    traced = found.traced
    shared = say(
        "oracle.parameters",
        total=format_count(traced.num_parameters),
        trained=format_count(traced.num_trained_parameters),
        num=found.num_devices,
    )
    unknown = say("oracle.unknown", family=str(job.config.get("model_type"))[:60])
    return [
        *wrap(unknown, columns=100),
        "",
        *_head(job, traced),
        *_said(shared),
        "",
        style(verdict, "bold"),
        *table(header, rows, right=(1, 2), indent="  "),
    ]


def phase_name(phase: str) -> str:
    """Return a part of a step in the language in use."""
    return say("oracle.phase_" + phase.replace(" ", "_"))


def _head(job: Job, traced: Traced) -> list[str]:
    depths = [
        say("oracle.all_layers") if depth == traced.num_layers else str(depth)
        for depth in dict.fromkeys(traced.traced_layers)
    ]
    said = say(
        "oracle.head",
        family=job.config.get("model_type"),
        transformers=traced.versions.get("transformers", "?"),
        torch=traced.versions.get("torch", "?"),
        layers=say("oracle.and").join(filter(None, (", ".join(depths[:-1]), depths[-1]))),
        num_layers=traced.num_layers,
        attention=traced.attention,
    )
    load = say(
        "oracle.load",
        kind=job.kind.value,
        num=job.micro_batch_size,
        seq_len=job.seq_len,
        weights=job.weights,
        recompute=say("oracle.recompute_full" if job.recomputes else "oracle.recompute_none"),
    )
    return [*wrap(said, columns=100), *_said(load)]


def _said(text: str) -> list[str]:
    return wrap(text, columns=100, indent="  ")


def _row(row: Row) -> tuple[str, str, str, str]:
    ratio = row.difference_ratio
    return (
        say(f"oracle.row_{row.name}"),
        "-" if row.formula_bytes is None else format_bytes(row.formula_bytes),
        "-" if row.traced_bytes is None else format_bytes(row.traced_bytes),
        "-" if ratio is None else f"{ratio:+.1%}",
    )


def _allocator(traced: Traced) -> list[str]:
    replay, expandable = traced.replay, traced.expandable
    if replay is None or expandable is None:
        return []
    text = say(
        "oracle.allocator",
        allocated=format_bytes(replay.allocated_peak_bytes),
        reserved=format_bytes(replay.reserved_peak_bytes),
        ratio=replay.fragmentation_ratio,
        expandable=format_bytes(expandable.reserved_peak_bytes),
    )
    return _said(text)
