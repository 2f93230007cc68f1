"""The front holds what nothing dominates, and nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tonnage.search.pareto import dominates, front

points = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5)), max_size=25)


@given(points)
def test_the_front_is_what_brute_force_finds(scores):
    expected = [i for i, one in enumerate(scores) if not any(dominates(other, one) for other in scores)]
    assert list(front(scores)) == expected
