"""MLflow is told of a run: parameters, figures, files; and a run goes on when it fails."""

from __future__ import annotations

import importlib.util

import pytest
from validation.fake_bundle import write_bundle
from validation.faults import FAST

from tonnage import api
from tonnage.errors import OutsideError

HAS_MLFLOW = all(importlib.util.find_spec(name) for name in ("mlflow", "sqlalchemy", "alembic"))


def test_without_mlflow_one_line_says_so(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "mlflow.tracking", None)
    with pytest.raises(OutsideError, match="not installed"):
        api.run(str(write_bundle(tmp_path / "b", num_steps=2)), mlflow="sqlite:///x.db", **FAST)


@pytest.mark.slow
@pytest.mark.train
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(not HAS_MLFLOW, reason="needs the extra mlflow")
def test_a_run_is_told(tmp_path, monkeypatch):
    from mlflow.tracking import MlflowClient

    monkeypatch.chdir(tmp_path)  # MLflow keeps artefacts in the working folder
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    place = write_bundle(tmp_path / "b", num_steps=6, save_every=3, fail_at=5)
    final = tmp_path / "b" / "run" / "final"
    state = api.run(str(place), mlflow=uri, **FAST)
    assert state.exit_code == 3
    client = MlflowClient(uri, uri)
    experiment = client.get_experiment_by_name("fake")
    (told,) = client.search_runs([experiment.experiment_id])
    assert told.info.status == "FAILED"
    assert told.data.params["kind"] == "training"
    assert [point.step for point in client.get_metric_history(told.info.run_id, "loss")][-1] == 4
    (place / "run" / "bundle" / "job.json").write_text(
        (place / "run" / "bundle" / "job.json").read_text().replace('"fail_at"', '"was_fail_at"')
    )
    final.mkdir()
    (final / "model.txt").write_text("weights")
    state = api.run(str(place / "run"), mlflow=uri, **FAST)
    assert state.exit_code == 0
    (told,) = client.search_runs([experiment.experiment_id])
    assert (told.info.status, told.data.metrics["host_memory_bytes"]) == ("FINISHED", 1 << 24)
    assert {file.path for file in client.list_artifacts(told.info.run_id)} >= {"run.json", "events.jsonl", "job.json"}
    (version,) = client.search_model_versions("name = 'fake'")
    assert version.source == final.as_uri()
