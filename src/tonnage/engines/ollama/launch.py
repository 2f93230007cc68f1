"""Candidate -> a Modelfile and `ollama serve` with the environment that the prediction assumed.

Variables as in ollama/ollama envconfig/config.go @fb30760; parameters of the Modelfile as in docs/modelfile.md.
"""

from __future__ import annotations

from tonnage.engines.llama_cpp.launch import cache_type, weights_file
from tonnage.engines.ollama.accounting import accounting
from tonnage.engines.types import Launch
from tonnage.estimate.compose_serving import serving_load
from tonnage.estimate.types import Candidate


def launch(candidate: Candidate) -> Launch:
    """Return the command line, its environment and the Modelfile."""
    load = serving_load(candidate, accounting())
    on_device = candidate.model.num_layers + 1 - candidate.offload.num_cpu_layers
    source = weights_file(candidate)
    source = source if "/" in source else f"./{source}"
    modelfile = f"FROM {source}\nPARAMETER num_ctx {int(load.context_tokens)}\nPARAMETER num_gpu {on_device}\n"
    return Launch(
        argv=("ollama", "serve"),
        env={
            "OLLAMA_CONTEXT_LENGTH": str(int(load.context_tokens)),
            "OLLAMA_NUM_PARALLEL": str(int(load.max_num_seqs)),
            "OLLAMA_FLASH_ATTENTION": "1" if load.has_flash_attention else "0",
            "OLLAMA_KV_CACHE_TYPE": cache_type(candidate.precision.kv),
        },
        files={"Modelfile": modelfile},
    )
