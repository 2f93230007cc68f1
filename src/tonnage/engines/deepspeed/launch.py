"""Candidate -> a job for the Transformers Trainer with a DeepSpeed configuration, started by torchrun.

Keys as in deepspeed 0.19.8 deepspeed/runtime/config.py, runtime/zero/config.py, runtime/zero/offload_config.py.
"""

from __future__ import annotations

import json
from typing import Any, Final

from tonnage.engines.transformers.training import (
    JOB,
    PROGRAM,
    job_file,
    num_accumulation_steps,
    torchrun_words,
    training_arguments,
)
from tonnage.engines.types import Launch
from tonnage.estimate.types import Candidate

CONFIG: Final = "deepspeed.json"


def config(candidate: Candidate) -> dict[str, Any]:
    """Return DeepSpeed's configuration; batch sizes are written out, so that they must agree with the job's."""
    layout, offload = candidate.layout, candidate.offload
    accumulation = num_accumulation_steps(candidate)
    zero: dict[str, Any] = {"stage": layout.zero_stage, "overlap_comm": True, "contiguous_gradients": True}
    if layout.zero_stage == 3:
        zero |= {"stage3_gather_16bit_weights_on_model_save": True}
    if offload.optimizer or offload.parameters:
        zero |= {"offload_optimizer": {"device": "cpu", "pin_memory": True}}
    if offload.parameters:
        zero |= {"offload_param": {"device": "cpu", "pin_memory": True}}
    return {
        "train_micro_batch_size_per_gpu": candidate.micro_batch_size,
        "gradient_accumulation_steps": accumulation,
        "train_batch_size": candidate.micro_batch_size * accumulation * layout.dp,
        "gradient_clipping": training_arguments(candidate)["max_grad_norm"],
        "bf16": {"enabled": candidate.precision.compute == "bf16"},
        "fp16": {"enabled": candidate.precision.compute == "fp16"},
        "zero_optimization": zero,
    }


def launch(candidate: Candidate) -> Launch:
    """Return torchrun with the job and the configuration."""
    return Launch(
        argv=(*torchrun_words(candidate), PROGRAM, JOB),
        files={JOB: job_file(candidate, deepspeed=CONFIG), CONFIG: json.dumps(config(candidate), indent=2) + "\n"},
    )
