"""Which rank did not come: counters of collectives of all ranks, from flight recorders or from the watchdog's lines.

Each rank counts the collectives that it enqueued in a group. The one whose count is lowest when the others time out is
the one that never came; equal counts with other operations are ranks out of step; equal counts and operations leave
the transport, or a rank that is only slow.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from tonnage.diagnose.types import Hit

_LARGEST: Final = 1 << 60  # an unset counter prints a huge number or -1
_FILE_RANK: Final = re.compile(r"(\d+)(?:\.\w+)?$")
_MOST_RANKS: Final = 8


def _ranks(ranks: Iterable[int]) -> str:
    listed = sorted(ranks)
    return ", ".join(map(str, listed[:_MOST_RANKS])) + (" …" if len(listed) > _MOST_RANKS else "")


def of_counters(hits: Sequence[Hit]) -> list[Hit]:
    """Return a hit that names the ranks that were behind, where the watchdogs of several ranks print other counts."""
    counted: dict[int, Hit] = {}
    for hit in hits:
        if hit.symptom == "NCCL_WORK_COUNTERS" and hit.rank is not None:
            counted.setdefault(hit.rank, hit)
    enqueued = {rank: number for rank, hit in counted.items() if 0 <= (number := int(hit.groups["enq"])) < _LARGEST}
    if len(enqueued) < 2:
        return []
    low, high = min(enqueued.values()), max(enqueued.values())
    late = [rank for rank, number in enqueued.items() if number == low]
    first = counted[late[0]]
    groups = {"late": _ranks(late), "low": str(low), "high": str(high), "what": "collective", "place": ""}
    name = "HANG_RANK_BEHIND" if low < high else "HANG_ALL_WAIT"
    return [
        Hit(symptom=name, file=first.file, line=first.line, text=first.text, groups=groups, rank=late[0], time_seconds=first.time_seconds)
    ]  # fmt: skip


def rank_of_dump(dump: Mapping[str, Any]) -> int | None:
    """Return the rank that wrote a dump: as it says, or by the number that its file's name ends with."""
    if isinstance(dump.get("rank"), int):
        return dump["rank"]
    match = _FILE_RANK.search(str(dump["file"]))
    return int(match[1]) if match else None


def of_recorders(dumps: Sequence[Mapping[str, Any]]) -> list[Hit]:
    """Return hits that say which rank was behind, or out of step, by the flight recorders of several ranks."""
    by_rank = {rank: dump for dump in dumps if (rank := rank_of_dump(dump)) is not None}
    if len(by_rank) < 2:
        return []
    hits: list[Hit] = []
    for group in sorted({name for dump in by_rank.values() for name in _groups(dump)}):
        members = {rank: dump for rank, dump in by_rank.items() if group in _groups(dump)}
        if len(members) >= 2 and (hit := _of_group(group, members)):
            hits.append(hit)
    missing = set(range(max(by_rank) + 1)) - set(by_rank)
    if missing and max(by_rank) < 1 << 16:
        dump = by_rank[min(by_rank)]
        hits.append(_hit("HANG_NO_DUMP", dump, {"late": _ranks(missing)}, min(missing)))
    return hits


def _groups(dump: Mapping[str, Any]) -> set[str]:
    return {entry["group"][0] for entry in dump["entries"] if entry["group"] and not entry["p2p"]}


def _operations(dump: Mapping[str, Any], group: str) -> dict[int, Mapping[str, Any]]:
    return {
        entry["seq"]: entry
        for entry in dump["entries"]
        if entry["group"] and entry["group"][0] == group and not entry["p2p"] and isinstance(entry["seq"], int)
    }


def _of_group(group: str, members: Mapping[int, Mapping[str, Any]]) -> Hit | None:
    told = {rank: _operations(dump, group) for rank, dump in members.items()}
    shared = set.intersection(*(set(one) for one in told.values()))
    for seq in sorted(shared):
        kinds = {
            (one[seq]["name"], one[seq]["sizes"] if "all_to_all" not in one[seq]["name"] else "")
            for one in told.values()
        }
        if len(kinds) > 1:
            rank, texts = _odd(told, seq)
            groups = {"seq": str(seq), "what": texts, "late": str(rank), "place": _place(told[rank][seq])}
            return _hit("HANG_MISMATCH", members[rank], groups, rank)
    last = {rank: _enqueued(members[rank], group, one) for rank, one in told.items()}
    low, high = min(last.values()), max(last.values())
    late = [rank for rank, number in last.items() if number == low]
    waiting = next(rank for rank, number in last.items() if number == high)
    wanted = told[waiting].get(low + 1) or told[waiting].get(high)
    if wanted is None or wanted["state"] == "completed":
        return None
    if low < high:
        groups = {
            "late": _ranks(late),
            "low": str(low),
            "high": str(high),
            "what": wanted["name"],
            "place": _place(wanted),
        }
        return _hit("HANG_RANK_BEHIND", members[late[0]], groups, late[0])
    groups = {"late": _ranks(late), "low": str(low), "high": str(high), "what": wanted["name"], "place": _place(wanted)}
    return _hit("HANG_ALL_WAIT", members[waiting], groups, None)


def _enqueued(dump: Mapping[str, Any], group: str, operations: Mapping[int, Any]) -> int:
    """Return the number of the last collective that a rank enqueued, as it says or by its entries."""
    said = dump["groups"].get(group, {}).get("last_enqueued_collective")
    return said if isinstance(said, int) and 0 <= said < _LARGEST else max(operations, default=0)


def _odd(told: Mapping[int, Mapping[int, Mapping[str, Any]]], seq: int) -> tuple[int, str]:
    """Return the rank that is alone with its operation, and what the others did."""
    by_kind: dict[str, list[int]] = {}
    for rank, one in told.items():
        by_kind.setdefault(f"{one[seq]['name']} {one[seq]['sizes']}", []).append(rank)
    in_order = sorted(by_kind.items(), key=lambda item: (len(item[1]), item[1]))
    texts = "; ".join(f"rank {_ranks(ranks)}: {kind}" for kind, ranks in in_order)
    return in_order[0][1][0], texts[:300]


def _place(entry: Mapping[str, Any]) -> str:
    return f" ({entry['place']})" if entry.get("place") else ""


def _hit(name: str, dump: Mapping[str, Any], groups: dict[str, str], rank: int | None) -> Hit:
    text = ", ".join(f"{key} {value}" for key, value in groups.items() if value)
    return Hit(symptom=name, file=str(dump["file"]), line=0, text=text, groups=groups, rank=rank)
