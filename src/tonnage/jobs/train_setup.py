"""Puts a job's parts together: text, model, arguments, checkpoints, loop."""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import train_pieces as pieces
import train_texts as texts
from torch.utils.cpp_extension import get_default_build_root
from train_checkpoints import Checkpoints
from train_folder import BadJobError, RunFolder
from train_loop import Loop, LoopSettings
from train_models import keep_routers_in_fp32, load_model
from train_ranks import Ranks
from train_signals import Signals, StoppedEarlyError
from transformers import AutoTokenizer, TrainingArguments

OLD_SECONDS = 120.0  # of a lock; a builder on another machine may hold a younger one
CHECKPOINT_KEYS = ("keep", "every_steps", "compression", "async", "on_failed_save")
# What the loop does itself, whatever the job says.
OURS: dict[str, Any] = {
    "save_strategy": "no",
    "logging_strategy": "no",
    "report_to": "none",
    "disable_tqdm": True,
    "logging_nan_inf_filter": False,
    "remove_unused_columns": False,
}


def train(job: dict[str, Any], folder: RunFolder, signals: Signals) -> bool:
    """Train until the end or a stop; return whether it was stopped."""
    arguments, checkpoint_settings = _arguments(job, folder)
    ranks = Ranks(arguments.ddp_timeout)
    if job.get("memory_history") and arguments.device.type == "cuda":
        torch.cuda.memory._record_memory_history()  # noqa: SLF001  torch documents it under this name
    checkpoints = Checkpoints(
        folder.checkpoints,
        ranks,
        keep=max(1, int(checkpoint_settings.get("keep", 2))),
        compression=checkpoint_settings.get("compression", pieces.PLAIN),
        is_async=bool(checkpoint_settings.get("async", False)),
    )
    checkpoints.clean()
    tokenizer = AutoTokenizer.from_pretrained(job.get("tokenizer", job["model"]))
    folder.heart.at("data", step=0)
    training_rows, held_back, collate = _data(job, tokenizer, folder, signals, ranks, arguments)
    folder.heart.at("starting")
    torch.manual_seed(arguments.seed)  # random weights and adapters are the same on every rank
    model = load_model(job)
    num_routers = keep_routers_in_fp32(model)
    loop = Loop(
        folder=folder,
        signals=signals,
        ranks=ranks,
        checkpoints=checkpoints,
        settings=LoopSettings(
            save_every_steps=int(checkpoint_settings["every_steps"]),
            checksum_every_steps=int(job.get("checksum_every_steps", 0)),
            stops_at_not_finite=job.get("on_nonfinite", "stop") == "stop",
            stops_at_failed_save=checkpoint_settings.get("on_failed_save", "go on") == "stop",
            flop_per_token=job.get("flop_per_token"),
            peak_flop_per_s=job.get("peak_flop_per_s"),
            model_options={"kind": job["kind"], "num_routers": num_routers},
        ),
        model=model,
        args=arguments,
        train_dataset=training_rows,
        eval_dataset=held_back,
        data_collator=collate,
    )
    found = checkpoints.newest_sound(
        lambda step, why: folder.event("checkpoint_skipped", step=step, why=why) if ranks.rank == 0 else None
    )
    if found is not None:
        folder.event("resumed", step=checkpoints.last_step)
    loop.train(resume_from_checkpoint=None if found is None else str(found))
    if loop.is_stopped:
        folder.heart.at("done")
        return True
    if job["final"]:
        folder.heart.at("saving")
        _save_final(loop, tokenizer, folder.root, ranks)
    folder.heart.at("done")
    folder.event("finished", step=loop.state.global_step)
    return False


def _arguments(job: dict[str, Any], folder: RunFolder) -> tuple[TrainingArguments, dict[str, Any]]:
    given = dict(job["training_arguments"])
    checkpoints = dict(job.get("checkpoints", {}))
    unknown = sorted(set(checkpoints) - set(CHECKPOINT_KEYS))
    if unknown:
        raise BadJobError(f"checkpoints: does not know {', '.join(unknown)}; give {', '.join(CHECKPOINT_KEYS)}")
    if checkpoints.get("compression", pieces.PLAIN) not in (pieces.PLAIN, pieces.ZSTD, pieces.ZSTD_PLANES):
        raise BadJobError(f"checkpoints: compression is {pieces.PLAIN}, {pieces.ZSTD} or {pieces.ZSTD_PLANES}")
    is_saving = given.pop("save_strategy", "steps") != "no"
    saved_every = given.pop("save_steps", 500)
    checkpoints.setdefault("every_steps", saved_every if is_saving else 0)
    checkpoints.setdefault("keep", given.pop("save_total_limit", None) or 2)
    for name in ("save_total_limit", "logging_steps", "save_only_model", "resume_from_checkpoint"):
        given.pop(name, None)
    for old, new in (("gradient_checkpointing", "activation_checkpointing"),
                     ("gradient_checkpointing_kwargs", "activation_checkpointing_kwargs")):  # fmt: skip
        if old in given:
            given[new] = given.pop(old)
    if given.get("activation_checkpointing"):
        given["activation_checkpointing_kwargs"] = {
            **given.get("activation_checkpointing_kwargs", {}), "use_reentrant": False
        }  # fmt: skip
    if "deepspeed" in given:
        if os.environ.get("LOCAL_RANK", "0") == "0":
            remove_dead_locks(_extensions(), folder.began() if folder.attempt else math.inf)
        given["deepspeed"] = _deepspeed(given["deepspeed"])
    seed = given.get("seed", 42)
    streamed = {"dataloader_num_workers": min(1, given.get("dataloader_num_workers", 0))} if _is_streamed(job) else {}
    try:
        made = TrainingArguments(
            **{"data_seed": seed, **given, **streamed, **OURS, "output_dir": str(folder.root), "seed": seed}
        )
    except TypeError as error:
        raise BadJobError(f"training_arguments: {error}; see TrainingArguments of transformers") from None
    return made, checkpoints


