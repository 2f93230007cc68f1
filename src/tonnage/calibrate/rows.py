"""Measurement rows: reading them, and handing each to the domain that predicts its kind."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from tonnage.calibrate import inference_score, training_rows
from tonnage.calibrate.row_check import MEASURED, fault_of, measured_of
from tonnage.calibrate.types import Domain, Row, Scored
from tonnage.errors import BadFileError

DOMAINS: Final[tuple[Domain, ...]] = (training_rows.DOMAIN, inference_score.DOMAIN)
METRICS: Final = (*inference_score.MEMORY_METRICS, *inference_score.SPEED_METRICS, *MEASURED)
_LONGEST_LINE: Final = 1_000_000
_UNREADABLE: Final = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    ArithmeticError,
    MemoryError,
    RecursionError,
)


def read_rows(text: str, where: str) -> list[dict[str, Any]]:
    """Read measurement rows, one JSON object a line.

    Raises
    ------
    BadFileError
        A line is no object, has no id, or an id occurs twice.
    """
    rows: list[dict[str, Any]] = []
    seen: set[str] = set()
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        here = f"{where}:{number}"
        if len(line) > _LONGEST_LINE:
            raise BadFileError("the line is too long for a measurement", where=here, fix="one JSON object a line")
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BadFileError(f"not JSON: {error}", where=here, fix="one JSON object a line") from error
        if not isinstance(row, dict) or not isinstance(row.get("id"), str):
            raise BadFileError("no measurement with an id", where=here, fix='each line needs {"id": …}')
        if row["id"] in seen:
            raise BadFileError(f"the id '{row['id']}' occurs twice", where=here, fix="give each row its own id")
        seen.add(row["id"])
        rows.append(row)
    return rows


def domain_of(row: Row) -> Domain | None:
    """Return the domain that claims a row."""
    return next((domain for domain in DOMAINS if domain.claims(row)), None)


def faults_of(rows: Sequence[Row]) -> dict[str, str]:
    """Return by id what is wrong with rows whose fields cannot be what they say."""
    return {row["id"]: fault for row in rows if (fault := fault_of(row))}


def score_rows(rows: Sequence[Row], leave_out: str | None = None) -> list[Scored]:
    """Predict each measured quantity of each row, in the order of the rows.

    Parameters
    ----------
    rows : sequence of mapping
        Measurements as `read_rows` returns them.
    leave_out : {"unit", "source"}, optional
        Predict each row with constants fitted without its unit or source.

    Returns
    -------
    list of Scored
        Predictions and refusals; a row that no domain claims gives none. A row whose fields cannot be read is refused,
        and the others are predicted.
    """
    faults = faults_of(rows)
    scored: list[Scored] = []
    for domain in DOMAINS:
        mine = [row for row in rows if row["id"] not in faults and domain_of(row) is domain]
        if mine:
            try:
                scored += domain.score(mine, leave_out)
            except _UNREADABLE:
                readable = [row for row in mine if _is_readable(domain, row, faults)]
                scored += domain.score(readable, leave_out) if readable else []
    scored += [one for row in rows if row["id"] in faults for one in _refused(row, faults[row["id"]])]
    order = {row["id"]: index for index, row in enumerate(rows)}
    return sorted(scored, key=lambda s: order[s.id])


def _is_readable(domain: Domain, row: Row, faults: dict[str, str]) -> bool:
    """Whether a row can be predicted by itself; why not is noted."""
    try:
        domain.score([row], None)
    except _UNREADABLE as error:
        faults[row["id"]] = f"it cannot be read: {' '.join(str(error).split())[:120]}"
        return False
    return True


def _refused(row: Row, fault: str) -> list[Scored]:
    def said(*names: str) -> str:
        return next((str(row[name]) for name in names if row.get(name)), "")

    return [
        Scored(
            id=row["id"],
            metric=metric,
            measured=measured,
            refused=fault,
            trust=said("tier", "trust"),
            source=said("source_key", "source"),
            framework=said("engine", "framework"),
            gpu=said("gpu"),
            kind=said("placement", "kind"),
        )
        for metric, measured in measured_of(row).items()
        if metric in METRICS
    ]
