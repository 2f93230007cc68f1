"""A run in MLflow: experiment, parameters, metrics, artefacts, and the trained model as a version. Optional.

Calls as in mlflow-skinny 3.17 `mlflow.tracking.MlflowClient`: create_experiment, create_run, log_batch, log_artifact,
create_registered_model, create_model_version.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, Final

from tonnage.errors import OutsideError
from tonnage.messages import say
from tonnage.record.folder import Folder
from tonnage.record.types import Run, Status, Step

if TYPE_CHECKING:
    from tonnage.plan.types import Plan
    from tonnage.run.supervise import Update

__all__ = ["Tracker", "parameters"]

_EVERY_SECONDS: Final = 5.0
_MOST: Final = 900  # metrics in one batch; the server takes 1000
_ARTEFACTS: Final = ("plan.toml", "run.json", "environment.json", "events.jsonl", "bundle/job.json")
_STATUS: Final = {Status.FINISHED: "FINISHED", Status.STOPPED: "KILLED"}


def parameters(run: Run, plan: Plan | None) -> dict[str, str]:
    """Return what a run was set to, flat: what the plan fixes and what it predicts."""
    found: dict[str, Any] = {"kind": run.kind, "engine": run.engine, "place": run.place, "num_steps": run.num_steps}
    found |= {f"predicted.{name}": value for name, value in asdict(run.predicted).items()}
    if plan is not None:
        candidate = plan.estimate.candidate
        found |= {"model": candidate.model.name, "micro_batch_size": candidate.micro_batch_size}
        found |= {"optimizer": candidate.optimizer, "recompute": str(candidate.recompute)}
        for part in ("layout", "precision", "offload", "workload"):
            found |= {f"{part}.{one.name}": getattr(getattr(candidate, part), one.name)
                      for one in fields(getattr(candidate, part))}  # fmt: skip
    return {name: str(value)[:500] for name, value in found.items() if value is not None}


class Tracker:
    """Passes updates on, and tells MLflow of them; when that fails in the middle, the run goes on without."""

    def __init__(self, folder: Folder, uri: str, plan: Plan | None, watch: Callable[[Update], None]) -> None:
        self._folder, self._watch = folder, watch
        self._pending: list[tuple[str, float, int, int]] = []
        self._next = 0.0
        self._client: Any = _client(uri)
        run = folder.read()
        try:
            experiment = self._client.get_experiment_by_name(run.name)
            number = experiment.experiment_id if experiment else self._client.create_experiment(run.name)
            self._id: str = self._find(number, run) or self._create(number, run, plan)
        except Exception as error:  # noqa: BLE001  whatever its store raises
            raise OutsideError(
                say("run.mlflow", reason=_first_line(error)), where=uri, fix=say("run.fix_mlflow")
            ) from None

    def _find(self, experiment: str, run: Run) -> str | None:
        """Return the MLflow run of this run where an earlier start made one."""
        found = self._client.search_runs([experiment], f"tags.tonnage_key = '{run.key}'", max_results=1)
        if not found:
            return None
        self._client.update_run(found[0].info.run_id, "RUNNING")
        return str(found[0].info.run_id)

    def _create(self, experiment: str, run: Run, plan: Plan | None) -> str:
        made = self._client.create_run(experiment, run_name=run.name, tags={"tonnage_key": run.key})
        for name, value in parameters(run, plan).items():
            self._client.log_param(made.info.run_id, name, value)
        return str(made.info.run_id)

    def __call__(self, update: Update) -> None:
        """Pass an update on, and keep the figures of a step for the next batch."""
        self._watch(update)
        if update.step is not None:
            self._pending += list(_figures(update.step))
            if time.monotonic() >= self._next or len(self._pending) > _MOST:
                self._send()

    def _send(self) -> None:
        from mlflow.entities import Metric  # noqa: PLC0415  takes seconds

        self._next = time.monotonic() + _EVERY_SECONDS
        while self._pending:
            batch, self._pending = self._pending[:_MOST], self._pending[_MOST:]
            with contextlib.suppress(Exception):
                self._client.log_batch(self._id, metrics=[Metric(*one) for one in batch])

    def end(self, run: Run) -> None:
        """Send what is left, the artefacts and, of a finished run, the model."""
        self._send()
        with contextlib.suppress(Exception):
            for name in _ARTEFACTS:
                if (self._folder.path / name).is_file():
                    self._client.log_artifact(self._id, str(self._folder.path / name))
            final = self._folder.path / "final"
            if run.status is Status.FINISHED and final.is_dir():
                with contextlib.suppress(Exception):  # it is there already
                    self._client.create_registered_model(run.name)
                self._client.create_model_version(run.name, final.as_uri(), run_id=self._id)
        with contextlib.suppress(Exception):
            self._client.set_terminated(self._id, _STATUS.get(run.status, "FAILED"))


def _client(uri: str) -> Any:
    try:
        from mlflow.tracking import MlflowClient  # noqa: PLC0415  takes seconds, and is optional
    except ImportError:
        fix = "pip install 'tonnage[mlflow]'"
        raise OutsideError(say("run.no_mlflow"), where="--mlflow", fix=fix) from None
    return MlflowClient(uri, uri)


def _figures(step: Step) -> list[tuple[str, float, int, int]]:
    when = int(1000 * (step.time or time.time()))  # MLflow counts milliseconds
    values: Mapping[str, Any] = asdict(step)
    return [
        (name, float(value), when, step.step)
        for name, value in values.items()
        if name not in ("step", "time") and isinstance(value, int | float) and math.isfinite(value)
    ]


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:200]
