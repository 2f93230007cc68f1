"""Candidate -> `llama-server` with the flags that the prediction assumed.

Flags as in ggml-org/llama.cpp tools/server/README.md @00dc8057. `--fit off` keeps the server from moving layers away
from what was planned.
"""

from __future__ import annotations

from tonnage.engines.llama_cpp.accounting import Accounting, accounting
from tonnage.engines.types import Launch
from tonnage.estimate.compose_serving import serving_load
from tonnage.estimate.types import Candidate
from tonnage.estimate.weights import is_gguf_file

_CACHE = {"fp16": "f16", "bf16": "bf16", "fp32": "f32"}


def cache_type(kv: str) -> str:
    """Return llama.cpp's name of a cache format."""
    return _CACHE.get(kv, kv)


def arguments(candidate: Candidate, rules: Accounting, tensor_split: str = "row") -> list[str]:
    """Return the flags that llama.cpp and ik_llama.cpp share; they name the way to split each tensor differently."""
    load = serving_load(candidate, rules)
    offload, kv = candidate.offload, cache_type(candidate.precision.kv)
    slots = int(load.max_num_seqs)
    argv = [
        "-c", str(int(load.context_tokens) * slots),
        "-np", str(slots),
        "-ub", str(int(load.max_batched_tokens)),
        "-ngl", str(candidate.model.num_layers + 1 - offload.num_cpu_layers),  # the output is counted as one
        "-fa", "on" if load.has_flash_attention else "off",
        "-ctk", kv,
        "-ctv", cache_type(candidate.settings.extra.get("value_cache", candidate.precision.kv)),
    ]  # fmt: skip
    if projector := candidate.settings.extra.get("mmproj"):
        argv += ["--mmproj", f"mmproj-{candidate.model.name.rsplit('/', 1)[-1]}-{projector.upper()}.gguf"]
    if offload.num_cpu_expert_layers:
        argv += ["-ncmoe", str(offload.num_cpu_expert_layers)]
    if candidate.layout.tp > 1:
        argv += ["-sm", tensor_split, "-ts", ",".join(["1"] * candidate.layout.tp)]
    elif candidate.layout.pp > 1:
        argv += ["-sm", "layer", "-ts", ",".join(["1"] * candidate.layout.pp)]
    return argv


def weights_file(candidate: Candidate) -> str:
    """Return the file of weights: the one that was read, or the usual name of the quantisation, to be fetched or made.

    Whether somebody published such a file, and where, is not known here.
    """
    name, own = candidate.model.name, candidate.model.quantization
    if is_gguf_file(candidate.model) and own is not None and own.scheme == candidate.precision.weights:
        return candidate.model.source
    return name if name.endswith(".gguf") else f"{name.rsplit('/', 1)[-1]}-{candidate.precision.weights.upper()}.gguf"


def launch(candidate: Candidate) -> Launch:
    """Return the command line; weights repacked for the processor would be copies in memory, not pages of the file."""
    argv = ("llama-server", "-m", weights_file(candidate), *arguments(candidate, accounting()), "--fit", "off")
    return Launch(argv=(*argv, "--no-repack") if candidate.offload.experts_nvme else argv)
