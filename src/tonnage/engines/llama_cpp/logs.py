"""Reads the start-up log of llama.cpp and of programs that stand on it, in the forms of 2023 to 2026."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Final

from tonnage.engines.types import LogFacts
from tonnage.units import MIB

# src/llama-model.cpp, src/llama-kv-cache.cpp, src/llama-memory-recurrent.cpp and src/llama-context.cpp of
# ggml-org/llama.cpp: one line a buffer. Until 2024 the model's line did not say whose buffer it was.
_BUFFER: Final = re.compile(
    r"\b([A-Za-z]\w{0,40}?)(_Mapped|_Host)? +(?:(model|KV|RS|compute) )?buffer size = +([\d.]{1,15}) MiB"
)
_HOST: Final = re.compile(r"^CPU|Host", re.IGNORECASE)
# src/llama-context.cpp `llama_memory_breakdown_print`: total = free + (self = model + context + compute) + unaccounted.
_BREAKDOWN: Final = re.compile(
    r"- (?!Host)[^|\n]{1,120}\| +(\d+) = +(\d+) \+ +\( *(\d+) = +(\d+) \+ +(\d+) \+ +(\d+)\) \+ +(\d+) \|".replace(
        " +", r"\s*"
    )
)
_MOST_UNACCOUNTED_MIB: Final = 65536  # it is counted without a sign: less than nothing wraps around
_PROMPT: Final = re.compile(
    r"prompt eval time = +[\d.]{1,15} ms / +(\d+) tokens \( *[\d.]{1,15} ms per token, +([\d.]{1,15}) tokens per second"
)
_DECODE: Final = re.compile(
    r"(?<!prompt )eval time = +[\d.]{1,15} ms / +(\d+) (?:runs|tokens) +\( *[\d.]{1,15} ms per token, +([\d.]{1,15}) tokens per second"
)
_SETTINGS: Final = {
    "context": r"n_ctx(?:_seq|_per_seq)? +[=:] (\d+)",
    "concurrency": r"n_(?:seq_max|slots|parallel) += (\d+)",
    "settings.max_batched_tokens": r"n_ubatch += (\d+)",
    "precision.kv": r"K \((q\w+|f16|bf16|f32)\)",
}
_BUILD: Final = re.compile(r"\bbuild(?:_info)?: b?(\d{4,6})\b")
_NAME: Final = re.compile(
    r"general\.name(?: str)? += (.{1,120})|loading model '([^']{1,300})'|loaded meta data.*? from (\S{1,300}\.gguf)"
)
_FEWEST_TOKENS: Final = 32  # fewer tell launches, not rates


def read_log(text: str) -> LogFacts | None:
    """Return what a log of llama.cpp says of its fullest device, None when it is none."""
    held: dict[str, dict[str, float]] = {kind: defaultdict(float) for kind in ("model", "KV", "RS", "compute")}
    for match in _BUFFER.finditer(text):
        held[match[3] or "model"][match[1] + (match[2] or "")] += float(match[4]) * MIB
    if not held["model"] and not held["KV"]:
        return None

    def fullest(kind: str) -> float | None:
        return max((num_bytes for name, num_bytes in held[kind].items() if not _HOST.search(name)), default=None)

    rests = [float(one[6]) for one in _BREAKDOWN.findall(text) if float(one[6]) < _MOST_UNACCOUNTED_MIB]
    prompts, decodes = _speeds(_PROMPT, text), _speeds(_DECODE, text)
    build, name = _BUILD.search(text), _NAME.search(text)
    return LogFacts(
        engine="llama.cpp",
        weights_bytes=fullest("model"),
        cache_bytes=sum(held["KV"].values()) or None,
        compute_bytes=fullest("compute"),
        context_bytes=max(rests) * MIB if rests else None,
        prefill_tokens_per_s=prompts[1] if prompts else None,
        num_prefill_tokens=prompts[0] if prompts else None,
        decode_tokens_per_s=decodes[1] if decodes else None,
        num_decode_tokens=decodes[0] if decodes else None,
        version=f"b{build[1]}" if build else "",
        model=next((one.strip() for one in name.groups() if one), "") if name else "",
        settings={key: match[1] for key, form in _SETTINGS.items() if (match := re.search(form, text))},
    )


def _speeds(form: re.Pattern[str], text: str) -> tuple[int, float] | None:
    """Return the longest run's tokens and rate."""
    found = [(int(tokens), float(rate)) for tokens, rate in form.findall(text)]
    best = max(found, default=None)
    return best if best is not None and best[0] >= _FEWEST_TOKENS else None
