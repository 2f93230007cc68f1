"""What verify needs of a run folder, read into values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from tonnage.record.files import read_lines
from tonnage.record.folder import Folder, step_of
from tonnage.record.types import Run, Status, Step
from tonnage.verify.series import finite, windows
from tonnage.verify.types import HardwareSeen, TrainingSeen

__all__ = ["hardware_of", "training_of"]

HARDWARE: Final = "hardware.jsonl"  # readings of devices, a line each, written by `tonnage watch`
_FAILED: Final = ("error", "killed", "hang", "lost", "request", "missing")
_FAILED_SAVES: Final = ("checkpoint_failed", "checkpoint_skipped")


def training_of(
    folder: Folder,
    *,
    num_findings: int | None = None,
    baselines: Sequence[Folder] = (),
) -> TrainingSeen:
    """Read what a training run left behind.

    Parameters
    ----------
    folder : Folder
        The run.
    num_findings : int
        What diagnose found in the logs; None: nobody looked.
    baselines : sequence of Folder
        Runs whose final loss this one is held against.

    Returns
    -------
    TrainingSeen
        The values.

    Notes
    -----
    Of a step that was done again the last line counts; how far the loss of the earlier one was off is kept. A rank's
    own work is a step's time without communication, where that is known: in a collective all wait for the slowest.
    """
    run = folder.read()
    ranks = folder.ranks()
    by_rank = {rank: folder.steps(rank) for rank in ranks}
    first = by_rank.get(0, ())
    every = [step for steps in by_rank.values() for step in steps]
    events = [event.event for event in folder.events()]
    bases = [_final(one) for one in baselines]
    return TrainingSeen(
        evidence=str(folder.metrics(0).relative_to(folder.path)) if first else "run.json",
        steps=tuple(step.step for step in first),
        losses=tuple(step.loss for step in first),
        grad_norms=tuple(step.grad_norm for step in first),
        step_seconds=tuple(step.step_seconds for step in first),
        tokens=tuple(_sum(step.tokens for step in at) for at in _by_step(by_rank, first)),
        rank_seconds={rank: value for rank, steps in by_rank.items() if (value := _work(steps)) is not None},
        reserved_bytes=_most(step.memory_reserved_bytes for step in every),
        host_bytes=_most(step.host_memory_bytes for step in every),
        num_alloc_retries=_whole(_most(step.num_alloc_retries for step in every)),
        num_ooms=_whole(_most(step.num_ooms for step in every)),
        mfu_ratio=_middle(step.mfu_ratio for step in first),
        num_checksums=sum(step.parameter_checksum is not None for step in first) if len(ranks) > 1 else 0,
        num_unequal=events.count("replicas_differ"),
        worst_again_ratio=_again(folder),
        checkpoint_bytes=_checkpoint_bytes(folder, run),
        num_failed_saves=sum(event in _FAILED_SAVES for event in events),
        num_hangs=sum(attempt.reason == "hang" for attempt in run.attempts),
        num_failures=sum(attempt.reason in _FAILED for attempt in run.attempts),
        is_finished=run.status is Status.FINISHED,
        num_findings=num_findings,
        baseline_losses=tuple(loss for loss, _ in bases if loss is not None),
        baseline_tokens=min((tokens for _, tokens in bases if tokens), default=None),
        hardware=hardware_of(folder.path / HARDWARE),
    )


def _by_step(by_rank: dict[int, tuple[Step, ...]], first: Sequence[Step]) -> Iterable[list[Step]]:
    at = {rank: {step.step: step for step in steps} for rank, steps in by_rank.items()}
    return ([steps[one.step] for steps in at.values() if one.step in steps] for one in first)


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) if known else None


def _most(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _middle(values: Iterable[float | None]) -> float | None:
    known = finite(list(values))
    return median(known) if known else None


def _work(steps: Sequence[Step]) -> float | None:
    """Return the median time of a step's own work."""
    return _middle(
        None if step.step_seconds is None else step.step_seconds - (step.communication_seconds or 0.0) for step in steps
    )


