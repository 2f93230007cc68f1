"""Candidate -> SGLang's server with kt-kernel's flags.

Flags as in sglang 0.5.23 sglang/srt/arg_groups/fields/exec_.py, which has six of them; the fork that kt-kernel 0.7.2
asks for, sglang-kt, has them too. `kt run` hands the same words on.
"""

from __future__ import annotations

from tonnage.engines.ktransformers.accounting import accounting
from tonnage.engines.sglang.launch import arguments
from tonnage.engines.types import Launch
from tonnage.estimate.types import Candidate
from tonnage.model.types import Moe

_METHODS = {"bf16": "BF16", "fp8": "FP8", "int8": "AMXINT8", "int4": "AMXINT4", "mxfp4": "MXFP4"}


def num_gpu_experts(candidate: Candidate) -> int:
    """Return how many experts of each layer stay on the device, for the share of layers that the candidate offloads."""
    layers = [layer for layer in candidate.model.layers if any(isinstance(p, Moe) for p in layer.feed_forwards)]
    num_experts = max((p.num_experts for layer in layers for p in layer.feed_forwards if isinstance(p, Moe)), default=0)
    first = candidate.model.num_layers - len(layers)
    on_host = min(max(candidate.offload.num_cpu_expert_layers - first, 0), len(layers))
    return num_experts * (len(layers) - on_host) // max(len(layers), 1)


def launch(candidate: Candidate) -> Launch:
    """Return the command line; one thread a physical core, one pool a memory node."""
    host = candidate.cluster.node.host
    argv = [
        *arguments(candidate, accounting()),
        "--kt-weight-path", candidate.model.name,
        "--kt-method", _METHODS.get(candidate.precision.weights, "LLAMAFILE"),
        "--kt-num-gpu-experts", str(num_gpu_experts(candidate)),
        "--kt-cpuinfer", str(host.num_cores),
        "--kt-threadpool-count", "1",
    ]  # fmt: skip
    return Launch(argv=tuple(argv))
