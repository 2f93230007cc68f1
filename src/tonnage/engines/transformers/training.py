"""Candidate -> a job for the Transformers Trainer, started by Accelerate (FSDP2, DDP) or by torchrun.

Fields as in transformers 5.24.0 src/transformers/training_args.py and accelerate 1.15.0 commands/config/config_args.py,
commands/launch.py; optimizers as in `OptimizerNames`. `jobs/train.py` reads the job.
"""

from __future__ import annotations

import json
from typing import Any, Final

from tonnage import datafiles
from tonnage.engines.elastic import (
    LEARNING_RATES,
    PORT,
    is_adapter,
    num_accumulation_steps,
    num_steps,
    torchrun_words,
    training_of,
)
from tonnage.engines.transformers.attention import attention_implementation
from tonnage.engines.types import Late, Launch
from tonnage.estimate.types import Candidate, Recompute
from tonnage.workload.types import TrainingKind

__all__ = [
    "JOB",
    "PROGRAM",
    "accelerate_config",
    "accelerate_words",
    "is_sharded",
    "job_file",
    "launch",
    "loads_once",
    "lora_targets",
    "num_accumulation_steps",
    "quantization",
    "torchrun_words",
    "training_arguments",
]

JOB: Final = "job.json"
PROGRAM: Final = "train.py"
OPTIMIZERS: Final = {
    "adamw": "adamw_torch_fused",
    "adamw_bf16": "adamw_torch_fused",  # its states take the parameters' own type
    "adamw_8bit": "adamw_8bit",
    "paged_adamw": "paged_adamw_32bit",
    "paged_adamw_8bit": "paged_adamw_8bit",
    "adafactor": "adafactor",
    "sgd": "sgd",
    "sgd_momentum": "sgd",
}
# Attention's projections as transformers names them, of fused, grouped and latent attention alike.
ATTENTION: Final = (
    r".*\.(q_proj|k_proj|v_proj|o_proj|qkv_proj|query_key_value|c_attn|q_a_proj|q_b_proj|kv_a_proj_with_mqa|kv_b_proj)"
)
EXPERTS: Final = ("mlp.experts.gate_up_proj", "mlp.experts.down_proj")  # stacked since transformers 5
_DTYPES: Final = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


def training_arguments(candidate: Candidate) -> dict[str, Any]:
    """Return fields of `TrainingArguments`."""
    workload, steps = training_of(candidate), num_steps(candidate)
    length = {"num_train_epochs": 1.0} if steps is None else {"max_steps": steps}
    compute = candidate.precision.compute
    return {
        "output_dir": "run",
        "per_device_train_batch_size": candidate.micro_batch_size,
        "gradient_accumulation_steps": num_accumulation_steps(candidate),
        **length,
        "bf16": compute == "bf16",
        "fp16": compute == "fp16",
        "gradient_checkpointing": candidate.recompute is Recompute.FULL,
        "gradient_checkpointing_kwargs": {"use_reentrant": False},
        "optim": OPTIMIZERS[candidate.optimizer],
        "learning_rate": LEARNING_RATES[workload.kind],
        "lr_scheduler_type": "cosine",
        "warmup_steps": 0.03,  # below 1: a share of all steps
        "max_grad_norm": 1.0,
        "logging_steps": 1,
        "save_strategy": "steps",
        "save_steps": 500,
        "save_total_limit": 2,
        "seed": 42,
        "dataloader_num_workers": 2,
        "torch_compile": candidate.settings.has_compile,
        "use_liger_kernel": candidate.settings.has_fused_loss,
        "report_to": "none",
    }


def _attention(candidate: Candidate) -> str:
    """Return the attention that the device runs, of what the bundle installs."""
    devices = candidate.cluster.node.devices
    is_nvidia = bool(devices) and devices[0].vendor.lower() == "nvidia"
    capability = float(devices[0].compute_capability or 0) if is_nvidia else None
    packages = datafiles.table("engines/transformers.toml")["trainer"].get("packages", ())
    return attention_implementation(capability, packages, has_flash_attention=candidate.settings.has_flash_attention)


def job_file(candidate: Candidate, **arguments: Any) -> str:
    """Return the job: what to train, how the model is loaded, and the Trainer's own arguments."""
    workload = training_of(candidate)
    job: dict[str, Any] = {
        "format": 1,
        "model": candidate.model.name,
        "kind": str(workload.kind),
        "seq_len": workload.seq_len,
        "data": "data",
        "dtype": _DTYPES.get(candidate.precision.weights, "bfloat16"),
        "attn_implementation": _attention(candidate),
    }
    if is_adapter(candidate):
        job["lora"] = {"r": workload.lora_rank, "lora_alpha": 2 * workload.lora_rank, **lora_targets(candidate)}
    if workload.kind is TrainingKind.QLORA and (found := quantization(candidate)):
        job["quantization"] = found
    job["training_arguments"] = {**training_arguments(candidate), **arguments}
    return json.dumps(job, indent=2) + "\n"


