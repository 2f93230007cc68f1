"""How a measurement row's words become the product's nouns: formats, devices, hosts, layouts."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from tonnage import datafiles
from tonnage.errors import RequestError, TonnageError
from tonnage.estimate.types import Layout
from tonnage.estimate.weights import FORMATS
from tonnage.hardware.catalogue import find_device
from tonnage.hardware.types import Device, Host, Link
from tonnage.units import GB, GIB

__all__ = [
    "cache_formats",
    "device_of_row",
    "engine_of_row",
    "host_of_row",
    "is_unknown_format",
    "layout_of_row",
    "number",
    "weights_format",
]

Row = Mapping[str, Any]

_ENGINES: Final = (
    ("ktransformers", "ktransformers"), ("tensorrt", "tensorrt-llm"), ("sglang", "sglang"), ("vllm", "vllm"),
    ("ik_llama", "ik_llama.cpp"), ("ollama", "ollama"), ("llama.cpp", "llama.cpp"), ("fastllm", "vllm"),
    ("transformers", "transformers"), ("not stated", "ik_llama.cpp"),
)  # fmt: skip


def number(value: object) -> float | None:
    """Return a number that a field holds as such, or None."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            return math.inf
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*", str(value))
    return float(match[1]) if match else None


def engine_of_row(row: Row) -> str:
    """Return the engine's name, by the first word that is known."""
    text = str(row.get("engine", "")).lower()
    for word, name in _ENGINES:
        if word in text:
            return name
    raise RequestError(
        f"the engine '{text[:40]}' is not known", where="engine", fix="name one of `tonnage plan --engine`"
    )


# Fragments of what rows call a weight format, in the order of asking, and the product's format.
_WEIGHTS: Final = (
    (r"mxfp4", "mxfp4"), (r"nvfp4|\bfp4\b", "nvfp4"), (r"w4a16|gptq|autoround|marlin$", "gptq"), (r"awq", "awq"),
    (r"w8a8|quantized\.w8", "fp8_channel"), (r"fp8-dynamic|fp8_dynamic", "fp8_channel"), (r"\bfp8", "fp8"),
    (r"bnb|nf4", "nf4_double"), (r"int8", "fp8_channel"), (r"int4|4-bit", "int4"),
    (r"fp32|float32", "fp32"), (r"bf16|bfloat16", "bf16"), (r"fp16|float16|\bf16", "fp16"),
)  # fmt: skip
# ggml types that only a fork has, and the nearest type by bits whose file has the same parts.
_FORK_TYPES: Final = (
    (r"experts \+ f16|gpt-oss \?b f16", "f16"), (r"iq4_kss|iq4_kt|iq4_ks|iq4_xs", "iq4_xs"), (r"iq4_k|iq4_nl", "iq4_nl"), (r"iq5_k|iq5_ks", "q5_k_s"), (r"iq6_k", "q6_k"),
    (r"iq3_kt|iq3_xxs", "iq3_xxs"), (r"iq3_k|iq3_s", "iq3_s"), (r"iq2_bn|i2_s|tq2_0|iq2_kt|iq2_ks|iq2_xxs", "iq2_xxs"),
    (r"iq2_xs", "iq2_xs"), (r"iq2_k|iq2_s", "iq2_s"), (r"iq1_bn|iq1_s|iq1_kt", "iq1_s"), (r"iq1_m", "iq1_m"),
    (r"q2_k_s|q2_k - s", "q2_k_s"), (r"q2_k", "q2_k"), (r"q3_k", "q3_k_m"), (r"q4_k_s|q4_k - s", "q4_k_s"),
    (r"q4_k", "q4_k_m"), (r"q5_k_s|q5_k - s", "q5_k_s"), (r"q5_k", "q5_k_m"), (r"q6_k", "q6_k"), (r"q6_0", "q6_k"),
    (r"q8_0|q8_k", "q8_0"), (r"q4_0", "q4_0"), (r"q4_1", "q4_1"), (r"q5_0", "q5_0"), (r"q5_1", "q5_1"),
    (r"mxfp4|gpt-oss", "mxfp4_moe"), (r"bf16", "gguf_bf16"), (r"f16|fp16", "f16"), (r"f32", "f32"),
)  # fmt: skip
_GGUF_ENGINES: Final = frozenset({"llama.cpp", "ik_llama.cpp", "ollama"})


