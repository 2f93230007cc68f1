"""Candidate -> `vllm serve` with the flags that the prediction assumed.

Flags as in vllm/engine/arg_utils.py of vLLM 0.33.0.
"""

from __future__ import annotations

from tonnage.engines.types import Launch
from tonnage.engines.vllm.accounting import accounting
from tonnage.estimate.compose_serving import serving_load
from tonnage.estimate.types import Candidate

# Names of this tool's formats that vLLM quantises to while it loads (vllm/config/quantization.py); `fp8` alone names a
# checkpoint that is stored so (model_executor/layers/quantization/fp8.py). The others are read from the checkpoint.
_ONLINE = {"fp8": "fp8_per_block", "fp8_tensor": "fp8_per_tensor", "fp8_channel": "fp8_per_channel"}
_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def launch(candidate: Candidate) -> Launch:
    """Return the command line."""
    load = serving_load(candidate, accounting())
    layout, precision = candidate.layout, candidate.precision
    argv = [
        "vllm", "serve", candidate.model.name,
        "--max-model-len", str(int(load.context_tokens)),
        "--max-num-seqs", str(int(load.max_num_seqs)),
        "--max-num-batched-tokens", str(int(load.max_batched_tokens)),
        "--gpu-memory-utilization", f"{load.utilization_ratio:g}",
        "--tensor-parallel-size", str(layout.tp),
    ]  # fmt: skip
    if layout.pp > 1:
        argv += ["--pipeline-parallel-size", str(layout.pp)]
    if layout.dp > 1:
        argv += ["--data-parallel-size", str(layout.dp)]
    if layout.ep > 1:
        argv += ["--enable-expert-parallel"]
    if precision.kv.startswith("fp8"):
        argv += ["--kv-cache-dtype", precision.kv]
    own = candidate.model.quantization.scheme if candidate.model.quantization else None
    if own is not None and precision.kv in _DTYPES:  # else it could follow the checkpoint to 8 bits
        argv += ["--kv-cache-dtype", _DTYPES["bf16" if precision.compute == "bf16" else "fp16"]]
    if precision.weights in _DTYPES and own is None:
        argv += ["--dtype", _DTYPES[precision.weights]]
    elif precision.weights in _ONLINE and own != precision.weights:
        argv += ["--quantization", _ONLINE[precision.weights]]
    if load.has_draft_head and load.num_draft_tokens:
        argv += ["--speculative-config", f'{{"method": "mtp", "num_speculative_tokens": {int(load.num_draft_tokens)}}}']
    return Launch(argv=tuple(argv))
