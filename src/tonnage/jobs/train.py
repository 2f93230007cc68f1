"""Trains a causal language model as a job file says; stands alone beside its job and the other `train_*.py`.

    python train.py job.json                                one device
    torchrun --nproc-per-node 2 train.py job.json
    accelerate launch --config_file accelerate.json train.py job.json

The loop is the Transformers Trainer's. The run folder is `output_dir` of the job, or TONNAGE_RUN_DIR. A run that was
stopped goes on from its last sound checkpoint. Exit codes: 0 finished, 2 the job is wrong, 75 stopped with a checkpoint
after SIGTERM, else failed; written to TONNAGE_EXIT_FILE too, since torch's launchers end with a code of their own.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    from train_main import main

    code = main(sys.argv[1:])
    if code and (place := os.environ.get("TONNAGE_EXIT_FILE")):
        Path(place).write_text(str(code), encoding="utf-8")
    sys.exit(code)
