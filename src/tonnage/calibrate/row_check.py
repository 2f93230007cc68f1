"""Whether a measurement row's fields are of the kind that they must be: what is wrong with it, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from tonnage.calibrate.row_fields import is_unknown_format, number
from tonnage.messages import knows, say

__all__ = ["MEASURED", "fault_of", "measured_of"]

_NUMBERS: Final = frozenset({
    "file_size_gib", "params_b", "params_active_b", "gpu_mem_gib", "gpu_mem_gb", "n_gpus", "n_nodes", "isl", "osl", "ctx",
    "tp", "pp", "cp", "ep", "dp", "etp", "zero_stage", "num_requests", "gpu_memory_utilization", "max_num_seqs",
    "max_num_batched_tokens", "prefill_isl", "hidden", "layers", "heads", "kv_heads", "ffn", "vocab", "params_total_b",
    "micro_batch", "grad_accum", "global_batch_seqs", "seq_len", "experts", "active_experts", "lora_rank",
    "first_stage_layers", "last_stage_layers", "kv_lora_rank", "q_lora_rank", "shared_expert_ffn", "moe_ffn",
    "mtp_layers", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu", "step_time_s", "peak_mem_gib", "samples_per_s",
    "states_gib", "activations_gib",
})  # fmt: skip
_TABLES: Final = frozenset({"arch", "measured"})
_SWITCHES: Final = frozenset({
    "oom", "is_moe", "flash_attn", "flash_attention", "compile", "sp", "tied_embeddings", "attention_dp", "score_oom",
})  # fmt: skip
_TEXTS: Final = frozenset({
    "engine", "engine_version", "model", "quant", "weight_dtype", "kv_dtype", "gpu", "cpu", "ram", "offload", "placement",
    "source", "source_key", "unit", "group", "tier", "trust", "speed_tier", "kind", "precision", "optimizer", "framework",
    "framework_version", "activation_checkpointing", "seq_len_kind", "mem_kind", "mem_quantity", "mem_rank", "spec_decode",
    "parallel_note", "date", "settings", "fsdp_sharding", "lora_targets",
})  # fmt: skip
MEASURED: Final = ("peak_mem_gib", "tokens_per_s_per_gpu", "step_time_s")
_LARGEST: Final = 1e15
_BOUNDS: Final = {
    **dict.fromkeys(("layers", "n_layers"), (1, 10_000)),
    **dict.fromkeys(("heads", "kv_heads", "n_kv_heads", "experts", "n_experts", "lora_rank"), (1, 100_000)),
    **dict.fromkeys(("hidden", "head_dim"), (1, 1_000_000)),
    **dict.fromkeys(("n_gpus", "n_nodes", "tp", "pp", "cp", "ep", "dp", "etp"), (1, 1_000_000)),
    **dict.fromkeys(("batch", "concurrency", "micro_batch", "grad_accum", "global_batch_seqs"), (1, 100_000_000)),
    "seq_len": (1, 1_000_000_000),
}
_MOST_SERVING: Final = 10_000  # cards of one server, each counted by itself
_WHOLE: Final = frozenset({
    "layers", "n_layers", "heads", "kv_heads", "hidden", "n_gpus", "n_nodes", "tp", "pp", "cp", "ep", "dp", "etp",
})  # fmt: skip
_OPTIONAL: Final = frozenset({"experts", "n_experts", "kv_heads", "lora_rank"})  # 0: there is none


def fault_of(row: Mapping[str, Any]) -> str:
    """Return what is wrong with a row's fields, or nothing.

    >>> fault_of({"n_gpus": "many"})
    "n_gpus is 'many', a number is wanted"
    >>> fault_of({"n_gpus": 2, "model": "m"})
    ''
    >>> fault_of({"engine": "vllm", "quant": "bf99"})
    "quant is 'bf99', no format of weights is called so"
    """
    for name, value in row.items():
        if value is None:
            continue
        if name in _NUMBERS:
            amount = number(value)
            if amount is None or not math.isfinite(amount):
                return _wanted(name, value, "a_number")
            if not 0 <= amount < _LARGEST:
                return _wanted(name, value, "cannot_be")
            if fault := _out_of_bounds(name, value, amount, row):
                return fault
        elif name in ("batch", "concurrency"):
            if isinstance(value, bool) or not isinstance(value, str | int | float):
                return _wanted(name, value, "a_number")
            amount = number(value)
            if amount is not None and (fault := _out_of_bounds(name, value, amount, row)):
                return fault
        elif name in _TABLES and not isinstance(value, dict):
            return _wanted(name, value, "an_object")
        elif name in _SWITCHES and not isinstance(value, bool):
            return _wanted(name, value, "a_switch")
        elif name in _TEXTS and not isinstance(value, str | int | float):
            return _wanted(name, value, "a_text")
    for name, value in (row.get("arch") or {}).items():
        amount = number(value)
        if amount is not None and not 0 <= amount < _LARGEST:
            return _wanted(f"arch.{name}", value, "cannot_be")
        if amount is not None and (fault := _out_of_bounds(name, value, amount, row)):
            return f"arch.{fault}"
    for name, value in (row.get("measured") or {}).items():
        is_figure = isinstance(value, int | float) and not isinstance(value, bool)
        if is_figure and not abs(number(value) or 0.0) < _LARGEST:
            return _wanted(f"measured.{name}", value, "a_number")
    if "engine" in row:
        for name in ("quant", "weight_dtype"):
            if is_unknown_format(str(row.get(name) or "")):
                return _wanted(name, row[name], "no_format")
    return ""


def _out_of_bounds(name: str, value: object, amount: float, row: Mapping[str, Any]) -> str:
    """Return what is wrong with a count that no machine and no model has, or nothing."""
    if name not in _BOUNDS:
        return ""
    least, most = _BOUNDS[name]
    if name in ("n_gpus", "pp") and "measured" in row:
        most = _MOST_SERVING
    has_no_card = name == "n_gpus" and any(word in str(row.get("gpu") or "none").lower() for word in ("none", "cpu"))
    if amount == 0 and (name in _OPTIONAL or has_no_card):
        return ""
    if not least <= amount <= most:
        return _wanted(name, value, f"a number from {least} to {most:,} is wanted")
    if name in _WHOLE and amount != int(amount):
        return _wanted(name, value, "a whole number is wanted")
    return ""


def _wanted(name: str, value: object, what: str) -> str:
    return say(
        "score.wanted", name=name, value=repr(value)[:40], what=say(f"score.{what}") if knows(f"score.{what}") else what
    )


def measured_of(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures that a row measured, by name, whatever else is wrong with it."""
    inner = row.get("measured")
    fields = inner if isinstance(inner, dict) else {name: row.get(name) for name in MEASURED}
    found: dict[str, float] = {}
    for name, value in fields.items():
        amount = number(value)
        if amount is not None and math.isfinite(amount):
            found[name] = amount
    return found
