"""Reads the start-up log of llama.cpp and of programs that stand on it."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Final

from tonnage.engines.types import LogFacts
from tonnage.units import MIB

# src/llama-model.cpp, src/llama-kv-cache.cpp and src/llama-context.cpp of ggml-org/llama.cpp: one line a buffer.
_BUFFER: Final = re.compile(r"(\w+?)(?:_Mapped|_Host)? +(model|KV|compute) buffer size = +([\d.]+) MiB")
_HOST: Final = re.compile(r"CPU|Host", re.IGNORECASE)


def read_log(text: str) -> LogFacts | None:
    """Return what a log of llama.cpp says of its fullest device, None when it is none."""
    held: dict[str, dict[str, float]] = {kind: defaultdict(float) for kind in ("model", "KV", "compute")}
    for match in _BUFFER.finditer(text):
        held[match[2]][match[0].split()[0]] += float(match[3]) * MIB
    if not held["model"] and not held["KV"]:
        return None

    def fullest(kind: str) -> float | None:
        return max((num_bytes for name, num_bytes in held[kind].items() if not _HOST.search(name)), default=None)

    return LogFacts(
        engine="llama.cpp",
        weights_bytes=fullest("model"),
        cache_bytes=sum(held["KV"].values()) or None,
        compute_bytes=fullest("compute"),
    )
