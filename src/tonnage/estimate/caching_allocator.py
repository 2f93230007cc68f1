"""PyTorch's caching allocator, run on a list of allocations: what it reserves for what is allocated.

One device and one stream. Segments go back to the driver only when memory is short, as they do in PyTorch.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import Final

from tonnage.nouns import noun

_UNIT: Final = 512  # kMinBlockSize
_LARGEST_SMALL: Final = 1 << 20  # kSmallSize
_SMALL_SEGMENT: Final = 2 << 20  # kSmallBuffer
_LARGE_SEGMENT: Final = 20 << 20  # kLargeBuffer
_LEAST_OWN_SEGMENT: Final = 10 << 20  # kMinLargeAlloc
_OWN_SEGMENT_UNIT: Final = 2 << 20  # kRoundLarge


@noun
class Settings:
    """How the allocator is set: `PYTORCH_CUDA_ALLOC_CONF`, and the memory it may take; None has no end."""

    has_expandable_segments: bool = False
    max_split_bytes: int | None = None
    capacity_bytes: int | None = None


@noun
class Replay:
    """What the allocator made of a list of allocations. All in bytes."""

    requested_peak_bytes: int  # of tensors, as they were asked for
    allocated_peak_bytes: int  # of blocks, rounded: `torch.cuda.max_memory_allocated`
    reserved_peak_bytes: int  # of segments: `torch.cuda.max_memory_reserved`
    allocated_at_end_bytes: int
    reserved_at_end_bytes: int
    num_segments: int  # made from first to last
    out_of_memory_at: int | None = None  # event that could not be served

    @property
    def fragmentation_ratio(self) -> float:
        """Share of the reserved peak that no allocated peak explains."""
        return 1 - self.allocated_peak_bytes / self.reserved_peak_bytes if self.reserved_peak_bytes else 0.0


class _Block:
    """A piece of a segment, in a chain by address."""

    __slots__ = ("address", "after", "before", "is_free", "num_bytes", "pool")

    def __init__(self, address: int, num_bytes: int, pool: _Pool) -> None:
        self.address, self.num_bytes, self.pool = address, num_bytes, pool
        self.before: _Block | None = None
        self.after: _Block | None = None
        self.is_free = False


class _Pool:
    """Free blocks of small or of large requests, by their bytes and then by address."""

    def __init__(self, *, is_small: bool) -> None:
        self.is_small = is_small
        self.keys: list[tuple[int, int]] = []
        self.blocks: dict[tuple[int, int], _Block] = {}
        self.last: _Block | None = None  # of an expandable segment
        self.end = 0  # first address of it that is not mapped

    def add(self, block: _Block) -> None:
        block.is_free = True
        insort(self.keys, (block.num_bytes, block.address))
        self.blocks[block.num_bytes, block.address] = block

    def remove(self, block: _Block) -> None:
        block.is_free = False
        key = block.num_bytes, block.address
        del self.keys[bisect_left(self.keys, key)]
        del self.blocks[key]

    def best(self, num_bytes: int) -> _Block | None:
        """Return the smallest free block that holds as many bytes, at the lowest address."""
        index = bisect_left(self.keys, (num_bytes, 0))
        return self.blocks[self.keys[index]] if index < len(self.keys) else None


def rounded_bytes(num_bytes: int) -> int:
    """Return the size of the block that holds a request: whole units of 512 bytes, one at least, in bytes.

    >>> rounded_bytes(1), rounded_bytes(513)
    (512, 1024)
    """
    return max(_UNIT, -(-num_bytes // _UNIT) * _UNIT)


def segment_bytes(num_bytes: int) -> int:
    """Return the size of the segment that is made for a block: 2 MiB, 20 MiB, or the block in whole 2 MiB.

    >>> [segment_bytes(num_bytes) >> 20 for num_bytes in (1 << 20, 2 << 20, 11 << 20)]
    [2, 20, 12]
    """
    if num_bytes <= _LARGEST_SMALL:
        return _SMALL_SEGMENT
    if num_bytes < _LEAST_OWN_SEGMENT:
        return _LARGE_SEGMENT
    return -(-num_bytes // _OWN_SEGMENT_UNIT) * _OWN_SEGMENT_UNIT


class _Allocator:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.small, self.large = _Pool(is_small=True), _Pool(is_small=False)
        self.next_address = 0
        self.reserved = self.allocated = 0
        self.reserved_peak = self.allocated_peak = self.num_segments = 0

    def allocate(self, requested_bytes: int) -> _Block | None:
        num_bytes = rounded_bytes(requested_bytes)
        pool = self.small if num_bytes <= _LARGEST_SMALL else self.large
        block = self._free_block(pool, num_bytes)
        if block is None:
            wanted = segment_bytes(num_bytes)
            block = self._segment(pool, wanted)
            if block is None:
                self._release()
                block = self._segment(pool, wanted)
            if block is None:
                return None
        else:
            pool.remove(block)
        if self._splits(block, num_bytes):
            self._split(block, num_bytes)
        self.allocated += block.num_bytes
        self.allocated_peak = max(self.allocated_peak, self.allocated)
        return block

    def free(self, block: _Block) -> None:
        self.allocated -= block.num_bytes
        pool = block.pool
        for other in (block.before, block.after):
            if other is not None and other.is_free and self._touch(block, other):
                pool.remove(other)
                self._join(block, other)
        pool.add(block)

    @staticmethod
    def _touch(block: _Block, other: _Block) -> bool:
        """Whether two neighbours of a chain have no hole between them."""
        first, second = (block, other) if block.address < other.address else (other, block)
        return first.address + first.num_bytes == second.address

    @staticmethod
    def _join(block: _Block, other: _Block) -> None:
        if other is block.before:
            block.before, block.address = other.before, other.address
            if other.before is not None:
                other.before.after = block
        else:
            block.after = other.after
            if other.after is not None:
                other.after.before = block
        if block.pool.last is other:
            block.pool.last = block
        block.num_bytes += other.num_bytes

    def _free_block(self, pool: _Pool, num_bytes: int) -> _Block | None:
        block = pool.best(num_bytes)
        most = self.settings.max_split_bytes
        if block is None or most is None or self.settings.has_expandable_segments:
            return block
        if num_bytes < most <= block.num_bytes or (num_bytes >= most and block.num_bytes >= num_bytes + _LARGE_SEGMENT):
            return None
        return block

    def _splits(self, block: _Block, num_bytes: int) -> bool:
        rest = block.num_bytes - num_bytes
        if block.pool.is_small or self.settings.has_expandable_segments:
            return rest >= _UNIT
        most = self.settings.max_split_bytes
        return rest > _LARGEST_SMALL and (most is None or num_bytes < most)

    @staticmethod
    def _split(block: _Block, num_bytes: int) -> None:
        rest = _Block(block.address + num_bytes, block.num_bytes - num_bytes, block.pool)
        block.num_bytes = num_bytes
        rest.before, rest.after = block, block.after
        if block.after is not None:
            block.after.before = rest
        block.after = rest
        if block.pool.last is block:
            block.pool.last = rest
        block.pool.add(rest)

    def _takes(self, num_bytes: int) -> bool:
        most = self.settings.capacity_bytes
        if most is not None and self.reserved + num_bytes > most:
            return False
        self.reserved += num_bytes
        self.reserved_peak = max(self.reserved_peak, self.reserved)
        return True

    def _segment(self, pool: _Pool, num_bytes: int) -> _Block | None:
        if self.settings.has_expandable_segments:
            return self._expanded(pool, num_bytes)
        if not self._takes(num_bytes):
            return None
        self.num_segments += 1
        block = _Block(self.next_address, num_bytes, pool)
        self.next_address += num_bytes + 1  # segments never join
        return block

    def _expanded(self, pool: _Pool, num_bytes: int) -> _Block | None:
        """Map more of the pool's one segment, behind what is mapped: a free block at its end grows."""
        last = pool.last
        grows = last is not None and last.is_free and last.address + last.num_bytes == pool.end
        unit = _SMALL_SEGMENT if pool.is_small else _LARGE_SEGMENT
        missing = -(-(num_bytes - (last.num_bytes if grows and last else 0)) // unit) * unit
        if not self._takes(missing):
            return None
        self.num_segments += int(last is None)
        block = _Block(pool.end, missing, pool)
        pool.end += missing
        if last is not None:
            last.after, block.before = block, last
            if grows:
                pool.remove(last)
                self._join(block, last)
        pool.last = block
        return block

    def _release(self) -> None:
        """Give the driver back what nothing uses: whole segments, or whole mapped units of an expandable one."""
        for pool in (self.small, self.large):
            for block in list(pool.blocks.values()):
                if self.settings.has_expandable_segments:
                    self._unmap(block, _SMALL_SEGMENT if pool.is_small else _LARGE_SEGMENT)
                elif block.before is None and block.after is None:
                    pool.remove(block)
                    self.reserved -= block.num_bytes

    def _unmap(self, block: _Block, unit: int) -> None:
        pool = block.pool
        first, last = -(-block.address // unit) * unit, (block.address + block.num_bytes) // unit * unit
        if last <= first:
            return
        pool.remove(block)
        self.reserved -= last - first
        tail = block.address + block.num_bytes - last
        block.num_bytes = first - block.address
        if tail:
            rest = _Block(last, tail, pool)
            rest.before, rest.after = block, block.after
            if block.after is not None:
                block.after.before = rest
            block.after = rest
            if pool.last is block:
                pool.last = rest
            pool.add(rest)
        if block.num_bytes:
            pool.add(block)


def replay(events: Iterable[tuple[int, int]], settings: Settings) -> Replay:
    """Run the allocator on allocations and frees, in order.

    Parameters
    ----------
    events : iterable of (int, int)
        A tensor's number, and its bytes where it is allocated; the same below zero where it is freed. [1], [B]
    settings : Settings
        How the allocator is set.

    Returns
    -------
    Replay
        Peaks of what is asked for, allocated and reserved; with a capacity, the first event that it cannot serve,
        where the replay stops.

    Notes
    -----
    Tensors of no bytes take no memory. Left out: several streams, `roundup_power2_divisions`, garbage collection, and
    whatever else asks the driver for memory.

    References
    ----------
    .. [1] pytorch v2.13.0, `c10/cuda/CUDACachingAllocator.cpp`: `malloc`, `get_free_block` (best fit), `should_split`,
       `alloc_found_block`, `free_block`, `get_allocation_size`, `try_allocate_expandable_block`,
       `release_cached_blocks`; the sizes are in `c10/core/AllocatorConfig.h`.

    Examples
    --------
    >>> done = replay([(1, 3 << 20), (2, 30 << 20), (1, -(3 << 20)), (3, 5 << 20)], Settings())
    >>> done.allocated_peak_bytes >> 20, done.reserved_peak_bytes >> 20
    (35, 50)
    """
    allocator = _Allocator(settings)
    blocks: dict[int, _Block] = {}
    requested = requested_peak = 0
    failed: int | None = None
    for index, (tensor, num_bytes) in enumerate(events):
        if num_bytes > 0:
            block = allocator.allocate(num_bytes)
            if block is None:
                failed = index
                break
            blocks[tensor] = block
        elif num_bytes < 0:
            allocator.free(blocks.pop(tensor))
        requested += num_bytes
        requested_peak = max(requested_peak, requested)
    return Replay(
        requested_peak_bytes=requested_peak,
        allocated_peak_bytes=allocator.allocated_peak,
        reserved_peak_bytes=allocator.reserved_peak,
        allocated_at_end_bytes=allocator.allocated,
        reserved_at_end_bytes=allocator.reserved,
        num_segments=allocator.num_segments,
        out_of_memory_at=failed,
    )
