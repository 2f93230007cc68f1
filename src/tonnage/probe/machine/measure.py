"""Measurements of a machine, where they are asked for: memory bandwidth, disk, memory of a card, DCGM's quick diagnostic."""

from __future__ import annotations

import contextlib
import mmap
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeVar

from tonnage.diagnose.doctor.types import Measured
from tonnage.probe.machine.world import World
from tonnage.units import GIB, KIB, MIB

__all__ = ["PATTERN", "STREAM", "measure", "measure_disk", "measure_memory", "together"]

Value = TypeVar("Value")
_STREAM_SECONDS: Final = 2.0
_LARGEST_ARRAYS_BYTES: Final = 8 * GIB
_PASSES_A_SLICE: Final = 3
_SMALLEST_WORKER_BYTES: Final = 96 * MIB  # beyond the last-level cache that a core may use
_MEMORY_SHARE: Final = 0.25
_DISK_BYTES: Final = 1 * GIB
_DISK_SHARE: Final = 0.05
_DISK_SECONDS: Final = 4.0
_RANDOM_SECONDS: Final = 1.5
_RANDOM_THREADS: Final = 16
_BLOCK_BYTES: Final = 8 * MIB
_PAGE_BYTES: Final = 4 * KIB
_CARD_SECONDS: Final = 12.0

# STREAM's addition (J. McCalpin, www.cs.virginia.edu/stream): a = b + c, two streams read and one written, 24 bytes counted
# an element as in its triad, which moves the same bytes. numpy does it in one pass; a triad would take two. One process a
# core, because threads of one Python wait for each other. Pages are of the usual size (numpy would ask for huge ones, which
# were 20 % faster on a virtual machine): so are those of likwid-bench, and of what an engine allocates.
STREAM: Final = """
import os, sys, time
cpu, size, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
if hasattr(os, "sched_setaffinity") and cpu >= 0:
    os.sched_setaffinity(0, {cpu})
import numpy as np
n = size // 24
a, b, c = np.full(n, 0.5), np.full(n, 1.0), np.full(n, 2.0)  # written, so that every page is there
add = np.add
print("ready", flush=True)
start = float(sys.stdin.readline())
while time.time() < start:
    pass
ends = [time.time()]
while ends[-1] - ends[0] < seconds:
    add(b, c, out=a)
    ends.append(time.time())
print(24 * n if a[n // 2] == 3.0 else 0, *ends, flush=True)
"""

PATTERN: Final = """
import sys, torch
index, limit = int(sys.argv[1]), int(sys.argv[2])
device = torch.device("cuda", index) if torch.cuda.is_available() else torch.device("cpu")
free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else limit
piece, held = 256 << 20, []
piece = min(piece, max(1 << 20, int(0.9 * min(free, limit))))
for number in range(int(0.9 * min(free, limit)) // piece):
    held.append(torch.arange(piece // 8, dtype=torch.int64, device=device).add_(number * 1000003))
good = 0
for number, block in enumerate(held):
    wanted = torch.arange(piece // 8, dtype=torch.int64, device=device).add_(number * 1000003)
    good += piece if torch.equal(block, wanted) else 0
print(good)
"""


def measure(world: World, folder: Path, available_bytes: int | None, num_gpus: int) -> Measured:
    """Return every measurement that this machine allows, within half a minute; problems are told, not raised."""
    problems: list[str] = []
    memory = _guarded(problems, "memory", lambda: measure_memory(available_bytes or GIB))
    disk = _guarded(problems, "disk", lambda: measure_disk(folder))
    cards: dict[int, int] = {}
    if num_gpus:
        with ThreadPoolExecutor(max_workers=num_gpus) as pool:  # side by side: each waits for its own card
            held = list(pool.map(measure_card, range(num_gpus)))
        cards = {index: num_bytes for index, num_bytes in enumerate(held) if num_bytes is not None}
    return Measured(
        memory_bytes_per_s=memory,
        disk_read_bytes_per_s=disk[0] if disk else None,
        disk_write_bytes_per_s=disk[1] if disk else None,
        disk_reads_per_s=disk[2] if disk else None,
        gpu_pattern_bytes=cards,
        diagnostic=_diagnostic(world) if num_gpus else None,
        problems=tuple(problems),
    )


def _guarded(problems: list[str], what: str, function: Callable[[], Value]) -> Value | None:
    """Return what a measurement gives; a system that does not allow it is a problem told, not raised."""
    try:
        return function()
    except (OSError, ValueError, AttributeError, subprocess.SubprocessError) as error:
        problems.append(f"{what}: {error}"[:200])
        return None


