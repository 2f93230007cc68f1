"""`tonnage bench`: the answer as text, object and file; what is refused."""

import json

import pytest

pytest.importorskip("aiohttp", reason="tonnage[bench] is not installed")

from tests.load.servers import serving

from tonnage import api
from tonnage.plan.request import make_request


@pytest.fixture(scope="module")
def server():
    with serving(first_seconds=0.01, token_seconds=0.001) as (url, _):
        yield url


def test_the_object_is_what_scripts_rely_on(tonnage, server, tmp_path):
    path = tmp_path / "bench.json"
    said = tonnage(
        "bench", server, "--rate", "50", "--number", "20", "--output-tokens", "4", "--save", str(path), "--json"
    )
    assert said.code == 0
    value = json.loads(said.out)
    assert (value["schema"], value["requests"], value["errors"]) == (1, 20, {})
    assert set(value) >= {"requests", "errors", "qps", "goodput", "output_tokens_per_s", "tpot_seconds", "e2e_seconds"}
    assert set(value["ttft_seconds"]) >= {"p50", "p95", "p99"}
    saved = json.loads(path.read_text(encoding="utf-8"))
    assert len(saved["samples"]) == 21
    assert saved["qps"] == value["qps"]


def test_text_tells_limits_the_client_and_too_few_requests(tonnage, server):
    said = tonnage("bench", server, "--concurrency", "4", "--number", "30", "--ttft", "0.1ms")
    assert said.code == 3
    assert "within the limits 0.0%" in said.out
    assert "4 in flight" in said.out
    assert "too few requests for P95, P99: at least 1000" in said.out


def test_failures_are_named_and_exit_with_3(tonnage):
    with serving(status=lambda number: 500 if number > 3 else 200) as (url, _):
        said = tonnage("bench", url, "--concurrency", "1", "--number", "3")
    assert said.code == 3
    assert "HTTP 5xx" in said.out


def test_a_plan_stands_beside_what_is_measured(tonnage, server, tmp_path):
    answer = api.plan(make_request("Qwen/Qwen3-8B", gpus=["rtx-4090"], limits={"engines": ("vllm",)}))
    path = tmp_path / "plan.toml"
    path.write_text(api.write_plan(answer.plans[0]), encoding="utf-8")
    said = tonnage("bench", str(path), "--url", server, "--number", "3", "--output-tokens", "4", "--input-tokens", "16")
    assert said.code == 0
    assert "the plan predicts" in said.out


@pytest.mark.parametrize(
    "words,code,reason",
    [
        (("http://127.0.0.1:9", "--concurrency", "1"), 4, "does not answer"),
        (("http://127.0.0.1:9", "--rate", "1", "--concurrency", "1"), 2, "two loads"),
        (("http://127.0.0.1:9", "--rate", "-1"), 2, "above 0"),
        (("nowhere.toml",), 2, "cannot be read"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(tonnage, words, code, reason):
    said = tonnage("bench", *words)
    assert said.code == code
    assert reason in said.err
    assert said.err.count("\n") == 1