def lora_targets(candidate: Candidate) -> dict[str, Any]:
    """Return which matrices get adapters, as fields of PEFT's `LoraConfig` (peft 0.21 src/peft/tuners/lora/config.py)."""
    targets = training_of(candidate).lora_targets
    if targets == ("attention",):
        return {"target_modules": ATTENTION}
    if targets == ("all",) and candidate.model.is_moe:
        return {"target_modules": "all-linear", "target_parameters": list(EXPERTS)}
    return {"target_modules": "all-linear" if targets in (("all",), ("all-linear",)) else list(targets)}


def quantization(candidate: Candidate) -> dict[str, Any]:
    """Return fields of `BitsAndBytesConfig`; none where the checkpoint itself is stored in the planned format."""
    weights, compute = candidate.precision.weights, _DTYPES.get(candidate.precision.compute, "bfloat16")
    if weights == "int8":
        return {"load_in_8bit": True}
    if not weights.startswith("nf4"):
        return {}
    found = {
        "load_in_4bit": True,
        "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_use_double_quant": weights in ("nf4_double", "nf4_dq"),
        "bnb_4bit_compute_dtype": compute,
    }
    # FSDP shards 4-bit weights where they are stored in the type of the others (peft docs, accelerate/fsdp)
    return found | ({"bnb_4bit_quant_storage": compute} if candidate.layout.zero_stage else {})


def is_sharded(candidate: Candidate) -> bool:
    """Whether FSDP2 holds the model: parameters are sharded, or kept on the host, also of one device."""
    return candidate.layout.zero_stage > 0 or candidate.offload.parameters


def loads_once(candidate: Candidate) -> bool:
    """Whether one process reads the weights for all.

    Not with 4-bit weights: they are packed where they are read, and the other ranks' shapes differ (axolotl 0.19.0
    src/axolotl/utils/schemas/validation.py, `check_fsdp2_cpu_ram_efficient_loading_w_4bit`).
    """
    return not candidate.precision.weights.startswith("nf4")


def mixed_precision(candidate: Candidate) -> dict[str, Any]:
    """Return Accelerate's fields for the type that matrices are multiplied in; FP8 is torchao's recipe."""
    compute = candidate.precision.compute
    if compute == "fp8":
        return {"mixed_precision": "fp8", "fp8_config": {"backend": "AO"}}
    return {"mixed_precision": compute if compute in ("bf16", "fp16") else "no"}


def accelerate_config(candidate: Candidate) -> str:
    """Return Accelerate's configuration: FSDP2 where parameters are sharded, else plain data parallel."""
    cluster = candidate.cluster
    num_processes = candidate.layout.num_devices
    table: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "FSDP" if is_sharded(candidate) else "MULTI_GPU" if num_processes > 1 else "NO",
        **mixed_precision(candidate),
        "num_machines": cluster.num_nodes,
        "num_processes": num_processes,
        "rdzv_backend": "c10d" if cluster.num_nodes > 1 else "static",
        "same_network": True,
        "main_training_function": "main",
        "use_cpu": False,
    }
    if is_sharded(candidate):
        table["fsdp_config"] = {
            "fsdp_version": 2,
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_reshard_after_forward": candidate.layout.zero_stage in (0, 3),
            "fsdp_offload_params": candidate.offload.parameters,
            "fsdp_cpu_ram_efficient_loading": loads_once(candidate),
            "fsdp_state_dict_type": "SHARDED_STATE_DICT",
            "fsdp_activation_checkpointing": False,  # the Trainer does it
        }
    return json.dumps(table, indent=2) + "\n"


def launch(candidate: Candidate) -> Launch:
    """Return `accelerate launch` where several devices share the work, else the program alone."""
    files = {JOB: job_file(candidate)}
    if candidate.layout.num_devices == 1 and not is_sharded(candidate) and candidate.precision.compute != "fp8":
        return Launch(argv=("python", PROGRAM, JOB), files=files)
    return Launch(
        argv=accelerate_words(candidate),
        files={**files, "accelerate.json": accelerate_config(candidate)},
    )


def accelerate_words(candidate: Candidate) -> tuple[str, ...]:
    """Return `accelerate launch` of the program."""
    argv = ["accelerate", "launch", "--config_file", "accelerate.json"]
    if candidate.cluster.num_nodes > 1:
        argv += [
            "--machine_rank", Late("$NODE_RANK"),
            "--main_process_ip", Late("$MASTER_ADDR"),
            "--main_process_port", str(PORT),
        ]  # fmt: skip
    return (*argv, PROGRAM, JOB)
