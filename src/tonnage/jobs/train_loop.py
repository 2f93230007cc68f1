"""The Transformers Trainer, with our own numbers, checkpoints and end of a run; its loop is not rewritten.

Overridden methods as in transformers 5.24.0 src/transformers/trainer.py.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import DistributedType, PartialState
from torch.distributed.fsdp import CPUOffloadPolicy
from train_checkpoints import Checkpoints
from train_folder import RunFolder
from train_meters import StepMeter, checksum, memory
from train_models import shard_routers_apart
from train_ranks import Ranks
from train_signals import Signals
from train_state import TorchState, ZeroState
from transformers import Trainer


class NotFiniteError(Exception):
    """The loss or the norm of the gradient is no number: the step must not be saved."""


class SaveFailedError(Exception):
    """A checkpoint could not be written, and the job asks to stop then."""


@dataclass(kw_only=True)
class LoopSettings:
    """What the job asks of the loop beside the Trainer's own arguments."""

    save_every_steps: int
    checksum_every_steps: int
    stops_at_not_finite: bool
    stops_at_failed_save: bool
    flop_per_token: float | None
    peak_flop_per_s: float | None
    model_options: dict[str, Any]


class Loop(Trainer):
    """A Trainer that writes the run folder."""

    def __init__(self, *, folder: RunFolder, signals: Signals, ranks: Ranks, checkpoints: Checkpoints,
                 settings: LoopSettings, **kwargs: Any) -> None:  # fmt: skip
        self.ranks = ranks
        super().__init__(**kwargs)
        self.folder, self.signals, self.checkpoints = folder, signals, checkpoints
        checkpoints.engine = self.engine
        self.settings = settings
        self.meter = StepMeter(self.args.device)
        self.is_stopped = False
        self.resumed: Path | None = None
        self._recorded_step = -1
        self._mark: Any = None
        self._printed = 0.0

    def create_accelerator_and_postprocess(self) -> None:
        """Let FSDP2 run on processors too, where Accelerate 1.15 (state.py) leaves it out without a word."""
        asks = self.args.fsdp_plugin_args is not None or os.environ.get("ACCELERATE_USE_FSDP", "false") == "true"
        if not (asks and self.args.device.type == "cpu"):
            super().create_accelerator_and_postprocess()
            return
        shared = PartialState._shared_state  # noqa: SLF001  what Accelerate takes its kind of training from
        kind = shared["distributed_type"]
        shared["distributed_type"] = DistributedType.MULTI_GPU
        try:
            super().create_accelerator_and_postprocess()
        finally:
            shared["distributed_type"] = kind
        plugin = self.accelerator.state.fsdp_plugin
        if plugin.cpu_offload:
            plugin.cpu_offload = CPUOffloadPolicy(pin_memory=False)  # there is no device to pin for

    @property
    def engine(self) -> str:
        """What runs the training, as Accelerate has it now."""
        if self.is_deepspeed_enabled:
            return f"deepspeed-zero{self.accelerator.state.deepspeed_plugin.zero_stage}"
        return "fsdp2" if self.is_fsdp_enabled else "single" if self.ranks.is_alone else "ddp"

    # -- parts of a step ------------------------------------------------------------------------------------------

    @contextmanager
    def _part(self, phase: str) -> Iterator[None]:
        began = time.perf_counter()
        self.folder.heart.at(phase)
        first = self.meter.clock.now()
        self.meter.cost_seconds += time.perf_counter() - began
        yield
        began = time.perf_counter()
        self._mark = self.meter.clock.now()
        self.meter.spans[phase].append((first, self._mark))
        self.meter.cost_seconds += time.perf_counter() - began

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: Any) -> Any:
        """Time the data."""
        with self._part("data"):
            samples, num_items = super().get_batch_samples(epoch_iterator, num_batches, device)
        self.meter.num_tokens += sum(batch["input_ids"].numel() for batch in samples)
        return samples, num_items

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Time the forward pass of training, and leave the phase at backward."""
        if not model.training:
            return super().compute_loss(model, inputs, *args, **kwargs)
        with self._part("forward"):
            loss = super().compute_loss(model, inputs, *args, **kwargs)
        self.folder.heart.at("backward")
        return loss

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        """Time the backward pass: from the end of the forward pass to the end of the step, DeepSpeed's update apart."""
        loss = super().training_step(model, inputs, num_items_in_batch)
        began = time.perf_counter()
        last = self.meter.clock.now()
        self.meter.spans["backward"].append((self._mark, last))
        self._mark = last
        self.meter.losses.append(loss)
        self.folder.heart.at("optimizer")
        self.meter.cost_seconds += time.perf_counter() - began
        return loss

    # -- end of a step --------------------------------------------------------------------------------------------

    def _maybe_log_save_evaluate(
        self,
        tr_loss: Any,  # noqa: ARG002  the Trainer's own sum; ours is of this step alone
        grad_norm: Any,
        model: Any,  # noqa: ARG002
        trial: Any,
        epoch: Any,  # noqa: ARG002
        ignore_keys_for_eval: Any,
        start_time: Any,  # noqa: ARG002
        learning_rate: Any = None,
    ) -> None:
        step = self.state.global_step
        if step == self._recorded_step:
            return
        self._recorded_step = step
        began = time.perf_counter()
        self.meter.spans["optimizer"].append((self._mark, self.meter.clock.now()))
        line = self._line(step, grad_norm, learning_rate)
        self.meter.cost_seconds += time.perf_counter() - began
        is_bad = not math.isfinite(line["loss"]) or not (line["grad_norm"] is None or math.isfinite(line["grad_norm"]))
        sums = self.ranks.add([line["loss"], float(self.signals.stop_signal is not None), float(is_bad)])
        began = time.perf_counter()
        line["loss"] = sums[0] / self.ranks.world_size
        if self.settings.checksum_every_steps and step % self.settings.checksum_every_steps == 0:
            self._check_replicas(step, line)
        self.meter.cost_seconds += time.perf_counter() - began
        began = time.perf_counter()
        line["instrument_seconds"] = self.meter.cost_seconds
        self.folder.metric(**line)
        self.folder.heart.at("data", step=step)
        self._print(step, line)
        self.meter.restart()
        self.meter.cost_seconds = time.perf_counter() - began
        if sums[2]:
            self._not_finite(step, line)
        self._end_of_step(step, wants_stop=bool(sums[1]), trial=trial, ignore_keys=ignore_keys_for_eval)
        self.meter.began = time.perf_counter()

    def _line(self, step: int, grad_norm: Any, learning_rate: Any) -> dict[str, Any]:
        parts = self.meter.seconds()
        step_seconds = time.perf_counter() - self.meter.began
        tokens = self.meter.num_tokens
        rate = tokens / step_seconds
        cost, peak = self.settings.flop_per_token, self.settings.peak_flop_per_s
        update = getattr(self, "_update_seconds", 0.0)  # DeepSpeed updates inside its backward
        self._update_seconds = 0.0
        parts["backward_seconds"] -= update
        parts["optimizer_seconds"] += update
        return {
            "time": time.time(),
            "step": step,
            "loss": self.meter.loss(),
            "grad_norm": None if grad_norm is None else float(grad_norm),
            "learning_rate": learning_rate if learning_rate is not None else self._get_learning_rate(),
            "tokens": tokens,
            "tokens_per_s": rate,
            "mfu_ratio": rate * cost / peak if cost and peak else None,
            "step_seconds": step_seconds,
            **parts,
            "communication_seconds": self._communication_seconds(),
            **memory(self.args.device),
            "parameter_checksum": None,
        }

    def _communication_seconds(self) -> float | None:
        """Return what DDP measured of its last all-reduce of gradients; the other engines do not tell."""
        ask = getattr(self.model_wrapped, "_get_ddp_logging_data", None)
        if ask is None:
            return None
        nanoseconds = ask().get("backward_comm_time")
        return nanoseconds / 1e9 if nanoseconds else None

    def _check_replicas(self, step: int, line: dict[str, Any]) -> None:
        line["parameter_checksum"] = checksum(self.model.parameters())
        if self.is_fsdp_enabled or self.is_deepspeed_enabled:
            return  # each rank holds another part
        told = self.ranks.gather(line["parameter_checksum"])
        if len(set(told)) > 1 and self.ranks.rank == 0:
            self.folder.event("replicas_differ", step=step, checksums=told)

    def _print(self, step: int, line: dict[str, Any]) -> None:
        now = time.monotonic()
        if self.ranks.rank == 0 and (now - self._printed > 1 or step == self.state.max_steps):
            self._printed = now
            rate = line["tokens_per_s"] * self.ranks.world_size
            left = (self.state.max_steps - step) * line["step_seconds"]
            print(
                f"step {step}/{self.state.max_steps}  loss {line['loss']:.4f}  {rate:,.0f} tokens/s  {left:,.0f} s left",
                flush=True,
            )

    def _not_finite(self, step: int, line: dict[str, Any]) -> None:
        scaled = getattr(self.accelerator, "scaler", None) is not None or self.args.fp16
        if scaled and math.isfinite(line["loss"]):
            return  # a step that fp16's scaler leaves out
        self.folder.event("nonfinite", step=step, loss=line["loss"], grad_norm=line["grad_norm"])
        if self.settings.stops_at_not_finite:
            raise NotFiniteError(f"step {step}: loss {line['loss']}, gradient norm {line['grad_norm']}")

    def _end_of_step(self, step: int, *, wants_stop: bool, trial: Any, ignore_keys: Any) -> None:
        if self.control.should_evaluate:
            self.folder.heart.at("evaluating")
            found = self._evaluate(trial, ignore_keys)
            if self.ranks.rank == 0:
                self.folder.event("evaluated", step=step, loss=found.get("eval_loss"))
        if self.signals.wants_snapshot:
            self.signals.wants_snapshot = False
            snapshot(self.folder, self.args.device, step)
        self._finish_save(wait=False)
        is_last = step >= self.state.max_steps
        every = self.settings.save_every_steps
        if wants_stop or is_last or (every and step % every == 0):
            self._finish_save(wait=True)
            if self.checkpoints.last_step != step:
                self._save(step)
        if wants_stop or is_last:
            self._finish_save(wait=True)
        if wants_stop and not is_last:
            self.is_stopped = True
            self.control.should_training_stop = True
            self.folder.event("stopping", step=step, signal=self.signals.stop_signal)
        self.folder.heart.at("data")

    # -- checkpoints ----------------------------------------------------------------------------------------------

    def _state(self) -> TorchState | ZeroState:
        ranks = {"rank": self.ranks.rank, "world_size": self.ranks.world_size}
        model = self.accelerator.unwrap_model(self.model_wrapped, keep_torch_compile=False)
        if self.is_deepspeed_enabled:
            return ZeroState(model, self.model_wrapped, **ranks)
        return TorchState(model, self.optimizer, **ranks)

    def _save(self, step: int) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        self.folder.heart.at("saving")
        state = self._state()
        scaler = getattr(self.accelerator, "scaler", None)
        values = {
            "trainer_state.json": _trainer_state(self.state),
            "state.json": {
                "optimizer": state.values(),
                "scheduler": _plain_state(self.lr_scheduler.state_dict()),
                "scaler": scaler.state_dict() if scaler is not None else None,
                "model": {"engine": self.engine, **self.settings.model_options},
            },
        }
        self.checkpoints.save(step, state.to_save(), values)
        self._finish_save(wait=not self.checkpoints.is_async)

    def _finish_save(self, *, wait: bool) -> None:
        told = self.checkpoints.finish(wait=wait)
        if told is None:
            return
        pending, facts, wrong = told
        if self.ranks.rank == 0:
            if facts is not None:
                blocked = self.checkpoints.seconds_blocked
                self.folder.event("checkpoint_saved", step=pending.step, seconds_blocked=blocked, **facts)
            else:
                self.folder.event("checkpoint_failed", step=pending.step, why=wrong)
        if wrong is not None and self.settings.stops_at_failed_save:
            raise SaveFailedError(f"step {pending.step}: {wrong}")

    def _prepare_for_training(self, max_steps: int, train_dataloader: Any, resume_from_checkpoint: Any) -> Any:
        with shard_routers_apart(self.model) if self.is_fsdp_enabled else nullcontext():
            prepared = super()._prepare_for_training(max_steps, train_dataloader, None)
        if resume_from_checkpoint is not None:
            values = self.checkpoints.load(Path(resume_from_checkpoint), self._state())
            self.lr_scheduler.load_state_dict({**self.lr_scheduler.state_dict(), **values["scheduler"]})
            scaler = getattr(self.accelerator, "scaler", None)
            if scaler is not None and values["scaler"]:
                scaler.load_state_dict(values["scaler"])
        if self.is_deepspeed_enabled:
            self._time_update(self.model_wrapped)
        elif hasattr(self.model_wrapped, "_set_ddp_runtime_logging_sample_rate"):
            self.model_wrapped._set_ddp_runtime_logging_sample_rate(1)  # noqa: SLF001  there is no public name
        return prepared

    def _time_update(self, engine: Any) -> None:
        inner: Callable[..., Any] = engine.step

        def step(*args: Any, **kwargs: Any) -> Any:
            self.folder.heart.at("optimizer")
            if self.meter.clock.is_cuda:
                torch.cuda.synchronize()
            began = time.perf_counter()
            result = inner(*args, **kwargs)
            if self.meter.clock.is_cuda:
                torch.cuda.synchronize()
            self._update_seconds = getattr(self, "_update_seconds", 0.0) + time.perf_counter() - began
            return result

        engine.step = step

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        """Load nothing yet: `_prepare_for_training` does, for every engine."""

    def _load_rng_state(self, checkpoint: str | None) -> None:
        if checkpoint is not None and not self.checkpoints.load_random_state(Path(checkpoint)):
            self.folder.event("random_state_new", step=self.state.global_step)


def _trainer_state(state: Any) -> dict[str, Any]:
    kept = {key: value for key, value in vars(state).items() if isinstance(value, (int, float, str, bool, type(None)))}
    return {**kept, "log_history": [], "stateful_callbacks": {}}


def _plain_state(state: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in state.items() if isinstance(value, (int, float, str, bool, list, type(None)))}


def snapshot(folder: RunFolder, device: torch.device, step: int | None) -> None:
    """Write the allocator's snapshot for pytorch.org/memory_viz, where there is an allocator to ask."""
    if device.type != "cuda":
        folder.event("snapshot_skipped", step=step, why="the host's memory has no allocator to ask")
        return
    path = folder.dump("memory.pickle")
    torch.cuda.memory._dump_snapshot(str(path))  # noqa: SLF001  torch documents it under this name
    folder.event("snapshot", step=step, file=str(path.relative_to(folder.root)))
