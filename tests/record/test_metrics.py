"""The figures of a run folder as samples; unknown stays away."""

from __future__ import annotations

import math

from tests.record.test_folder import RUN

from tonnage.metric_names import METRICS
from tonnage.record.files import append_line, replace_text
from tonnage.record.folder import Folder
from tonnage.record.metrics import Collector
from tonnage.record.types import Event


def made(tmp_path):
    folder = Folder(path=tmp_path)
    folder.write(RUN)
    for step in (1, 2):
        append_line(
            folder.metrics(0), {"step": step, "time": 10.0 * step, "loss": 3.0 - step, "grad_norm": None, "num_ooms": 0}
        )
        append_line(folder.metrics(1), {"step": step, "loss": "NaN"})
    for rank in (0, 1):
        folder.tell(Event(time=21.0, event="nonfinite", rank=rank, step=2))
    folder.tell(Event(time=22.0, event="checkpoint_saved", rank=0, step=2))
    folder.tell(Event(time=23.0, event="checkpoint_skipped", step=1))
    replace_text(folder.heartbeats / "rank-00000.json", '{"step": 2, "phase": "data", "time": 20.5, "pid": 7}')
    return folder


def values(collector):
    return {
        (s.name.removeprefix("tonnage_"), *(v for k, v in s.labels.items() if k != "run")): s.value
        for s in collector.samples()
    }


def test_samples_of_a_run(tmp_path):
    found = values(Collector(made(tmp_path)))
    assert found["train_step", "0"] == 2
    assert found["train_loss", "0"] == 1.0
    assert math.isnan(found["train_loss", "1"])
    assert found["torch_num_ooms_total", "0"] == 0
    assert ("torch_num_ooms_total", "1") not in found
    assert ("train_grad_norm", "0") not in found
    assert found["train_nonfinite_total",] == 1
    assert found["checkpoint_step",] == 2
    assert found["checkpoint_last_success_timestamp_seconds",] == 22.0
    assert found["checkpoint_failures_total",] == 1
    assert found["heartbeat_timestamp_seconds", "0", "data"] == 20.5
    assert found["run_status", "running"] == 1
    assert found["run_status", "finished"] == 0
    assert found["run_failures_total", "killed"] == 1
    assert found["predicted_step_seconds",] == 0.5
    assert ("predicted_tokens_per_s",) not in found


def test_a_second_look_reads_what_is_new(tmp_path):
    folder = made(tmp_path)
    collector = Collector(folder)
    collector.samples()
    append_line(folder.metrics(0), {"step": 3, "loss": 0.5})
    folder.tell(Event(time=30.0, event="checkpoint_failed", step=3))
    found = values(collector)
    assert (found["train_step", "0"], found["checkpoint_failures_total",]) == (3, 2)


def test_of_a_long_file_the_end_is_read(tmp_path):
    folder = made(tmp_path)
    with folder.metrics(0).open("w") as file:
        for step in range(20_000):
            file.write(f'{{"step": {step}, "loss": 1.0}}\n')
    assert values(Collector(folder))["train_step", "0"] == 19_999


def test_every_field_of_a_step_has_a_metric():
    from dataclasses import fields

    from tonnage.record.types import Predicted, Step

    told = {metric.field for metric in METRICS}
    assert {one.name for one in fields(Step)} - told == {"parameter_checksum"}
    assert {one.name for one in fields(Predicted)} - told == {"step_seconds_high"}