def _again(folder: Folder) -> float | None:
    """Return how far losses differ of steps that were done twice, over the loss; None where none was."""
    before: dict[int, float] = {}
    worst: float | None = None
    for line in read_lines(folder.metrics(0)):
        step = step_of(line)
        if step is None or step.loss is None:
            continue
        if step.step in before:
            apart = abs(step.loss - before[step.step]) / max(abs(before[step.step]), 1e-12)
            worst = math.inf if math.isnan(apart) else max(worst or 0.0, apart)
        before[step.step] = step.loss
    return worst


def _checkpoint_bytes(folder: Folder, run: Run) -> float | None:
    from tonnage.record.checkpoints import read_checkpoint  # noqa: PLC0415

    if run.last_checkpoint is None:
        return None
    found = read_checkpoint(folder.checkpoints / run.last_checkpoint)
    return None if found is None else float(found.num_bytes)


def _final(folder: Folder) -> tuple[float | None, float]:
    """Return the smoothed final loss of a run, and its tokens."""
    steps = folder.steps(0)
    smooth = windows(finite([step.loss for step in steps]))
    tokens = math.fsum(step.tokens or 0.0 for rank in folder.ranks() for step in folder.steps(rank))
    return (smooth[-1] if smooth else None), tokens


def hardware_of(path: Path) -> tuple[HardwareSeen, ...]:
    """Read the readings of devices that stand beside a run.

    Parameters
    ----------
    path : Path
        Lines of JSON, each a reading of one device: `gpu` (its name), and of `memory_used_bytes`,
        `memory_total_bytes`, `temperature_celsius`, `slowdown_celsius`,
        `utilization_ratio`, `is_throttled`, `ecc_uncorrected_total`, `remapped_rows_total`, `xids_total`,
        `pcie_width`, `pcie_width_max`, `pcie_generation`, `pcie_generation_max`, `nvlinks_down` what was read.

    Returns
    -------
    tuple of HardwareSeen
        One a device, by name; empty where the file is not there.
    """
    by_device: dict[str, list[dict[str, Any]]] = {}
    if path.is_file():
        for line in read_lines(path):
            by_device.setdefault(str(line.get("gpu", "?")), []).append(line)
    return tuple(_device(name, lines, path.name) for name, lines in sorted(by_device.items()))


def _device(name: str, lines: Sequence[dict[str, Any]], evidence: str) -> HardwareSeen:
    def series(field: str) -> tuple[float, ...]:
        return tuple(finite([_plain(line.get(field)) for line in lines]))

    def least(field: str) -> int | None:
        values = series(field)
        return int(min(values)) if values else None

    def grown(field: str) -> int | None:
        values = series(field)
        return int(values[-1] - values[0]) if values else None

    totals = [
        used / whole
        for line in lines
        if (used := _plain(line.get("memory_used_bytes"))) is not None
        and (whole := _plain(line.get("memory_total_bytes")))
    ]
    throttled = [bool(line["is_throttled"]) for line in lines if line.get("is_throttled") is not None]
    slow = series("slowdown_celsius")
    remapped = series("remapped_rows_total")
    return HardwareSeen(
        name=name,
        evidence=f"{evidence} {name}",
        memory_ratios=tuple(totals),
        temperatures_celsius=series("temperature_celsius"),
        slowdown_celsius=slow[-1] if slow else None,
        utilization_ratios=series("utilization_ratio"),
        throttled_ratio=sum(throttled) / len(throttled) if throttled else None,
        num_ecc_uncorrected=grown("ecc_uncorrected_total"),
        num_remapped_rows=int(remapped[-1]) if remapped else None,
        num_xids=grown("xids_total"),
        pcie_width=least("pcie_width"),
        pcie_width_max=least("pcie_width_max"),
        pcie_generation=least("pcie_generation"),
        pcie_generation_max=least("pcie_generation_max"),
        num_nvlinks_down=_whole(max(series("nvlinks_down"), default=None)),
    )


def _plain(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
