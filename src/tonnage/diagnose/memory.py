"""Reads an out-of-memory message of torch: which of its numbers says why the request failed."""

from __future__ import annotations

import re
from typing import Final

from tonnage.nouns import noun
from tonnage.units import Bytes

_SIZE: Final = r"(\d+(?:\.\d+)?) ?([KMGT]i?B|bytes)"
_UNITS: Final = {"bytes": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40, "KB": 10, "MB": 20, "GB": 30, "TB": 40}
_REQUEST: Final = re.compile(r"Tried to allocate " + _SIZE)
_CAPACITY: Final = re.compile(r"total capaci?ty of " + _SIZE + r"|; " + _SIZE + r" total capacity")
_FREE: Final = re.compile(r"of which " + _SIZE + r" is free|; " + _SIZE + r" free")
_ALLOCATED: Final = re.compile(_SIZE + r" is allocated by PyTorch|" + _SIZE + r" already allocated")
_UNUSED: Final = re.compile(_SIZE + r" is reserved by PyTorch but unallocated")
_RESERVED: Final = re.compile(_SIZE + r" reserved in total by PyTorch|" + _SIZE + r" cached\)")
_OTHER: Final = re.compile(r"Process (\d+) has " + _SIZE + r" memory in use")
_OWN: Final = re.compile(r"this process has " + _SIZE + r" memory in use")

# What a context, its libraries and NCCL take beside tensors: another process's figure this near to ours is ourselves,
# seen from another process namespace. Derived: the CUDA context of one process is 0.3 to 1.5 GiB.
_CONTEXT_BYTES: Final = 1.5 * 2**30
_UNUSED_SHARE: Final = 0.15  # of the device: reserved and unused memory that is worth putting in order
_SMALL_SHARE: Final = 0.08  # below it the job fills the card even where those pieces would have done


@noun
class Shortage:
    """The numbers of one message, None where it does not tell them."""

    request_bytes: Bytes | None
    capacity_bytes: Bytes | None
    free_bytes: Bytes | None
    allocated_bytes: Bytes | None
    unused_bytes: Bytes | None  # reserved, not allocated
    own_bytes: Bytes | None
    others: tuple[Bytes, ...]


def _size(pattern: re.Pattern[str], text: str) -> float | None:
    match = pattern.search(text)
    if not match:
        return None
    number, unit = [group for group in match.groups() if group][-2:]
    return float(number) * 2 ** _UNITS[unit]


def read_shortage(text: str) -> Shortage:
    """Return the numbers of a message, of any torch since 1.0.

    Parameters
    ----------
    text : str
        The line that holds "Tried to allocate".

    Returns
    -------
    Shortage
        Its numbers.

    Notes
    -----
    Derived: a reader, no formula. torch's messages are read as c10/cuda/CUDACachingAllocator.cpp writes them.

    Examples
    --------
    >>> read_shortage("Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity; 1.00 GiB already allocated;"
    ...               " 6.00 GiB free; 1.50 GiB reserved in total by PyTorch)").free_bytes
    6442450944.0
    """
    allocated, reserved, unused = _size(_ALLOCATED, text), _size(_RESERVED, text), _size(_UNUSED, text)
    if unused is None and reserved is not None and allocated is not None:
        unused = max(0.0, reserved - allocated)
    others = tuple(float(number) * 2 ** _UNITS[unit] for _, number, unit in _OTHER.findall(text))
    return Shortage(
        request_bytes=_size(_REQUEST, text),
        capacity_bytes=_size(_CAPACITY, text),
        free_bytes=_size(_FREE, text),
        allocated_bytes=allocated,
        unused_bytes=unused,
        own_bytes=_size(_OWN, text),
        others=others,
    )


def kind_of(shortage: Shortage) -> str:
    """Return why a request failed: too_large, spilled, other_process, fragmented, no_segment or full.

    Parameters
    ----------
    shortage : Shortage
        The message's numbers.

    Returns
    -------
    str
        `spilled`: more is allocated than the card holds, so host memory had been lent to it. `too_large`: the request
        alone exceeds the card. `other_process`: what others hold would have been enough. `fragmented`: what is reserved
        and not allocated would have been enough, or is a large share of the card. `no_segment`: the driver had more
        free than was asked for. `full`: none of these.

    Notes
    -----
    Derived: the allocator asks the driver for one segment, rounded up to 2 MiB or more, and fails only when the driver
    has no such segment after cached blocks were given back. Where more than that is free, addresses or segments are
    the limit, not memory.
    """
    asked, capacity, free = shortage.request_bytes, shortage.capacity_bytes, shortage.free_bytes or 0.0
    allocated, unused = shortage.allocated_bytes, shortage.unused_bytes or 0.0
    if asked is None or capacity is None:
        return "full"
    if asked > capacity:
        return "too_large"
    if allocated is not None and allocated > 1.02 * capacity:
        return "spilled"
    ours = shortage.own_bytes if shortage.own_bytes is not None else (allocated or 0.0) + unused
    others = [held for held in shortage.others if shortage.own_bytes is not None or held > ours + _CONTEXT_BYTES]
    if others and sum(others) > 0.1 * capacity and sum(others) + free + unused >= asked and sum(others) > 0.5 * ours:
        return "other_process"
    if free > 1.5 * asked + 2**21:
        return "no_segment"
    if unused > _UNUSED_SHARE * capacity or (
        unused + free > asked and unused > 0.5 * asked and unused > _SMALL_SHARE * capacity
    ):
        return "fragmented"
    return "full"
