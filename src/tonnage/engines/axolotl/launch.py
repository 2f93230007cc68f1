"""Candidate -> a configuration of axolotl, started by torchrun. A template: never started here.

Fields as in axolotl 0.19.0 src/axolotl/utils/schemas. Plain text is read as for pre-training (`type: completion`) and
packed, as the plan counts its tokens.
"""

from __future__ import annotations

import json
from typing import Any, Final

from tonnage.engines.deepspeed.launch import CONFIG, config
from tonnage.engines.elastic import (
    LEARNING_RATES,
    is_adapter,
    num_accumulation_steps,
    num_steps,
    torchrun_words,
    training_of,
    yaml_text,
)
from tonnage.engines.transformers.training import OPTIMIZERS, is_sharded
from tonnage.engines.types import Launch
from tonnage.estimate.types import Candidate, Recompute

__all__ = ["launch"]

FILE: Final = "axolotl.yaml"


def _table(candidate: Candidate) -> dict[str, Any]:
    workload, weights, steps = training_of(candidate), candidate.precision.weights, num_steps(candidate)
    table: dict[str, Any] = {
        "base_model": candidate.model.name,
        "datasets": [
            {
                "path": "data",
                "ds_type": "json",
                "data_files": ["data/text.jsonl"],
                "type": "completion",
                "field": "text",
            }
        ],
        "output_dir": "run",
        "sequence_len": workload.seq_len,
        "sample_packing": True,
        "attn_implementation": "sdpa" if candidate.settings.has_flash_attention else "eager",
        "micro_batch_size": candidate.micro_batch_size,
        "gradient_accumulation_steps": num_accumulation_steps(candidate),
        "num_epochs": 1,
        "bf16": candidate.precision.compute == "bf16",
        "fp16": candidate.precision.compute == "fp16",
        "gradient_checkpointing": candidate.recompute is Recompute.FULL,
        "gradient_checkpointing_kwargs": {"use_reentrant": False},
        "optimizer": OPTIMIZERS[candidate.optimizer],
        "learning_rate": LEARNING_RATES[workload.kind],
        "lr_scheduler": "cosine",
        "warmup_ratio": 0.03,
        "max_grad_norm": 1.0,
        "save_steps": 500,
        "save_total_limit": 2,
        "logging_steps": 1,
        "seed": 42,
        "torch_compile": candidate.settings.has_compile,
    }
    if steps is not None:
        table["max_steps"] = steps
    if is_adapter(candidate):
        table |= {
            "adapter": "qlora" if weights.startswith("nf4") else "lora",
            "load_in_4bit": weights.startswith("nf4"),
            "load_in_8bit": weights == "int8",
            "bnb_config_kwargs": {"bnb_4bit_use_double_quant": weights in ("nf4_double", "nf4_dq")},
            "lora_r": workload.lora_rank,
            "lora_alpha": 2 * workload.lora_rank,
            "lora_target_linear": True,
        }
        if workload.lora_targets == ("attention",):
            table |= {"lora_target_linear": False, "lora_target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"]}
    return table


def launch(candidate: Candidate) -> Launch:
    """Return torchrun and the configuration."""
    table, files = _table(candidate), dict[str, str]()
    if candidate.engine == "deepspeed":
        table["deepspeed"] = CONFIG
        files[CONFIG] = json.dumps(config(candidate), indent=2) + "\n"
    elif is_sharded(candidate):
        table["fsdp_version"] = 2
        table["fsdp_config"] = {
            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "reshard_after_forward": candidate.layout.zero_stage in (0, 3),
            "offload_params": candidate.offload.parameters,
            "state_dict_type": "SHARDED_STATE_DICT",
        }
    return Launch(
        argv=(*torchrun_words(candidate), "-m", "axolotl.cli.train", FILE), files={**files, FILE: yaml_text(table)}
    )
