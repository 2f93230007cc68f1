"""What nothing else beats in every respect at once."""

from __future__ import annotations

from collections.abc import Sequence


def dominates(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether one is nowhere worse and somewhere better, where less is better.

    >>> dominates((1, 2), (1, 3)), dominates((1, 3), (2, 2))
    (True, False)
    """
    return all(a <= b for a, b in zip(one, other, strict=True)) and any(a < b for a, b in zip(one, other, strict=True))


def front(scores: Sequence[Sequence[float]]) -> tuple[int, ...]:
    """Return the places of what is not dominated, in their order; less is better in every score.

    >>> front([(1, 3), (2, 2), (2, 3), (3, 1)])
    (0, 1, 3)
    """
    kept: list[int] = []
    for i in sorted(range(len(scores)), key=lambda i: tuple(scores[i])):
        if not any(dominates(scores[j], scores[i]) for j in kept):
            kept.append(i)
    return tuple(sorted(kept))
