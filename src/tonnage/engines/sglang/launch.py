"""Candidate -> `python -m sglang.launch_server` with the flags that the prediction assumed.

Flags as in python/sglang/srt/server_args.py; the long forms `--tensor-parallel-size` … are aliases there.
"""

from __future__ import annotations

import math

from tonnage.engines.sglang.accounting import Accounting, accounting, num_state_slots
from tonnage.engines.types import Launch
from tonnage.estimate.compose_serving import serving_load
from tonnage.estimate.types import Candidate

_ONLINE = {"fp8": "fp8", "fp8_tensor": "fp8", "fp8_channel": "fp8", "nf4": "bitsandbytes", "nf4_double": "bitsandbytes"}


def arguments(candidate: Candidate, rules: Accounting) -> list[str]:
    """Return the server's own arguments, which KTransformers extends."""
    load = serving_load(candidate, rules)
    layout, precision = candidate.layout, candidate.precision
    argv = [
        "python", "-m", "sglang.launch_server", "--model-path", candidate.model.name,
        "--context-length", str(int(load.context_tokens)),
        "--max-running-requests", str(int(load.max_num_seqs)),
        "--chunked-prefill-size", str(int(load.max_batched_tokens)),
        "--mem-fraction-static", f"{load.utilization_ratio:g}",
        "--tp-size", str(layout.tp),
    ]  # fmt: skip
    for flag, ways in (("--pp-size", layout.pp), ("--dp-size", layout.dp), ("--ep-size", layout.ep)):
        if ways > 1:
            argv += [flag, str(ways)]
    if precision.kv.startswith("fp8"):
        argv += ["--kv-cache-dtype", precision.kv if precision.kv != "fp8" else "fp8_e4m3"]
    if len({group.window_tokens is None for group in load.shape.cache_groups}) > 1:
        argv += ["--swa-full-tokens-ratio", f"{math.ceil(1e4 * rules.window_ratio(load)) / 1e4:g}"]
    if load.shape.state_groups:
        argv += ["--max-mamba-cache-size", str(int(num_state_slots(load)))]
    if load.has_draft_head and load.num_draft_tokens:
        steps = int(load.num_draft_tokens)
        argv += ["--speculative-algorithm", "NEXTN", "--speculative-num-steps", str(steps)]
        argv += ["--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", str(steps + 1)]
    own = candidate.model.quantization.scheme if candidate.model.quantization else None
    if precision.weights in _ONLINE and own != precision.weights:
        argv += ["--quantization", _ONLINE[precision.weights]]
    return argv


def launch(candidate: Candidate) -> Launch:
    """Return the command line."""
    return Launch(argv=tuple(arguments(candidate, accounting())))
