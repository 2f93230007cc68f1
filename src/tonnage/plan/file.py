"""The plan file: a plan to TOML and back to the same plan, older formats migrated on the way."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from typing import Any, Final

from tonnage import __version__
from tonnage.errors import BadFileError
from tonnage.plan.codec import Decoder, encode, to_toml
from tonnage.plan.request import command
from tonnage.plan.types import Plan

FORMAT: Final = 1
LARGEST_BYTES: Final = 8 << 20
# From a format to the next one; each takes the whole table and returns it.
MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}

_PARTS: Final = ("footprint", "step_time", "performance", "cost", "storage", "provenance")


def write_plan(plan: Plan) -> str:
    """Return a plan as the text of a plan file.

    Parameters
    ----------
    plan : Plan
        Any plan of an answer.

    Returns
    -------
    str
        TOML: format version, request, candidate, estimates and provenance; `read_plan` gives the same plan back.
    """
    whole = encode(plan)
    estimate = whole.pop("estimate")
    candidate = estimate.pop("candidate")
    model, cluster = candidate.pop("model"), candidate.pop("cluster")
    table = {"format": FORMAT, "written_by": f"tonnage {__version__}"}
    table |= {name: held for name, held in whole.items() if name != "request"}
    table |= {"request": whole["request"], "candidate": candidate, "cluster": cluster, **estimate, "model": model}
    lines = (
        "# " + command(plan.request),
        "# tonnage explain shows where every byte, second and coin of this plan goes.",
        to_toml(table),
    )
    return "\n".join(lines) + "\n"


def read_plan(text: str, where: str = "plan.toml") -> Plan:
    """Return the plan that a plan file holds.

    Parameters
    ----------
    text : str
        The file's text.
    where : str
        Its name, for error messages.

    Returns
    -------
    Plan
        Equal to the plan that was written.

    Raises
    ------
    BadFileError
        Not TOML, not a plan, a format of the future, or a value that a plan cannot hold.
    """
    if len(text) > LARGEST_BYTES:
        raise BadFileError("larger than any plan", where=where, fix="give the file that tonnage plan -o wrote")
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise BadFileError(
            f"not a TOML file: {error}", where=where, fix="give the file that tonnage plan -o wrote"
        ) from None
    table = _migrate(table, where)
    decoder = Decoder(where)
    parts = {name: _take(table, name, decoder) for name in (*_PARTS, "request", "candidate", "cluster", "model")}
    candidate = {**parts.pop("candidate"), "model": parts.pop("model"), "cluster": parts.pop("cluster")}
    estimate = {"candidate": candidate, **{name: parts[name] for name in _PARTS}}
    del table["written_by"], table["format"]
    return decoder.read(Plan, {**table, "request": parts["request"], "estimate": estimate}, "plan")


def _take(table: dict[str, Any], name: str, decoder: Decoder) -> dict[str, Any]:
    part = table.pop(name, {})
    if not isinstance(part, dict):
        raise decoder.fail(f"[{name}] is not a table")
    return part


def _migrate(table: dict[str, Any], where: str) -> dict[str, Any]:
    """Bring a table of an older format to today's."""
    version = table.get("format")
    if type(version) is not int or "written_by" not in table:
        raise BadFileError("not a plan file", where=where, fix="write one with tonnage plan … -o plan.toml")
    if version > FORMAT:
        raise BadFileError(
            f"format {version} is newer than this tonnage knows ({FORMAT})", where=where, fix="upgrade tonnage"
        )
    while version < FORMAT:
        if version not in MIGRATIONS:
            raise BadFileError(f"format {version} is not known", where=where, fix="write the plan again")
        table = MIGRATIONS[version](table)
        version += 1
    return {**table, "format": FORMAT}
