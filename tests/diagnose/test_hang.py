"""Flight recorders and memory snapshots: read by a process of its own, and held against each other."""

from __future__ import annotations

import pickle
import time

import pytest

from tonnage import api
from tonnage.diagnose.hang import of_recorders
from tonnage.errors import BadFileError
from tonnage.probe.dumps import read_dump


def entry(seq: int, name: str = "nccl:all_reduce", sizes=((8,),), state: str = "completed", **more):
    frames = [
        {"name": "all_reduce", "filename": "/venv/torch/distributed/distributed_c10d.py", "line": 1},
        {"name": "train_step", "filename": "/app/train.py", "line": 88},
    ]
    return {"process_group": ("0", "default_pg"), "collective_seq_id": seq, "p2p_seq_id": 0, "is_p2p": False, "profiling_name": name,
            "state": state, "input_sizes": sizes, "input_dtypes": ["Float"], "time_created_ns": seq, "frames": frames, **more}  # fmt: skip


def dump(folder, rank: int, entries, last: int | None = None):
    value = {"version": "2.10", "entries": entries, "pg_config": {}}
    if last is not None:
        value["pg_status"] = {
            "0": {
                "last_enqueued_collective": last,
                "last_started_collective": -1,
                "last_completed_collective": last - 1,
            }
        }
    path = folder / f"nccl_trace_rank_{rank}"
    path.write_bytes(pickle.dumps(value, protocol=2))
    return path


def test_the_rank_that_never_came(tmp_path):
    for rank in (0, 2):
        dump(tmp_path, rank, [entry(1), entry(2), entry(3, "nccl:all_gather", state="scheduled")], last=3)
    dump(tmp_path, 1, [entry(1), entry(2)], last=2)
    first = api.diagnose([str(tmp_path)]).findings[0]
    assert first.id == "HANG_RANK_BEHIND"
    assert first.ranks == (1,)
    assert "Rank 1 never came to nccl:all_gather number 3" in first.cause[0]
    assert "/app/train.py:88 train_step" in first.cause[0]


def test_ranks_out_of_step(tmp_path):
    for rank in (0, 1):
        dump(tmp_path, rank, [entry(1), entry(2, state="started")])
    dump(tmp_path, 2, [entry(1), entry(2, "nccl:broadcast", state="started")])
    first = api.diagnose([str(tmp_path)]).findings[0]
    assert (first.id, first.ranks) == ("HANG_MISMATCH", (2,))
    assert "nccl:broadcast" in first.cause[0]


def test_all_ranks_at_the_same_place(tmp_path):
    for rank in (0, 1):
        dump(tmp_path, rank, [entry(1), entry(2, state="started")], last=2)
    assert api.diagnose([str(tmp_path)]).findings[0].id == "HANG_ALL_WAIT"


def test_a_rank_without_a_dump_is_told_beside(tmp_path):
    for rank in (0, 2):
        dump(tmp_path, rank, [entry(1), entry(2, state="started")], last=2)
    assert "HANG_NO_DUMP" in [one.id for one in api.diagnose([str(tmp_path)]).findings]


def test_a_run_that_went_well_gives_nothing(tmp_path):
    for rank in (0, 1):
        dump(tmp_path, rank, [entry(1), entry(2)], last=2)
    assert api.diagnose([str(tmp_path)]).findings == ()
    assert of_recorders([]) == []


def snapshot(folder, *, in_pieces: bool):
    free = [{"size": 2 << 20, "state": "inactive"}] * (512 if in_pieces else 4)
    used = [
        {
            "size": 6 << 30,
            "state": "active_allocated",
            "frames": [{"filename": "/app/model.py", "line": 7, "name": "forward"}],
        }
    ]
    value = {
        "segments": [{"total_size": 7 << 30, "allocated_size": 6 << 30, "blocks": free + used}],
        "device_traces": [
            [{"action": "alloc", "size": 1}, {"action": "oom", "size": 512 << 20, "device_free": 1 << 20}]
        ],
    }
    path = folder / "snapshot.pickle"
    path.write_bytes(pickle.dumps(value))
    return path


@pytest.mark.parametrize(("in_pieces", "name"), [(True, "TORCH_OOM_FRAGMENTATION"), (False, "TORCH_OOM")])
def test_a_snapshot_of_a_shortage(tmp_path, in_pieces, name):
    first = api.diagnose([str(snapshot(tmp_path, in_pieces=in_pieces))]).findings[0]
    assert first.id == name
    assert "/app/model.py:7 forward" in first.evidence[0].text


class Hostile:
    def __reduce__(self):
        return (print, ("executed",))


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps({"entries": [Hostile()]}),
        pickle.dumps([1, 2]),
        pickle.dumps({"entries": 7}),
        b"\x80\x04junk",
        b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x02id\x85R.",
        b"\x80\x02" + b"(" * 200_000,
    ],
    ids=["a function", "no dump", "no entries", "junk", "a command", "deep"],
)
def test_a_hostile_pickle_is_refused_in_one_line(tmp_path, data, capfd):
    path = tmp_path / "x_0"
    path.write_bytes(data)
    with pytest.raises(BadFileError):
        read_dump(path)
    assert "executed" not in capfd.readouterr().out


def test_a_pickle_that_never_ends_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr("tonnage.probe.dumps._SECONDS", 1)
    monkeypatch.setattr("tonnage.probe.dumps._PROGRAM", tmp_path / "slow.py")
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(30)")
    path = tmp_path / "x_0"
    path.write_bytes(pickle.dumps({"entries": []}))
    began = time.monotonic()
    with pytest.raises(BadFileError):
        read_dump(path)
    assert time.monotonic() - began < 15
