"""What each family takes for granted: default values, other spellings of fields, and families of nested parts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from tonnage import datafiles


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One line of `data/models/families.jsonl`."""

    model_type: str
    defaults: Mapping[str, Any]
    aliases: Mapping[str, str]
    parts: Mapping[str, Mapping[str, Any]]

    def spellings(self, name: str) -> tuple[str, ...]:
        """Return the keys a field may stand under, the one that wins first.

        A general name that the family maps to its own is applied after the own one, so it wins.
        """
        own = self.aliases.get(name, name)
        return (*(key for key, target in self.aliases.items() if target == own), own)

    def default(self, name: str, otherwise: Any = None) -> Any:
        """Return the value of a field that the file leaves out."""
        return self.defaults.get(self.aliases.get(name, name), otherwise)

    def part(self, name: str) -> tuple[str, Mapping[str, Any], bool]:
        """Return a nested part's family, its fields when the file has none, and whether the file may name another."""
        part = self.parts.get(name, {})
        return part.get("model_type", self.model_type), part.get("init", {}), part.get("dynamic", True)


@cache
def _lines() -> dict[str, str]:
    """Return the data file's lines by family, unparsed: one model needs only a few of them."""
    text = datafiles.text("models/families.jsonl")
    return {line.split('"', 4)[3]: line for line in text.splitlines() if line}


# families whose published configs name them otherwise than the architecture they use
SAME_AS: Final = {"kimi_k2": "deepseek_v3"}


@cache
def family(model_type: str) -> Family:
    """Return what is taken for granted in a family; nothing, for one that the data file does not know."""
    line = _lines().get(SAME_AS.get(model_type, model_type))
    known: dict[str, Any] = json.loads(line) if line is not None else {}
    return Family(
        model_type=model_type,
        defaults=known.get("defaults", {}),
        aliases=known.get("aliases", {}),
        parts=known.get("parts", {}),
    )
