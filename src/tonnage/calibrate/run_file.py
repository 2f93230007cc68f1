"""A measured training run from a file: a `run.json` with its request, or a measurement row; and the candidate it was.

`run.json` is one object: `request` with model, goal, finetune, load, gpus, nodes, engines and pins as
`tonnage.plan.request.make_request` takes them, `measured` with peak_mem_gib and mem_kind, and tokens_per_s,
tokens_per_s_per_gpu or step_time_s.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from tonnage.calibrate.rows import read_rows
from tonnage.calibrate.training_score import prepare
from tonnage.errors import BadFileError
from tonnage.estimate.types import Candidate
from tonnage.model.types import Model
from tonnage.plan.measured import Run
from tonnage.plan.request import make_request
from tonnage.plan.scene import explore, set_scene
from tonnage.plan.types import Request
from tonnage.plan.where import place
from tonnage.units import GIB
from tonnage.workload.types import Training

LARGEST_BYTES: Final = 4 << 20
_REQUEST: Final = ("model", "goal", "finetune", "load", "gpus", "nodes", "engines", "pins")
_MEASURED: Final = ("peak_mem_gib", "mem_kind", "tokens_per_s", "tokens_per_s_per_gpu", "step_time_s")
_KINDS: Final = (
    ("alloc", "allocated"),
    ("reserv", "reserved"),
    ("smi", "driver"),
    ("driver", "driver"),
    ("nvml", "driver"),
)
_FIX: Final = (
    'write {"request": {"model": …, "goal": …, "gpus": […]}, "measured": {"peak_mem_gib": …}}, or a measurement row'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFile:
    """What a file says: the request of a `run.json`, or a row; and what was measured."""

    where: str
    measured: Mapping[str, Any]
    request: Request | None = None
    row: Mapping[str, Any] | None = None


def read_run_file(text: str, where: str) -> RunFile:
    """Return what a file says of a run; of several rows the one whose id follows `#` in its name.

    Raises
    ------
    BadFileError
        It is no run.
    """
    _, _, wanted = where.partition("#")
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        whole = None
    if isinstance(whole, dict) and "request" in whole:
        return _of_request(whole, where)
    lines = [json.dumps({"id": "run", **whole})] if isinstance(whole, dict) else text.splitlines()
    rows = [row for row in read_rows("\n".join(lines), where) if not wanted or row["id"] == wanted]
    if len(rows) != 1:
        fix = f"name one, as {where.partition('#')[0][:120]}#ID"
        raise BadFileError(f"{len(rows)} runs stand in the file", where=where[:200], fix=fix)
    return RunFile(where=where, row=rows[0], measured={k: rows[0][k] for k in _MEASURED if rows[0].get(k) is not None})


def _of_request(whole: Mapping[str, Any], where: str) -> RunFile:
    asked, measured = whole["request"], whole.get("measured")
    for name, part, known in (("request", asked, _REQUEST), ("measured", measured, _MEASURED)):
        if not isinstance(part, dict):
            raise BadFileError(f"'{name}' is no object", where=where[:200], fix=_FIX)
        foreign = next((key for key in part if key not in known), None)
        if foreign is not None:
            fix = f"fields are {', '.join(known)}"
            raise BadFileError(f"'{str(foreign)[:40]}' is no field of '{name}'", where=where[:200], fix=fix)
    assert isinstance(measured, dict)
    words = {"load": dict, "pins": dict, "gpus": list, "engines": list, "model": str}
    for key, kind in words.items():
        if key in asked and not isinstance(asked[key], kind):
            raise BadFileError(f"'{key}' of the request is of another kind", where=where[:200], fix=_FIX)
    request = make_request(
        str(asked.get("model", "")),
        goal=str(asked.get("goal", "finetune" if "finetune" in asked else "serve")),
        finetune=asked.get("finetune"),
        load=asked.get("load"),
        gpus=[str(name) for name in asked.get("gpus", ())],
        nodes=asked["nodes"] if isinstance(asked.get("nodes"), int) else 1,
        limits={"engines": [str(name) for name in asked.get("engines", ())]},
        pins=asked.get("pins"),
    )
    if not isinstance(request.workload, Training) or request.where.is_open:
        raise BadFileError("the request is no training on named cards", where=where[:200], fix=_FIX)
    return RunFile(where=where, request=request, measured=measured)


def run_of(file: RunFile, model: Model | None) -> Run:
    """Return the run of a file; of a `run.json` with the model that its request names.

    Raises
    ------
    BadFileError
        Nothing is measured, or no training software does what the request says.
    """
    if file.row is not None:
        found, refused = prepare([file.row])
        if not found:
            reason = next(iter(refused.values()))
            raise BadFileError(reason, where=file.where[:200], fix="add what the row lacks, see data/README")
        row = found[0].row
        measured = _run(file, row.candidate, row.quantity, row.rank)
        if row.step_is_micro and measured.step_seconds and "step_time_s" in file.measured:
            return replace(measured, step_seconds=measured.step_seconds * found[0].columns["num_micro_batches"])
        return measured
    assert file.request is not None
    assert model is not None
    explored = explore(set_scene(file.request, model, place(file.request.where).cluster))
    done = (*explored.kept, *explored.short)
    if not done:
        reason = explored.ruled_out[0].reason if explored.ruled_out else "no training software does it"
        raise BadFileError(reason, where=file.where[:200], fix="write engines and pins as they ran")
    fastest = max(done, key=lambda one: one.performance.tokens_per_s.best if one.performance.tokens_per_s else 0.0)
    words = str(file.measured.get("mem_kind", "")).lower()
    quantity = next((name for part, name in _KINDS if part in words), "reserved")
    return _run(file, fastest.candidate, quantity, "max")


def _run(file: RunFile, candidate: Candidate, quantity: str, rank: str) -> Run:
    load, number = candidate.workload, candidate.layout.num_devices
    assert isinstance(load, Training)
    gib, step = _number(file, "peak_mem_gib"), _number(file, "step_time_s")
    for name, devices in (("tokens_per_s", number), ("tokens_per_s_per_gpu", 1)):
        rate = _number(file, name)
        if step is None and rate is not None:
            step = load.global_batch_size * load.seq_len / number / (rate / devices)
    peak_bytes = None if gib is None else gib * GIB
    return Run(
        where=file.where, candidate=candidate, memory_bytes=peak_bytes, quantity=quantity, rank=rank, step_seconds=step
    )


def _number(file: RunFile, name: str) -> float | None:
    value = file.measured.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e12:
        raise BadFileError(f"'{name}' is no positive number", where=file.where[:200], fix=_FIX)
    return float(value)
