"""How fast `tonnage diagnose` reads a large log, and with how much memory.

    PYTHONPATH=src python bench/diagnose_speed.py [--gigabytes 1] [--hostile]

The log repeats lines of a training run of eight ranks, a server and a kernel with other numbers each time, and has one
failure near its end. With `--hostile` every line has words that no other line has, so that no shape is seen twice. The
log is piped, never stored. Prints seconds by the clock and of one core, and the peak of resident memory.
"""

from __future__ import annotations

import argparse
import itertools
import random
import resource
import subprocess
import sys
import time

LINES = (
    "[rank{r}]: 2026-11-30 10:{m:02d}:{s:02d},120 INFO train.py:88 step {n} loss 2.{n:04d} grad_norm 0.{s} lr 3.0e-4 mem 61.2GiB tok/s 12,{n}",
    "host-a:{n}:1357 [{r}] NCCL INFO Channel {m:02d}/0 : {r}[{r}] -> {s}[{s}] via P2P/CUMEM/read",
    "INFO 11-30 10:{m:02d}:{s:02d} [loggers.py:116] Engine 000: Avg prompt throughput: {n}.1 tokens/s, Running: {s} reqs, Waiting: 0 reqs, GPU KV cache usage: {s}.1%, Prefix cache hit rate: 12.3%",
    "Nov 30 10:{m:02d}:{s:02d} node kernel: [{n}.123456] usb 1-1: new high-speed device number {s} using xhci_hcd",
    '10.0.0.{s} - "POST /v1/chat/completions HTTP/1.1" 200 OK',
    "{{'loss': 1.{n:04d}, 'grad_norm': 0.{s}, 'learning_rate': 1.99e-05, 'epoch': 0.{s}}}",
    "(EngineCore pid={n}) WARNING 11-30 10:{m:02d}:{s:02d} [scheduler.py:77] request chatcmpl-{n} took {s} s, memory {m} GiB, no error",
)
FAILURE = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79.11 GiB of which 1.10 GiB is free. Of the allocated memory 76.10 GiB is allocated by PyTorch, and 201.00 MiB is reserved by PyTorch but unallocated.\n"
WORDS = [
    "alpha",
    "beta",
    "gamma",
    "delta",
    "error",
    "memory",
    "failed",
    "not",
    "is",
    "the",
    "loss",
    "rank",
    "step",
    "time",
    "out",
    "of",
    "device",
    "tensor",
    "value",
]


def block(rng: random.Random, *, hostile: bool) -> bytes:
    lines = []
    for _ in range(1200):
        for line in LINES:
            text = line.format(r=rng.randrange(8), m=rng.randrange(60), s=rng.randrange(60), n=rng.randrange(10_000))
            if hostile:
                text += " " + " ".join(
                    rng.choice(WORDS) + chr(97 + rng.randrange(26)) * rng.randrange(4) for _ in range(6)
                )
            lines.append(text + "\n")
    return "".join(lines).encode()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--hostile", action="store_true")
    asked = parser.parse_args()
    rng = random.Random(1)
    blocks = [block(rng, hostile=asked.hostile) for _ in range(24)]
    began = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", "tonnage", "diagnose", "-", "--json"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as reader:
        sent, turn = 0, itertools.cycle(blocks)
        while sent < asked.gigabytes * 1e9:
            sent += reader.stdin.write(next(turn))
        reader.stdin.write(FAILURE.encode())
        reader.stdin.close()
        answer = reader.stdout.read().decode()
        reader.wait()
    seconds = time.perf_counter() - began
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy, peak = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
    print(f"{sent / 1e6:.0f} MB: {seconds:.1f} s by the clock, {busy:.1f} s of one core ({sent / 1e6 / busy:.0f} MB/s),"
          f" peak {peak:.0f} MiB, found: {'TORCH_OOM' in answer}")  # fmt: skip


if __name__ == "__main__":
    main()
