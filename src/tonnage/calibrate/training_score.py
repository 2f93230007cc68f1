"""Predictions of training rows: in one go with the constants shipped, or with constants fitted without a row's fold."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from typing import Any, Final

import numpy as np

from tonnage.calibrate.devices import device_of
from tonnage.calibrate.fit import Constant, Fit, Floats, fit, weights_of
from tonnage.calibrate.training_rows import (
    TrainingRow,
    decides_oom,
    labels,
    measured_metrics,
    to_candidate,
)
from tonnage.calibrate.types import Row, Scored
from tonnage.datafiles import table
from tonnage.estimate.compose_training import (
    TrainingCase,
    case_of,
    columns_of,
    memory_of,
    step_timing,
    training_constants,
)
from tonnage.estimate.compose_training.case import filled
from tonnage.estimate.compose_training.constants import CALIBRATION
from tonnage.estimate.compose_training.evidence import Evidence, Setup, setup_of
from tonnage.estimate.compose_training.width import CAUSES, half_width, width_causes
from tonnage.hardware import siblings
from tonnage.hardware.prices import base_slug
from tonnage.units import GIB

MEASURED_FIELDS: Final = (
    "peak_mem_gib", "peak_mem_raw", "mem_unit", "tokens_per_s_per_gpu", "samples_per_s", "step_time_s", "tflops_per_gpu",
    "mfu", "oom", "states_gib", "activations_gib", "max_feasible", "check", "notes", "notes_add", "trust", "score",
    "score_oom", "oom_kind", "flops_convention", "date",
)  # fmt: skip
PARTS: Final = ("memory", "time")
PRIOR_SHARES: Final = {"memory": 0.25, "time": 1 / 6}  # ranges of time constants are six standard deviations wide


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A row ready to be evaluated."""

    row: TrainingRow
    case: TrainingCase
    columns: dict[str, Any]


def prepare(rows: Sequence[Row]) -> tuple[list[Prepared], dict[str, str]]:
    """Return the rows that can be estimated, and the reason for each that cannot, by id."""
    prepared: list[Prepared] = []
    refused: dict[str, str] = {}
    for row in rows:
        found = to_candidate({k: v for k, v in row.items() if k not in MEASURED_FIELDS})
        if isinstance(found, str):
            refused[row["id"]] = found
            continue
        case, columns = case_of(found.candidate), filled(columns_of(found.candidate))
        prepared.append(Prepared(row=found, case=case, columns=columns))
    return prepared, refused


def predicted_bytes(item: Prepared, constants: Mapping[str, Any]) -> Any:
    """Return the memory a row names: its quantity, on its rank."""
    return memory_of(item.case, item.columns, constants, item.row.quantity, item.row.rank).total


def predicted_step(item: Prepared, constants: Mapping[str, Any]) -> tuple[Any, float]:
    """Return the time of an optimizer step, and the tokens that one device has done in it."""
    x = item.columns
    seconds = step_timing(item.case, constants, x).total
    return seconds, x["micro_batch_size"] * x["num_micro_batches"] * x["seq_len"] / (x["tp"] * x["pp"] * x["cp"])


def constants_to_fit(part: str) -> list[Constant]:
    """Return the constants of memory or time that the data decide, with their guesses and ranges."""
    return [
        Constant(name=name, guess=row["guess"], low=row["low"], high=row["high"])
        for name, row in table(CALIBRATION).items()
        if row.get("part") == part
    ]


def configuration_key(row: Row) -> str:
    """Return what makes two rows repeats of one configuration: all that was set, nothing that was measured."""
    ignored = (*MEASURED_FIELDS, "id", "source", "framework_version", "model", "unit", "family", "sweep")
    return json.dumps({k: v for k, v in row.items() if k not in ignored}, sort_keys=True, default=str)


def fit_part(part: str, items: Sequence[Prepared], measured: Floats, raw: Sequence[Row], leave_out: str | None) -> Fit:
    """Fit the constants of memory or of time to prepared rows."""
    constants = constants_to_fit(part)
    fixed = training_constants()

    def evaluate(sets: Mapping[str, Floats]) -> Floats:
        merged = {**fixed, **sets}
        num_sets = len(next(iter(sets.values())))
        out = np.empty((len(items), num_sets))
        for i, item in enumerate(items):
            value = predicted_bytes(item, merged) if part == "memory" else predicted_step(item, merged)[0]
            out[i] = np.log(value)
        return out

    configurations = [configuration_key(row) for row in raw]
    families = [str(row.get("family") or row.get("source_key") or row["id"]) for row in raw]
    folds = [fold_key(row, leave_out) for row in raw] if leave_out else None
    weights = weights_of(configurations, families)
    return fit(evaluate, constants, measured, weights, folds, start=fixed, prior_share=PRIOR_SHARES[part])