def is_unknown_format(text: str) -> bool:
    """Whether a text is written like one format's name, and none that is known; other words say nothing of a format.

    >>> is_unknown_format("bf99"), is_unknown_format("Q4_K_M"), is_unknown_format("compressed-tensors")
    (True, False, False)
    """
    word = text.strip().lower()
    is_name = re.fullmatch(r"(?!i?q[1-8])[a-z]+\d+[a-z0-9_]*", word) is not None
    return is_name and not any(re.search(pattern, word) for pattern, _ in (*_WEIGHTS, *_FORK_TYPES))


def weights_format(row: Row, engine: str) -> str | None:
    """Return the weight format of a row, None where nothing is said; on llama.cpp the file type, else the scheme."""
    words = [str(row.get(key) or "") for key in ("quant", "weight_dtype", "model")]
    table = _FORK_TYPES if engine in _GGUF_ENGINES else _WEIGHTS
    if table is _WEIGHTS and "gpt-oss" in words[2].lower() and "16" not in words[0]:
        return "mxfp4"  # what is published; 8 bits are those of activations
    for text in words:
        for pattern, name in table:
            if re.search(pattern, text.lower()):
                return name if name in FORMATS else "q4_k_m"
    return "q4_k_m" if engine in _GGUF_ENGINES else None


_CACHES: Final = (
    (r"fp8|e4m3|e5m2", "fp8"), (r"int8", "int8"), (r"q8_0", "q8_0"), (r"q5_1", "q5_1"), (r"q5_0", "q5_0"),
    (r"iq4_nl", "iq4_nl"), (r"q4_0|q4", "q4_0"), (r"tq3", "tq3"), (r"float32|f32", "fp32"), (r"16", "fp16"),
)  # fmt: skip


def _keeps_fp8_cache(row: Row) -> bool:
    """Whether the cache follows the checkpoint: those that ModelOpt quantised to 8 or 4 bits say fp8.

    `kv_cache_quant_algo` of hf_quant_config.json in the checkpoints that NVIDIA/TensorRT-LLM
    docs/source/performance/perf-overview.md names; gpt-oss says nothing, and is given fp8 on Blackwell. vLLM follows it
    (vllm/model_executor/layers/quantization/modelopt.py, vLLM 0.11.2), there it is taken for NVFP4 of NVIDIA or where no
    maker is named: llm-compressor's checkpoints keep the model's own type.
    """
    text = f"{row.get('quant')} {row.get('weight_dtype')}".lower()
    engine = engine_of_row(row)
    maker = re.search(r"^(\w[\w-]*)/", str(row.get("model"))) or re.search(r"\((\w+)\)", str(row.get("quant") or ""))
    is_own = maker is None or maker[1].lower() in ("nvidia", "modelopt")
    if engine == "tensorrt-llm":
        return "fp4" in text or ("fp8" in text and "gpt-oss" not in str(row.get("model")))
    return engine == "vllm" and "nvfp4" in text and is_own


def cache_formats(row: Row) -> tuple[str, str]:
    """Return the formats of keys and of values; 16 bits where nothing is said."""
    text = str(row.get("kv_dtype") or "").lower().replace("*", "")
    parts = [part for part in re.split(r"\s*/\s*|, ", text) if part.strip() and part.strip() not in ("e4m3", "e5m2")]

    def one(part: str) -> str:
        return next((name for pattern, name in _CACHES if re.search(pattern, part)), "fp16")

    if not parts:
        return ("fp8", "fp8") if _keeps_fp8_cache(row) else ("fp16", "fp16")
    key = one(parts[0])
    has_two = len(parts) > 1 and any(re.search(pattern, parts[1]) for pattern, _ in _CACHES)
    return key, one(parts[1]) if has_two else key


