"""Measurement rows: reading them, and handing each to the domain that predicts its kind."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from tonnage.calibrate import inference_score, training_rows
from tonnage.calibrate.types import Domain, Row, Scored
from tonnage.errors import BadFileError

DOMAINS: Final[tuple[Domain, ...]] = (training_rows.DOMAIN, inference_score.DOMAIN)
_LONGEST_LINE: Final = 1_000_000


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
        Predictions and refusals; a row that no domain claims gives none.
    """
    scored: list[Scored] = []
    for domain in DOMAINS:
        mine = [row for row in rows if domain_of(row) is domain]
        if mine:
            scored += domain.score(mine, leave_out)
    order = {row["id"]: index for index, row in enumerate(rows)}
    return sorted(scored, key=lambda s: order[s.id])
