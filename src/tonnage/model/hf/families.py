"""What each family takes for granted: default values, other spellings of fields, and families of nested parts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from tonnage import datafiles
from tonnage.nouns import noun


@noun
class Family:
    """One line of `data/models/families.jsonl`."""

    model_type: str
    defaults: Mapping[str, Any]
    aliases: Mapping[str, str]
    parts: Mapping[str, Mapping[str, Any]]

    def spellings(self, name: str) -> tuple[str, ...]:
        """Return the keys a field may stand under, the one that wins first.

        A family's class first sets the fields it declares, one after the other, then what else the file says: a
        spelling that is not declared wins, and of two that are declared the later one, even by its default.
        """
        own = self.aliases.get(name, name)
        keys = (*(key for key, target in self.aliases.items() if target == own), own)
        declared = [key for key in self.defaults if key in keys]
        return (*(key for key in keys if key not in declared), *declared[-1:])

    def default(self, name: str, otherwise: Any = None) -> Any:
        """Return the value of a field that the file leaves out."""
        return self.defaults.get(self.spellings(name)[-1], otherwise)

    def part(self, name: str) -> tuple[str, Mapping[str, Any], bool]:
        """Return a nested part's family, its fields when the file has none, and whether the file may name another.

        A part that is no configuration of its own in transformers has no family: nothing is taken for granted in it.
        """
        part = self.parts.get(name, {})
        return part.get("model_type") or "", part.get("init", {}), part.get("dynamic", False)


@cache
def _lines() -> dict[str, str]:
    """Return the data file's lines by family, unparsed: one model needs only a few of them."""
    text = datafiles.text("models/families.jsonl")
    return {line.split('"', 4)[3]: line for line in text.splitlines() if line}


# Families that transformers does not know by this name, and the architecture they use: DeepSeek-V4's reference code;
# Kimi K2 (`architectures` says DeepseekV3ForCausalLM); MiMo, a Qwen2 but for its multi-token prediction
# (vllm-project/vllm, `model_executor/models/mimo.py`); the text model of MiniMax-M3 by itself; Llama with blocks.
SAME_AS: Final = {
    "deepseek_ref": "deepseek_v4",
    "kimi_k2": "deepseek_v3",
    "mimo": "qwen2",
    "minimax_m3": "minimax_m3_vl_text",
    "nemotron-nas": "llama",
}


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