def measure_memory(available_bytes: int, seconds: float = _STREAM_SECONDS) -> float | None:
    """Return the bandwidth of host memory with every core at work, in bytes a second.

    A quarter of what is free at most is taken, each worker's part by the worker itself on its own core, so that it lies
    beside that core (first touch).
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [-1] * (os.cpu_count() or 1)
    room = min(_LARGEST_ARRAYS_BYTES, int(_MEMORY_SHARE * available_bytes))
    each = min(max(_SMALLEST_WORKER_BYTES, room // len(cores)), 2 * _SMALLEST_WORKER_BYTES)
    cores = cores[: max(1, room // each)] if each * len(cores) > room else cores
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(_worker(core, each, seconds)) for core in cores]
        if any(w.stdout is None or w.stdout.readline().strip() != "ready" for w in workers):
            return None
        start = time.time() + 0.05 + 0.002 * len(workers)
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write(f"{start}\n")
            worker.stdin.flush()
        told = [(w.stdout.readline() if w.stdout else "").split() for w in workers]
    passes = [(int(words[0]), [float(word) for word in words[1:]]) for words in told if len(words) > 2]
    return together(passes) if len(passes) == len(cores) else None


def together(passes: Sequence[tuple[int, Sequence[float]]]) -> float | None:
    """Return the rate of all workers together, from the bytes of a pass and the times at which passes ended.

    Time is cut into slices of some passes; the rate is that of the slice which nine in ten stay below, so that other
    programs, which take a core away now and then, do not count. On a quiet machine all slices are alike.

    >>> together([(10, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]), (20, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0])])
    30.0
    """
    start, end = max(ends[0] for _, ends in passes), min(ends[-1] for _, ends in passes)
    lengths = sorted(b - a for _, ends in passes for a, b in pairwise(ends))
    width = max(1e-3, _PASSES_A_SLICE * lengths[len(lengths) // 4])
    number = int((end - start) / width) or 1
    width = (end - start) / number
    if width <= 0:
        return None
    rates = [0.0] * number
    for num_bytes, ends in passes:
        for a, b in pairwise(ends):
            first, last = (a - start) / width, (b - start) / width
            for i in range(max(0, int(first)), min(number, int(last) + 1)):
                inside = min(last, i + 1) - max(first, i)
                rates[i] += num_bytes * max(0.0, inside) / (last - first) / width
    return sorted(rates)[min(number - 1, int(0.9 * number))]


@contextlib.contextmanager
def _worker(core: int, num_bytes: int, seconds: float) -> Iterator[subprocess.Popen[str]]:
    settings = {
        "NUMPY_MADVISE_HUGEPAGE": "0",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }
    process = subprocess.Popen(  # noqa: S603  our own program
        [sys.executable, "-c", STREAM, str(core), str(num_bytes), str(seconds)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ, **settings},
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=0.5)
        if process.poll() is None:
            process.kill()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
        process.wait()


def measure_disk(folder: Path) -> tuple[float, float, float] | None:
    """Return the rates of a folder's disk: read and written in sequence [B/s], random reads of 4 KiB [1/s].

    The file has no name from the moment it is opened, so that nothing is left behind whatever happens; it takes at most
    one GiB and a twentieth of what is free. Caches are gone around where the system allows it (O_DIRECT).
    """
    held = os.statvfs(folder)
    size = min(_DISK_BYTES, int(held.f_frsize * held.f_bavail * _DISK_SHARE)) // _BLOCK_BYTES * _BLOCK_BYTES
    if size < 2 * _BLOCK_BYTES:
        return None
    handle, name = tempfile.mkstemp(dir=folder, prefix=".tonnage-doctor-")
    try:
        direct = _direct(name)
    finally:
        Path(name).unlink(missing_ok=True)
    target = direct if direct is not None else handle
    try:
        block = mmap.mmap(-1, _BLOCK_BYTES)
        block.write(os.urandom(MIB) * (_BLOCK_BYTES // MIB))
        written, write = _stream(target, block, size, is_write=True)
        os.fsync(target)
        if direct is None and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(target, 0, 0, os.POSIX_FADV_DONTNEED)
        _, read = _stream(target, block, written, is_write=False)
        return read, write, _random_reads(target, written)
    finally:
        os.close(handle)
        if direct is not None:
            os.close(direct)


def _direct(name: str) -> int | None:
    """Open without the page cache; a file system in memory refuses that."""
    try:
        return os.open(name, os.O_RDWR | getattr(os, "O_DIRECT", 0))
    except OSError:
        return None


def _stream(target: int, block: mmap.mmap, num_bytes: int, *, is_write: bool) -> tuple[int, float]:
    done, begin = 0, time.perf_counter()
    while done < num_bytes and time.perf_counter() - begin < _DISK_SECONDS:
        moved = os.pwrite(target, block, done) if is_write else os.preadv(target, [block], done)
        if moved <= 0:
            break
        done += moved
    if is_write:
        getattr(os, "fdatasync", os.fsync)(target)
    return max(_PAGE_BYTES, done), done / max(1e-9, time.perf_counter() - begin)


def _random_reads(target: int, num_bytes: int) -> float:
    """Several readers at once: a drive answers many in the time of one."""
    pages, end = num_bytes // _PAGE_BYTES, time.perf_counter() + _RANDOM_SECONDS
    counts = [0] * _RANDOM_THREADS

    def reader(number: int) -> None:
        page, place = mmap.mmap(-1, _PAGE_BYTES), number * 7919 + 1
        while time.perf_counter() < end:
            place = (place * 6364136223846793005 + 1442695040888963407) % (1 << 64)
            os.preadv(target, [page], (place >> 33) % pages * _PAGE_BYTES)
            counts[number] += 1

    begin = time.perf_counter()
    threads = [threading.Thread(target=reader, args=(n,)) for n in range(_RANDOM_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - begin)


def measure_card(index: int, limit_bytes: int = 1 << 40) -> int | None:
    """Return how much of a card's free memory holds a pattern that was written to it, None without PyTorch."""
    try:
        ended = subprocess.run(  # noqa: S603  our own program
            [sys.executable, "-c", PATTERN, str(index), str(limit_bytes)],
            capture_output=True, text=True, check=False, timeout=_CARD_SECONDS,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return int(ended.stdout) if ended.returncode == 0 and ended.stdout.strip().isdigit() else None


def _diagnostic(world: World) -> str | None:
    """Return what the quick diagnostic of DCGM did not pass; None where it is not there or did not end in time."""
    asked = world.run(("dcgmi", "diag", "-r", "1"))
    if asked is None or asked.code == 124:
        return None
    bad = [line.strip(" |") for line in asked.out.splitlines() if "Fail" in line or "Warn" in line]
    return "; ".join(" ".join(line.replace("|", ":").split()) for line in bad)[:300]
