"""Writes bundles that really train: a tiny model with random weights on two gloo ranks, an engine each."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tonnage.datafiles import programs

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "docs" / "explanation"
CONFIG = {"model_type": "qwen3_moe", "vocab_size": 260, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
          "num_key_value_heads": 2, "max_position_embeddings": 128, "head_dim": 16, "intermediate_size": 128,
          "moe_intermediate_size": 32, "num_experts": 8, "num_experts_per_tok": 2, "norm_topk_prob": True,
          "tie_word_embeddings": False}  # fmt: skip
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "HF_HUB_OFFLINE": "1", "DS_ACCELERATOR": "cpu",
               "TOKENIZERS_PARALLELISM": "false"}  # fmt: skip
LAUNCH = "torchrun --standalone --nproc-per-node 2"
MAKE = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.jobs.drive import make_model, make_tokenizer
make_tokenizer(Path(sys.argv[2]) / "tokenizer")
make_model({config}, Path(sys.argv[2]) / "model")
"""


# Makes the loss of one step not finite, once.
NAN = """
import sys
from pathlib import Path
sys.path.insert(0, str(Path(__file__).resolve().parent))
import os
import train_main, train_signals

def poison():
    import train_loop
    honest = train_loop.Loop.compute_loss
    mark = Path(os.environ["TONNAGE_RUN_DIR"]) / f"was-nan-{os.environ.get('RANK', '0')}"

    def compute_loss(self, *args, **kwargs):
        found = honest(self, *args, **kwargs)
        if self.state.global_step + 1 == {step} and not mark.exists():
            mark.touch()
            return tuple(one * float("nan") if n == 0 else one for n, one in enumerate(found)) if isinstance(found, tuple) else found * float("nan")
        return found

    train_loop.Loop.compute_loss = compute_loss

install = train_signals.Signals.install
def with_poison(self, path):
    install(self, path)
    poison()
train_main.Signals.install = with_poison
sys.exit(train_main.main(sys.argv[1:]))
"""


def _zero(stage: int) -> dict[str, Any]:
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": stage, "offload_optimizer": {"device": "cpu", "pin_memory": False}},
        # torch's optimizer: DeepSpeed's own is compiled when it is first used
        "zero_force_ds_cpu_optimizer": False,
        "zero_allow_untested_optimizer": True,
    }
    return {"deepspeed": config}


ENGINES: dict[str, tuple[str, dict[str, Any]]] = {
    "single": ("python", {}),
    "ddp": (LAUNCH, {}),
    "fsdp2": (LAUNCH, {"fsdp": "full_shard auto_wrap", "fsdp_config": {"fsdp_version": 2}}),
    "zero2": (LAUNCH, _zero(2)),
    "zero3": (LAUNCH, _zero(3)),
}


def make_model(folder: Path) -> None:
    """Write the tokenizer and the model that all bundles begin with; once."""
    if not (folder / "model" / "config.json").is_file():
        code = MAKE.replace("{config}", repr(CONFIG))
        env = {**os.environ, **ENVIRONMENT, "PYTHONPATH": str(ROOT / "src")}
        subprocess.run([sys.executable, "-c", code, str(ROOT), str(folder)], check=True, env=env)


def write_train_bundle(
    folder: Path, engine: str, made: Path, *, num_steps: int, save_every: int, nan_at: int | None = None, **job: Any
) -> Path:
    """Write a bundle whose job is `jobs/train.py` under an engine."""
    launcher, arguments = ENGINES[engine]
    table = {
        "model": str(made / "model"),
        "tokenizer": str(made / "tokenizer"),
        "kind": "full",
        "seq_len": 64,
        "data": str(DATA),
        "final": False,
        "checkpoints": {"every_steps": save_every, "keep": 3},
        "training_arguments": {
            "per_device_train_batch_size": 2 if launcher == "python" else 1,
            "gradient_accumulation_steps": 1, "max_steps": num_steps, "learning_rate": 3e-3, "use_cpu": True, "seed": 7,
            "optim": "adamw_torch_fused", "max_grad_norm": 1.0, **arguments,
        },
        **job,
    }  # fmt: skip
    program = "train.py" if nan_at is None else "hurt.py"
    start = f'#!/usr/bin/env bash\nset -euo pipefail\ncd "$(dirname "$0")"\nexec {launcher} {program} job.json\n'
    files = {"start.sh": start, "job.json": json.dumps(table, indent=2) + "\n", **programs("train")}
    if nan_at is not None:
        files["hurt.py"] = NAN.replace("{step}", str(nan_at))
    return write_files(folder, f"tiny-{engine}", files)


def write_files(folder: Path, name: str, files: dict[str, str]) -> Path:
    """Write files with the manifest that makes them a bundle."""
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        (folder / path).write_text(text, encoding="utf-8")
    entries = [
        {
            "path": path,
            "sha256": hashlib.sha256(text.encode()).hexdigest(),
            "purpose": path,
            "is_executable": path.endswith(".sh"),
        }
        for path, text in files.items()
    ]
    manifest = {
        "format": 1,
        "written_by": "tonnage",
        "name": name,
        "place": "local",
        "start": "bash start.sh",
        "stop": "",
    }
    (folder / "manifest.json").write_text(json.dumps({**manifest, "files": entries}), encoding="utf-8")
    return folder
