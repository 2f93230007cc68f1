"""Candidate -> ik_llama.cpp's `llama-server` with the flags that the prediction assumed.

Flags as in ikawrakow/ik_llama.cpp common/common.cpp @8337e4cd; fused experts are on by default there,
and tensors are split by `-sm graph` (none, layer, attn, graph).
"""

from __future__ import annotations

from tonnage.engines.ik_llama_cpp.accounting import accounting
from tonnage.engines.llama_cpp.accounting import LATENT_SCORE_BYTES
from tonnage.engines.llama_cpp.launch import arguments, weights_file
from tonnage.engines.types import Launch
from tonnage.estimate.types import Candidate
from tonnage.model.types import LatentAttention
from tonnage.units import MIB


def launch(candidate: Candidate) -> Launch:
    """Return the command line; latent attention in the mode that keeps the small cache."""
    argv = ["llama-server", "-m", weights_file(candidate), *arguments(candidate, accounting(), "graph")]
    if on_host := candidate.offload.num_cpu_layers:  # src/llama.cpp: the output is on the device with all layers only
        argv[argv.index("-ngl") + 1] = str(candidate.model.num_layers - on_host)
    if any(isinstance(mixer, LatentAttention) for layer, _ in candidate.model.groups() for mixer in layer.mixers):
        argv += ["-mla", "3", "-amb", str(LATENT_SCORE_BYTES // MIB)]
    return Launch(argv=tuple(argv))