def remove_dead_locks(extensions: Path, run_began: float) -> None:
    """Remove what a build of DeepSpeed's operators that was killed left behind: every later start would wait for it.

    torch 2.13 utils/file_baton.py waits for a file `lock` without an end. It is dead where nothing on this machine works in
    its folder (ninja does) and it is not young, or an earlier attempt of this run left it.
    """
    for lock in extensions.rglob("lock"):
        try:
            made = lock.stat().st_mtime
            is_old = time.time() - made > OLD_SECONDS or made >= run_began
            if is_old and not _is_worked_in(lock.parent):
                lock.unlink()
        except FileNotFoundError:
            continue


def _is_worked_in(folder: Path) -> bool:
    """Whether a process has this as its folder."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").resolve() == folder.resolve():
                return True
        except OSError:
            continue
    return False


def _extensions() -> Path:
    return Path(os.environ.get("TORCH_EXTENSIONS_DIR") or get_default_build_root())


def _deepspeed(given: Any) -> dict[str, Any]:
    """Return DeepSpeed's configuration, ready to give the whole model at the end."""
    table = dict(given) if isinstance(given, dict) else json.loads(Path(given).read_text(encoding="utf-8"))
    zero = table.get("zero_optimization", {})
    if zero.get("stage") == 3:
        table["zero_optimization"] = {**zero, "stage3_gather_16bit_weights_on_model_save": True}
    return table


def _is_streamed(job: dict[str, Any]) -> bool:
    return isinstance(job["data"], dict) and bool(job["data"].get("streaming"))


def _data(
    job: dict[str, Any],
    tokenizer: Any,
    folder: RunFolder,
    signals: Signals,
    ranks: Ranks,
    arguments: TrainingArguments,
) -> Any:
    settings = texts.DataSettings.of(job["data"])
    notes: set[str] = set()

    def note(text: str) -> None:
        if ranks.rank == 0 and text not in notes:
            notes.add(text)
            folder.event("note", text=text)

    encode = texts.Encoder(tokenizer=tokenizer, settings=settings, on_note=note)
    cut = texts.packed if settings.is_packed else texts.apart
    rows = partial(cut, encode, length=job["seq_len"])
    pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id or 0
    collate = partial(texts.pad, pad_id=pad_id)
    if settings.is_streamed:
        if arguments.max_steps <= 0:
            raise BadJobError("data: a stream has no end that is known; set max_steps in training_arguments")
        count = settings.num_held_back_rows
        held = texts.Stream(rows, settings, last=count) if count else None
        return texts.Stream(rows, settings, first=count), held, collate
    place = folder.root / "data" / texts.fingerprint(settings, tokenizer, job["seq_len"])
    if ranks.rank == 0 and not place.is_dir():
        shutil.rmtree(place.with_name(f".{place.name}"), ignore_errors=True)
        began = time.perf_counter()
        texts.write_rows(place, _alive(rows(texts.records(settings)), folder, signals))
        folder.event("text_encoded", seconds=time.perf_counter() - began)
    while not place.is_dir():  # not a barrier: a long text takes longer than one waits
        folder.heart.at("data")
        if signals.stop_signal is not None:
            raise StoppedEarlyError
        time.sleep(0.2)
    ranks.wait()
    whole = texts.Rows(place)
    num_held = math.ceil(len(whole) * settings.held_back_ratio)
    if num_held >= len(whole):
        raise BadJobError(f"data: held_back_ratio {settings.held_back_ratio} leaves nothing of {len(whole)} rows to "
                          "train on; give a smaller share or more text")  # fmt: skip
    cut_at = len(whole) - num_held
    return texts.Rows(place, last=cut_at), texts.Rows(place, first=cut_at) if num_held else None, collate


def _alive(rows: Iterator[Any], folder: RunFolder, signals: Signals) -> Iterator[Any]:
    """Pass rows on, with a sign of life every thousand: a long text takes hours to encode. A stop is obeyed."""
    for number, row in enumerate(rows):
        if number % 1000 == 0:
            folder.heart.at("data")
        if signals.stop_signal is not None:
            raise StoppedEarlyError
        yield row


def _whole_state(loop: Loop, ranks: Ranks) -> dict[str, Any]:
    """Return the whole model's tensors on rank 0; sharded ones are gathered one after another."""
    if not loop.is_fsdp_enabled:
        return loop.accelerator.get_state_dict(loop.model_wrapped)
    state = {}
    for name, tensor in loop.model_wrapped.state_dict().items():
        whole = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
        if ranks.rank == 0:
            state[name] = whole.detach().cpu()
    return state


def _save_final(loop: Loop, tokenizer: Any, root: Path, ranks: Ranks) -> None:
    """Write the model as `from_pretrained` reads it, whole, aside first."""
    beside, target = root / ".final", root / "final"
    state = _whole_state(loop, ranks)
    if ranks.rank == 0:
        shutil.rmtree(beside, ignore_errors=True)
        model = loop.accelerator.unwrap_model(loop.model_wrapped, keep_torch_compile=False)
        model.save_pretrained(beside, state_dict=state)
        tokenizer.save_pretrained(beside)
        shutil.rmtree(target, ignore_errors=True)
        beside.rename(target)
    ranks.wait()
