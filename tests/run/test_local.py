"""A plan becomes a run folder: what it holds, what is put into the job, and what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tonnage import api
from tonnage.errors import RequestError
from tonnage.plan.request import make_request
from tonnage.record.folder import Folder
from tonnage.run.health import health_url
from tonnage.run.local import find_target, launch_of, settings_of


@pytest.fixture(scope="module")
def plans():
    training = {
        "goal": "finetune",
        "finetune": "full",
        "limits": {"engines": ["transformers"]},
        "load": {"global_batch": 16},
    }
    asked = {
        "training": make_request("Qwen/Qwen3-0.6B", gpus=["h100-sxm5:2"], **training),
        "moved": make_request(
            "Qwen/Qwen3-0.6B",
            gpus=["rtx-4090:2"],
            goal="finetune",
            finetune="full",
            limits={"engines": ["deepspeed"]},
            pins={"layout.zero_stage": 2, "offload.optimizer": True},
        ),
        "machines": make_request("Qwen/Qwen3-0.6B", gpus=["h100-sxm5:8"], nodes=2, **training),
        "serving": make_request("Qwen/Qwen3-0.6B", gpus=["rtx-4090"], limits={"engines": ["vllm"]}),
    }
    return {name: api.write_plan(api.plan(request).plans[0]) for name, request in asked.items()}


def test_a_run_folder_holds_the_plan_and_what_starts_it(plans, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_0123456789")
    (tmp_path / "text").mkdir()
    target = find_target("plan.toml", plans["training"], tmp_path / "run")
    run = target.open(data=tmp_path / "text", num_steps=9, is_cpu=True)
    folder = target.folder
    assert folder.read() == run
    assert (run.name, run.kind, run.engine, run.place, run.num_steps) == (
        "qwen3-0-6b-transformers",
        "training",
        "transformers",
        "local",
        9,
    )
    assert folder.plan_file.read_text() == plans["training"]
    assert run.predicted.step_seconds
    assert run.predicted.tokens_per_s
    assert run.predicted.memory_bytes
    assert run.predicted.checkpoint_bytes
    job = json.loads((folder.bundle / "job.json").read_text())
    assert job["data"] == str(tmp_path / "text")
    assert (job["training_arguments"]["max_steps"], job["training_arguments"]["use_cpu"]) == (9, True)
    assert "num_train_epochs" not in job["training_arguments"]
    assert os.access(folder.bundle / "start.sh", os.X_OK)
    assert {"tonnage", "start.sh", "train.py"} <= set(run.code)
    for path in folder.path.rglob("*"):
        assert path.is_dir() or b"hf_0123456789" not in path.read_bytes(), path
    launch = launch_of(folder, run, target.plan)
    assert (launch.command, launch.folder, launch.ranks, launch.is_server, launch.has_heartbeat) == (
        ("bash", "start.sh"),
        folder.bundle,
        2,
        False,
        True,
    )
    assert (launch.env["DS_ACCELERATOR"], launch.env["CUDA_VISIBLE_DEVICES"]) == ("cpu", "")
    patience = settings_of(run, least_step_seconds=None, notice="aws")
    assert patience.grace_seconds > 120
    assert settings_of(run, target.plan).start_seconds > patience.start_seconds
    assert (patience.least_step_seconds, patience.notice) == (120.0, "aws")


def test_a_folder_keeps_its_plan(plans, tmp_path):
    find_target("plan.toml", plans["training"], tmp_path / "run").open()
    with pytest.raises(RequestError, match="another plan"):
        find_target("plan.toml", plans["serving"], tmp_path / "run").open()
    with pytest.raises(RequestError, match="data that it began with"):
        find_target("plan.toml", plans["training"], tmp_path / "run").open(data=tmp_path)
    assert find_target("plan.toml", plans["training"], tmp_path / "run").open().attempts == ()


def test_a_plan_names_its_own_place(plans, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    found = find_target("plan.toml", plans["training"], None)
    assert found.folder.path == tmp_path / "runs" / "qwen3-0-6b-transformers"
    assert list(tmp_path.iterdir()) == []


def test_several_machines_are_refused_unless_they_know_each_other(plans, tmp_path, monkeypatch):
    with pytest.raises(RequestError, match="on 2 machines"):
        find_target("plan.toml", plans["machines"], tmp_path / "run")
    monkeypatch.setenv("MASTER_ADDR", "10.0.0.1")
    monkeypatch.setenv("NODE_RANK", "0")
    assert find_target("plan.toml", plans["machines"], tmp_path / "run").plan is not None


def test_a_server_is_asked_at_its_own_port(plans, tmp_path):
    target = find_target("plan.toml", plans["serving"], tmp_path / "run")
    run = target.open()
    launch = launch_of(target.folder, run, target.plan)
    assert (run.kind, launch.is_server, launch.has_heartbeat) == ("serving", True, False)
    assert launch.health_url == "http://127.0.0.1:8000/health"
    with pytest.raises(RequestError, match="no such setting"):
        find_target("plan.toml", plans["serving"], tmp_path / "other").open(num_steps=3)
    assert not (tmp_path / "other").exists()
    assert health_url(None, "") is None


def test_a_bundle_brings_its_engine_and_its_text(plans, tmp_path):
    from tests.conftest import call_tonnage

    (tmp_path / "plan.toml").write_text(plans["training"])
    place = tmp_path / "bundle"
    assert call_tonnage("deploy", str(tmp_path / "plan.toml"), "--to", str(place)).code == 0
    for name in (".venv/bin", "data"):
        (place / name).mkdir(parents=True)
    target = find_target(str(place), None, None)
    run = target.open()
    assert target.folder.path == place / "run"
    assert Path(target.folder.bundle / ".venv").resolve() == place / ".venv"
    assert (target.folder.bundle / "data").is_symlink()
    assert Folder(path=place / "run").read() == run
    (place / "start.sh").write_text("exec true\n")
    assert find_target(str(place), None, None).open().code == run.code  # a run keeps the files that it began with


def test_on_processors_no_memory_is_pinned(plans, tmp_path):
    target = find_target("plan.toml", plans["moved"], tmp_path / "run")
    target.open(is_cpu=True)
    moved = json.loads((target.folder.bundle / "deepspeed.json").read_text())["zero_optimization"]["offload_optimizer"]
    assert (moved["device"], moved["pin_memory"]) == ("cpu", False)
