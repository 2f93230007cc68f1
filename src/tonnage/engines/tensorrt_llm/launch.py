"""Candidate -> `trtllm-serve` with the flags that the prediction assumed.

Flags as in NVIDIA/TensorRT-LLM tensorrt_llm/commands/serve.py @00209af1; the cache's type has no flag and goes into the
options file (`LlmArgs`, tensorrt_llm/llmapi/llm_args.py), with the chunks that prompts longer than a step need.
"""

from __future__ import annotations

from tonnage.engines.tensorrt_llm.accounting import accounting
from tonnage.engines.types import Launch
from tonnage.estimate.compose_serving import serving_load
from tonnage.estimate.types import Candidate


def launch(candidate: Candidate) -> Launch:
    """Return the command line, and an options file where the cache is of another type or prompts come in chunks."""
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
    options = ""
    if candidate.precision.kv.startswith("fp8"):
        options += "kv_cache_config:\n  dtype: fp8\n"
    if int(load.context_tokens) > int(load.max_batched_tokens):  # else a prompt has to fit into one step
        options += "enable_chunked_prefill: true\n"
    if not options:
        return Launch(argv=tuple(argv))
    argv += ["--extra_llm_api_options", "options.yaml"]
    return Launch(argv=tuple(argv), files={"options.yaml": options})
