"""torchrun's words, and what every program that trains is told alike: steps, batches, kinds of adapters.

Flags as in torch 2.13 torch/distributed/run.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from tonnage.engines.types import Late
from tonnage.estimate.types import Candidate
from tonnage.workload.types import Training, TrainingKind

__all__ = [
    "LEARNING_RATES",
    "PORT",
    "is_adapter",
    "num_accumulation_steps",
    "num_steps",
    "torchrun_words",
    "training_of",
    "yaml_text",
]

PORT: Final = 29500
LEARNING_RATES: Final = {
    TrainingKind.PRETRAIN: 3e-4, TrainingKind.FULL: 1e-5, TrainingKind.LORA: 1e-4, TrainingKind.QLORA: 1e-4,
}  # fmt: skip


def training_of(candidate: Candidate) -> Training:
    """Return what is to be trained."""
    workload = candidate.workload
    assert isinstance(workload, Training)
    return workload


def is_adapter(candidate: Candidate) -> bool:
    """Whether adapters are trained beside frozen weights."""
    return training_of(candidate).kind in (TrainingKind.LORA, TrainingKind.QLORA)


def num_accumulation_steps(candidate: Candidate) -> int:
    """Return the micro-batches of one device in one step."""
    return max(1, training_of(candidate).global_batch_size // (candidate.micro_batch_size * candidate.layout.dp))


def num_steps(candidate: Candidate) -> int | None:
    """Return the steps that the tokens asked for take; None: one pass over the data."""
    workload = training_of(candidate)
    if workload.num_tokens is None:
        return None
    return max(1, -(-workload.num_tokens // (workload.global_batch_size * workload.seq_len)))


def torchrun_words(candidate: Candidate) -> tuple[str, ...]:
    """Return torchrun with one process a device.

    It restarts nothing itself: ranks that it starts anew can meet the address of the attempt that died, so a
    supervisor starts a fresh torchrun, and the program goes on from its checkpoint.
    """
    cluster = candidate.cluster
    per_node = str(len(cluster.node.devices) or 1)
    if cluster.num_nodes == 1:
        return "torchrun", "--standalone", "--nproc-per-node", per_node, "--max-restarts", "0"
    return (
        "torchrun",
        "--nnodes", str(cluster.num_nodes),
        "--nproc-per-node", per_node,
        "--rdzv-backend", "c10d",
        "--rdzv-id", Late("$JOB_ID"),
        "--rdzv-endpoint", Late(f"$MASTER_ADDR:{PORT}"),
        "--max-restarts", "0",
    )  # fmt: skip


def yaml_text(table: Mapping[str, Any]) -> str:
    """Return a table as YAML, one key a line; each value as JSON, which YAML reads as it is.

    >>> yaml_text({"model": "a: b", "lora_r": 16})
    'model: "a: b"\\nlora_r: 16\\n'
    """
    return "".join(f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in table.items())
