"""Predictions of inference rows, by the constants shipped or by constants fitted without a row's unit or source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tonnage.calibrate.inference_fit import Observation, fitted, predicted
from tonnage.calibrate.inference_rows import Case, case_of_row, load_of_case, observations_of
from tonnage.calibrate.row_fields import number
from tonnage.calibrate.types import Row, Scored
from tonnage.engines import find_engine
from tonnage.engines.facts import Constant, rates_of, scope_of
from tonnage.errors import TonnageError
from tonnage.estimate.compose_serving import short_by_bytes
from tonnage.estimate.serving import ServingLoad, ServingMemory
from tonnage.estimate.types import EngineAccounting, Interval
from tonnage.messages import say
from tonnage.units import GIB, MIB

__all__ = [
    "DOMAIN",
    "ERROR_NAMES",
    "MEMORY_ERROR_NAMES",
    "family_of",
    "is_fit_row",
    "limits_of_row",
    "observed",
    "scope_of_row",
    "speed_tier",
]

MEMORY_METRICS: Final = ("weights_gib", "kv_cache_gib", "kv_cache_tokens", "total_used_mib")
SPEED_METRICS: Final = ("decode_tps_single", "prefill_tps", "throughput_tps", "ttft_ms", "tpot_ms")
_MEMORY_FIGURES: Final = (*MEMORY_METRICS, "kv_cache_mib", "gpu_model_mib", "weights_mib")
_GGUF: Final = frozenset({"llama.cpp", "ik_llama.cpp", "ollama"})
_FOLDS: Final = {"unit": "unit", "source": "source_key"}
_FOLD_ITERATIONS: Final = 6
# Rows whose public source nobody can look up decide no constant.
_UNCITABLE: Final = frozenset({"public logs", "universal-llm-trainer", ""})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    """A row ready to be predicted."""

    row: Row
    case: Case
    accounting: EngineAccounting
    load: ServingLoad
    needs: ServingMemory
    observations: Mapping[str, Observation]


def speed_tier(row: Row) -> str:
    """Return the trust in a row's speeds: its own where it differs from that in its memory figures."""
    return str(row.get("speed_tier") or row.get("tier") or "")


def is_fit_row(row: Row) -> bool:
    """Whether a row's speeds are clear enough, and its source public enough, to decide constants."""
    measured = row.get("measured") or {}
    if "throughput_tps" in measured and row.get("isl") is None and row.get("osl") is None:
        return False  # throughput without lengths says little
    return speed_tier(row) in ("A", "B") and str(row.get("source_key") or row.get("source") or "") not in _UNCITABLE


def limits_of_row(row: Row) -> str:
    """Return whether a row tells what decides the size of its cache, or the engine's own limits are taken."""
    keys = ("engine_version", "gpu_memory_utilization", "max_num_seqs")
    return "stated" if all(row.get(key) for key in keys) else "assumed"


def _kind(row: Row, metric: str) -> str:
    """Return what sort of row it is, by what its errors are told apart."""
    if metric == "throughput_tps":
        kind = "moe" if row.get("is_moe") else "dense"
        return kind if speed_tier(row) == "B" else f"{kind}, tier {speed_tier(row)}"
    if metric in ("kv_cache_gib", "kv_cache_tokens"):
        return limits_of_row(row)
    if metric in SPEED_METRICS:
        where = str(row.get("placement") or "unknown")
        where = "host" if where in ("experts_cpu", "layers_cpu") else where
        where = "drafted" if row.get("spec_decode") and metric == "decode_tps_single" else where
        return where if speed_tier(row) == "B" else f"{where}, tier {speed_tier(row)}"
    return str(row.get("placement") or "unknown")


def _labels(row: Row, metric: str) -> dict[str, Any]:
    return {
        "id": row["id"],
        "metric": metric,
        "group": str(row.get("group") or ""),
        "source": str(row.get("source_key") or row.get("source") or ""),
        "framework": str(row.get("engine") or ""),
        "gpu": str(row.get("gpu") or ""),
        "trust": speed_tier(row) if metric in SPEED_METRICS else str(row.get("tier") or ""),
        "kind": _kind(row, metric),
    }


