"""The caching allocator's replay: sequences worked by hand from the allocator's rules, and laws that hold for all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.estimate.caching_allocator import Replay, Settings, replay, rounded_bytes, segment_bytes

KIB, MIB = 1 << 10, 1 << 20
PLAIN, EXPANDABLE = Settings(), Settings(has_expandable_segments=True)


def run(*events: tuple[int, int], settings: Settings = PLAIN) -> Replay:
    return replay(events, settings)


@pytest.mark.parametrize(
    ("asked", "block", "segment"),
    [(1, 512, 2 * MIB), (512, 512, 2 * MIB), (513, 1024, 2 * MIB), (MIB, MIB, 2 * MIB), (MIB + 1, MIB + 512, 20 * MIB),
     (10 * MIB - 512, 10 * MIB - 512, 20 * MIB), (10 * MIB, 10 * MIB, 10 * MIB), (11 * MIB, 11 * MIB, 12 * MIB)],
)  # fmt: skip
def test_sizes(asked, block, segment):
    assert rounded_bytes(asked) == block
    assert segment_bytes(block) == segment


def test_small_tensors_share_a_segment_until_it_is_full():
    four = run(*((i, 512 * KIB) for i in range(4)))
    assert (four.allocated_peak_bytes, four.reserved_peak_bytes, four.num_segments) == (2 * MIB, 2 * MIB, 1)
    assert run(*((i, 512 * KIB) for i in range(5))).reserved_peak_bytes == 4 * MIB


def test_medium_tensors_are_cut_from_20_mib():
    """Six of 3 MiB leave 2 MiB of the first segment: the seventh needs another."""
    assert run(*((i, 3 * MIB) for i in range(6))).reserved_peak_bytes == 20 * MIB
    assert run(*((i, 3 * MIB) for i in range(7))).reserved_peak_bytes == 40 * MIB


def test_a_freed_block_is_used_again_whole_or_in_part():
    """30 MiB freed serve 12 and 17 MiB; what is left, 1 MiB, is not cut off and no segment is made."""
    done = run((0, 30 * MIB), (0, -30 * MIB), (1, 12 * MIB), (2, 17 * MIB))
    assert done.reserved_peak_bytes == 30 * MIB
    assert done.allocated_peak_bytes == 30 * MIB  # the last block keeps the 1 MiB
    assert done.requested_peak_bytes == 30 * MIB


def test_best_fit_takes_the_smallest_that_does():
    done = run((0, 40 * MIB), (1, 24 * MIB), (0, -40 * MIB), (1, -24 * MIB), (2, 24 * MIB), (3, 40 * MIB))
    assert done.reserved_peak_bytes == 64 * MIB


def test_free_blocks_of_two_segments_do_not_join():
    """Two of 30 MiB, both freed, are no place for 60 MiB; expandable segments are."""
    events = ((0, 30 * MIB), (1, 30 * MIB), (0, -30 * MIB), (1, -30 * MIB), (2, 60 * MIB))
    assert run(*events).reserved_peak_bytes == 120 * MIB
    assert run(*events, settings=EXPANDABLE).reserved_peak_bytes == 60 * MIB


def test_neighbours_of_one_segment_join():
    events = ((0, 4 * MIB), (1, 4 * MIB), (0, -4 * MIB), (1, -4 * MIB), (2, 20 * MIB))
    assert run(*events).reserved_peak_bytes == 20 * MIB


def test_an_expandable_segment_grows_by_20_mib():
    assert run((0, 30 * MIB), settings=EXPANDABLE).reserved_peak_bytes == 40 * MIB
    assert run((0, 30 * MIB), (1, 12 * MIB), settings=EXPANDABLE).reserved_peak_bytes == 60 * MIB
    assert run((0, MIB), settings=EXPANDABLE).reserved_peak_bytes == 2 * MIB


def test_blocks_above_the_split_limit_stay_whole():
    events = ((0, 100 * MIB), (0, -100 * MIB), (1, 30 * MIB))
    assert run(*events).reserved_peak_bytes == 100 * MIB
    assert run(*events, settings=Settings(max_split_bytes=64 * MIB)).reserved_peak_bytes == 130 * MIB


def test_short_memory_gives_cached_segments_back_first():
    events = ((0, 30 * MIB), (0, -30 * MIB), (1, 40 * MIB))
    served = run(*events, settings=Settings(capacity_bytes=50 * MIB))
    assert served.out_of_memory_at is None
    assert served.reserved_at_end_bytes == 40 * MIB
    held = run((9, 30 * MIB), *events[2:], settings=Settings(capacity_bytes=50 * MIB))
    assert held.out_of_memory_at == 1
    grown = Settings(has_expandable_segments=True, capacity_bytes=50 * MIB)
    assert run(*events, settings=grown).reserved_at_end_bytes == 40 * MIB


def test_fragmentation():
    assert run((0, 2 * MIB)).fragmentation_ratio == pytest.approx(0.9)
    assert run().fragmentation_ratio == 0.0
    assert run((0, 0), (0, 0)).num_segments == 0


@st.composite
def lives(draw) -> list[tuple[int, int]]:
    """Allocations and frees in some order, each tensor freed after it was made, some never."""
    events: list[tuple[int, int]] = []
    alive: list[tuple[int, int]] = []
    for number in range(draw(st.integers(1, 60))):
        if alive and draw(st.booleans()):
            tensor, num_bytes = alive.pop(draw(st.integers(0, len(alive) - 1)))
            events.append((tensor, -num_bytes))
        num_bytes = draw(st.one_of(st.integers(1, 4 * KIB), st.integers(1, 40 * MIB)))
        events.append((number, num_bytes))
        alive.append((number, num_bytes))
    return events


@given(events=lives(), settings=st.sampled_from([Settings(), EXPANDABLE, Settings(max_split_bytes=24 * MIB)]))
def test_reserved_covers_allocated_covers_requested(events, settings):
    done = replay(events, settings)
    assert done.requested_peak_bytes <= done.allocated_peak_bytes <= done.reserved_peak_bytes
    assert done.allocated_at_end_bytes <= done.reserved_at_end_bytes == done.reserved_peak_bytes
    assert done.reserved_peak_bytes % (2 * MIB) == 0


@given(events=lives())
def test_all_freed_leaves_nothing_allocated(events):
    sizes = dict(pair for pair in events if pair[1] > 0)
    gone = {tensor for tensor, num_bytes in events if num_bytes < 0}
    rest = [(tensor, -num_bytes) for tensor, num_bytes in sizes.items() if tensor not in gone]
    for settings in (Settings(), EXPANDABLE):
        assert replay([*events, *rest], settings).allocated_at_end_bytes == 0


@given(events=lives())
def test_the_same_again_needs_nothing_more(events):
    """A step that frees all it made is served by what the first one left."""
    sizes = dict(pair for pair in events if pair[1] > 0)
    gone = {tensor for tensor, num_bytes in events if num_bytes < 0}
    step = [*events, *((tensor, -num_bytes) for tensor, num_bytes in sizes.items() if tensor not in gone)]
    for settings in (Settings(), EXPANDABLE):
        once, twice = replay(step, settings), replay([*step, *step], settings)
        assert twice.allocated_peak_bytes <= once.reserved_peak_bytes
        assert twice.reserved_peak_bytes == once.reserved_peak_bytes or settings is not EXPANDABLE


@given(sizes=st.lists(st.integers(1, 40 * MIB), min_size=1, max_size=20), seed=st.randoms())
def test_order_of_frees_does_not_matter_when_nothing_follows(sizes, seed):
    made = list(enumerate(sizes))
    frees = [(tensor, -num_bytes) for tensor, num_bytes in made]
    shuffled = list(frees)
    seed.shuffle(shuffled)
    assert replay([*made, *frees], Settings()) == replay([*made, *shuffled], Settings())


@given(events=lives())
def test_enough_capacity_changes_nothing(events):
    free = replay(events, Settings())
    assert replay(events, Settings(capacity_bytes=free.reserved_peak_bytes)) == free
