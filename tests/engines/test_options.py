"""Every flag of a launch is one that the engine's own source defines, with a value that it allows."""

import csv
import io

import pytest

from tonnage import datafiles
from tonnage.engines import ENGINES, find_engine
from tonnage.engines.servers import server_of
from tonnage.estimate.types import Candidate, Layout, Offload
from tonnage.hardware.catalogue import find_device
from tonnage.hardware.types import Cluster, Host, Node
from tonnage.model import catalogue
from tonnage.workload.precision import Precision
from tonnage.workload.types import Serving

# Engines whose options are on record; the others' launches are held to their own parsers.
RECORDED = [name for name in datafiles.names("options", ".csv") if name != "versions"]


def known_options(data):
    """Return an engine's options with the values that each allows; an empty set: any."""
    rows = csv.DictReader(io.StringIO(datafiles.text(f"options/{data}.csv")))
    return {row["name"]: set(row["choices"].split()) for row in rows}


def wrong_words(argv, known):
    """Return the flags that are not known, and the values that a flag does not allow."""
    wrong = []
    for word, value in zip(argv, [*argv[1:], ""], strict=True):
        if not word.startswith("-") or word.lstrip("-")[:1].isdigit():
            continue
        name, _, joined = word.partition("=")
        if name not in known:
            wrong.append(name)
        elif known[name] and (joined or value) not in known[name]:
            wrong.append(f"{name} {joined or value}")
    return wrong


def launches(engine):
    """Yield candidates that between them use every flag of an engine's launch."""
    host = Host(memory_bytes=256 << 30, bandwidth_bytes_per_s=8e10)
    for name, device, number in (("Qwen/Qwen3-30B-A3B", "rtx-4090", 2), ("deepseek-ai/DeepSeek-V3", "h200", 8)):
        node = Node(devices=(find_device(device),) * number, host=host)
        for layout in (Layout(), Layout(tp=2), Layout(pp=2), Layout(dp=2), Layout(tp=2, ep=2)):
            for weights, kv in (("bf16", "bf16"), ("fp8", "fp8"), ("nf4", "fp16"), ("q4_k_m", "q8_0")):
                for offload in (Offload(), Offload(num_cpu_expert_layers=9), Offload(num_cpu_layers=3)):
                    yield Candidate(
                        model=catalogue.find(name),
                        workload=Serving(),
                        cluster=Cluster(node=node),
                        engine=engine.name,
                        layout=layout,
                        precision=Precision(weights=weights, kv=kv),
                        offload=offload,
                    )


@pytest.mark.parametrize("name", sorted({"vllm", "sglang", "llama_cpp", "ik_llama_cpp", "ktransformers"}))
def test_a_launch_uses_only_flags_of_the_engine(name):
    engine = find_engine(name)
    known = known_options("sglang" if name == "ktransformers" else name)
    facts = server_of(name)
    wrong = set()
    for candidate in launches(engine):
        if engine.refuses(candidate) is None:
            argv = engine.launch(candidate).argv
            own = argv[3:] if argv[:2] == ("python", "-m") else argv[1:]
            wrong |= set(wrong_words((*own, *facts.flags_at("127.0.0.1", 1)), known))
    assert not wrong


def test_ollama_reads_every_variable_of_its_launch():
    engine, known = find_engine("ollama"), known_options("ollama")
    for candidate in launches(engine):
        launch = engine.launch(candidate)
        assert set({**launch.env, **server_of("ollama").env}) <= set(known)


def test_a_planted_flag_and_a_planted_value_are_found():
    known = known_options("vllm")
    assert wrong_words(("serve", "--no-such-flag", "1", "--port", "8000"), known) == ["--no-such-flag"]
    assert wrong_words(("--moe", "x"), {"--moe": {"a"}}) == ["--moe x"]


def test_versions_and_days_are_on_record():
    rows = {row["engine"]: row for row in datafiles.rows("options/versions.csv")}
    assert set(rows) == set(RECORDED)
    assert all(row["version"] and row["day"] for row in rows.values())
    assert {engine.name for engine in ENGINES} >= {"vllm", "sglang"}
