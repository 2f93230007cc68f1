"""What a memory snapshot of torch tells of a shortage: whether the cache was in pieces, and who holds most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tonnage.diagnose.types import Hit
from tonnage.units import format_bytes


def of_snapshots(snapshots: Sequence[Mapping[str, Any]]) -> list[Hit]:
    """Return a hit for every snapshot in which an allocation failed.

    The cache was in pieces where its free blocks together hold what was asked for and none of them does.
    """
    return [_hit(one) for one in snapshots if one["shortages"]]


def _hit(told: Mapping[str, Any]) -> Hit:
    last = told["shortages"][-1]
    asked = last["asked_bytes"] or 0
    in_pieces = told["free_bytes"] >= asked > told["largest_free_bytes"]
    parts = [
        f"asked for {format_bytes(asked)}",
        f"device free {format_bytes(last['free_bytes'])}" if last["free_bytes"] is not None else "",
        f"reserved {format_bytes(told['reserved_bytes'])}",
        f"allocated {format_bytes(told['allocated_bytes'])}",
        f"free in the cache {format_bytes(told['free_bytes'])}, largest piece {format_bytes(told['largest_free_bytes'])}",
        *(f"{format_bytes(held)} from {place or 'an unknown place'}" for place, held in told["places"][:3]),
    ]
    return Hit(
        symptom="TORCH_OOM_FRAGMENTATION" if in_pieces else "TORCH_OOM",
        file=str(told["file"]),
        line=0,
        text="; ".join(part for part in parts if part),
        groups={},
    )
