"""`@noun` makes what the standard decorator makes: held against it, class by class."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, is_dataclass, replace
from typing import ClassVar

import pytest

from tonnage.nouns import noun


@noun
class Ours:
    """A value."""

    a: int
    b: str = "x"
    c: Mapping[str, int] = field(default_factory=dict)
    kind: ClassVar[str] = "ours"

    @property
    def twice(self) -> int:
        return 2 * self.a

    @staticmethod
    def make() -> Ours:
        return Ours(a=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Theirs:
    """A value."""

    a: int
    b: str = "x"
    c: Mapping[str, int] = field(default_factory=dict)
    kind: ClassVar[str] = "ours"


@noun
class One:
    """A single field."""

    a: tuple[int, ...] = ()


@noun
class Checked:
    """Looks at itself when it is made."""

    a: int

    def __post_init__(self) -> None:
        assert self.a > 0


def test_fields_and_values_are_those_of_a_dataclass():
    assert is_dataclass(Ours)
    assert [f.name for f in fields(Ours)] == [f.name for f in fields(Theirs)] == ["a", "b", "c"]
    assert asdict(Ours(a=1, c={"k": 2})) == asdict(Theirs(a=1, c={"k": 2}))
    assert repr(Ours(a=1)) == repr(Theirs(a=1)).replace("Theirs", "Ours")
    assert (Ours.kind, Ours(a=3).twice, Ours.make().b) == ("ours", 6, "x")
    assert Ours.__slots__ == ("a", "b", "c")
    assert not hasattr(Ours(a=1), "__dict__")


def test_equality_and_hash_follow_the_fields():
    assert Ours(a=1) == Ours(a=1) != Ours(a=2)
    assert Ours(a=1) != Theirs(a=1)
    assert Ours(a=1) != 1
    assert hash(One(a=(1,))) == hash(One(a=(1,)))
    assert {One(a=(1,)), One(a=(1,)), One(a=(2,))} == {One(a=(1,)), One(a=(2,))}
    assert One(a=(1,)) == One(a=(1,)) != One(a=(2,))
    with pytest.raises(TypeError):
        hash(Ours(a=1, c={}))


def test_defaults_are_made_anew():
    assert Ours(a=1).c is not Ours(a=1).c


def test_values_are_frozen_and_replaced():
    value = Ours(a=1)
    with pytest.raises(FrozenInstanceError):
        value.a = 2
    with pytest.raises(FrozenInstanceError):
        del value.a
    with pytest.raises(FrozenInstanceError):
        value.z = 2
    assert replace(value, a=2) == Ours(a=2)
    assert value.a == 1


def test_fields_go_by_keyword_and_are_required():
    with pytest.raises(TypeError):
        Ours(1)
    with pytest.raises(TypeError):
        Ours()
    with pytest.raises(TypeError):
        Ours(a=1, z=2)


def test_values_are_copied_and_pickled():
    value = Ours(a=1, b="y")
    assert copy.copy(value) == copy.deepcopy(value) == pickle.loads(pickle.dumps(value)) == value


def test_a_value_looks_at_itself():
    with pytest.raises(AssertionError):
        Checked(a=0)
    assert Checked(a=1).a == 1
