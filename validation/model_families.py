"""Write `data/models/families.jsonl`: what transformers' configuration classes take for granted, one line a family.

Only the families that tonnage builds and only the fields that its parser names are kept. Run with transformers
installed, after a change to `tonnage/model/hf`:

    python validation/model_families.py
"""

from __future__ import annotations

import ast
import dataclasses
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "src" / "tonnage" / "data" / "models" / "families.jsonl"
PARSER = ROOT / "src" / "tonnage" / "model" / "hf"


def names_in_parser() -> set[str]:
    """Return every word that the parser's source quotes."""
    return {
        node.value
        for path in PARSER.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier()
    }


def is_plain(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(is_plain(item) for item in value)
    if isinstance(value, dict):
        return all(isinstance(key, str) and is_plain(item) for key, item in value.items())
    return value is None or isinstance(value, int | float | str)


def line_of(model_type: str, cls: type, names: set[str]) -> tuple[dict, list[tuple[str, type]]]:
    """Return a family's line, and the families of its parts that have a class of their own."""
    from transformers.configuration_utils import PreTrainedConfig, SubConfigSpec

    aliases = dict(getattr(cls, "attribute_map", {}))
    kept = names | {target for alias, target in aliases.items() if alias in names}
    defaults = {}
    for field in dataclasses.fields(cls):
        value = field.default
        if field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
        if field.name in kept and value is not dataclasses.MISSING and is_plain(value):
            defaults[field.name] = value
    parts, found = {}, []
    for key, given in (getattr(cls, "sub_configs_defaults", None) or {}).items():
        spec = given if isinstance(given, SubConfigSpec) else SubConfigSpec(given)
        is_dynamic = not issubclass(spec.config_class, PreTrainedConfig)
        init = {name: value for name, value in spec.init_kwargs.items() if name in names | {"model_type"}}
        named = spec.model_type or f"{model_type}.{key}"  # a class may have no name of its own
        parts[key] = {"model_type": named, "dynamic": is_dynamic, "init": init}
        found.append((named, None if is_dynamic else spec.config_class))
    line = {"model_type": model_type, "defaults": defaults, "parts": parts}
    line["aliases"] = {alias: target for alias, target in aliases.items() if target in kept}
    return {key: value for key, value in line.items() if value or key == "defaults"}, found


def lines() -> list[str]:
    """Return the file's lines."""
    from transformers import CONFIG_MAPPING

    sys.path.insert(0, str(ROOT / "src"))
    from tonnage.model.hf import BUILDERS
    from tonnage.model.hf.towers import TOWERS
    from tonnage.model.hf.vision import FAMILIES

    names, written = names_in_parser(), {}
    waiting: list[tuple[str, type | None]] = [(model_type, None) for model_type in (*BUILDERS, *FAMILIES, *TOWERS)]
    while waiting:
        model_type, cls = waiting.pop()
        if model_type in written or (cls is None and model_type not in CONFIG_MAPPING):
            continue
        written[model_type], found = line_of(model_type, cls or CONFIG_MAPPING[model_type], names)
        waiting.extend(found)
    return [json.dumps(written[name], separators=(",", ":")) for name in sorted(written)]


if __name__ == "__main__":
    TARGET.write_text("\n".join(lines()) + "\n", encoding="utf-8")
