"""Reads vLLM's start-up log."""

from __future__ import annotations

import re
from typing import Final

from tonnage.engines.types import LogFacts
from tonnage.units import GIB

# vllm/v1/worker/gpu_model_runner.py `load_model`, `capture_model`; vllm/v1/worker/gpu_worker.py
# `determine_available_memory`; vllm/v1/core/kv_cache_utils.py, vLLM 0.33.0. Before 0.9 loading was told in "GB" that are GiB.
_WEIGHTS: Final = re.compile(r"[Mm]odel loading took ([\d.]+) (?:GiB|GB)")
_CACHE: Final = re.compile(r"Available KV cache memory: ([\d.]+) GiB")
_TOKENS: Final = re.compile(r"GPU KV cache size: ([\d,]+) tokens")
_GRAPHS: Final = re.compile(r"[Gg]raph capturing finished in \d+ secs?, took (-?[\d.]+) GiB")


def read_log(text: str) -> LogFacts | None:
    """Return what a log of vLLM says, None when it is none."""
    found = {name: pattern.search(text) for name, pattern in
             (("weights", _WEIGHTS), ("cache", _CACHE), ("tokens", _TOKENS), ("graphs", _GRAPHS))}  # fmt: skip
    if found["weights"] is None and found["cache"] is None and found["tokens"] is None:
        return None

    def gib(name: str) -> float | None:
        match = found[name]
        return float(match[1]) * GIB if match else None

    tokens = found["tokens"]
    return LogFacts(
        engine="vllm",
        weights_bytes=gib("weights"),
        cache_bytes=gib("cache"),
        cache_tokens=float(tokens[1].replace(",", "")) if tokens else None,
        graph_bytes=gib("graphs"),
    )
