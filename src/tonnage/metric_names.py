"""Our vocabulary of metrics: one name a quantity, base units as suffix, counters end in `_total`.

Names follow Prometheus' naming practice (prometheus.io/docs/practices/naming) with the suffixes of this project:
`_seconds`, `_bytes`, `_ratio`, `_tokens_per_s`. Every series carries the label `run`, and `rank` where it is of one rank.
"""

from __future__ import annotations

from typing import Final, Literal

from tonnage.nouns import noun

__all__ = ["METRICS", "Metric", "find_metric"]


@noun
class Metric:
    """One quantity: its name, what it is, and the field of a run folder that it is read from."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    labels: tuple[str, ...] = ("run",)
    field: str = ""  # of `record.types.Step` or `Predicted`; "" where it is counted


def _rank(name: str, field: str, text: str, kind: Literal["gauge", "counter"] = "gauge") -> Metric:
    return Metric(name=f"tonnage_{name}", kind=kind, help=text, labels=("run", "rank"), field=field)


def _run(name: str, text: str, kind: Literal["gauge", "counter"] = "gauge", *labels: str) -> Metric:
    return Metric(name=f"tonnage_{name}", kind=kind, help=text, labels=("run", *labels))


def _predicted(field: str, text: str) -> Metric:
    return Metric(name=f"tonnage_predicted_{field}", kind="gauge", help=text, field=field)


STEP: Final = (
    _rank("train_step", "step", "Optimizer steps done."),
    _rank("train_step_timestamp_seconds", "time", "When the last step ended."),
    _rank("train_loss", "loss", "Loss of the last step."),
    _rank("train_grad_norm", "grad_norm", "Norm of the gradients before clipping."),
    _rank("train_learning_rate", "learning_rate", "Learning rate."),
    _rank("train_step_tokens", "tokens", "Tokens of the last step on this rank."),
    _rank("train_tokens_per_s", "tokens_per_s", "Tokens a second of this rank."),
    _rank("train_mfu_ratio", "mfu_ratio", "Model FLOPs utilization."),
    _rank("train_step_seconds", "step_seconds", "Time of the last step."),
    _rank("train_data_seconds", "data_seconds", "Of it, waiting for data."),
    _rank("train_forward_seconds", "forward_seconds", "Of it, forward."),
    _rank("train_backward_seconds", "backward_seconds", "Of it, backward."),
    _rank("train_optimizer_seconds", "optimizer_seconds", "Of it, the optimizer."),
    _rank("train_communication_seconds", "communication_seconds", "Of it, communication that is not hidden."),
    _rank("torch_memory_allocated_bytes", "memory_allocated_bytes", "Device memory in tensors."),
    _rank("torch_memory_reserved_bytes", "memory_reserved_bytes", "Device memory that the allocator holds."),
    _rank("torch_memory_inactive_split_bytes", "memory_inactive_split_bytes", "Held, free, and in pieces."),
    _rank("torch_num_alloc_retries_total", "num_alloc_retries", "Allocations that flushed the cache first.", "counter"),
    _rank("torch_num_ooms_total", "num_ooms", "Allocations that failed for want of memory.", "counter"),
    _rank("process_host_memory_bytes", "host_memory_bytes", "Resident memory of the rank's process."),
)
RUN: Final = (
    _run("train_num_steps", "Steps to the end of the run."),
    _run("train_nonfinite_total", "Steps whose loss or gradient was not finite.", "counter"),
    _run("run_status", "1 for the status that the run has, 0 for the others.", "gauge", "status"),
    _run("run_attempts_total", "Starts of the launcher.", "counter"),
    _run("run_failures_total", "Attempts that ended otherwise than asked, by reason.", "counter", "reason"),
    _run("checkpoint_step", "Step of the last checkpoint that was completed."),
    _run("checkpoint_last_success_timestamp_seconds", "When the last checkpoint was completed."),
    _run("checkpoint_failures_total", "Checkpoints that could not be written, or were damaged.", "counter"),
)
RANK: Final = (
    Metric(
        name="tonnage_heartbeat_timestamp_seconds",
        kind="gauge",
        help="When the rank's present phase began.",
        labels=("run", "rank", "phase"),
        field="time",
    ),
)
PREDICTED: Final = (
    _predicted("step_seconds", "Time of a step by the plan."),
    _predicted("tokens_per_s", "Tokens a second of the whole job by the plan."),
    _predicted("mfu_ratio", "Model FLOPs utilization by the plan."),
    _predicted("memory_bytes", "Memory of the fullest device by the plan."),
    _predicted("host_memory_bytes", "Host memory by the plan."),
    _predicted("checkpoint_bytes", "Size of a checkpoint by the plan."),
)
METRICS: Final = (*STEP, *RUN, *RANK, *PREDICTED)
_BY_NAME: Final = {metric.name: metric for metric in METRICS}


def find_metric(name: str) -> Metric:
    """Return a metric by its name.

    >>> find_metric("tonnage_train_loss").field
    'loss'
    """
    return _BY_NAME[name]
