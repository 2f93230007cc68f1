"""The real job under the supervisor: one rule for checkpoints, a killed rank, a clean stop."""

from __future__ import annotations

import sys

import pytest
from tests.record.test_folder import save

from tonnage.record import checkpoints
from validation import faults

pytestmark = [pytest.mark.train, pytest.mark.slow]


@pytest.fixture(autouse=True, scope="module")
def engine():
    pytest.importorskip("accelerate", reason="the training job needs the extra test-train")


class Alone:
    rank, world_size = 0, 1

    def gather(self, value):
        return [value]


def damages():
    yield "none", lambda folder: None
    yield "no manifest", lambda folder: (folder / "manifest.json").unlink()
    yield "half a manifest", lambda folder: (folder / "manifest.json").write_text('{"schema": 1')
    yield "gone", lambda folder: (folder / "part" / "a.bin").unlink()
    yield "short", lambda folder: (folder / "part" / "a.bin").write_text("x" * 99)
    yield "flipped", lambda folder: (folder / "part" / "a.bin").write_text("x" * 99 + "y")


@pytest.mark.parametrize(("name", "spoil"), tuple(damages()))
def test_supervisor_and_job_agree_on_checkpoints(tmp_path, monkeypatch, root, name, spoil):
    monkeypatch.syspath_prepend(str(root / "src" / "tonnage" / "jobs"))
    from train_checkpoints import Checkpoints

    folder = save(tmp_path, 10)
    spoil(folder)
    job = Checkpoints(tmp_path, Alone(), keep=2, compression="none", is_async=False)
    assert (checkpoints.fault_of(folder) is None) == (job.fault(folder) is None) == (name == "none")
    assert "train_checkpoints" in sys.modules


@pytest.fixture(scope="module")
def undisturbed(engine, tmp_path_factory):
    return faults.undisturbed(faults.REALS["ddp"], tmp_path_factory.mktemp("undisturbed"))


@pytest.mark.parametrize("kind", ["kill -9 a rank", "SIGTERM to the supervisor"])
def test_a_training_ends_as_if_nothing_had_happened(kind, undisturbed, tmp_path):
    job = faults.REALS["ddp"]
    row = faults.hurt(job, faults.Fault(number=0, job="ddp", kind=kind, rank=1, step=14), undisturbed, tmp_path)
    assert row["verdict"] == "ok", row
