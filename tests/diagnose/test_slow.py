"""Why something is slow, by its own figures; near-misses beside."""

from __future__ import annotations

import json

import pytest

from tonnage import api


def folder(tmp_path, *, ranks: int = 4, steps: int = 60, change=lambda rank, step, row: row):
    (tmp_path / "metrics").mkdir()
    for rank in range(ranks):
        rows = [
            change(
                rank,
                step,
                {
                    "step": step,
                    "step_seconds": 1.0,
                    "data_seconds": 0.02,
                    "communication_seconds": 0.1,
                    "num_alloc_retries": 0,
                },
            )
            for step in range(steps)
        ]
        path = tmp_path / "metrics" / f"rank-{rank:05}.jsonl"
        path.write_text("\n".join(map(json.dumps, rows)) + '\n{"step": 60, "step_s')
    return str(tmp_path)


def found(path) -> list[tuple[str, tuple[int, ...]]]:
    return [(one.id, one.ranks) for one in api.diagnose([path]).findings]


def test_an_even_run_gives_nothing(tmp_path):
    assert found(folder(tmp_path)) == []


def test_a_rank_that_waits_for_data(tmp_path):
    path = folder(tmp_path, change=lambda rank, step, row: row | ({"data_seconds": 0.35} if rank == 2 else {}))
    assert found(path)[0] == ("DATA_STALL", (2,))
    assert "35 %" in api.diagnose([path]).findings[0].cause[0]


def test_a_straggler_explains_that_the_others_wait(tmp_path):
    path = folder(tmp_path, change=lambda rank, step, row: row | {"communication_seconds": 0.05 if rank == 1 else 0.5})
    assert found(path) == [("STRAGGLER", (1,))]


def test_communication_of_all(tmp_path):
    path = folder(tmp_path, change=lambda rank, step, row: row | {"communication_seconds": 0.5})
    assert [name for name, _ in found(path)] == ["COMMUNICATION_BOUND"]


def test_slow_steps_now_and_then(tmp_path):
    path = folder(tmp_path, change=lambda rank, step, row: row | ({"step_seconds": 4.0} if step % 10 == 9 else {}))
    assert [name for name, _ in found(path)] == ["STEP_SPREAD"]


def test_the_first_steps_do_not_count(tmp_path):
    path = folder(
        tmp_path,
        change=lambda rank, step, row: row | ({"step_seconds": 40.0, "data_seconds": 30.0} if step < 3 else {}),
    )
    assert found(path) == []


def test_retries_of_the_allocator(tmp_path):
    path = folder(tmp_path, change=lambda rank, step, row: row | {"num_alloc_retries": step // 6 if rank == 3 else 0})
    assert found(path) == [("ALLOC_RETRIES", (3,))]


BENCH = {"requests": 200, "errors": 0, "qps": 4.0, "ttft_seconds": {"p50": 0.2, "p95": 0.4, "p99": 0.6},
         "tpot_seconds": {"p50": 0.02, "p95": 0.03, "p99": 0.04}, "e2e_seconds": {"p50": 5.0, "p95": 6.0, "p99": 7.0}}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({}, None),
        ({"ttft_seconds": {"p50": 0.3, "p95": 4.0, "p99": 6.0}}, "SERVER_QUEUE"),
        ({"ttft_seconds": {"p50": 3.0, "p95": 3.5, "p99": 4.0}}, "SERVER_PREFILL"),
        ({"errors": 12}, "SERVER_ERRORS"),
        ({"requests": 3, "ttft_seconds": {"p50": 3.0, "p95": 3.5, "p99": 4.0}}, None),
    ],
)
def test_a_load_test(tmp_path, change, name):
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(BENCH | change))
    assert [one for one, _ in found(str(path))] == ([name] if name else [])


@pytest.mark.parametrize(
    ("queue", "prefill", "name"), [(0.1, 0.5, None), (9.0, 0.5, "SERVER_QUEUE"), (0.1, 9.0, "SERVER_PREFILL")]
)
def test_a_page_of_metrics(tmp_path, queue, prefill, name):
    lines = [
        f'vllm:request_{part}_time_seconds_{kind}{{engine="0"}} {value}'
        for part, seconds in (("queue", queue), ("prefill", prefill), ("decode", 4.0))
        for kind, value in (("sum", seconds * 100), ("count", 100.0))
    ]
    path = tmp_path / "metrics.txt"
    path.write_text("\n".join(lines))
    assert [one for one, _ in found(str(path))] == ([name] if name else [])


def test_a_report_that_failed(tmp_path):
    path = tmp_path / "report.json"
    checks = [
        {"name": "ttft", "limit": 1.0, "measured": 2.0, "verdict": "fail"},
        {"name": "tpot", "limit": 1, "measured": 0.1, "verdict": "pass"},
    ]
    path.write_text(json.dumps({"passed": False, "checks": checks}))
    answer = api.diagnose([str(path)])
    assert [one.id for one in answer.findings] == ["CHECK_FAILED"]
    assert "`ttft` failed: measured 2.0, limit 1.0" in answer.findings[0].cause[0]
