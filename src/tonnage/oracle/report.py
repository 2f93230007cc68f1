"""A trace as the object that `tonnage plan --oracle --json` prints. Pure."""

from __future__ import annotations

from typing import Any

from tonnage.oracle.compare import Comparison
from tonnage.oracle.fit import Fits
from tonnage.oracle.types import Job, Traced


def comparison_object(comparison: Comparison) -> dict[str, Any]:
    """Return a trace with the formulae beside it."""
    return {
        "job": _job(comparison.job),
        **_traced(comparison.traced),
        "rows": [
            {
                "name": row.name,
                "formula_bytes": row.formula_bytes,
                "traced_bytes": row.traced_bytes,
                "difference_ratio": row.difference_ratio,
            }
            for row in comparison.rows
        ],
    }


def fits_object(found: Fits) -> dict[str, Any]:
    """Return the ways in which a traced family fits, or does not."""
    return {
        "job": _job(found.job),
        **_traced(found.traced),
        "num_devices": found.num_devices,
        "ways": [
            {
                "recompute": "full" if way.recomputes else "none",
                "micro_batch_size": way.micro_batch_size,
                "fits": way.short_by_bytes == 0,
                "capacity_bytes": way.capacity_bytes,
                "total_bytes": way.total_bytes,
                "short_by_bytes": way.short_by_bytes,
                "peak_phase": way.peak_phase,
                "pools": dict(way.pools),
            }
            for way in found.ways
        ],
    }


def _job(job: Job) -> dict[str, Any]:
    return {
        "family": job.config.get("model_type"),
        "kind": job.kind.value,
        "seq_len": job.seq_len,
        "micro_batch_size": job.micro_batch_size,
        "recompute": "full" if job.recomputes else "none",
        "weights": job.weights,
        "compute": job.compute,
        "optimizer_step": job.step,
    }


def _traced(traced: Traced) -> dict[str, Any]:
    replay = traced.replay
    return {
        "versions": dict(traced.versions),
        "attention": traced.attention,
        "num_layers": traced.num_layers,
        "traced_layers": list(traced.traced_layers),
        "parameters": {"total": traced.num_parameters, "trained": traced.num_trained_parameters},
        "kept": dict(traced.kept.pools),
        "peak": {"phase": traced.peak_phase, "total_bytes": traced.peak.total_bytes, "pools": dict(traced.peak.pools)},
        "phases": {name: moment.total_bytes for name, moment in traced.phases.items()},
        "allocator": None
        if replay is None
        else {
            "allocated_peak_bytes": replay.allocated_peak_bytes,
            "reserved_peak_bytes": replay.reserved_peak_bytes,
            "fragmentation_ratio": replay.fragmentation_ratio,
            "expandable_reserved_peak_bytes": None
            if traced.expandable is None
            else traced.expandable.reserved_peak_bytes,
        },
    }
