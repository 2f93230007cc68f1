"""Measures all-reduce as nccl-tests do, with the NCCL that training uses: torchrun … all_reduce.py SMALLEST LARGEST.

Sizes in bytes, doubled. The columns are those of all_reduce_perf: size, count, type, redop, root, time in microseconds,
algorithm and bus bandwidth in GB/s, where bus bandwidth is size / time x 2 (n - 1) / n (nccl-tests, doc/PERFORMANCE.md).
"""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist

NUM_WARMUPS, NUM_STEPS = 5, 20


def seconds_of(tensor: torch.Tensor) -> float:
    """Return the mean time of one all-reduce, the slowest rank's."""

    def wait() -> None:
        if tensor.is_cuda:
            torch.cuda.synchronize()

    for _ in range(NUM_WARMUPS):
        dist.all_reduce(tensor)
    wait()
    dist.barrier()
    start = time.perf_counter()
    for _ in range(NUM_STEPS):
        dist.all_reduce(tensor)
    wait()
    mean = torch.tensor([(time.perf_counter() - start) / NUM_STEPS], dtype=torch.float64, device=tensor.device)
    dist.all_reduce(mean, op=dist.ReduceOp.MAX)
    return float(mean.item())


def main(smallest: int, largest: int) -> None:
    """Measure each size and print it on the first rank."""
    has_cuda = torch.cuda.is_available()
    if has_cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if has_cuda else "gloo")
    ranks, device = dist.get_world_size(), "cuda" if has_cuda else "cpu"
    if dist.get_rank() == 0:
        print(f"# {ranks} ranks, torch {torch.__version__}, {'nccl' if has_cuda else 'gloo'}")
        print(f"# {'size':>14} {'count':>12} type redop root {'time':>9} {'algbw':>8} {'busbw':>8}")
    size = smallest
    while size <= largest:
        seconds = seconds_of(torch.zeros(max(1, size // 4), dtype=torch.float32, device=device))
        if dist.get_rank() == 0:
            rate = size / seconds / 1e9
            bus = rate * 2 * (ranks - 1) / ranks
            print(f"{size:>16} {size // 4:>12} float sum -1 {seconds * 1e6:>9.1f} {rate:>8.2f} {bus:>8.2f}", flush=True)
        size *= 2
    dist.destroy_process_group()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("all_reduce: give the smallest and the largest size in bytes")
    main(int(sys.argv[1]), int(sys.argv[2]))