def measured_metrics(row: Row) -> list[tuple[str, float | bool]]:
    """Return what a row measured and this domain predicts; `oom` where a memory figure or a failure tells it."""
    measured = row.get("measured") or {}
    found: list[tuple[str, float | bool]] = []
    for metric in (*MEMORY_METRICS, *SPEED_METRICS):
        value = number(measured.get(metric))
        if value is not None:
            found.append((metric, value))
    failed = bool(row.get("oom"))
    if row.get("score_oom") is not False and (failed or any(key in measured for key in _MEMORY_FIGURES)):
        found.append(("oom", failed))
    return found


def _prepared(row: Row) -> _Prepared:
    # a row's own measurements are no input; which speeds it has only says what to predict
    case = case_of_row(row)
    accounting = find_engine(case.candidate.engine).accounting
    load = load_of_case(case, accounting)
    return _Prepared(
        row=row,
        case=case,
        accounting=accounting,
        load=load,
        needs=accounting.memory(load),
        observations=observations_of(case, accounting),
    )


def observed(rows: Iterable[Row]) -> list[tuple[Row, str, Observation]]:
    """Return each measured speed of the rows that can be told, with its row and metric."""
    found: list[tuple[Row, str, Observation]] = []
    for row in rows:
        try:
            case = case_of_row(row)
        except TonnageError:
            continue
        accounting = find_engine(case.candidate.engine).accounting
        found += [(row, metric, one) for metric, one in observations_of(case, accounting).items()]
    return found


def _fold_values(rows: Sequence[Row], leave_out: str) -> dict[str, dict[str, float]]:
    """Return constants by fold: those fitted to all other rows; the key "" holds those fitted to all."""
    key = _FOLDS[leave_out]
    observations = observed([row for row in rows if is_fit_row(row)])
    families: dict[str, list[tuple[Row, Observation]]] = {}
    for row, _, one in observations:
        families.setdefault(family_of(one), []).append((row, one))
    everything: dict[str, float] = {}
    folds: dict[str, dict[str, float]] = {}
    for members in families.values():
        whole = fitted([one for _, one in members])
        everything |= whole
        for fold in {str(row.get(key) or row["id"]) for row, _ in members}:
            others = [one for row, one in members if str(row.get(key) or row["id"]) != fold]
            values = fitted(others, whole, _FOLD_ITERATIONS) if others else _priors([one for _, one in members])
            folds.setdefault(fold, {}).update(values)
    return {"": everything} | {fold: everything | values for fold, values in folds.items()}


def family_of(one: Observation) -> str:
    """Return which engines' rates are fitted together: those that stand on each other."""
    return next(entry.engine for entry in one.constants.entries)


def _priors(observations: Sequence[Observation]) -> dict[str, float]:
    entries: dict[str, Constant] = {entry.key: entry for one in observations for entry in one.constants.entries}
    return {key: entry.prior for key, entry in entries.items() if entry.prior and entry.spread}


def scope_of_row(row: Row) -> tuple[str, str]:
    """Return a row's engine and where its work is done, as intervals are told apart."""
    case = case_of_row(row)
    load = load_of_case(case, find_engine(case.candidate.engine).accounting)
    return case.candidate.engine, scope_of(load)["placement"]


def _refusal(item: _Prepared, metric: str) -> str:
    """Return why a metric of a row cannot be predicted, or nothing."""
    is_gguf = item.case.candidate.engine in _GGUF
    if metric in SPEED_METRICS:
        if metric not in item.observations:
            return say("score.no_device")
        return ""
    if not item.case.is_cache_known and metric in ("kv_cache_gib", "kv_cache_tokens"):
        return say("score.no_model")
    if is_gguf and not item.case.is_context_known and metric in ("kv_cache_gib", "kv_cache_tokens"):
        return say("score.no_context")
    grows = item.needs.cache_bytes is None and metric == "kv_cache_gib"  # nothing is set aside of the device
    if item.load.memory_bytes > 1 << 49 and metric != "weights_gib" and not is_gguf and not grows:
        return say("score.no_memory")
    return ""