def is_citable(row: Row) -> bool:
    """Whether a row names a public address, so that others can check what the constants rest on."""
    source = str(row.get("source") or "")
    return "not resolved" not in source and source != "public logs"


def is_fit_row(part: str, row: Row, item: Prepared) -> bool:
    """Whether a row is clear enough to fit constants to."""
    if row.get("trust") not in ("A", "B") or not is_citable(row):
        return False
    metrics = dict(measured_metrics(row))
    if part == "memory":
        near_full = metrics.get("peak_mem_gib", 0) * GIB > 0.94 * item.case.device.memory_bytes
        return "peak_mem_gib" in metrics and not near_full
    return "tokens_per_s_per_gpu" in metrics and "lengths" not in item.row.unknown


def measured_for(part: str, row: Row, item: Prepared) -> float:
    """Return the measurement in the unit that is fitted: bytes, or seconds of an optimizer step."""
    if part == "memory":
        return float(row["peak_mem_gib"]) * GIB
    tokens = predicted_step(item, training_constants())[1]
    return tokens / float(row["tokens_per_s_per_gpu"])


def fold_constants(
    rows: Sequence[Row], items: Mapping[str, Prepared], leave_out: str | None
) -> dict[str, dict[str, dict[str, float]]]:
    """Return for each part the constants by fold; the key "" holds those of no fold."""
    shipped = training_constants()
    if leave_out is None:
        return {part: {"": dict(shipped)} for part in PARTS}
    result: dict[str, dict[str, dict[str, float]]] = {}
    for part in PARTS:
        used = fit_rows(part, rows, items)
        if not used:
            result[part] = {"": dict(shipped)}
            continue
        chosen = [items[row["id"]] for row in used]
        measured = np.array([measured_for(part, row, item) for row, item in zip(used, chosen, strict=True)])
        found = fit_part(part, chosen, measured, used, leave_out)
        result[part] = {"": {**shipped, **found.values}}
        result[part] |= {key: {**shipped, **values} for key, values in found.fold_values.items()}
    return result


def fold_key(row: Row, leave_out: str | None) -> str:
    """Return the fold that a row is left out with, "" when none is."""
    if leave_out == "device":
        return base_slug(device_of(row)[0])
    key = {"unit": "unit", "source": "source_key", None: ""}[leave_out]
    return str(row.get(key) or row.get("source") or row["id"]) if leave_out else ""


def fit_rows(part: str, rows: Sequence[Row], items: Mapping[str, Prepared]) -> list[Row]:
    """Return the rows that the constants of a part are fitted to."""
    return [row for row in rows if row["id"] in items and is_fit_row(part, row, items[row["id"]])]


def fold_evidence(
    part: str, rows: Sequence[Row], items: Mapping[str, Prepared], leave_out: str | None
) -> dict[str, Evidence]:
    """Return what constants fitted without each fold rest on; the key "" holds that of no fold."""
    setups = [(fold_key(row, leave_out), item_setup(items[row["id"]])) for row in fit_rows(part, rows, items)]
    folds = {fold for fold, _ in setups if fold}
    return {"": Evidence.of(setup for _, setup in setups)} | {
        fold: Evidence.of(setup for one, setup in setups if one != fold) for fold in folds
    }


def item_setup(item: Prepared) -> Setup:
    """Return the set-up of a row."""
    return setup_of(item.case, float(item.columns["seq_len"]))


def causes_of(part: str, item: Prepared, constants: Mapping[str, Any], evidence: Evidence | None) -> dict[str, float]:
    """Return how much of each cause of an interval's width a row's prediction has."""
    launched = 0.0
    if part == "time":
        timing = step_timing(item.case, constants, item.columns)
        launched = float(timing.parts["launches"]) / float(timing.total)
    return width_causes(
        part,
        item.case,
        float(item.columns["seq_len"]),
        launched=launched,
        num_unknown=num_unknown(item),
        evidence=evidence,
    )


