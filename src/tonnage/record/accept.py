"""From a path to a report: what lies there, whose limits count, and what was seen."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tonnage.errors import BadFileError, TonnageError
from tonnage.plan.file import LARGEST_BYTES, read_plan
from tonnage.plan.types import Plan
from tonnage.record.folder import Folder
from tonnage.record.seen import HARDWARE, hardware_of, training_of
from tonnage.verify.checks import serving_report, training_report
from tonnage.verify.limits import read_limits
from tonnage.verify.report import LARGEST_BYTES as LARGEST_BENCH_BYTES
from tonnage.verify.report import bench_of
from tonnage.verify.types import HardwareSeen, Report, ServingSeen, TrainingSeen

if TYPE_CHECKING:
    from tonnage.diagnose.types import Diagnosis

__all__ = ["accept"]

_COUNTED: Final = ("critical", "warning")


def accept(
    path: str,
    plan_path: str | None,
    baselines: tuple[str, ...],
    limits: Mapping[str, object],
    hardware: str | None,
    diagnose: Callable[[Iterable[str]], Diagnosis] | None,
) -> tuple[Report, TrainingSeen | ServingSeen]:
    """Read what lies at a path and hold it against its limits; as `api.verify`."""
    where = Path(path)
    if where.is_dir():
        return _run(Folder(path=where), plan_path, baselines, limits, hardware, diagnose)
    seen = bench_of(_text(where, LARGEST_BENCH_BYTES), where.name)
    if hardware is not None:
        seen = replace(seen, hardware=_readings(hardware))
    plan, own = _plan(plan_path)
    given = read_limits({**own, **limits}, "--limit")
    return serving_report(seen, plan, given, where.name), seen


def _run(
    folder: Folder,
    plan_path: str | None,
    baselines: tuple[str, ...],
    limits: Mapping[str, object],
    hardware: str | None,
    diagnose: Callable[[Iterable[str]], Diagnosis] | None,
) -> tuple[Report, TrainingSeen]:
    run = folder.read()
    own_plan = str(folder.plan_file) if folder.plan_file.is_file() else None
    plan, own = _plan(plan_path or own_plan)
    given = read_limits({**own, **limits}, "--limit")
    seen = training_of(
        folder,
        num_findings=None if diagnose is None else _findings(folder, diagnose),
        baselines=[_baseline(one) for one in baselines],
    )
    if hardware is not None:
        seen = replace(seen, hardware=_readings(hardware))
    return training_report(seen, plan, given, run.name), seen


def _readings(path: str) -> tuple[HardwareSeen, ...]:
    place = Path(path)
    if not place.is_file():
        raise BadFileError(
            "cannot be read: no such file", where=path[:200], fix=f"give readings as {HARDWARE} has them"
        )
    return hardware_of(place)


def _baseline(path: str) -> Folder:
    folder = Folder(path=Path(path))
    folder.read()  # says what is wrong with it
    return folder


def _findings(folder: Folder, diagnose: Callable[[Iterable[str]], Diagnosis]) -> int | None:
    logs = folder.path / "logs"
    if not logs.is_dir():
        return None
    try:
        found = diagnose([str(logs)])
    except TonnageError:
        return None
    return sum(finding.severity in _COUNTED for finding in found.findings)


def _plan(path: str | None) -> tuple[Plan | None, dict[str, object]]:
    """Return the plan of a file and the limits that a person wrote into it."""
    if path is None:
        return None, {}
    text = _text(Path(path), LARGEST_BYTES)
    plan = read_plan(text, path)
    table = tomllib.loads(text).get("verify", {})
    if not isinstance(table, dict):
        raise BadFileError(
            "[verify] is no table of limits", where=path[:200], fix="write [verify] temperature_celsius = 80"
        )
    return plan, table


def _text(path: Path, most: int) -> str:
    try:
        if path.stat().st_size > most:
            raise BadFileError("is larger than any such file", where=str(path)[:200], fix="name another")
        return path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise BadFileError(
            f"cannot be read: {reason}", where=str(path)[:200], fix="name a run folder or a file"
        ) from None
