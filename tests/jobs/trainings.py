"""Tiny models, real text, and a way to run trainings on several ranks."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
TEXT = HERE.parents[1] / "docs"
STEPS = 6
SIZES = {"vocab_size": 260, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 128}  # fmt: skip
LLAMA = {"model_type": "llama", **SIZES, "intermediate_size": 128, "tie_word_embeddings": False}
MOE = {"model_type": "qwen3_moe", **SIZES, "head_dim": 16, "intermediate_size": 128, "moe_intermediate_size": 32,
       "num_experts": 8, "num_experts_per_tok": 2, "norm_topk_prob": True, "tie_word_embeddings": False}  # fmt: skip


def job(model, tokenizer, *, data=TEXT, kind="full", micro_batch=2, arguments=None, **more):
    return {
        "model": str(model) if isinstance(model, Path) else model,
        "kind": kind,
        "seq_len": 64,
        "data": str(data) if isinstance(data, Path) else data,
        "tokenizer": str(tokenizer),
        "training_arguments": {
            "per_device_train_batch_size": micro_batch, "gradient_accumulation_steps": 2, "max_steps": STEPS,
            "save_steps": 3, "learning_rate": 3e-3, "use_cpu": True, "seed": 7, "optim": "adamw_torch_fused", "ddp_timeout": 60,
            **(arguments or {}),
        },
        **more,
    }  # fmt: skip


def run_ranks(tasks, folder: Path, world_size: int, seconds=550):
    """Run tasks one after another on ranks that start once; return each rank's exit codes."""
    folder.mkdir(parents=True, exist_ok=True)
    plan = folder / "plan.json"
    plan.write_text(json.dumps(tasks, default=str))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = []
    for rank in range(world_size):
        env = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "HF_HUB_OFFLINE": "1",
               "DS_ACCELERATOR": "cpu", "TOKENIZERS_PARALLELISM": "false"}  # fmt: skip
        env |= {"PATH": f"{Path(sys.executable).parent}:{env['PATH']}"}
        if world_size > 1:
            env |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world_size),
                    "LOCAL_WORLD_SIZE": str(world_size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}  # fmt: skip
        command = [sys.executable, str(HERE / "drive.py"), str(plan), str(folder / f"codes-{rank}.json")]
        with (folder / f"rank-{rank}.log").open("w") as log:
            ranks.append(subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT))
    try:
        for process in ranks:
            process.wait(timeout=seconds)
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    found = [folder / f"codes-{rank}.json" for rank in range(world_size)]
    assert all(file.exists() for file in found), (folder / "rank-0.log").read_text()[-3000:]
    return [json.loads(file.read_text()) for file in found]


def metrics(root, rank=0):
    return [json.loads(line) for line in (Path(root) / "metrics" / f"rank-{rank:05d}.jsonl").read_text().splitlines()]


def losses(root):
    """The loss of each step; of a step done twice the last."""
    return {line["step"]: line["loss"] for line in metrics(root)}


def events(root, name=None):
    lines = [json.loads(line) for line in (Path(root) / "events.jsonl").read_text().splitlines()]
    return [line for line in lines if name in (None, line["event"])]


def final_bytes(root):
    return (Path(root) / "final" / "model.safetensors").read_bytes()
