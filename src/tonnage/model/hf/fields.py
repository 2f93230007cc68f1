"""A config's fields, read strictly: what the file says, else what its family takes for granted.

A family's own spelling and the general one (`n_embd`, `hidden_size`) name the same field; an absent field has the
family's default, an explicit null means "not set", and anything of the wrong type is refused.

References
----------
.. [1] Field names, spellings and defaults: the configuration classes of huggingface/transformers 5.24.0, collected
   into `data/models/families.jsonl` by `validation/model_families.py`.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from typing import Any, Final, cast

from tonnage.errors import BadFileError, RequestError
from tonnage.model.hf.families import Family, family

_LARGEST: Final = 2**40
_DEEPEST: Final = 4
MOST_LAYERS: Final = 10_000
_ABSENT: Final = object()


class Fields:
    """One config object, or a part of one, with the defaults and spellings of its family."""

    def __init__(self, config: Mapping[str, Any], known: Family, *, where: str = "config.json", depth: int = 0) -> None:
        self.config = config
        self.family = known
        self.where = where
        self._depth = depth

    @property
    def model_type(self) -> str:
        """The family's name."""
        return self.family.model_type

    def refuse(
        self, name: str, what: str, fix: str = "give the config.json as the model's authors wrote it"
    ) -> RequestError:
        """Return the error for a field, to be raised."""
        return RequestError(f"field '{name}' {what}", where=self.where, fix=fix)

    def has(self, name: str) -> bool:
        """Whether the file itself sets a field, to anything but null."""
        return any(self.config.get(key) is not None for key in self.family.spellings(name))

    def is_left_out(self, name: str) -> bool:
        """Whether the file does not set a field, but its family has a value for it."""
        return not self.has(name) and self.family.default(name) is not None

    def is_known(self, name: str) -> bool:
        """Whether the file or the family knows a field, null included."""
        return self.get(name, _ABSENT) is not _ABSENT

    def get(self, name: str, default: Any = None) -> Any:
        """Return a field as it stands: from the file in any spelling, else the family's default, else `default`."""
        for key in self.family.spellings(name):
            if key in self.config:
                return self.config[key]
        return self.family.default(name, default)

    def maybe_count(self, name: str, *, least: int = 1) -> int | None:
        """Return a whole number, or None where it is null or unknown to the family."""
        value = self.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.refuse(name, f"is {_shown(value)}, not a whole number")
        if not least <= value <= _LARGEST:
            raise self.refuse(name, f"is {_shown(value)}, not between {least} and {_LARGEST}")
        return value

    def count(self, name: str, *, least: int = 1) -> int:
        """Return a whole number that has to be there."""
        value = self.maybe_count(name, least=least)
        if value is None:
            raise self.refuse(name, "is missing")
        return value

    def count_or(self, name: str, otherwise: int, *, least: int = 1) -> int:
        """Return a whole number, or another where it is null or unknown."""
        value = self.maybe_count(name, least=least)
        return otherwise if value is None else value

    def number(self, name: str) -> float:
        """Return a finite number above zero."""
        value = self.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < _LARGEST:
            raise self.refuse(name, f"is {_shown(value)}, not a number above zero")
        return float(value)

    def flag(self, name: str) -> bool:
        """Return a yes or no; null and unknown are no."""
        value = self.get(name)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise self.refuse(name, f"is {_shown(value)}, not true or false")
        return value

    def word(self, name: str) -> str | None:
        """Return a piece of text, or None."""
        value = self.get(name)
        if value is not None and not isinstance(value, str):
            raise self.refuse(name, f"is {_shown(value)}, not text")
        return value

    def num_layers(self, name: str = "num_hidden_layers") -> int:
        """Return a number of layers, with a limit that no model comes near."""
        value = self.count(name, least=0)
        if value > MOST_LAYERS:
            raise self.refuse(name, f"is {value}, more layers than any model has")
        return value

    def items(self, name: str) -> list[Any] | None:
        """Return a list of at most as many entries as a model can have layers, or None."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, list | tuple) or len(cast("list[Any]", value)) > MOST_LAYERS:
            raise self.refuse(name, "is not a list of reasonable length")
        return list(cast("list[Any]", value))

    def words(self, name: str) -> list[str] | None:
        """Return a list of text, or None."""
        value = self.items(name)
        if value is not None and not all(isinstance(item, str) for item in value):
            raise self.refuse(name, "has an entry that is not text")
        return value

    def counts(self, name: str, *, least: int = 0) -> list[int] | None:
        """Return a list of whole numbers, or None."""
        value = self.items(name)
        if value is not None and not all(
            isinstance(item, int) and not isinstance(item, bool) and least <= item <= _LARGEST for item in value
        ):
            raise self.refuse(name, "has an entry that is not a whole number")
        return value

    def layer_types(self, num_layers: int) -> list[str] | None:
        """Return the kind of each layer in today's names, or None where the file leaves it to the family."""
        kinds = self.words("layer_types")
        if kinds is None:
            return None
        if len(kinds) != num_layers:
            raise self.refuse("layer_types", f"names {len(kinds)} layers, but the model has {num_layers}")
        return [RENAMED_LAYER_TYPES.get(kind, kind) for kind in kinds]

    def layer_overrides(self) -> dict[int, Mapping[str, Any]]:
        """Return the fields that single layers override, by the layer's index."""
        value = self.get("per_layer_config")
        if value is None:
            return {}
        if not isinstance(value, Mapping) or len(cast("Mapping[str, Any]", value)) > MOST_LAYERS:
            raise self.refuse("per_layer_config", "is not an object of layers")
        found: dict[int, Mapping[str, Any]] = {}
        for key, fields in cast("Mapping[Any, Any]", value).items():
            if not str(key).isdecimal() or not isinstance(fields, Mapping):
                raise self.refuse("per_layer_config", "has an entry that is no layer's fields")
            found[int(key)] = cast("Mapping[str, Any]", fields)
        return found

    def with_fields(self, fields: Mapping[str, Any]) -> Fields:
        """Return the same config with some fields set otherwise."""
        both = ChainMap(dict(fields), cast("dict[str, Any]", self.config))
        return Fields(both, self.family, where=self.where, depth=self._depth)

    def part(self, name: str) -> Fields:
        """Return a nested config (`text_config`, `vision_config` …) with its own family's defaults."""
        if self._depth >= _DEEPEST:
            raise BadFileError(
                "configs are nested too deeply", where=self.where, fix="is the file really a config.json?"
            )
        known, init, is_dynamic = self.family.part(name)
        value = self.config.get(name)
        if value is None:
            value = init
        elif not isinstance(value, Mapping):
            raise self.refuse(name, f"is {_shown(value)}, not an object")
        where = f"{self.where}: {name}"
        if is_dynamic:
            named = cast("Mapping[str, Any]", value).get("model_type", known)
            if not isinstance(named, str):
                raise self.refuse(f"{name}.model_type", f"is {_shown(named)}, not text")
            known = named
        return Fields(cast("Mapping[str, Any]", value), family(known), where=where, depth=self._depth + 1)


# transformers 5 writes these names into saved configs (configuration_utils.py, _LEGACY_LAYER_TYPE_REMAP)
RENAMED_LAYER_TYPES: Final = {
    "mamba": "linear_attention",
    "attention": "full_attention",
    "deepseek_sparse_attention": "indexed_attention",
    "qwen_sparse_attention": "indexed_attention",
}


def _shown(value: object) -> str:
    """Show a value briefly, whatever it is."""
    if isinstance(value, int) and abs(value) > _LARGEST:
        return "a huge number" if value > 0 else "a number far below zero"
    if isinstance(value, str | int | float | bool) or value is None:
        return repr(value)[:40]
    return f"a {type(value).__name__}"
