"""Candidate -> a configuration of LLaMA-Factory, started by torchrun. A template: never started here.

Fields as in LLaMA-Factory 0.9.5 src/llamafactory/hparams; the launcher's own call of torchrun as in launcher.py.
`stage: pt` reads plain text and packs it, as the plan counts its tokens.
"""

from __future__ import annotations

import json
from typing import Any, Final

from tonnage.engines.deepspeed.launch import CONFIG, config
from tonnage.engines.elastic import is_adapter, torchrun_words, training_of, yaml_text
from tonnage.engines.torchrun.launch import fsdp_arguments
from tonnage.engines.transformers.training import lora_targets, training_arguments
from tonnage.engines.types import Launch
from tonnage.estimate.types import Candidate

__all__ = ["launch"]

FILE: Final = "llamafactory.yaml"
_DATASETS: Final = {"text": {"file_name": "text.jsonl", "columns": {"prompt": "text"}}}


def _table(candidate: Candidate) -> dict[str, Any]:
    workload, weights = training_of(candidate), candidate.precision.weights
    table: dict[str, Any] = {
        "model_name_or_path": candidate.model.name,
        "stage": "pt",
        "do_train": True,
        "finetuning_type": "lora" if is_adapter(candidate) else "full",
        "dataset": "text",
        "dataset_dir": "data",
        "cutoff_len": workload.seq_len,
        "packing": True,
        "flash_attn": "sdpa" if candidate.settings.has_flash_attention else "disabled",
        "enable_liger_kernel": candidate.settings.has_fused_loss,
        "disable_gradient_checkpointing": candidate.recompute == "none",
    }
    if is_adapter(candidate):
        targets = lora_targets(candidate)["target_modules"]
        named = (
            "all"
            if targets == "all-linear"
            else "q_proj,k_proj,v_proj,o_proj"
            if isinstance(targets, str)
            else ",".join(targets)
        )
        table |= {"lora_rank": workload.lora_rank, "lora_alpha": 2 * workload.lora_rank, "lora_target": named}
    if weights.startswith("nf4") or (weights == "int8" and is_adapter(candidate)):
        table |= {
            "quantization_method": "bnb",
            "quantization_bit": 8 if weights == "int8" else 4,
            "double_quantization": weights in ("nf4_double", "nf4_dq"),
        }
    elif not is_adapter(candidate):
        table["pure_bf16"] = weights == "bf16" and not candidate.precision.has_fp32_master
    arguments = {name: value for name, value in training_arguments(candidate).items() if name not in _OWN}
    return table | arguments


_OWN: Final = ("gradient_checkpointing", "gradient_checkpointing_kwargs", "use_liger_kernel")


def launch(candidate: Candidate) -> Launch:
    """Return torchrun, the configuration, and the list of data sets."""
    files: dict[str, str] = {"data/dataset_info.json": json.dumps(_DATASETS, indent=2) + "\n"}
    table = _table(candidate)
    if candidate.engine == "deepspeed":
        table["deepspeed"] = CONFIG
        files[CONFIG] = json.dumps(config(candidate), indent=2) + "\n"
    else:
        table |= fsdp_arguments(candidate)
    return Launch(
        argv=(*torchrun_words(candidate), "-m", "llamafactory.launcher", FILE), files={**files, FILE: yaml_text(table)}
    )
