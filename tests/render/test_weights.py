"""The launch names weights in the format that the plan assumed: the checkpoint, a known one, or one to be made."""

import shlex
import subprocess
from dataclasses import replace

import pytest

from tonnage.engines import find_engine
from tonnage.estimate.types import Candidate
from tonnage.hardware.catalogue import find_device
from tonnage.hardware.types import Cluster, Host, Node
from tonnage.model import catalogue
from tonnage.render.services import with_weights
from tonnage.render.weights import known_checkpoint, weights_of
from tonnage.workload.precision import Precision
from tonnage.workload.types import Serving


def a_candidate(name, weights, engine):
    node = Node(devices=(find_device("rtx-4090"),), host=Host(memory_bytes=64 << 30, bandwidth_bytes_per_s=8e10))
    return Candidate(
        model=catalogue.find(name),
        workload=Serving(),
        cluster=Cluster(node=node),
        engine=engine,
        precision=Precision(weights=weights, kv="fp16"),
    )


@pytest.mark.parametrize(
    ("name", "weights", "engine", "expected"),
    [
        ("Qwen/Qwen3-32B", "bf16", "vllm", "Qwen/Qwen3-32B"),
        ("Qwen/Qwen3-32B", "fp8", "vllm", "Qwen/Qwen3-32B-FP8"),
        ("Qwen/Qwen3-8B", "fp8", "vllm", "Qwen/Qwen3-8B"),  # vLLM quantises while it loads
        ("Qwen/Qwen3-8B", "awq", "vllm", "weights/Qwen3-8B-awq"),
        ("Qwen/Qwen3-8B", "nf4", "transformers", "Qwen/Qwen3-8B"),
        ("Qwen/Qwen3-8B", "q4_k_m", "llama.cpp", "weights/Qwen3-8B-Q4_K_M.gguf"),
        ("deepseek-ai/DeepSeek-V3", "fp8", "sglang", "deepseek-ai/DeepSeek-V3"),
    ],
)
def test_where_weights_come_from(name, weights, engine, expected):
    candidate = a_candidate(name, weights, engine)
    found = weights_of(candidate)
    assert found.name == expected
    assert found.is_made == expected.startswith("weights/")
    argv = find_engine(engine).launch(with_weights(candidate, found)).argv
    assert expected in argv


def test_a_known_checkpoint_is_not_quantised_again():
    candidate = a_candidate("Qwen/Qwen3-32B", "fp8", "vllm")
    plain = find_engine("vllm").launch(candidate).argv
    known = find_engine("vllm").launch(with_weights(candidate, weights_of(candidate))).argv
    assert "--quantization" in plain
    assert "--quantization" not in known


def test_only_the_same_model_is_a_known_checkpoint():
    model = catalogue.find("Qwen/Qwen3-32B")
    assert known_checkpoint(model, "fp8") == "Qwen/Qwen3-32B-FP8"
    assert known_checkpoint(replace(model, hidden_size=1), "fp8") is None
    assert known_checkpoint(model, "awq") is None


@pytest.mark.parametrize("weights", ["awq", "q4_k_m", "bf16"])
def test_a_conversion_tells_what_it_takes_and_is_shell(weights):
    engine = "vllm" if weights == "awq" else "llama.cpp"
    candidate = a_candidate("Qwen/Qwen3-8B", weights, engine)
    candidate = replace(candidate, model=replace(candidate.model, name="x/it's $(id)"))
    found = weights_of(candidate)
    assert found.disk_bytes > found.host_bytes > 0 or weights == "awq"
    assert found.seconds > 0
    subprocess.run(["bash", "-n"], input="\n".join(found.lines).encode(), check=True)
    assert any("it's $(id)" in word for line in found.lines if not line.startswith("#") for word in split(line))


def split(line):
    try:
        return shlex.split(line)
    except ValueError:
        return []
