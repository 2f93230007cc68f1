"""Holds what a plan says of an NVMe drive against DeepSpeed itself: `python validation/swap_deepspeed.py FOLDER`.

Trains a small model on this machine's processor with the configuration that a plan renders, the drive's folder in
FOLDER, and counts the bytes that lie there. Needs deepspeed, transformers, torch, a C++ compiler and libaio's headers;
the operators are compiled at the first run.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ |= {"DS_ACCELERATOR": "cpu", "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_SIZE": "1"}
os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29611"}

import deepspeed
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tonnage.engines.deepspeed.launch import config
from tonnage.estimate.compose_training import estimate_training
from tonnage.estimate.types import Candidate, Offload
from tonnage.model.hf import model_from_config
from tonnage.plan.types import Where
from tonnage.plan.where import place
from tonnage.workload.types import Training, TrainingKind

STEPS = 3
SHAPE = LlamaConfig(
    hidden_size=1024,
    intermediate_size=3072,
    num_hidden_layers=4,
    num_attention_heads=8,
    num_key_value_heads=8,
    vocab_size=8192,
    tie_word_embeddings=False,
    architectures=["LlamaForCausalLM"],
)


def candidate(offload: Offload) -> Candidate:
    """Return the small model, trained on one card."""
    return Candidate(
        model=model_from_config(SHAPE.to_dict(), name="small"),
        workload=Training(kind=TrainingKind.FULL, seq_len=64, global_batch_size=2),
        cluster=place(Where(gpus=(("rtx-3090", 1),))).cluster,
        engine="deepspeed",
        offload=offload,
    )


def written(one: Candidate, folder: Path) -> int:
    """Train some steps; return the bytes of the files that are left."""
    table = config(one)
    for part in ("offload_optimizer", "offload_param"):
        if part in table["zero_optimization"]:
            table["zero_optimization"][part] |= {"pin_memory": False}
            if "nvme_path" in table["zero_optimization"][part]:
                table["zero_optimization"][part] |= {"nvme_path": str(folder)}
    table["optimizer"] = {"type": "AdamW", "params": {"lr": 1e-4}}
    with deepspeed.zero.Init(config_dict_or_path=table):
        model = LlamaForCausalLM(SHAPE)
    model.gradient_checkpointing_enable()
    engine, *_ = deepspeed.initialize(model=model, config=table)
    tokens = torch.randint(0, SHAPE.vocab_size, (1, 64))
    for _ in range(STEPS * table["gradient_accumulation_steps"]):
        engine.backward(engine(input_ids=tokens, labels=tokens).loss)
        engine.step()
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def main() -> None:
    """Print what was predicted and what lies in the folder."""
    folder = Path(sys.argv[1])
    offload = Offload(optimizer=True, parameters=True, optimizer_nvme=True, parameters_nvme=True)
    one = candidate(offload)
    deepspeed.init_distributed()
    predicted = estimate_training(one).storage.offload_bytes
    found = written(one, folder)
    print(f"predicted {predicted:,.0f} B, found {found:,} B, {100 * (predicted / found - 1):+.2f} %")


if __name__ == "__main__":
    main()
