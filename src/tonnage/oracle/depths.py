"""Which layers to trace, and what a few of them say of the whole stack. Pure.

Layers of one kind (equal modules with equal weights) cost the same. A short stack keeps the first and the last layer of
each kind; one more layer of a kind shows what one costs, so every sum is linear in how often each kind occurs.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from tonnage.nouns import noun
from tonnage.oracle.types import Snapshot


@noun
class Stacks:
    """A short stack, and a longer one for each kind that the short one does not hold whole; layers by their index."""

    base: tuple[int, ...]
    added: tuple[int, ...]  # the layer that each longer one has more
    longer: tuple[tuple[int, ...], ...]
    factors: tuple[int, ...]  # how many layers of that kind the base lacks


def stacks(kinds: Sequence[Hashable]) -> Stacks:
    """Choose the layers to trace.

    >>> stacks("dmmmmm")
    Stacks(base=(0, 1, 5), added=(2,), longer=((0, 1, 2, 5),), factors=(3,))
    """
    base: set[int] = set()
    longer: list[int] = []
    factors: list[int] = []
    places: dict[Hashable, list[int]] = {}
    for index, kind in enumerate(kinds):
        places.setdefault(kind, []).append(index)
    for indices in places.values():
        base |= {indices[0], indices[-1]}
        if len(indices) > 2:
            longer.append(indices[1])
            factors.append(len(indices) - 2)
    return Stacks(
        base=tuple(sorted(base)),
        added=tuple(longer),
        longer=tuple(tuple(sorted({*base, more})) for more in longer),
        factors=tuple(factors),
    )


def extrapolated(base: Snapshot, longer: Sequence[Snapshot], factors: Sequence[int]) -> Snapshot:
    """Return the bytes of the whole stack.

    >>> extrapolated(Snapshot(pools={"a": 7.0}), [Snapshot(pools={"a": 9.0})], [30]).pools
    {'a': 67.0}
    """
    names = dict.fromkeys((*base.pools, *(name for one in longer for name in one.pools)))
    return Snapshot(
        pools={
            name: base.pools.get(name, 0)
            + sum(
                factor * (one.pools.get(name, 0) - base.pools.get(name, 0))
                for one, factor in zip(longer, factors, strict=True)
            )
            for name in names
        }
    )


def extrapolated_phases(
    base: Mapping[str, Snapshot], longer: Sequence[Mapping[str, Snapshot]], factors: Sequence[int]
) -> dict[str, Snapshot]:
    """Return the fullest moment of each part of a step that every trace has."""
    return {
        name: extrapolated(moment, [one[name] for one in longer], factors)
        for name, moment in base.items()
        if all(name in one for one in longer)
    }
