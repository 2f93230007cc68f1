"""Which replica a request goes to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tonnage.simulate.batching.replica import Replica

__all__ = ["ROUTERS", "Router"]

# From the replicas that there are and the request's number, the place of one of them.
Router = Callable[[Sequence[Replica], int], int]


def round_robin(replicas: Sequence[Replica], number: int) -> int:
    """Take each in its turn; what each has to do plays no part."""
    return number % len(replicas)


def shortest_queue(replicas: Sequence[Replica], number: int) -> int:
    """Take the one with the fewest requests, waiting or running; the first of those alike."""
    del number
    loads = [replica.num_present for replica in replicas]
    return loads.index(min(loads))


ROUTERS: dict[str, Router] = {"shortest-queue": shortest_queue, "round-robin": round_robin}
