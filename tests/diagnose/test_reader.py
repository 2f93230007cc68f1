"""Everything that a run leaves behind can be named: files, folders, pipes, compressed, in Windows' encoding, error files."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
from pathlib import Path

import pytest

from tonnage import api
from tonnage.errors import BadFileError

OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB of which"
    " 1.00 MiB is free. Of the allocated memory 7.80 GiB is allocated by PyTorch, and 1.00 MiB is reserved by PyTorch but unallocated.\n"
)


def first(*paths: Path | str) -> str:
    found = api.diagnose([str(path) for path in paths]).findings
    return found[0].id if found else ""


def test_a_folder_is_walked_and_what_is_no_log_passed_over(tmp_path):
    (tmp_path / "logs" / "attempt-000").mkdir(parents=True)
    (tmp_path / "logs" / "attempt-000" / "rank-00003.log").write_text(OOM)
    (tmp_path / "model.safetensors").write_bytes(b"\0" * 100)
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    (tmp_path / "weights").write_bytes(b"\0" * 5000)
    (tmp_path / "dangling.log").symlink_to(tmp_path / "nowhere")
    answer = api.diagnose([str(tmp_path)])
    assert answer.findings[0].id == "TORCH_OOM"
    assert answer.findings[0].ranks == (3,)
    assert [Path(one.file).name for one in answer.looked_at] == ["rank-00003.log"]


def test_standard_input(tmp_path):
    assert api.diagnose(["-"], stdin=io.BytesIO(OOM.encode())).findings[0].evidence[0].file == "-"


def test_compressed_and_windows_files(tmp_path):
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(OOM.encode()))
    (tmp_path / "b.log").write_bytes(OOM.encode("utf-16"))
    assert first(tmp_path / "a.log.gz") == first(tmp_path / "b.log") == "TORCH_OOM"


def test_a_damaged_archive_gives_what_it_has(tmp_path):
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(os.urandom(1000))[:500])
    assert api.diagnose([str(tmp_path)]).findings == ()


def test_an_error_file_of_torchrun(tmp_path):
    value = {
        "message": {"message": OOM.strip(), "extraInfo": {"py_callstack": "Traceback …", "timestamp": "1796000000"}}
    }
    (tmp_path / "error.json").write_text(json.dumps(value))
    answer = api.diagnose([str(tmp_path / "error.json")])
    assert answer.findings[0].id == "TORCH_OOM"
    assert answer.looked_at[0].kind == "error file"


def test_the_folder_of_a_run(tmp_path):
    (tmp_path / "errors").mkdir()
    (tmp_path / "errors" / "attempt-000-rank-00001.json").write_text(
        json.dumps(
            {
                "type": "OutOfMemoryError",
                "message": OOM.split(": ", 1)[1],
                "step": 4,
                "phase": "forward",
                "time": 1796000000.0,
            }
        )
    )
    (tmp_path / "events.jsonl").write_text(
        '{"time": 1796000000.0, "event": "hang", "attempt": 0, "rank": 0, "step": 4}\n{"time": 17960'
    )
    (tmp_path / "run.json").write_text(json.dumps({"schema": 1, "status": "given_up"}, indent=1))
    answer = api.diagnose([str(tmp_path)])
    assert answer.findings[0].id == "TORCH_OOM"
    assert answer.findings[0].ranks == (1,)
    assert "RUN_HANG" in {one.id for one in answer.findings[0].consequences}


def test_what_cannot_be_read_is_told_in_one_line(tmp_path):
    (tmp_path / "x.bin").write_bytes(b"\0" * 5000)
    for path in (tmp_path / "missing.log", tmp_path / "x.bin"):
        with pytest.raises(BadFileError) as told:
            api.diagnose([str(path)])
        assert "\n" not in str(told.value)


def test_where_nothing_is_known_the_last_error_is_shown(tmp_path):
    (tmp_path / "x.log").write_text(
        'step 1\nTraceback (most recent call last):\n  File "a.py", line 1\nacme.errors.FrobError: cannot frob\nbye\n'
    )
    answer = api.diagnose([str(tmp_path / "x.log")])
    assert answer.findings == ()
    assert (answer.looked_at[0].last_exception, answer.looked_at[0].last_exception_line) == (
        "acme.errors.FrobError: cannot frob",
        4,
    )
    assert answer.would_help


def test_the_given_logs_of_the_tuning_half(shared, root):
    samples = shared / "data" / "failures" / "samples"
    with (root / "validation" / "failure_split.csv").open(encoding="utf-8", newline="") as file:
        halves = {row["id"]: row["half"] for row in csv.DictReader(file)}
    with (samples / "index.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if halves[row["file"].split("_")[0]] == "tuning"]
    right = sum(first(samples / row["file"]) == row["expected_signature"] for row in rows)
    assert right / len(rows) >= 0.97
