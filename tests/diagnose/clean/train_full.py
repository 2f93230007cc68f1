"""Fine-tunes a small model on one's own text."""

import os

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
)
from transformers.trainer_utils import get_last_checkpoint


def main():
    tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen3-0.6B")
    model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-0.6B", dtype=torch.bfloat16, attn_implementation="sdpa")
    rows = load_dataset("json", data_files="rows.jsonl", split="train").map(
        lambda row: tokenizer(row["text"], truncation=True, max_length=1024), remove_columns=["text"]
    )
    parts = rows.train_test_split(test_size=0.01, seed=7)
    arguments = TrainingArguments(
        output_dir="out",
        per_device_train_batch_size=2,
        gradient_accumulation_steps=8,
        learning_rate=1e-5,
        warmup_steps=0.03,
        bf16=True,
        optim="adamw_torch_fused",
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        save_strategy="steps",
        save_steps=500,
        eval_strategy="steps",
        eval_steps=250,
        load_best_model_at_end=True,
        report_to="none",
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=parts["train"],
        eval_dataset=parts["test"],
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
        processing_class=tokenizer,
    )
    trainer.train(resume_from_checkpoint=get_last_checkpoint("out") if os.path.isdir("out") else None)


if __name__ == "__main__":
    main()
