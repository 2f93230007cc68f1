"""What a run measured corrects the next plan: `tonnage plan --from RUN` reads the run folder."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.record.test_folder import RUN

from tonnage import api
from tonnage.calibrate.run_file import read_run_file, run_of
from tonnage.plan.request import make_request
from tonnage.record.files import append_line
from tonnage.record.folder import Folder
from tonnage.run.measured import measured_of, request_of

GIB = 2**30
REQUESTS = {
    "qlora": {"goal": "finetune", "finetune": "qlora", "gpus": ["rtx-4090"]},
    "full on eight": {"goal": "finetune", "finetune": "full", "gpus": ["h100-sxm5:8"]},
}


def write_steps(folder, *, num=12, first=1, rank=0, gib=20.0):
    for step in range(first, first + num):
        append_line(
            folder.metrics(rank),
            {"step": step, "step_seconds": 9.0 if step < first + 3 else 2.0, "memory_reserved_bytes": gib * GIB},
        )


def test_the_first_steps_of_an_attempt_do_not_count(tmp_path):
    folder = Folder(path=tmp_path)
    write_steps(folder, num=4)
    assert measured_of(folder) is None
    write_steps(folder, first=3)
    write_steps(folder, rank=1, gib=22.0)
    assert measured_of(folder) == {"step_time_s": 2.0, "peak_mem_gib": 22.0, "mem_kind": "reserved"}


def test_processors_are_no_devices(tmp_path):
    folder = Folder(path=tmp_path)
    for step in range(20):
        append_line(folder.metrics(0), {"step": step, "step_seconds": 1.0, "host_memory_bytes": 7})
    assert measured_of(folder) is None


@pytest.mark.parametrize("words", REQUESTS.values(), ids=REQUESTS)
def test_the_request_of_a_run_is_its_own_candidate(tmp_path, words):
    plan = api.plan(make_request("Qwen/Qwen3-8B", **words)).plans[0]
    folder = Folder(path=tmp_path)
    folder.write(
        replace(
            RUN, request=request_of(plan), measured={"step_time_s": 2.0, "peak_mem_gib": 20.0, "mem_kind": "reserved"}
        )
    )
    text = folder.run_file.read_text()
    file = read_run_file(text, "run.json")
    assert file.request is not None
    run = run_of(file, api.read_model("Qwen/Qwen3-8B"))
    told, own = run.candidate, plan.estimate.candidate
    for name in ("engine", "layout", "micro_batch_size", "recompute", "optimizer", "workload"):
        assert getattr(told, name) == getattr(own, name), name
    assert (run.memory_bytes, run.step_seconds) == (20.0 * GIB, 2.0)
    assert folder.read().request == json.loads(text)["request"]


def test_a_run_that_measured_nothing_names_no_request(tmp_path):
    folder = Folder(path=tmp_path)
    folder.write(replace(RUN, request={"model": "x"}))
    assert not {"request", "measured"} & set(json.loads(folder.run_file.read_text()))
