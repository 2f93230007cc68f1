"""`tonnage simulate`: answers as text, object and page, and what is refused."""

import json
import xml.etree.ElementTree as ET

import pytest

from tonnage import api
from tonnage.plan.request import make_request


@pytest.fixture(scope="module")
def serving(tmp_path_factory):
    request = make_request(
        "meta-llama/Llama-3.1-8B",
        gpus=["a100-80gb-sxm"],
        limits={"engines": ("vllm",)},
        load={"context": "8192", "concurrency": "32", "input_tokens": "1000", "output_tokens": "200"},
    )
    return _written(request, tmp_path_factory)


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    request = make_request(
        "meta-llama/Llama-3.1-8B",
        goal="finetune",
        finetune="full",
        gpus=["h100-sxm5:8"],
        nodes=2,
        load={"tokens": "1000000000"},
    )
    return _written(request, tmp_path_factory)


def _written(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("plan") / "plan.toml"
    path.write_text(api.write_plan(api.plan(request).plans[0]), encoding="utf-8")
    return str(path)


def test_a_shipped_trace_is_replayed_whole(tonnage, serving):
    said = tonnage("simulate", serving, "--requests", "azure-conv", "--json")
    value = json.loads(said.out)
    assert (said.code, value["schema"]) == (0, 1)
    assert (value["requests"], value["finished"], value["refused"]) == (19_366, 19_366, 0)
    assert set(value) >= {
        "requests",
        "finished",
        "ttft_seconds",
        "tpot_seconds",
        "e2e_seconds",
        "goodput",
        "usd_per_million_tokens",
        "preemptions",
    }
    assert value["ttft_seconds"]["p50"] <= value["ttft_seconds"]["p95"] <= value["ttft_seconds"]["p99"]


def test_the_same_seed_gives_the_same_numbers_and_another_others(tonnage, serving):
    words = ("simulate", serving, "--rate", "3", "--number", "200", "--json")
    assert tonnage(*words).out == tonnage(*words).out != tonnage(*words, "--seed", "1").out


def test_limits_that_are_not_kept_exit_with_3(tonnage, serving):
    words = ("simulate", serving, "--rate", "50", "--number", "500")
    assert tonnage(*words).code == 0
    said = tonnage(*words, "--ttft", "200ms")
    assert said.code == 3
    assert "within the limits" in said.out


def test_the_largest_rate_keeps_the_limits_and_more_does_not(tonnage, serving):
    words = ("simulate", serving, "--rate", "2", "--number", "400", "--ttft", "1s", "--json")
    value = json.loads(tonnage(*words, "--find-rate").out)
    best = value["largest_rate"]
    assert best["kept_ratio"] >= 0.99
    assert all(one["kept"] == (one["ratio"] <= best["ratio"]) for one in value["rates"])
    assert min(one["ratio"] for one in value["rates"] if not one["kept"]) < best["ratio"] * 1.05


def test_policies_are_compared_and_the_cheapest_is_named(tonnage, serving, tmp_path):
    page = tmp_path / "page.html"
    words = ("--rate", "8", "--number", "600", "--ttft", "5s", "--autoscale", "0..4", "--start", "20s")
    value = json.loads(tonnage("simulate", serving, *words, "--json").out)
    kept = [one for one in value["policies"] if one["kept_ratio"] >= 0.99]
    chosen = [one for one in value["policies"] if one["chosen"]]
    assert len(chosen) == bool(kept)
    assert all(chosen[0]["replica_seconds"] <= one["replica_seconds"] for one in kept)
    said = tonnage("simulate", serving, *words, "--html", str(page))
    assert "Page written" in said.err
    text = page.read_text(encoding="utf-8")
    assert "<script" not in text
    for svg in text.split("<svg")[1:]:
        ET.fromstring("<svg" + svg.split("</svg>")[0] + "</svg>")
    assert "polyline" in text


def test_a_job_on_machines_that_come_and_go(tonnage, training, tmp_path):
    trace = tmp_path / "spot.json"
    trace.write_text(json.dumps({"metadata": {"gap_seconds": 600}, "data": [2, 2, 2, 1, 0, 2] * 40}), encoding="utf-8")
    said = tonnage("simulate", training, "--preemptions", str(trace), "--deadline", "4d", "--json")
    assert said.code == 0
    value = json.loads(said.out)
    by = {way["fallback"]: way for way in value["ways"]}
    assert set(by) == {"wait", "on-demand", "deadline"}
    assert by["on-demand"]["wall_seconds"]["mean"] <= by["deadline"]["wall_seconds"]["mean"]
    assert by["deadline"]["wall_seconds"]["worst"] <= 4 * 86_400
    assert "machines are missing" in tonnage("simulate", training, "--preemptions", str(trace)).out


def test_failures_alone_need_no_other_machines(tonnage, training):
    value = json.loads(tonnage("simulate", training, "--failures", "2000h", "--json").out)
    assert [way["fallback"] for way in value["ways"]] == ["wait"]
    assert value["daly_interval_seconds"] > 0


@pytest.mark.parametrize(
    "words,reason",
    [
        ((), "nothing to replay was given"),
        (("--rate", "2", "--requests", "azure-conv"), "two questions"),
        (("--rate", "0"), "above 0"),
        (("--rate", "nan"), "above 0"),
        (("--rate", "2", "--speed", "-1"), "above 0"),
        (("--rate", "2", "--autoscale", "4..1"), "no range of replicas"),
        (("--rate", "2", "--autoscale", "0..0"), "no range of replicas"),
        (("--rate", "2", "--router", "mine"), "no router"),
        (("--rate", "2", "--find-rate"), "no limit is to be kept"),
        (("--requests", "nowhere.csv"), "cannot be read"),
        (("--preemptions", "nowhere.json"), "the plan serves"),
        (("--failures", "2h"), "the plan serves"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(tonnage, serving, words, reason):
    said = tonnage("simulate", serving, *words)
    assert said.code == 2
    assert reason in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""


def test_a_training_plan_takes_no_requests(tonnage, training):
    said = tonnage("simulate", training, "--rate", "2")
    assert said.code == 2
    assert "the plan trains" in said.err


def test_a_broken_trace_names_its_line(tonnage, serving, tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,374,44\n2023-11-16 18:15:47,x,1\n")
    said = tonnage("simulate", serving, "--requests", str(path))
    assert said.code == 2
    assert "trace.csv:3" in said.err