def device_of_row(row: Row) -> tuple[Device, ...] | None:
    """Return the row's devices, None for a host alone.

    A total memory with decimals is what was reported on that machine, whole numbers are what cards are sold as; a total a
    little below the driver's figure is that figure less what the driver keeps from CUDA.
    """
    text = str(row.get("gpu") or "")
    if re.search(r"none|cpu only", text.lower()) or not row.get("n_gpus", 1):
        return None
    num_devices = int(row.get("n_gpus") or 1)
    names = [re.sub(r"\s*\(.*?\)|nvlink", "", part, flags=re.IGNORECASE).strip() for part in text.split(" + ")]
    if "not named" in text or text == "any" or "class" in text:
        return (_unnamed(number(row.get("gpu_mem_gib"))),) * num_devices
    found: list[Device] = []
    stated = number(row.get("gpu_mem_gib"))
    for name in names:
        match = re.match(r"(\d+)x (.*)", name)
        count = int(match[1]) if match else 1
        try:
            found += [_device(match[2] if match else name, text)] * count
        except TonnageError:
            if not stated:
                raise
            return (_unnamed(stated),) * num_devices
    if len(found) == 1:
        found *= num_devices
    if stated and stated != int(stated) and not 0.97 < stated * GIB / found[0].memory_bytes < 1.0 and len(names) == 1:
        found = [replace(device, memory_bytes=round(stated * GIB)) for device in found]
    return tuple(found)


def _unnamed(stated: float | None) -> Device:
    """Return a device of which at most the memory is known: good for what does not depend on the card."""
    return Device(
        slug="", name="not named", vendor="nvidia", architecture="", form_factor="", memory_type="",
        memory_bytes=round((stated or 1 << 20) * GIB), bandwidth_bytes_per_s=1e12, flop_per_s={"fp16": 1e14},
    )  # fmt: skip


def _device(name: str, whole: str) -> Device:
    try:
        return find_device(name)
    except TonnageError:
        return find_device(whole)


def host_of_row(row: Row) -> Host | None:
    """Return the host when the row names a processor that is known, or a measured bandwidth; else None."""
    text = f"{row.get('cpu') or ''}".lower()
    measured = re.search(r"(\d+(?:\.\d+)?) GB/s measured", str(row.get("ram") or ""))
    for one in datafiles.rows("measurements/hosts.csv"):
        if re.search(rf"\b{re.escape(one['pattern'])}", text):
            bandwidth = float(measured[1]) if measured else float(one["bandwidth_gb_s"])
            return Host(
                memory_bytes=1 << 50,
                bandwidth_bytes_per_s=bandwidth * GB,
                num_cores=int(one["num_cores"]),
                core_flop_per_s=float(one["core_gflop_per_s"]) * GB,
                name=one["pattern"],
                pcie=Link(name="pcie", kind="pcie", bytes_per_s=float(one["pcie_gb_s"]) * GB, source=one["source"]),
            )
    return None


def layout_of_row(row: Row, engine: str, num_devices: int) -> Layout:
    """Return how the work is split: as stated, else by layers in llama.cpp and by tensors elsewhere."""
    note = str(row.get("parallel_note") or "")
    tp, pp = int(row.get("tp") or 1), int(row.get("pp") or 1)
    if engine in _GGUF_ENGINES:
        return Layout(pp=max(num_devices, 1))
    if re.search(r"DEP\d", note):  # attention by data, experts by ranks
        return Layout(dp=num_devices, ep=num_devices)
    if row.get("attention_dp") and tp > 1:
        return Layout(dp=tp, ep=tp, pp=pp)
    if tp * pp < num_devices and not row.get("tp"):
        tp = num_devices
    return Layout(tp=tp, pp=pp)
