"""Frozen value classes, made quickly.

`@noun` makes what `@dataclass(frozen=True, slots=True, kw_only=True)` makes: fields, `replace`, equality, hash, slots.
The standard decorator writes and compiles six functions for each class, a third of the time of a cold start with a
hundred classes; here the constructor alone is written, and the rest is shared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from operator import attrgetter
from typing import Any, NoReturn, TypeVar, cast, dataclass_transform

Class = TypeVar("Class", bound=type)
_set: Callable[[Any, str, Any], None] = object.__setattr__


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def noun(plain: Class) -> Class:
    """Return a class of frozen values with slots, its fields given by keyword."""
    made = dataclass(init=False, repr=False, eq=False, kw_only=True)(plain)
    names = tuple(f.name for f in fields(made))
    body = {name: value for name, value in vars(made).items() if name not in {*names, "__dict__", "__weakref__"}}
    body |= {"__slots__": names, "__qualname__": plain.__qualname__, "__init__": _constructor(made)}
    shared = {"__eq__": _equal, "__hash__": _hash, "__repr__": _repr, "__setattr__": _refuse, "__delattr__": _refuse}
    body |= {name: function for name, function in shared.items() if name not in vars(plain)}
    body |= {"__getstate__": _state, "__setstate__": _restore, "_held": _getter(names)}
    made.__dataclass_params__.frozen = True  # pyright: ignore[reportAttributeAccessIssue]  dataclasses.fields asks it
    return cast("Class", type(plain)(plain.__name__, plain.__bases__, body))


def _constructor(made: type) -> Callable[..., None]:
    """Write `__init__`: the one function that has to know the names."""
    space: dict[str, Any] = {"_set": _set, "MISSING": MISSING}
    parameters, lines = [], []
    for one in fields(made):
        value = one.name
        if one.default_factory is not MISSING:
            space[f"_make_{one.name}"] = one.default_factory
            parameters.append(f"{one.name}=MISSING")
            value = f"_make_{one.name}() if {one.name} is MISSING else {one.name}"
        elif one.default is not MISSING:
            space[f"_default_{one.name}"] = one.default
            parameters.append(f"{one.name}=_default_{one.name}")
        else:
            parameters.append(one.name)
        lines.append(f" _set(self, {one.name!r}, {value})")
    if hasattr(made, "__post_init__"):
        lines.append(" self.__post_init__()")
    star = ", *, " if parameters else ""
    exec(f"def __init__(self{star}{', '.join(parameters)}):\n{chr(10).join(lines) or ' pass'}", space)  # noqa: S102
    return space["__init__"]


def _getter(names: tuple[str, ...]) -> Callable[[Any], Any]:
    """Return a function that gives all fields as a tuple."""
    return staticmethod(attrgetter(*names) if len(names) > 1 else lambda value: tuple(getattr(value, n) for n in names))


def _equal(self: Any, other: object) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return self is other or self._held(self) == self._held(other)


def _hash(self: Any) -> int:
    return hash(self._held(self))


def _repr(self: Any) -> str:
    return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__slots__)})"


def _refuse(self: Any, name: str, *_: Any) -> NoReturn:
    raise FrozenInstanceError(f"cannot change field {name!r} of a {type(self).__name__}")


def _state(self: Any) -> tuple[Any, ...]:
    return tuple(getattr(self, name) for name in self.__slots__)


def _restore(self: Any, state: tuple[Any, ...]) -> None:
    for name, value in zip(self.__slots__, state, strict=True):
        _set(self, name, value)
