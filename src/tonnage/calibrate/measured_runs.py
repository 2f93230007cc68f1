"""A row of a measured run, as `tonnage score` reads them, beside its prediction; what its speeds teach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tonnage.calibrate.inference_rows import case_of_row
from tonnage.calibrate.measurements import Measurements, Speed
from tonnage.calibrate.row_fields import number
from tonnage.calibrate.rows import domain_of, score_rows
from tonnage.calibrate.teach import Finding, findings, taught_by_training
from tonnage.calibrate.training_rows import to_candidate
from tonnage.errors import BadFileError
from tonnage.estimate.types import Candidate

_RATES = {"decode_tps_single": "decode_tps_single", "prefill_tps": "prefill_tps", "throughput_tps": "throughput_tps"}


def compare_row(row: Mapping[str, Any], where: str) -> tuple[Candidate, Sequence[Finding]]:
    """Return the candidate that a row tells of, and each of its measurements beside the prediction.

    Raises
    ------
    BadFileError
        A row that says too little.
    """
    row = {"id": "1", **row}
    domain = domain_of(row)
    if domain is None:
        raise BadFileError("a row of no known kind", where=where, fix="give rows as tonnage score reads them")
    if domain.name == "inference":
        case = case_of_row(row)
        speeds = tuple(_speeds(row, case.prefill_tokens, int(max(case.decode_depth_tokens, 1))))
        rates = findings(case.candidate, Measurements(kind="measured run", speeds=speeds))
        sizes = [one for one in _scored(row) if one.name not in _RATES]
        return case.candidate, (*sizes, *rates)
    told = to_candidate(row)
    if isinstance(told, str):
        raise BadFileError(f"cannot be told: {told}", where=where, fix="state model, gpu, sequence and batch")
    return told.candidate, [
        taught_by_training(one) if one.name == "tokens_per_s_per_gpu" else one for one in _scored(row)
    ]


def _scored(row: Mapping[str, Any]) -> list[Finding]:
    return [
        Finding(name=one.metric, predicted=float(one.predicted), measured=float(one.measured))
        for one in score_rows([row])
        if one.metric != "oom" and one.predicted is not None
    ]


def _speeds(row: Mapping[str, Any], prompt: int, depth: int) -> list[Speed]:
    measured = row.get("measured") or {}
    lengths = {"input_tokens": int(number(row.get("isl")) or 1), "output_tokens": int(number(row.get("osl")) or 1)}
    loads = {
        "prefill_tps": {"input_tokens": prompt, "output_tokens": 1},
        "decode_tps_single": {"input_tokens": depth, "output_tokens": 1},
        "throughput_tps": {**lengths, "concurrency": int(number(row.get("concurrency")) or 1)},
    }
    return [
        Speed(metric=metric, value=value, **load)
        for metric, load in loads.items()
        if (value := number(measured.get(metric))) and value > 0
    ]