def borrowing(item: Prepared, without: str) -> Prepared:
    """Return a row whose device's own measured fractions of peak are not known."""
    device = item.case.device
    case = replace(
        item.case,
        matmul_lender=siblings.lender(device, siblings.MATMUL, {without}),
        stream_lender=siblings.lender(device, siblings.STREAM, {without}),
    )
    return replace(item, case=case)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A row predicted by constants fitted without its fold."""

    row: Row
    item: Prepared
    fold: str
    error: float  # log(predicted / measured)
    causes: dict[str, float]  # of its interval's width


def left_out(part: str, rows: Sequence[Row], items: Mapping[str, Prepared], leave_out: str) -> list[LeftOut]:
    """Predict each row that is fitted to by constants fitted without its fold: a unit, a source or a device.

    A device that is left out lends nothing either: it borrows from its nearest sibling.
    """
    used = fit_rows(part, rows, items)
    chosen = [items[row["id"]] for row in used]
    measured = np.array([measured_for(part, row, item) for row, item in zip(used, chosen, strict=True)])
    found = fit_part(part, chosen, measured, used, leave_out)
    evidence = fold_evidence(part, rows, items, leave_out)
    shipped = training_constants()
    result = []
    for row, item, value, residual in zip(used, chosen, measured, found.left_out_residuals, strict=True):
        fold = fold_key(row, leave_out)
        c = {**shipped, **found.fold_values[fold]}
        one, error = item, float(residual)
        if leave_out == "device" and part == "time":
            one = borrowing(item, fold)
            error = log(float(predicted_step(one, c)[0]) / value)
        causes = causes_of(part, one, c, evidence[fold])
        result.append(LeftOut(row=row, item=one, fold=fold, error=error, causes=causes))
    return result


def width_ranges(part: str) -> dict[str, tuple[float, float]]:
    """Return what each cause may add to a half-width."""
    known = table(CALIBRATION)
    return {
        name: (known[f"width.{part}.{name}"]["low"], known[f"width.{part}.{name}"]["high"]) for name in CAUSES[part]
    }


def score_training(rows: Sequence[Row], leave_out: str | None) -> list[Scored]:
    """Predict each measured quantity of training rows."""
    prepared, refused = prepare(rows)
    items = {item.row.row["id"]: item for item in prepared}
    folds = fold_constants(rows, items, leave_out)
    evidence = {part: fold_evidence(part, rows, items, leave_out) if leave_out else {} for part in PARTS}
    scored: list[Scored] = []
    for row in rows:
        about = labels(row)
        metrics: list[tuple[str, float | bool]] = [*measured_metrics(row)]
        if decides_oom(row):
            metrics.append(("oom", bool(row.get("oom"))))
        if row["id"] in refused:
            scored += [Scored(metric=m, measured=v, refused=refused[row["id"]], **about) for m, v in metrics]
            continue
        fold = fold_key(row, leave_out)
        chosen = {part: folds[part].get(fold, folds[part][""]) for part in PARTS}
        seen = {part: evidence[part].get(fold, evidence[part].get("")) for part in PARTS}
        for metric, measured in metrics:
            scored.append(_scored(items[row["id"]], metric, measured, chosen, seen, about))
    return scored


def _scored(
    item: Prepared,
    metric: str,
    measured: float | bool,
    constants: Mapping[str, Mapping[str, float]],
    evidence: Mapping[str, Evidence | None],
    about: dict[str, Any],
) -> Scored:
    if metric == "oom":
        need = memory_of(item.case, item.columns, constants["memory"], "driver", "max").total
        return Scored(metric=metric, measured=measured, predicted=bool(need > item.case.device.memory_bytes), **about)
    part = "memory" if metric == "peak_mem_gib" else "time"
    c = constants[part]
    if part == "memory":
        value = float(predicted_bytes(item, c)) / GIB
    else:
        seconds, tokens = predicted_step(item, c)
        if metric == "step_time_s":
            value = float(seconds) / (item.columns["num_micro_batches"] if item.row.step_is_micro else 1)
        else:
            value = tokens / float(seconds)
    causes = causes_of(part, item, c, evidence[part])
    width = half_width(part, causes, c, has_lengths="lengths" not in item.row.unknown)
    low, high = value * exp(-width), value * exp(width)
    return Scored(metric=metric, measured=measured, predicted=value, low=low, high=high, **about)


def num_unknown(item: Prepared) -> int:
    """Return how many fields that matter had to be assumed."""
    return len(item.row.unknown - {"version", "vocab", "lengths"})
