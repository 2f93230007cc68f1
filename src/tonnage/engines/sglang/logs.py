"""Reads SGLang's start-up log, in the forms of 0.3 to 0.5."""

from __future__ import annotations

import re
from typing import Final

from tonnage.engines.types import LogFacts
from tonnage.units import GIB

# python/sglang/srt/model_executor/model_runner.py and mem_cache/memory_pool.py, sglang 0.5.23; its "GB" are GiB.
# Earlier releases printed what was free before and after loading, and no number of tokens with the cache.
_WEIGHTS: Final = re.compile(r"Load weight end\.[^\n]{0,300}?mem usage=([\d.]{1,15}) GB")
_BEGIN: Final = re.compile(r"Load weight begin\.[^\n]{0,300}?avail mem=([\d.]{1,15}) GB")
_END: Final = re.compile(r"Load weight end\.[^\n]{0,300}?avail mem=([\d.]{1,15}) GB")
_CACHE: Final = re.compile(
    r"KV Cache is allocated\.(?:[^\n]{0,300}?#tokens: (\d+))?[^\n]{0,300}?"
    r"(?:K size: ([\d.]{1,15}) GB, V size: ([\d.]{1,15}) GB|KV size: ([\d.]{1,15}) GB)"
)
_TOKENS: Final = re.compile(r"max_total_num_tokens=(\d+)")
_GRAPHS: Final = re.compile(r"Capture (?:cuda|CUDA) graph end\.[^\n]{0,300}?mem usage=([\d.]{1,15}) GB")
_ARGUMENTS: Final = re.compile(r"server_args=ServerArgs\(([^\n]{0,20000})")
_SETTINGS: Final = {
    "context": r"context_len=(\d+)|context_length=(\d+)",
    "layout.tp": r"\btp_size=(\d+)",
    "layout.pp": r"\bpp_size=(\d+)",
    "layout.dp": r"\bdp_size=(\d+)",
    "settings.utilization_ratio": r"mem_fraction_static=([\d.]{1,15})",
    "settings.max_num_seqs": r"max_running_requests=(\d+)",
    "settings.max_batched_tokens": r"chunked_prefill_size=(\d+)",
    "precision.kv": r"kv_cache_dtype='(fp8\w*)'",
}
_MODEL: Final = re.compile(r"model_path='([^']{1,200})'")


def read_log(text: str) -> LogFacts | None:
    """Return what a log of SGLang says, None when it is none."""
    weights, caches, graphs = _WEIGHTS.findall(text), list(_CACHE.finditer(text)), _GRAPHS.findall(text)
    begin, end = _BEGIN.search(text), _END.search(text)
    if not weights and not caches and end is None:
        return None
    held = max((float(one) for one in weights), default=None)
    if held is None and begin and end:
        held = float(begin[1]) - float(end[1])
    tokens = next((one[1] for one in caches if one[1]), None)
    if tokens is None and (said := _TOKENS.search(text)):
        tokens = said[1]
    sizes = [sum(float(part) for part in one.groups()[1:] if part) for one in caches]
    model = _MODEL.search(text)
    return LogFacts(
        engine="sglang",
        weights_bytes=None if held is None else held * GIB,
        cache_bytes=min(sizes) * GIB if sizes else None,
        cache_tokens=float(tokens) if tokens else None,
        graph_bytes=max(float(one) for one in graphs) * GIB if graphs else None,
        model=model[1] if model else "",
        settings=_settings(text),
    )


def _settings(text: str) -> dict[str, str]:
    arguments = _ARGUMENTS.search(text)
    said = f"{arguments[1] if arguments else ''}\n{text}"
    found: dict[str, str] = {}
    for name, form in _SETTINGS.items():
        match = re.search(form, said)
        if match:
            found[name] = next(one for one in match.groups() if one)
    return found
