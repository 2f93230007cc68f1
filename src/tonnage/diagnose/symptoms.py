"""Reads the rules: `data/symptoms/*.toml`, one entry a symptom; the form is told in CONTRIBUTING, *add a symptom*."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from tonnage import datafiles
from tonnage.diagnose.types import ROLES, SEVERITIES, Cure, Pattern, Symptom

FIELDS: Final = frozenset(
    ("id", "layer", "severity", "role", "cause", "cures", "against", "explains", "patterns", "source", "versions",
     "weight", "at_least", "fires", "quiet")
)  # fmt: skip
_PATTERN_FIELDS: Final = frozenset(("find", "regex", "unless", "follows", "within"))


class RuleError(ValueError):
    """A rule that is not written as it has to be: a mistake of whoever wrote the file."""


def _pair(value: Any, where: str) -> tuple[str, str]:
    if not (isinstance(value, list) and len(value) == 2 and all(isinstance(text, str) and text for text in value)):
        raise RuleError(f"{where}: an English and a Chinese text are wanted")
    return value[0], value[1]


def _pattern(entry: Any, where: str) -> Pattern:
    if not isinstance(entry, dict) or (unknown := set(entry) - _PATTERN_FIELDS):
        raise RuleError(f"{where}: a pattern takes {sorted(_PATTERN_FIELDS)}")
    find = entry.get("find", [])
    find = [find] if isinstance(find, str) else find
    if not find or not all(isinstance(text, str) and len(text) >= 3 for text in find):
        raise RuleError(f"{where}: `find` is a text of three characters or more that every such line holds")
    del unknown
    return Pattern(
        find=tuple(find),
        regex=entry.get("regex", ""),
        unless=entry.get("unless", ""),
        follows=entry.get("follows", ""),
        within=entry.get("within", 40),
    )


def read_symptom(entry: Mapping[str, Any]) -> Symptom:
    """Return one rule.

    Raises
    ------
    RuleError
        The entry lacks a field, has one too many, or has one that is not what it should be.
    """
    where = str(entry.get("id", "an entry without an id"))
    if unknown := set(entry) - FIELDS:
        raise RuleError(f"{where}: no such field: {sorted(unknown)}")
    if missing := {"id", "layer", "severity", "role", "cause", "cures", "source"} - set(entry):
        raise RuleError(f"{where}: lacks {sorted(missing)}")
    if entry["severity"] not in SEVERITIES or entry["role"] not in ROLES:
        raise RuleError(f"{where}: severity is one of {SEVERITIES}, role one of {ROLES}")
    cures = [Cure(text=_pair(cure[:2], where), setting=cure[2] if len(cure) > 2 else "") for cure in entry["cures"]]
    return Symptom(
        id=entry["id"],
        layer=entry["layer"],
        severity=entry["severity"],
        role=entry["role"],
        cause=_pair(entry["cause"], where),
        cures=tuple(cures),
        against=_pair(entry["against"], where) if "against" in entry else None,
        explains=tuple(entry.get("explains", ())),
        patterns=tuple(_pattern(one, where) for one in entry.get("patterns", ())),
        source=entry["source"],
        versions=entry.get("versions", ""),
        weight=entry.get("weight", 50),
        at_least=entry.get("at_least", 1),
    )


def entries() -> list[dict[str, Any]]:
    """Return the entries of all rule files as they are written, with the lines of their own tests."""
    return [
        entry for name in datafiles.names("symptoms", ".toml") for entry in datafiles.table(f"symptoms/{name}.toml")["symptom"]
    ]  # fmt: skip


def xid_symptoms() -> list[Symptom]:
    """Return a rule for each code of the Xid catalogue; which code a line has is told by `XID_ANY`."""
    told = datafiles.table("xid/actions.toml")
    found = []
    for row in datafiles.rows("xid/catalogue.csv"):
        english, chinese, setting = told["action"][row["action"]]
        text = told["text"].get(row["code"], "")
        leads_to = told["leads_to"]["any"] if row["severity"] == "critical" else ()
        found.append(
            Symptom(
                id=f"XID_{row['code']}",
                layer="gpu-kernel",
                severity=row["severity"],
                role=row["role"],
                cause=(
                    f"Xid {row['code']} of the card at <bdf>: {row['meaning']}.",
                    f"显卡 <bdf> 的 Xid {row['code']}：{row['meaning_zh']}。",
                ),
                cures=tuple(
                    Cure(text=(one[0], one[1]), setting=one[2])
                    for one in ((english, chinese, setting), *told["more"].get(row["code"], ()))
                ),
                against=None,
                explains=(*told["explains"].get(row["code"], ()), *leads_to),
                patterns=(Pattern(find=(text,), unless=r"Xid \("),) if text else (),
                source="https://docs.nvidia.com/deploy/xid-errors/",
                versions="",
                weight=65,
            )
        )
    return found


@cache
def symptoms() -> dict[str, Symptom]:
    """Return all rules by id."""
    found: dict[str, Symptom] = {}
    for one in (*map(read_symptom, entries()), *xid_symptoms()):
        if one.id in found:
            raise RuleError(f"{one.id}: written twice")
        found[one.id] = one
    return found
