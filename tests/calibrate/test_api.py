"""The verbs on measurements as functions: the same objects as the command line's."""

from __future__ import annotations

import json

from tests.cli.test_score import ROW
from tests.conftest import call_tonnage

from tonnage import api
from tonnage.plan.request import make_request

LOG = "Model loading took 15.27 GiB and 6.2 seconds\nAvailable KV cache memory: 4.61 GiB\n"


def test_score_is_the_commands_object(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(ROW))
    told = call_tonnage("score", str(path), "--json").json
    assert {**json.loads(json.dumps(api.score(path.read_text(), str(path)))), "schema": 1} == told


def test_what_is_learnt_changes_the_plan():
    request = make_request(
        "Qwen/Qwen3-8B", gpus=["rtx-4090"], limits={"engines": ("vllm",)}, pins={"precision.weights": "bf16"}
    )
    plan = api.plan(request).plans[0]
    found, profile = api.calibrate(plan, LOG, "logs/vllm.log")
    pool = next(one for one in found if one.name == "cache_bytes")
    assert profile.lessons[0].observations[0].file == "vllm.log"
    taught = make_request(
        "Qwen/Qwen3-8B", gpus=["rtx-4090"], limits={"engines": ("vllm",)}, pins={"precision.weights": "bf16"},
        profile="here",
    )  # fmt: skip
    again = api.plan(taught, profile=profile).plans[0]
    more = again.estimate.footprint.total.best - plan.estimate.footprint.total.best
    assert abs(more - (pool.predicted - pool.measured)) < 20e6
    twice, same = api.calibrate(plan, LOG, "vllm.log", profile=profile)
    assert (twice, same) == (found, profile)
