"""Candidate -> a job for the Transformers Trainer with a DeepSpeed configuration, started by torchrun.

Keys as in deepspeed 0.19.8 deepspeed/runtime/config.py, runtime/zero/config.py, runtime/zero/offload_config.py,
runtime/swap_tensor/constants.py.
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
from tonnage.estimate import swap
from tonnage.estimate.types import Candidate, Offload

CONFIG: Final = "deepspeed.json"
DRIVE: Final = "nvme"  # folder beside the job, on the drive: a link or a mount
_AIO: Final = {  # of DeepSpeed, written out
    "block_size": 1048576,
    "queue_depth": 8,
    "intra_op_parallelism": 1,
    "single_submit": False,
    "overlap_events": True,
}


def config(candidate: Candidate) -> dict[str, Any]:
    """Return DeepSpeed's configuration; batch sizes are written out, so that they must agree with the job's."""
    layout = candidate.layout
    accumulation = num_accumulation_steps(candidate)
    stage = _stage(candidate)
    zero: dict[str, Any] = {"stage": stage, "overlap_comm": True, "contiguous_gradients": True}
    if stage == _SHARDS_ALL:
        zero |= {"stage3_gather_16bit_weights_on_model_save": True}
    zero |= _moved(candidate)
    swaps = candidate.offload.optimizer_nvme or candidate.offload.parameters_nvme
    return {
        "train_micro_batch_size_per_gpu": candidate.micro_batch_size,
        "gradient_accumulation_steps": accumulation,
        "train_batch_size": candidate.micro_batch_size * accumulation * layout.dp,
        "gradient_clipping": training_arguments(candidate)["max_grad_norm"],
        "bf16": {"enabled": candidate.precision.compute == "bf16"},
        "fp16": {"enabled": candidate.precision.compute == "fp16"},
        "zero_optimization": zero,
        **_optimizer(candidate),
        **({"aio": _AIO} if swaps else {}),
    }


def _optimizer(candidate: Candidate) -> dict[str, Any]:
    """Return what updates weights on the host: DeepSpeed refuses torch's optimizers there unless told otherwise.

    deepspeed 0.19.8 runtime/engine.py, `zero_force_ds_cpu_optimizer`; "auto" takes the Trainer's values (transformers
    5.24.0 src/transformers/integrations/deepspeed.py). DeepSpeed's AdamW is compiled when it is first used.
    """
    if not (candidate.offload.optimizer or candidate.offload.parameters):
        return {}
    if candidate.optimizer in ("adamw", "adamw_bf16"):
        return {"optimizer": {"type": "AdamW", "params": dict.fromkeys(("lr", "betas", "eps", "weight_decay"), "auto")}}
    return {"zero_force_ds_cpu_optimizer": False}


def _stage(candidate: Candidate) -> int:
    """Return the ZeRO stage; on one card, where it shards nothing, the least that moves what is to be moved."""
    offload, stage = candidate.offload, candidate.layout.zero_stage
    if stage:
        return stage
    return _SHARDS_ALL if offload.parameters or offload.optimizer_nvme else int(offload.optimizer)


def _moved(candidate: Candidate) -> dict[str, Any]:
    """Return where optimizer and weights are kept, with buffers of the size that the prediction counted."""
    offload: Offload = candidate.offload
    fields: dict[str, Any] = {}
    if offload.optimizer or offload.parameters:
        fields["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    if offload.parameters:
        fields["offload_param"] = {"device": "cpu", "pin_memory": True}
    if offload.optimizer_nvme:
        fields["sub_group_size"] = swap.STEP_GROUP
        fields["offload_optimizer"] |= {"device": "nvme", "nvme_path": DRIVE, "buffer_count": _STEP_BUFFERS}
    if offload.parameters_nvme:
        share = -(-swap.largest_tensor(candidate.model) // (candidate.layout.dp * candidate.layout.cp))
        fields["stage3_max_reuse_distance"] = (
            0  # else weights wait on the card for their next use, and buffers with them
        )
        fields["offload_param"] |= {
            "device": "nvme",
            "nvme_path": DRIVE,
            "buffer_count": swap.NUM_WEIGHT_BUFFERS,
            "buffer_size": share,
            "max_in_cpu": 0,
        }
    return fields


_SHARDS_ALL: Final = 3
_STEP_BUFFERS: Final = 4  # master copy, gradient and the two states of AdamW


def launch(candidate: Candidate) -> Launch:
    """Return torchrun with the job and the configuration."""
    return Launch(
        argv=(*torchrun_words(candidate), PROGRAM, JOB),
        files={JOB: job_file(candidate, deepspeed=CONFIG), CONFIG: json.dumps(config(candidate), indent=2) + "\n"},
    )
