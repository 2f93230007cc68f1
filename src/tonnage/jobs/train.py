"""Trains a causal language model as a job file says, with the Transformers Trainer; stands alone beside its job.

    python train.py job.json          one device
    torchrun --nproc-per-node 2 train.py job.json
    accelerate launch --config_file accelerate.json train.py job.json

The job names the model, the kind of training (pretrain, full, lora, qlora), the length of sequences, where the text
lies (`data`: a file or folder of .txt or .jsonl with a field `text`), and the Trainer's own arguments. A run that was
stopped goes on from its last checkpoint.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    BitsAndBytesConfig,
    Trainer,
    TrainingArguments,
    default_data_collator,
)
from transformers.trainer_utils import get_last_checkpoint


class Packed(Dataset):
    """Texts one after another, cut into sequences of one length, an end mark between two texts."""

    def __init__(self, tokens: torch.Tensor, length: int) -> None:
        self.rows = tokens[: len(tokens) // length * length].view(-1, length)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.rows[index], "labels": self.rows[index].clone()}


def texts(place: Path) -> Iterator[str]:
    """Yield the texts of a file, or of a folder's files in the order of their names."""
    files = [place] if place.is_file() else sorted(p for p in place.rglob("*") if p.suffix in (".txt", ".jsonl"))
    if not files:
        sys.exit(f"train: {place}: no .txt or .jsonl file; set 'data' of the job to a file or folder of text")
    for file in files:
        if file.suffix == ".jsonl":
            for line in file.read_text(encoding="utf-8").splitlines():
                yield json.loads(line)["text"]
        else:
            yield file.read_text(encoding="utf-8")


def load_model(job: dict[str, Any]) -> Any:
    """Return the model in the job's type: from its weights, or with random weights for pre-training."""
    kwargs = {"dtype": getattr(torch, job["dtype"]), "attn_implementation": job["attn_implementation"]}
    if job["kind"] == "pretrain":
        return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(job["model"]), **kwargs)
    if "quantization" in job:
        kwargs["quantization_config"] = BitsAndBytesConfig(**job["quantization"])
        kwargs["dtype"] = torch.bfloat16
    model = AutoModelForCausalLM.from_pretrained(job["model"], **kwargs)
    if "lora" in job:
        from peft import (  # noqa: PLC0415  only adapters need it
            LoraConfig,
            get_peft_model,
            prepare_model_for_kbit_training,
        )

        if "quantization" in job:
            model = prepare_model_for_kbit_training(model)
        model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **job["lora"]))
    return model


def main(path: str) -> None:
    """Train until the end, from the last checkpoint where there is one."""
    job = json.loads(Path(path).read_text(encoding="utf-8"))
    arguments = TrainingArguments(**job["training_arguments"])
    tokenizer = AutoTokenizer.from_pretrained(job["model"])
    ids: list[int] = []
    for text in texts(Path(job["data"])):
        ids += [*tokenizer(text)["input_ids"], tokenizer.eos_token_id]
    model = load_model(job)
    model.config.use_cache = False
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=Packed(torch.tensor(ids), job["seq_len"]),
        data_collator=default_data_collator,
        processing_class=tokenizer,
    )
    output = Path(str(arguments.output_dir))
    trainer.train(resume_from_checkpoint=get_last_checkpoint(output) if output.is_dir() else None)
    trainer.save_model(str(output / "final"))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("train: give the job: python train.py job.json")
    main(sys.argv[1])
