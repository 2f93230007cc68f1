"""`tonnage doctor` as a person calls it: with and without a plan, on a machine without cards."""

from __future__ import annotations

import time

import pytest

from tonnage.diagnose.doctor.types import Gpu, Readings
from tonnage.probe import machine
from tonnage.units import GIB, MIB

BARE = Readings(
    system="Linux", release="Ubuntu 24.04", kernel="6.8.0", glibc="2.39", memory_bytes=64 * GIB, available_bytes=60 * GIB,
    swap_bytes=0, swap_used_bytes=0, disk_folder="/data", disk_free_bytes=900 * GIB, open_files=65536, num_cores=8, num_threads=16,
    is_clock_synchronised=True,
)  # fmt: skip
CARD = Gpu(
    index=0,
    name="NVIDIA GeForce RTX 4090",
    memory_bytes=24564 * MIB,
    used_bytes=0,
    driver="580.95.05",
    compute_capability="8.9",
)


@pytest.fixture
def readings(monkeypatch):
    def put(value):
        monkeypatch.setattr(machine, "read_machine", lambda *_, **__: value)

    return put


@pytest.fixture
def plan(tonnage, tmp_path):
    path = tmp_path / "plan.toml"
    answer = tonnage("plan", "Qwen/Qwen3-8B", "--gpu", "rtx-4090", "--engine", "vllm", "--pick", "1", "-o", str(path))
    assert answer.code == 0, answer.err
    return path


def test_this_machine(tonnage):
    """Whatever machine this is: an answer in time, and the object of the contract."""
    start = time.monotonic()
    answer = tonnage("doctor", "--json")
    assert time.monotonic() - start < 5
    assert answer.code in (0, 3)
    assert answer.json["schema"] == 1
    for check in answer.json["checks"]:
        assert set(check) == {"name", "required", "found", "verdict", "fix"}
        assert check["verdict"] in ("ok", "warning", "fail", "not found", "not measured")


def test_a_bare_machine_is_fine_without_a_plan(tonnage, readings):
    readings(BARE)
    answer = tonnage("doctor")
    assert answer.code == 0
    assert "0 fail" in answer.out


def test_a_bare_machine_lacks_what_the_plan_needs(tonnage, readings, plan):
    readings(BARE)
    answer = tonnage("doctor", "--for", str(plan), "--json")
    assert answer.code == 3
    failed = {c["name"]: c for c in answer.json["checks"] if c["verdict"] == "fail"}
    assert set(failed) == {"driver", "gpus"}
    assert all(c["fix"] for c in failed.values())


def test_a_machine_with_the_card_passes(tonnage, readings, plan):
    from dataclasses import replace

    readings(replace(BARE, gpus=(CARD,), kernel_driver="580.95.05"))
    answer = tonnage("doctor", "--for", str(plan))
    assert answer.code == 0, answer.out
    assert "vllm" in answer.out
    assert "pip install 'vllm==" in answer.out


def test_chinese(tonnage, readings, plan):
    readings(BARE)
    out = tonnage("doctor", "--for", str(plan), "--lang", "zh").out
    assert "不满足" in out
    assert "安装驱动" in out


@pytest.mark.parametrize("arguments", [("--for", "no/plan.toml"), ("--folder", "no/folder"), ("--place", "moon")])
def test_a_wrong_request_is_one_line(tonnage, arguments):
    answer = tonnage("doctor", *arguments)
    assert answer.code == 2
    assert answer.err.count("\n") == 1
