"""Candidate -> `transformers serve`.

Flags as in transformers 5.24.0, src/transformers/cli/serve.py.
"""

from __future__ import annotations

from tonnage.engines.types import Launch
from tonnage.estimate.types import Candidate

_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
_QUANTIZATION = {"nf4": "bnb-4bit", "int8": "bnb-8bit"}


def launch(candidate: Candidate) -> Launch:
    """Return the command line."""
    weights = candidate.precision.weights
    # "auto" fills the devices in turn and leaves the rest on the host
    argv = ["transformers", "serve", candidate.model.name, "--device", "auto"]
    if weights in _DTYPES:
        argv += ["--dtype", _DTYPES[weights]]
    elif weights in _QUANTIZATION:
        argv += ["--quantization", _QUANTIZATION[weights]]
    return Launch(argv=tuple(argv))
