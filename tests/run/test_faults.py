"""A fault of each kind: the run ends as if nothing had happened; and a job that forgets is caught."""

from __future__ import annotations

import pytest

from validation import faults


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return {name: faults.undisturbed(faults.JOBS[name], tmp_path_factory.mktemp(name)) for name in ("fake-2",)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault", faults.fault_list({"fake-2": faults.FAKES["fake-2"]}, len(faults.kinds()), 3), ids=lambda one: one.kind
)
def test_a_fault(fault, undisturbed, tmp_path):
    row = faults.hurt(faults.JOBS[fault.job], fault, undisturbed[fault.job], tmp_path)
    faults._leave_group(tmp_path)
    assert row["verdict"] == "ok", row
    if "OOM" in fault.kind:
        assert "for want of memory" in row["what"]


def test_shares_are_equal():
    found = faults.fault_list(faults.FAKES, 3 * len(faults.kinds()), 1)
    assert {(one.kind, one.job) for one in found} == {(kind, job) for kind in faults.kinds() for job in faults.FAKES}


@pytest.mark.slow
def test_a_job_that_forgets_its_random_state_is_caught(undisturbed, tmp_path, monkeypatch):
    text = (faults.HERE / "fake_job.py").read_text(encoding="utf-8")
    careless = text.replace("self.random.setstate(", "(")
    assert careless != text
    job = faults.FAKES["fake-2"]

    def make(folder, **more):
        place = job.make(folder, **more)
        (place / "fake_job.py").write_text(careless, encoding="utf-8")
        return place

    fault = faults.Fault(number=0, job=job.name, kind="kill -9 a rank", rank=0, step=13)
    row = faults.hurt(faults.Job(name=job.name, num_ranks=2, num_steps=24, save_every=6, make=make, patience=faults.FAST),
                      fault, undisturbed["fake-2"], tmp_path)  # fmt: skip
    assert "final loss" in row["verdict"]
