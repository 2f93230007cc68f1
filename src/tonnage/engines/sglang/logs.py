"""Reads SGLang's start-up log."""

from __future__ import annotations

import re
from typing import Final

from tonnage.engines.types import LogFacts
from tonnage.units import GIB

# python/sglang/srt/model_executor/model_runner.py and mem_cache/memory_pool.py, sglang 0.5.23; its "GB" are GiB.
_WEIGHTS: Final = re.compile(r"Load weight end\..*?mem usage=([\d.]+) GB")
_CACHE: Final = re.compile(
    r"KV Cache is allocated\.(?:[^\n]*?)#tokens: (\d+)(?:, K size: ([\d.]+) GB, V size: ([\d.]+) GB|, KV size: ([\d.]+) GB)"
)
_GRAPHS: Final = re.compile(r"Capture (?:cuda|CUDA) graph end\..*?mem usage=([\d.]+) GB")


def read_log(text: str) -> LogFacts | None:
    """Return what a log of SGLang says, None when it is none."""
    weights, cache, graphs = _WEIGHTS.search(text), _CACHE.search(text), _GRAPHS.search(text)
    if weights is None and cache is None:
        return None
    return LogFacts(
        engine="sglang",
        weights_bytes=float(weights[1]) * GIB if weights else None,
        cache_bytes=sum(float(part) for part in cache.groups()[1:] if part) * GIB if cache else None,
        cache_tokens=float(cache[1]) if cache else None,
        graph_bytes=float(graphs[1]) * GIB if graphs else None,
    )
