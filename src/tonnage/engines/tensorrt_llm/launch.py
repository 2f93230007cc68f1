"""Candidate -> `trtllm-serve` with the flags that the prediction assumed.

Flags as in NVIDIA/TensorRT-LLM tensorrt_llm/commands/common_llm_options.py @1f719075; the cache's type has no flag and
goes into the options file.
"""

from __future__ import annotations

from tonnage.engines.tensorrt_llm.accounting import accounting
from tonnage.engines.types import Launch
from tonnage.estimate.compose_serving import serving_load
from tonnage.estimate.types import Candidate


def launch(candidate: Candidate) -> Launch:
    """Return the command line, and an options file when the cache is not the model's own type."""
    load = serving_load(candidate, accounting())
    layout = candidate.layout
    argv = [
        "trtllm-serve", candidate.model.name,
        "--max_batch_size", str(int(load.max_num_seqs)),
        "--max_num_tokens", str(int(load.max_batched_tokens)),
        "--max_seq_len", str(int(load.context_tokens)),
        "--kv_cache_free_gpu_memory_fraction", f"{load.utilization_ratio:g}",
        "--tp_size", str(layout.tp),
        "--pp_size", str(layout.pp),
    ]  # fmt: skip
    if layout.ep > 1:
        argv += ["--ep_size", str(layout.ep)]
    if not candidate.precision.kv.startswith("fp8"):
        return Launch(argv=tuple(argv))
    argv += ["--extra_llm_api_options", "options.yaml"]
    return Launch(argv=tuple(argv), files={"options.yaml": "kv_cache_config:\n  dtype: fp8\n"})
