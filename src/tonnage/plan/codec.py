"""Nouns to plain tables and back, by their annotations; and tables to TOML, which the standard library only reads."""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from tonnage.errors import BadFileError
from tonnage.estimate.types import Interval
from tonnage.model.types import FeedForward, Layer, Mixer, count_equal
from tonnage.workload.types import Workload

_DEEPEST: Final = 12
_LARGEST: Final = sys.float_info.max  # an integer beyond it is no float, nor is infinity
# Nouns that stand where several may stand: their tables carry their name.
_TAGGED: Final = frozenset((*get_args(Mixer), *get_args(FeedForward), *get_args(Workload)))


def encode(value: Any) -> Any:
    """Return a noun as tables, lists and scalars; what is None or empty is left out.

    A noun that stands where several may stand carries its name in `type`; equal layers are written once, with how
    often they follow one another.
    """
    if is_dataclass(value) and not isinstance(value, type):
        pairs = ((f.name, getattr(value, f.name), f) for f in fields(value))
        table = {name: encode(held) for name, held, field in pairs if not _is_default(held, field)}
        return {"type": type(value).__name__, **table} if type(value) in _TAGGED else table
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(name): encode(held) for name, held in value.items()}
    if isinstance(value, tuple) and value and all(isinstance(v, Layer) for v in value):
        return _encode_layers(value)
    if isinstance(value, (tuple, list)):
        return [encode(held) for held in value]
    if isinstance(value, (str, bool, int)):
        return value
    number: Any = value  # of numpy
    return number.item() if hasattr(number, "item") else float(number)


def _is_default(value: Any, field: Any) -> bool:
    if value is None:
        return True
    default = field.default_factory() if field.default_factory is not MISSING else field.default
    return default is not MISSING and type(value) is type(default) and bool(value == default)


def _encode_layers(layers: tuple[Layer, ...]) -> dict[str, Any]:
    kinds = [layer for layer, _ in count_equal(layers)]
    return {"kinds": [encode(layer) for layer in kinds], "order": _runs([kinds.index(layer) for layer in layers])}


def _runs(order: list[int]) -> list[list[int]]:
    """Write 0 0 0 1 as (0, 3), (1, 1)."""
    runs: list[list[int]] = []
    for kind in order:
        if runs and runs[-1][0] == kind:
            runs[-1][1] += 1
        else:
            runs.append([kind, 1])
    return runs


def _shown(value: Any) -> str:
    """Return a value's beginning; an integer of thousands of digits has no text."""
    return (
        f"an integer of {value.bit_length()} bits"
        if isinstance(value, int) and abs(value) > _LARGEST
        else str(value)[:40]
    )


