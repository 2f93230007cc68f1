"""Holds `tonnage doctor`'s memory bandwidth against `likwid-bench -t stream`, on all cores and on one core by CPU time.

    apt-get install likwid
    python validation/memory_bandwidth.py

On a busy machine the second comparison counts: it divides by the processor time that each took, not by the clock.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import time

from tonnage.probe.machine.measure import STREAM, measure_memory
from tonnage.units import GIB, MIB

ROUNDS = 3


def likwid(num_threads: int, num_bytes: int, num_iterations: int) -> tuple[float, float, float]:
    """Return the bytes a second by the clock, the bytes moved, and the processor time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [
        "likwid-bench",
        "-t",
        "stream",
        "-w",
        f"S0:{num_bytes // MIB}MB:{num_threads}",
        "-i",
        str(num_iterations),
    ]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    volume = float(re.search(r"Data volume \(Byte\):\s*(\d+)", text)[1])
    return float(re.search(r"MByte/s:\s*([\d.]+)", text)[1]) * 1e6, volume, spent


def likwid_by_processor_time() -> float:
    """Return the bytes a second of processor time on one core; a short run is taken off, with the program's start."""
    _, few, start = likwid(1, 96 * MIB, 32)
    _, many, end = likwid(1, 96 * MIB, 384)
    return (many - few) / (end - start)


def ours_by_processor_time() -> float:
    """Return the bytes a second of processor time of one worker."""
    program = STREAM.replace("ends = [", "spent = time.process_time()\nends = [")
    program = program.replace("print(24 * n", "print(time.process_time() - spent, 24 * n")
    process = subprocess.Popen([sys.executable, "-c", program, "0", str(96 * MIB), "2"], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True, env={**os.environ, "NUMPY_MADVISE_HUGEPAGE": "0"})  # fmt: skip
    process.stdout.readline()
    told, _ = process.communicate(f"{time.time()}\n")
    spent, num_bytes, *ends = told.split()
    return int(num_bytes) * (len(ends) - 1) / float(spent)


def main() -> None:
    cores = len(os.sched_getaffinity(0))
    for _ in range(ROUNDS):
        rate = measure_memory(8 * GIB)
        by_clock, _, _ = likwid(cores, 200 * MIB, 64)
        by_time = likwid_by_processor_time()
        own = ours_by_processor_time()
        print(f"load {os.getloadavg()[0]:.1f} on {cores} cores; by the clock: ours {rate / 1e9:.1f} GB/s, likwid "
              f"{by_clock / 1e9:.1f} ({rate / by_clock:.2f}); by processor time: ours {own / 1e9:.1f}, likwid "
              f"{by_time / 1e9:.1f} ({own / by_time:.2f})", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
