"""Candidate -> a job for the Transformers Trainer, started by Accelerate (FSDP2, DDP) or by torchrun.

Fields as in transformers 5.24.0 src/transformers/training_args.py and accelerate 1.15.0 commands/config/config_args.py,
commands/launch.py; optimizers as in `OptimizerNames`. `jobs/train.py` reads the job.
"""

from __future__ import annotations

import json
from typing import Any, Final

from tonnage.engines.types import Late, Launch
from tonnage.estimate.types import Candidate, Recompute
from tonnage.workload.types import Training, TrainingKind

__all__ = ["JOB", "job_file", "launch", "torchrun_words"]

JOB: Final = "job.json"
PROGRAM: Final = "train.py"
_PORT: Final = 29500
_OPTIMIZERS: Final = {
    "adamw": "adamw_torch_fused",
    "adamw_bf16": "adamw_torch_fused",  # its states take the parameters' own type
    "adamw_8bit": "adamw_8bit",
    "paged_adamw": "paged_adamw_32bit",
    "paged_adamw_8bit": "paged_adamw_8bit",
    "adafactor": "adafactor",
    "sgd": "sgd",
    "sgd_momentum": "sgd",
}
_DTYPES: Final = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


def num_accumulation_steps(candidate: Candidate) -> int:
    """Return the micro-batches of one device in one step."""
    workload = candidate.workload
    assert isinstance(workload, Training)
    return max(1, workload.global_batch_size // (candidate.micro_batch_size * candidate.layout.dp))


def training_arguments(candidate: Candidate) -> dict[str, Any]:
    """Return fields of `TrainingArguments`."""
    workload = candidate.workload
    assert isinstance(workload, Training)
    tokens_per_step = workload.global_batch_size * workload.seq_len
    length = (
        {"num_train_epochs": 1.0}
        if workload.num_tokens is None
        else {"max_steps": max(1, -(-workload.num_tokens // tokens_per_step))}
    )
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
        "optim": _OPTIMIZERS[candidate.optimizer],
        "learning_rate": 1e-4 if workload.kind in (TrainingKind.LORA, TrainingKind.QLORA) else 1e-5,
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
        "use_liger_kernel": False,
        "report_to": "none",
    }


def job_file(candidate: Candidate, **arguments: Any) -> str:
    """Return the job: what to train, how the model is loaded, and the Trainer's own arguments."""
    workload = candidate.workload
    assert isinstance(workload, Training)
    is_adapter = workload.kind in (TrainingKind.LORA, TrainingKind.QLORA)
    job: dict[str, Any] = {
        "format": 1,
        "model": candidate.model.name,
        "kind": str(workload.kind),
        "seq_len": workload.seq_len,
        "data": "data",
        "dtype": _DTYPES.get(candidate.precision.weights, "bfloat16"),
        "attn_implementation": "sdpa" if candidate.settings.has_flash_attention else "eager",
    }
    if is_adapter:
        targets = workload.lora_targets
        job["lora"] = {
            "r": workload.lora_rank,
            "lora_alpha": 2 * workload.lora_rank,
            "target_modules": targets[0] if targets == ("all-linear",) else list(targets),
        }
    if workload.kind is TrainingKind.QLORA:
        job["quantization"] = {
            "load_in_4bit": True,
            "bnb_4bit_quant_type": "nf4",
            "bnb_4bit_use_double_quant": candidate.precision.weights == "nf4_double",
            "bnb_4bit_compute_dtype": _DTYPES[candidate.precision.compute],
        }
    job["training_arguments"] = {**training_arguments(candidate), **arguments}
    return json.dumps(job, indent=2) + "\n"


def accelerate_config(candidate: Candidate) -> str:
    """Return Accelerate's configuration: FSDP2 where parameters are sharded, else plain data parallel."""
    cluster = candidate.cluster
    num_processes = candidate.layout.num_devices
    table: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "FSDP" if candidate.layout.zero_stage else "MULTI_GPU" if num_processes > 1 else "NO",
        "mixed_precision": candidate.precision.compute if candidate.precision.compute in ("bf16", "fp16") else "no",
        "num_machines": cluster.num_nodes,
        "num_processes": num_processes,
        "rdzv_backend": "c10d" if cluster.num_nodes > 1 else "static",
        "same_network": True,
        "main_training_function": "main",
        "use_cpu": False,
    }
    if candidate.layout.zero_stage:
        table["fsdp_config"] = {
            "fsdp_version": 2,
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_reshard_after_forward": candidate.layout.zero_stage == 3,
            "fsdp_offload_params": candidate.offload.parameters,
            "fsdp_cpu_ram_efficient_loading": True,
            "fsdp_state_dict_type": "SHARDED_STATE_DICT",
            "fsdp_activation_checkpointing": False,  # the Trainer does it
        }
    return json.dumps(table, indent=2) + "\n"


def torchrun_words(candidate: Candidate) -> tuple[str, ...]:
    """Return torchrun with one process a device; flags as in torch 2.13 torch/distributed/run.py."""
    cluster = candidate.cluster
    per_node = len(cluster.node.devices)
    if cluster.num_nodes == 1:
        return "torchrun", "--standalone", "--nproc-per-node", str(per_node)
    return (
        "torchrun",
        "--nnodes", str(cluster.num_nodes),
        "--nproc-per-node", str(per_node),
        "--rdzv-backend", "c10d",
        "--rdzv-id", Late("$JOB_ID"),
        "--rdzv-endpoint", Late(f"$MASTER_ADDR:{_PORT}"),
    )  # fmt: skip


def launch(candidate: Candidate) -> Launch:
    """Return `accelerate launch` where several devices share the work, else the program alone."""
    files = {JOB: job_file(candidate)}
    if candidate.layout.num_devices == 1:
        return Launch(argv=("python", PROGRAM, JOB), files=files)
    argv = ["accelerate", "launch", "--config_file", "accelerate.json"]
    if candidate.cluster.num_nodes > 1:
        argv += [
            "--machine_rank", Late("$NODE_RANK"),
            "--main_process_ip", Late("$MASTER_ADDR"),
            "--main_process_port", str(_PORT),
        ]  # fmt: skip
    return Launch(argv=(*argv, PROGRAM, JOB), files={**files, "accelerate.json": accelerate_config(candidate)})
