"""A program that takes a pickle on standard input apart and prints what it says as JSON.

It runs alone, in a process of its own with limits on time, memory and files, and knows plain values only: a pickle
that names any class or function is refused. It imports nothing of this package.
"""

from __future__ import annotations

import io
import json
import pickle
import sys
from typing import Any, Final

_MOST_ENTRIES: Final = 4000
_MOST_FRAMES: Final = 8
_LARGEST_BYTES: Final = 1 << 30
_SECONDS: Final = 40
_MEMORY_BYTES: Final = 6 << 30


class _Plain(pickle.Unpickler):
    """Builds numbers, texts, lists and dictionaries; of functions only torch's own list builders, as the lists."""

    def find_class(self, module: str, name: str) -> Any:
        """Refuse every name but those that only say of what a list is."""
        if module == "torch.jit._pickle" and name.startswith(("build_", "restore_type_tag")):
            return lambda value, *_: value
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        raise pickle.UnpicklingError(f"names {module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        """Refuse what lies outside."""
        del pid
        raise pickle.UnpicklingError("refers to something outside")


def _limit() -> None:
    try:
        import resource  # noqa: PLC0415  not on every system
    except ImportError:  # no such limits on Windows: the caller's time-out holds
        return
    for what, most in (
        (resource.RLIMIT_CPU, _SECONDS),
        (resource.RLIMIT_AS, _MEMORY_BYTES),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(what)[1]
        resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _place(frames: Any) -> str:
    """Return the innermost frame that is not torch's own, as file:line name."""
    frames = frames if isinstance(frames, list) else []
    named = [f for f in frames if isinstance(f, dict) and str(f.get("filename", "")).endswith(".py")]
    own = [f for f in named if "/torch/" not in str(f["filename"])] or named
    return f"{own[0]['filename']}:{own[0].get('line', 0)} {own[0].get('name', '')}"[-200:] if own else ""


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _recorder(data: dict[str, Any]) -> dict[str, Any]:
    entries = [entry for entry in data.get("entries", []) if isinstance(entry, dict)][-_MOST_ENTRIES:]
    status = data.get("pg_status")
    status = status if isinstance(status, dict) else {}
    return {
        "kind": "flight recorder",
        "version": str(data.get("version", "")),
        "rank": _number(data.get("rank")),
        "groups": {
            str(name): {str(k): _number(v) for k, v in one.items()} for name, one in status.items() if isinstance(one, dict)
        },
        "entries": [
            {
                "group": [str(part) for part in group] if isinstance(group := entry.get("process_group"), list | tuple) else [str(group)],
                "seq": _number(entry.get("collective_seq_id")),
                "p2p": bool(entry.get("is_p2p")),
                "name": str(entry.get("profiling_name", "")),
                "state": str(entry.get("state", "")),
                "sizes": str(entry.get("input_sizes", ""))[:200],
                "types": str(entry.get("input_dtypes", ""))[:80],
                "created_ns": _number(entry.get("time_created_ns")),
                "place": _place(entry.get("frames")),
            }
            for entry in entries
        ],
    }  # fmt: skip


def _snapshot(data: dict[str, Any]) -> dict[str, Any]:
    segments = [one for one in data.get("segments", []) if isinstance(one, dict)]
    blocks = [block for one in segments for block in one.get("blocks", []) if isinstance(block, dict)]
    used = [block for block in blocks if str(block.get("state", "")).startswith("active_alloc")]
    free = [_number(block.get("size")) or 0 for block in blocks if block.get("state") == "inactive"]
    by_place: dict[str, int] = {}
    for block in used:
        place = _place(block.get("frames"))
        by_place[place] = by_place.get(place, 0) + (_number(block.get("size")) or 0)
    shortages = [
        {"asked_bytes": _number(event.get("size")), "free_bytes": _number(event.get("device_free"))}
        for trace in data.get("device_traces", [])
        if isinstance(trace, list)
        for event in trace
        if isinstance(event, dict) and event.get("action") == "oom"
    ]
    return {
        "kind": "memory snapshot",
        "reserved_bytes": sum(_number(one.get("total_size")) or 0 for one in segments),
        "allocated_bytes": sum(_number(one.get("allocated_size")) or 0 for one in segments),
        "free_bytes": sum(free),
        "largest_free_bytes": max(free, default=0),
        "largest_bytes": max((_number(block.get("size")) or 0 for block in used), default=0),
        "places": sorted(by_place.items(), key=lambda item: -item[1])[:_MOST_FRAMES],
        "shortages": shortages[-4:],
    }


def _told(data: bytes) -> dict[str, Any]:
    if len(data) > _LARGEST_BYTES:
        raise pickle.UnpicklingError("is larger than 1 GiB")
    value = _Plain(io.BytesIO(data)).load()
    if isinstance(value, dict) and "entries" in value:
        return _recorder(value)
    if isinstance(value, dict) and "segments" in value:
        return _snapshot(value)
    raise pickle.UnpicklingError("is neither a flight recorder's dump nor a memory snapshot")


def main() -> int:
    """Read standard input; the exit code says whether it was a dump that is known."""
    _limit()
    data = sys.stdin.buffer.read(_LARGEST_BYTES + 1)
    try:
        text = json.dumps(_told(data))
    except Exception as error:  # noqa: BLE001 - whatever a hostile pickle makes fail
        text = json.dumps({"error": f"{error}"[:200]})
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
