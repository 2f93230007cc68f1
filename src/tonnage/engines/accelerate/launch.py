"""Candidate -> `accelerate launch` with the DeepSpeed plugin, which reads DeepSpeed's own configuration file.

Fields as in accelerate 1.15.0 src/accelerate/commands/config/config_args.py and commands/launch.py. The batch sizes and
the precision stand in DeepSpeed's file alone: Accelerate refuses to be told them twice.
"""

from __future__ import annotations

import json
from typing import Any

from tonnage.engines.deepspeed.launch import CONFIG, config
from tonnage.engines.transformers.training import JOB, accelerate_words, job_file
from tonnage.engines.types import Launch
from tonnage.estimate.types import Candidate

__all__ = ["launch"]


def launch(candidate: Candidate) -> Launch:
    """Return the command, the job, and the two configurations."""
    cluster = candidate.cluster
    table: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "DEEPSPEED",
        "deepspeed_config": {
            "deepspeed_config_file": CONFIG,
            "zero3_init_flag": candidate.layout.zero_stage == 3,
            **({"deepspeed_multinode_launcher": "standard"} if cluster.num_nodes > 1 else {}),
        },
        "num_machines": cluster.num_nodes,
        "num_processes": candidate.layout.num_devices,
        "rdzv_backend": "c10d" if cluster.num_nodes > 1 else "static",
        "same_network": True,
        "main_training_function": "main",
        "use_cpu": False,
    }
    files = {
        JOB: job_file(candidate),
        CONFIG: json.dumps(config(candidate), indent=2) + "\n",
        "accelerate.json": json.dumps(table, indent=2) + "\n",
    }
    return Launch(argv=accelerate_words(candidate), files=files)
