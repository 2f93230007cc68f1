"""How far a serving candidate goes on its engine, by exact search over the engine's own accounting.

Each answer is the last that fits, or the first: one step more, or less, does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tonnage.estimate.compose_serving import largest_concurrency, largest_context, serving_load, short_by_bytes
from tonnage.estimate.serving import ServingLoad
from tonnage.estimate.types import Candidate, EngineAccounting
from tonnage.nouns import noun
from tonnage.units import MIB
from tonnage.workload.types import Serving

__all__ = [
    "ServingLimits",
    "largest_num_seqs",
    "least_memory_bytes",
    "least_utilization_ratio",
    "serving_limits",
]

_MOST_MEMORY_STEPS = 1 << 24  # of 1 MiB
_MOST_TOKENS = 1 << 24
_MOST_SEQS = 1 << 14
_STEPS = 100  # of the share of a device that an engine may take


@noun
class ServingLimits:
    """What a candidate could hold, and the least that holds it; None where the engine has no such setting."""

    max_context_tokens: int  # at the concurrency asked for; what the model was trained for ends it unless more is asked
    max_concurrency: int  # at the context asked for, of all replicas
    max_num_seqs: int | None
    least_utilization_ratio: float | None
    least_memory_bytes: int | None  # of each device; None where no size does


def serving_limits(candidate: Candidate, accounting: EngineAccounting) -> ServingLimits:
    """Return how far a candidate goes, each limit with all else as it is.

    Parameters
    ----------
    candidate : Candidate
        What is served, where and how.
    accounting : EngineAccounting
        The engine's rules.

    Returns
    -------
    ServingLimits
        The limits.

    Notes
    -----
    Derived: memory grows with each of what is searched, and falls with nothing.
    """
    load, trained = serving_load(candidate, accounting), candidate.model.max_position_tokens
    is_within = isinstance(candidate.workload, Serving) and candidate.workload.context_tokens <= (trained or 0)
    return ServingLimits(
        max_context_tokens=largest_context(load, accounting, trained if trained and is_within else _MOST_TOKENS),
        max_concurrency=largest_concurrency(load, accounting) * int(load.dp),
        max_num_seqs=largest_num_seqs(load, accounting),
        least_utilization_ratio=least_utilization_ratio(load, accounting),
        least_memory_bytes=least_memory_bytes(candidate, accounting),
    )


def _does_fit(load: ServingLoad, accounting: EngineAccounting) -> bool:
    return bool(short_by_bytes(load, accounting.memory(load)) <= 0)


def _first(does: Callable[[int], bool], least: int, most: int) -> int | None:
    """Return the first number that does, where all larger ones do as well; None when not even the last does."""
    if not does(most):
        return None
    low, high = least - 1, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if does(middle) else (middle, high)
    return high


def largest_num_seqs(load: ServingLoad, accounting: EngineAccounting) -> int | None:
    """Most requests that the scheduler may take at once and the load still fits; None where that is no setting apart.

    Parameters
    ----------
    load : ServingLoad
        The load; its concurrency stays.
    accounting : EngineAccounting
        The engine's rules.

    Returns
    -------
    int or None
        Requests; 0 when not even the concurrency fits. [1]

    Notes
    -----
    Derived. Programs with one slot a request have no limit beside it.
    """
    more = accounting.with_concurrency(load, load.concurrency + 1)
    if accounting.with_concurrency(more, load.concurrency).max_num_seqs < more.max_num_seqs:
        return None
    least = int(load.concurrency)
    first_bad = _first(
        lambda number: not _does_fit(replace(load, max_num_seqs=number), accounting), least, _MOST_SEQS + 1
    )
    most = _MOST_SEQS if first_bad is None else first_bad - 1
    return most if most >= least else 0


def least_utilization_ratio(load: ServingLoad, accounting: EngineAccounting) -> float | None:
    """Smallest share of a device, in hundredths, that the engine has to be allowed; None where it has no share.

    Parameters
    ----------
    load : ServingLoad
        The load.
    accounting : EngineAccounting
        The engine's rules.

    Returns
    -------
    float or None
        The share; None too when not even the whole device does. [1]

    Notes
    -----
    Derived.
    """
    whole, half = (float(accounting.memory(replace(load, utilization_ratio=r)).capacity_bytes) for r in (1.0, 0.5))
    if whole == half:
        return None
    shares = (step / _STEPS for step in range(1, _STEPS + 1))  # all: more than what is free may be refused
    return next((share for share in shares if _does_fit(replace(load, utilization_ratio=share), accounting)), None)


def least_memory_bytes(candidate: Candidate, accounting: EngineAccounting) -> int | None:
    """Smallest device, in whole MiB, that holds a candidate; what is taken before the engine starts stays.

    Parameters
    ----------
    candidate : Candidate
        What is served, where and how; settings that it does not fix follow the device.
    accounting : EngineAccounting
        The engine's rules.

    Returns
    -------
    int or None
        Memory of each device as the driver reports it; None when no size does. [B]

    Notes
    -----
    Derived.
    """
    cluster = candidate.cluster

    def does(num_steps: int) -> bool:
        devices = tuple(replace(device, memory_bytes=num_steps * MIB) for device in cluster.node.devices)
        one = replace(candidate, cluster=replace(cluster, node=replace(cluster.node, devices=devices)))
        return _does_fit(serving_load(one, accounting), accounting)

    taken = -(-cluster.node.reserved_bytes // MIB)
    found = _first(does, taken + 1, _MOST_MEMORY_STEPS)
    return None if found is None else found * MIB