def _memory_value(item: _Prepared, metric: str) -> float | None:
    needs = item.needs
    pools = {pool.name: float(pool.bytes) for pool in needs.pools}
    if metric == "weights_gib":
        return pools["weights"] / GIB
    if metric == "kv_cache_gib":
        total = needs.cache_bytes if needs.cache_bytes is not None else needs.total_cache_bytes
        return None if total is None else float(total) / GIB
    if metric == "kv_cache_tokens":
        return None if needs.cache_tokens is None else float(needs.cache_tokens)
    total = needs.allocated_bytes if needs.allocated_bytes is not None else needs.device_bytes()
    return min(float(total), float(item.load.memory_bytes)) / MIB


ERROR_NAMES: Final = {
    "decode_tps_single": "relative_error", "tpot_ms": "relative_error", "prefill_tps": "prefill_relative_error",
    "ttft_ms": "prefill_relative_error", "throughput_tps": "batch_relative_error",
}  # fmt: skip
MEMORY_ERROR_NAMES: Final = {"weights_gib": "weights_relative_error", "kv_cache_gib": "cache_relative_error",
                             "kv_cache_tokens": "cache_relative_error", "total_used_mib": "memory_relative_error"}  # fmt: skip


def _least(item: _Prepared) -> ServingLoad:
    """Return the load that decides whether a row's engine starts: one request; limits that it does not tell at their least."""
    if item.case.candidate.engine in _GGUF:
        return item.load
    one = replace(item.load, concurrency=1)
    if item.case.candidate.settings.max_num_seqs is None:
        one = replace(one, max_num_seqs=item.accounting.with_defaults(one, item.case.candidate.settings).max_num_seqs)
    return one


def _scored(item: _Prepared, metric: str, measured: float | bool, values: Mapping[str, float]) -> Scored:
    about = _labels(item.row, metric)
    if metric == "oom":
        one = _least(item)
        short = short_by_bytes(one, item.accounting.memory(one))
        return Scored(measured=measured, predicted=bool(short > 0), **about)
    if reason := _refusal(item, metric):
        return Scored(measured=measured, refused=reason, **about)
    if metric in MEMORY_METRICS:
        value = _memory_value(item, metric)
        if value is None:
            return Scored(measured=measured, refused=say("score.no_figure"), **about)
        limits = limits_of_row(item.row)
        width = item.accounting.constants.value(MEMORY_ERROR_NAMES[metric], item.load.version, limits=limits)
    else:
        one = item.observations[metric]
        value = float(predicted([one], values)[0]) * (1e3 if metric.endswith("_ms") else 1.0)
        width = getattr(rates_of(one.constants, one.load), ERROR_NAMES[metric])
    interval = Interval.around(value, width)
    return Scored(measured=measured, predicted=value, low=interval.low, high=interval.high, **about)


class _Inference:
    name = "inference"

    def claims(self, row: Row) -> bool:
        """Whether a row names an engine and carries measurements under their own heading."""
        return "engine" in row and isinstance(row.get("measured"), dict)

    def score(self, rows: Sequence[Row], leave_out: str | None) -> list[Scored]:
        """Predict each measured quantity of each row."""
        folds = _fold_values(rows, leave_out) if leave_out else {}
        scored: list[Scored] = []
        for row in rows:
            metrics = measured_metrics(row)
            if not metrics:
                continue
            values: Mapping[str, float] = {}
            if leave_out:
                values = folds.get(str(row.get(_FOLDS[leave_out]) or row["id"]), folds[""])
            try:
                item = _prepared(row)
            except TonnageError as error:
                scored += [
                    Scored(measured=measured, refused=error.what, **_labels(row, metric))
                    for metric, measured in metrics
                ]
                continue
            scored += [_scored(item, metric, measured, values) for metric, measured in metrics]
        return scored


DOMAIN: Final = _Inference()
