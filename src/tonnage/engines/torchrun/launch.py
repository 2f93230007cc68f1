"""Candidate -> torchrun with FSDP2 as the Transformers Trainer's own arguments ask for it.

Keys of `fsdp_config` as in transformers 5.24.0 src/transformers/training_args.py. It stands without Accelerate's
launcher, so that any scheduler that knows torchrun starts it.
"""

from __future__ import annotations

from typing import Any

from tonnage.engines.elastic import torchrun_words
from tonnage.engines.transformers.training import JOB, PROGRAM, is_sharded, job_file, loads_once
from tonnage.engines.types import Launch
from tonnage.estimate.types import Candidate

__all__ = ["fsdp_arguments", "launch"]


def fsdp_arguments(candidate: Candidate) -> dict[str, Any]:
    """Return the Trainer's fields for FSDP2; none where nothing is sharded."""
    if not is_sharded(candidate):
        return {}
    config = {
        "version": 2,
        "reshard_after_forward": candidate.layout.zero_stage in (0, 3),
        "cpu_offload": candidate.offload.parameters,
        "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "cpu_ram_efficient_loading": loads_once(candidate),
        "state_dict_type": "SHARDED_STATE_DICT",
    }
    return {"fsdp": "full_shard auto_wrap", "fsdp_config": config}


def launch(candidate: Candidate) -> Launch:
    """Return torchrun, one process a device."""
    return Launch(
        argv=(*torchrun_words(candidate), PROGRAM, JOB), files={JOB: job_file(candidate, **fsdp_arguments(candidate))}
    )