class Decoder:
    """Reads tables back into nouns, holding each value to its annotation."""

    def __init__(self, where: str) -> None:
        self.where = where
        self._hints: dict[type, dict[str, Any]] = {}

    def fail(self, what: str) -> BadFileError:
        """Say what of the file is wrong."""
        return BadFileError(what, where=self.where, fix="write the plan again with tonnage plan … -o plan.toml")

    def read(self, wanted: Any, value: Any, path: str, depth: int = 0) -> Any:
        """Return `value` as the type that an annotation names."""
        if depth > _DEEPEST:
            raise self.fail(f"{path} is nested too deeply")
        origin = get_origin(wanted)
        if origin in (Union, types.UnionType):
            return self._read_union(get_args(wanted), value, path, depth)
        if origin is Literal:
            return self._held(value in get_args(wanted) and isinstance(value, str), value, path)
        if origin is tuple:
            return self._read_tuple(get_args(wanted), value, path, depth)
        if origin is not None:
            _, inner = get_args(wanted)
            self._held(isinstance(value, dict), value, path)
            return {name: self.read(inner, held, f"{path}.{name}", depth + 1) for name, held in value.items()}
        if is_dataclass(wanted):
            return self._read_noun(wanted, value, path, depth)
        return self._read_scalar(wanted, value, path)

    def _held(self, is_right: bool, value: Any, path: str) -> Any:
        if not is_right:
            raise self.fail(f"{path} is {_shown(value)!r}, which it cannot be")
        return value

    def _read_scalar(self, wanted: Any, value: Any, path: str) -> Any:
        if wanted is Any:
            return value
        if issubclass(wanted, Enum):
            self._held(value in {member.value for member in wanted}, value, path)
            return wanted(value)
        if wanted is float:
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            self._held(is_number and abs(value) <= _LARGEST, value, path)
            return float(value)
        if wanted is int:
            self._held(isinstance(value, int) and abs(value) <= _LARGEST, value, path)
        return self._held(isinstance(value, wanted) and (wanted is bool or not isinstance(value, bool)), value, path)

    def _read_union(self, options: tuple[Any, ...], value: Any, path: str, depth: int) -> Any:
        nouns: dict[str, Any] = {str(getattr(noun, "__name__", "")): noun for noun in options if is_dataclass(noun)}
        if isinstance(value, dict) and nouns:
            name = value.get("type", next(iter(nouns)))
            self._held(isinstance(name, str) and name in nouns, name, f"{path}.type")
            return self.read(nouns[name], value, path, depth)
        scalars = [kind for kind in options if kind is not type(None) and not is_dataclass(kind)]
        exact = [kind for kind in scalars if isinstance(kind, type) and type(value) is kind]
        self._held(bool(scalars), value, path)
        return self.read((exact or scalars)[0], value, path, depth + 1)

    def _read_tuple(self, inner: tuple[Any, ...], value: Any, path: str, depth: int) -> tuple[Any, ...]:
        if inner and inner[0] is Layer and isinstance(value, dict):
            value = self._unroll(value, path)
        self._held(isinstance(value, list), value, path)
        if len(inner) == 2 and inner[1] is Ellipsis:
            kinds = [inner[0]] * len(value)
        else:
            self._held(len(value) == len(inner), value, path)
            kinds = list(inner)
        if inner[0] is not Layer:
            return tuple(
                self.read(k, v, f"{path}[{i}]", depth + 1) for i, (k, v) in enumerate(zip(kinds, value, strict=True))
            )
        known: dict[int, Any] = {}  # a kind of layer is read once, however often it stands in the order
        for i, held in enumerate(value):
            if id(held) not in known:
                known[id(held)] = self.read(Layer, held, f"{path}[{i}]", depth + 1)
        return tuple(known[id(held)] for held in value)

    def _unroll(self, value: dict[str, Any], path: str) -> list[Any]:
        kinds, order = value.get("kinds"), value.get("order")
        self._held(isinstance(kinds, list) and isinstance(order, list), value, path)
        unrolled: list[Any] = []
        for run in order or []:
            is_run = isinstance(run, list) and len(run) == 2 and all(type(n) is int for n in run)
            self._held(is_run and 0 <= run[0] < len(kinds or []) and 0 < run[1] <= 10_000, run, f"{path}.order")
            unrolled += [(kinds or [])[run[0]]] * run[1]
        return unrolled

    def _read_noun(self, noun: Any, value: Any, path: str, depth: int) -> Any:
        self._held(isinstance(value, dict), value, path)
        self._held(value.get("type", noun.__name__) == noun.__name__, value.get("type"), f"{path}.type")
        hints = self._hints.get(noun)
        if hints is None:
            hints = self._hints[noun] = get_type_hints(noun)
        given = {name: held for name, held in value.items() if name != "type"}
        unknown = [name for name in given if name not in hints]
        if unknown:
            raise self.fail(f"{path}.{unknown[0]} is not known")
        read = {name: self.read(hints[name], held, f"{path}.{name}", depth + 1) for name, held in given.items()}
        for field in fields(noun):
            if field.name not in read and field.default is MISSING and field.default_factory is MISSING:
                if type(None) not in get_args(hints[field.name]):
                    raise self.fail(f"{path}.{field.name} is missing")
                read[field.name] = None
        if noun is Interval:
            slack = 1e-9 * max(abs(one) for one in read.values())
            is_ordered = read["low"] <= read["best"] + slack and read["best"] <= read["high"] + slack
            self._held(is_ordered, f"{read['low']:g}, {read['best']:g}, {read['high']:g}", path)
        return noun(**read)


def to_toml(table: Mapping[str, Any], comments: Mapping[str, str] | None = None) -> str:
    """Write tables as TOML: two levels of headings, the rest inline, a list of tables one a line.

    >>> print(to_toml({"format": 1, "a": {"b": [1, 2], "c": {"d": True}}}))
    format = 1
    <BLANKLINE>
    [a]
    b = [1, 2]
    <BLANKLINE>
    [a.c]
    d = true
    """
    lines = [f"{_key(name)} = {_inline(held)}" for name, held in table.items() if not isinstance(held, Mapping)]
    for name, held in table.items():
        if isinstance(held, Mapping):
            lines += ["", *(f"# {line}" for line in (comments or {}).get(name, "").splitlines())]
            lines += _section(_key(name), held, 1)
    return "\n".join(lines)


def _section(heading: str, table: Mapping[str, Any], level: int) -> list[str]:
    inner = {name: held for name, held in table.items() if isinstance(held, Mapping) and held and level < 3}
    lines = [f"[{heading}]"]
    for name, held in table.items():
        if name not in inner:
            lines.append(f"{_key(name)} = {_listed(held)}")
    if len(lines) == 1 and inner:
        lines = []
    for name, held in inner.items():
        lines += ([""] if lines else []) + _section(f"{heading}.{_key(name)}", held, level + 1)
    return lines


def _listed(value: Any) -> str:
    if isinstance(value, list) and value and all(isinstance(v, Mapping) for v in value):
        return "[\n" + "".join(f"  {_inline(v)},\n" for v in value) + "]"
    return _inline(value)


def _key(name: str) -> str:
    is_bare = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if is_bare else _text(name)


def _text(value: str) -> str:
    import json  # noqa: PLC0415  its strings are TOML's, but for one control character

    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _inline(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(n)} = {_inline(v)}" for n, v in value.items()) + " }" if value else "{}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_inline(v) for v in value) + "]"
    return repr(value)
