"""One run of a job: from the last sound checkpoint where there is one, to the end, to a stop, or to an error."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from train_folder import BadJobError, RunFolder
from train_signals import Signals, StoppedEarlyError, set_flight_recorder

FINISHED, FAILED, WRONG, STOPPED = 0, 1, 2, 75  # exit codes
KINDS = ("pretrain", "full", "lora", "qlora")
KNOWN = (
    "format", "model", "kind", "seq_len", "data", "dtype", "attn_implementation", "lora", "quantization", "tokenizer",
    "training_arguments", "checkpoints", "checksum_every_steps", "on_nonfinite", "flop_per_token", "peak_flop_per_s",
    "memory_history", "final",
)  # fmt: skip


def read_job(path: Path) -> dict[str, Any]:
    """Return a job with its defaults.

    Raises
    ------
    BadJobError
        It cannot be read, lacks something, or names something unknown.
    """
    try:
        job = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadJobError(f"{path}: {error}; give a job that `tonnage deploy` wrote") from None
    if not isinstance(job, dict):
        raise BadJobError(f"{path}: is not an object; give a job that `tonnage deploy` wrote")
    lacking = [name for name in ("model", "kind", "seq_len", "data", "training_arguments") if name not in job]
    unknown = sorted(set(job) - set(KNOWN))
    if lacking or unknown:
        told = f"lacks {', '.join(lacking)}" if lacking else f"does not know {', '.join(unknown)}"
        raise BadJobError(f"{path}: {told}; a job has {', '.join(KNOWN)}")
    if job["kind"] not in KINDS:
        raise BadJobError(f"{path}: kind {job['kind']!r}; choose {', '.join(KINDS)}")
    return {"dtype": "float32", "attn_implementation": "sdpa", "final": True, **job}


def rank() -> int:
    """Return this process's rank as the launcher says it."""
    return int(os.environ.get("RANK", "0"))


def run(job: dict[str, Any], root: Path, *, attempt: int) -> int:
    """Train; return the exit code. What goes wrong is written to the run folder and raised."""
    signals = Signals()
    folder = RunFolder(root, attempt=attempt, rank=rank())
    signals.install(folder.dump("stacks"))
    set_flight_recorder(root / "dumps", attempt)
    folder.event("started")
    try:
        from train_setup import train  # noqa: PLC0415  takes seconds; signals have to be heard before

        return STOPPED if train(job, folder, signals) else FINISHED
    except StoppedEarlyError:
        folder.event("stopping", signal=signals.stop_signal)
        return STOPPED
    except BaseException as error:
        folder.error(error, step=folder.heart.step, phase=folder.heart.phase)
        _snapshot_at_oom(error, folder)
        raise
    finally:
        folder.close()
        signals.remove()


def _snapshot_at_oom(error: BaseException, folder: RunFolder) -> None:
    if type(error).__name__ == "OutOfMemoryError" and "torch" in sys.modules:
        import torch  # noqa: PLC0415  is loaded already
        from train_loop import snapshot  # noqa: PLC0415  is loaded already

        device = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")
        snapshot(folder, device, folder.heart.step)


def main(arguments: list[str]) -> int:
    """Read the job and run it."""
    # Older launchers of DeepSpeed add --local_rank=N.
    places = [one for one in arguments if not one.startswith("--local_rank")]
    if len(places) != 1:
        print("train: give the job: python train.py job.json", file=sys.stderr)
        return WRONG
    try:
        job = read_job(Path(places[0]))
    except BadJobError as error:
        print(f"train: {error}", file=sys.stderr)
        return WRONG
    root = Path(os.environ.get("TONNAGE_RUN_DIR") or job["training_arguments"].get("output_dir", "run"))
    try:
        return run(job, root, attempt=int(os.environ.get("TONNAGE_ATTEMPT", "0")))
    except BadJobError as error:
        print(f"train: {error}", file=sys.stderr)
        return WRONG
