"""Candidate -> a script of Unsloth's. A template: never started here.

Parameters as in unsloth 2026.3.4 unsloth/models/loader.py (`from_pretrained`) and unsloth/models/llama.py
(`get_peft_model`). The Trainer and its arguments are those of the Transformers launch.
"""

from __future__ import annotations

import json
from typing import Any, Final

from tonnage.engines.elastic import training_of
from tonnage.engines.transformers.training import ATTENTION, JOB, job_file
from tonnage.engines.types import Launch
from tonnage.estimate.types import Candidate

__all__ = ["launch"]

SCRIPT: Final = "train_unsloth.py"
_MATRICES: Final = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_BODY: Final = '''"""Trains adapters with Unsloth as the plan says; data/text.jsonl holds one text a line in a field `text`."""

from unsloth import FastLanguageModel  # before transformers: it changes what that imports

import json
from pathlib import Path

import torch
from transformers import Trainer, TrainingArguments, default_data_collator
from transformers.trainer_utils import get_last_checkpoint

LOAD = {load}
ADAPTERS = {adapters}

model, tokenizer = FastLanguageModel.from_pretrained(**LOAD)
model = FastLanguageModel.get_peft_model(model, **ADAPTERS)
job = json.loads(Path("{job}").read_text(encoding="utf-8"))
arguments = TrainingArguments(**job["training_arguments"])
texts = (json.loads(line)["text"] for line in Path("data/text.jsonl").read_text(encoding="utf-8").splitlines())
ids = [one for text in texts for one in (*tokenizer(text)["input_ids"], tokenizer.eos_token_id)]
rows = torch.tensor(ids)[: len(ids) // job["seq_len"] * job["seq_len"]].view(-1, job["seq_len"])
trainer = Trainer(
    model=model,
    args=arguments,
    train_dataset=[{{"input_ids": row, "labels": row.clone()}} for row in rows],
    data_collator=default_data_collator,
    processing_class=tokenizer,
)
output = Path(arguments.output_dir)
trainer.train(resume_from_checkpoint=get_last_checkpoint(output) if output.is_dir() else None)
trainer.save_model(str(output / "final"))
'''


def _literal(table: dict[str, Any]) -> str:
    """Return a table as Python reads it."""
    lines = "".join(f"    {json.dumps(name)}: {value!r},\n" for name, value in table.items())
    return "{\n" + lines + "}"


def load_arguments(candidate: Candidate) -> dict[str, Any]:
    """Return parameters of `FastLanguageModel.from_pretrained`."""
    weights = candidate.precision.weights
    return {
        "model_name": candidate.model.name,
        "max_seq_length": training_of(candidate).seq_len,
        "load_in_4bit": weights.startswith("nf4"),
        "load_in_8bit": weights == "int8",
        "load_in_16bit": weights in ("bf16", "fp16"),
        "use_gradient_checkpointing": "unsloth" if candidate.offload.activations else True,
    }


def adapter_arguments(candidate: Candidate) -> dict[str, Any]:
    """Return parameters of `FastLanguageModel.get_peft_model`."""
    workload = training_of(candidate)
    targets = (
        [name for name in _MATRICES if name in ATTENTION] if workload.lora_targets == ("attention",) else [*_MATRICES]
    )
    return {
        "r": workload.lora_rank,
        "lora_alpha": 2 * workload.lora_rank,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": targets,
        "use_gradient_checkpointing": "unsloth" if candidate.offload.activations else True,
        "random_state": 42,
    }


def launch(candidate: Candidate) -> Launch:
    """Return the script, and the job with the Trainer's arguments."""
    text = _BODY.format(
        load=_literal(load_arguments(candidate)), adapters=_literal(adapter_arguments(candidate)), job=JOB
    )
    job = job_file(candidate, gradient_checkpointing=False)  # Unsloth's own takes its place
    return Launch(argv=("python", SCRIPT, JOB), files={SCRIPT: text, JOB: job})
