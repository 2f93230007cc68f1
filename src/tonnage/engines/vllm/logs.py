"""Reads vLLM's start-up log, in the forms of 0.6 to 0.33."""

from __future__ import annotations

import re
from typing import Final

from tonnage.engines.types import LogFacts
from tonnage.units import GIB

# vllm/v1/worker/gpu_model_runner.py `load_model`, `capture_model`; vllm/v1/worker/gpu_worker.py
# `determine_available_memory`, `compile_or_warm_up_model`; vllm/v1/core/kv_cache_utils.py, vLLM 0.33.0. Before 0.9
# loading was told in "GB" that are GiB; vllm/worker/worker.py of 0.6 to 0.9 printed the whole account at once.
_SIZES: Final = {
    "weights": (
        r"(?:[Mm]odel loading took|Loading model weights took) ([\d.]{1,15}) (?:GiB|GB)",
        r"model weights take ([\d.]{1,15}) ?GiB",
        r"Actual usage is ([\d.]{1,15}) GiB for weight\b",
    ),
    "cache": (
        r"Available KV cache memory: (-?[\d.]{1,15}) GiB",
        r"(?:the rest of the memory\s+reserved for )?KV Cache is (-?[\d.]{1,15}) ?GiB",
        r"Current kv cache memory in use is ([\d.]{1,15}) GiB",
    ),
    "graphs": (r"[Gg]raph capturing finished in \d+ secs?, took (-?[\d.]{1,15}) GiB", r"([\d.]{1,15}) GiB for CUDAGraph memory"),
    "non_torch": (r"non_torch_memory takes ([\d.]{1,15}) ?GiB", r"([\d.]{1,15}) GiB for non-torch memory"),
    "activations": (
        r"PyTorch activation\s+peak memory takes ([\d.]{1,15}) ?GiB",
        r"([\d.]{1,15}) GiB for peak activation",
    ),
}  # fmt: skip
_PATTERNS: Final = {name: tuple(re.compile(form) for form in forms) for name, forms in _SIZES.items()}
_BOTH: Final = re.compile(r"Actual usage is ([\d.]{1,15}) GiB for consumed memory \(weights \+ non-torch\)")
_TOKENS: Final = re.compile(r"GPU KV cache size: ([\d,]{1,20}) tokens")
_BLOCKS: Final = re.compile(r"# (?:GPU|CUDA|cuda) blocks: (\d+)")
_BLOCK_TOKENS: Final = 16
_VERSION: Final = re.compile(r"vLLM API server version (\S+)|LLM engine \(v([\w.+-]+)\)")
# What the engine says of its settings, and the words of a request for it.
_SETTINGS: Final = {
    "context": (r"max_seq_len=(\d+)", r"'max_model_len': (\d+)"),
    "layout.tp": (r"tensor_parallel_size=(\d+)", r"'tensor_parallel_size': (\d+)"),
    "layout.pp": (r"pipeline_parallel_size=(\d+)", r"'pipeline_parallel_size': (\d+)"),
    "settings.utilization_ratio": (
        r"'gpu_memory_utilization': ([\d.]{1,15})",
        r"gpu_memory_utilization \(([\d.]{1,15})\)",
        r"Desired GPU memory utilization is \(([\d.]{1,15}),",
    ),
    "settings.max_num_seqs": (r"'max_num_seqs': (\d+)", r"max_num_seqs=(\d+)"),
    "settings.max_batched_tokens": (r"'max_num_batched_tokens': (\d+)", r"max_num_batched_tokens=(\d+)"),
    "precision.kv": (r"kv_cache_dtype=(fp8\w*)", r"'kv_cache_dtype': '(fp8\w*)'"),
}  # fmt: skip
_MODEL: Final = re.compile(r"with config: model='([^']{1,200})'|'model(?:_tag)?': '([^']{1,200})'")


def _largest(name: str, text: str) -> float | None:
    """Return a size in bytes; where ranks print their own, the largest, of the cache the smallest."""
    for form in _PATTERNS[name]:
        found = [float(one) for one in form.findall(text)]
        if found:
            return (min if name == "cache" else max)(found) * GIB
    return None


def read_log(text: str) -> LogFacts | None:
    """Return what a log of vLLM says, None when it is none."""
    sizes = {name: _largest(name, text) for name in _PATTERNS}
    tokens, blocks = _TOKENS.search(text), _BLOCKS.search(text)
    if sizes["weights"] is None and sizes["cache"] is None and tokens is None:
        return None
    if sizes["non_torch"] is None and sizes["weights"] is not None and (both := _BOTH.search(text)):
        sizes["non_torch"] = max(0.0, float(both[1]) * GIB - sizes["weights"])
    version, model = _VERSION.search(text), _MODEL.search(text)
    count = float(tokens[1].replace(",", "")) if tokens else None
    if count is None and blocks:
        count = float(blocks[1]) * _BLOCK_TOKENS
    return LogFacts(
        engine="vllm",
        weights_bytes=sizes["weights"],
        cache_bytes=sizes["cache"],
        cache_tokens=count,
        graph_bytes=sizes["graphs"],
        non_torch_bytes=sizes["non_torch"],
        activation_bytes=sizes["activations"],
        version=next((one for one in version.groups() if one), "") if version else "",
        model=next((one for one in model.groups() if one), "") if model else "",
        settings=_settings(text),
    )


def _settings(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, forms in _SETTINGS.items():
        match = next((m for form in forms if (m := re.search(form, text))), None)
        if match:
            found[name] = match[1]
    return found
