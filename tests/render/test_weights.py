"""The launch names weights in the format that the plan assumed: the checkpoint, a known one, or one to be made."""

import ast
import shlex
import shutil
import subprocess
from dataclasses import replace

import pytest

from tonnage import api, datafiles
from tonnage.datafiles import program
from tonnage.engines import find_engine
from tonnage.estimate.types import Candidate
from tonnage.hardware.catalogue import find_device
from tonnage.hardware.types import Cluster, Host, Node
from tonnage.model import catalogue
from tonnage.plan.request import make_request
from tonnage.render import weights as weights_module
from tonnage.render.services import service_of, with_weights
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


def conversions(program):
    rows = [row for row in datafiles.rows("conversions.csv") if row["program"] == program]
    assert rows, program
    return {row["name"]: set(row["choices"].split()) for row in rows}


def test_the_quantising_program_passes_only_what_llm_compressor_takes():
    tree = ast.parse(program("quantize"))
    known = {
        "oneshot": set(conversions("llmcompressor.oneshot")),
        "AWQModifier": set(conversions("llmcompressor.AWQModifier")),
        "GPTQModifier": set(conversions("llmcompressor.GPTQModifier")) | set(conversions("llmcompressor.QuantizationMixin")),
        "QuantizationModifier": set(conversions("llmcompressor.QuantizationMixin")),
    }  # fmt: skip
    found = set()
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in known:
            found.add(call.func.id)
            assert {keyword.arg for keyword in call.keywords if keyword.arg} <= known[call.func.id]
    assert found == set(known)
    schemes = conversions("compressed_tensors")["scheme"]
    plain = next(
        ast.literal_eval(node.value) for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "plain"
    )  # fmt: skip
    assert set(plain.values()) | {"W4A16"} <= schemes
    calibration = next(
        ast.literal_eval(node.value) for node in ast.walk(tree)
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "CALIBRATION"
    )  # fmt: skip
    assert set(calibration) <= known["oneshot"]
    asked = {weights_module._SCHEMES[weights] for weights in weights_module._SCHEMES}
    assert asked <= set(plain) | {"awq", "gptq"}


GGUF = ["q4_k_m", "q8_0", "iq4_xs", "iq2_xxs", "q2_k_s", "tq1_0", "mxfp4_moe", "mxfp4", "bf16", "f16", "fp32"]


@pytest.mark.parametrize("engine", ["llama.cpp", "ik_llama.cpp", "ollama"])
@pytest.mark.parametrize("weights", GGUF)
def test_gguf_files_are_made_with_options_that_exist(tmp_path, engine, weights):
    candidate = a_candidate("Qwen/Qwen3-8B", weights, engine)
    candidate = replace(candidate, model=replace(candidate.model, name="x/it's $(id)"))
    found = weights_of(candidate)
    called = convert(found, tmp_path)
    (made,) = [call for call in called if call[0] == "convert_hf_to_gguf.py"]
    known = conversions("convert_hf_to_gguf.py")
    assert {word for word in made if word.startswith("--")} <= set(known)
    assert made[made.index("--outtype") + 1] in known["--outtype"]
    quantised = [call for call in called if call[0] == "llama-quantize"]
    assert len(quantised) == (weights not in ("bf16", "f16", "fp32"))
    assert all(call[-1] in conversions("llama-quantize")["type"] for call in quantised)
    assert (tmp_path / found.name).exists()
    assert convert(found, tmp_path) == [], "a second run changes nothing"
    built = [call for call in called if call[0] == "cmake" and "-B" in call]
    assert all("-DGGML_CUDA=ON" in call for call in built)
    where = "ik_llama.cpp" if engine == "ik_llama.cpp" else "llama.cpp"
    assert any(call[:2] == ["git", "init"] and call[-1] == where for call in called)


def test_a_conversion_that_was_cut_short_is_made_again(tmp_path):
    found = weights_of(a_candidate("Qwen/Qwen3-8B", "q4_k_m", "llama.cpp"))
    convert(found, tmp_path)
    made = tmp_path / found.name
    made.rename(f"{made}.part")
    called = convert(found, tmp_path)
    assert any(call[0] == "llama-quantize" for call in called)
    assert made.exists()


def test_a_published_file_is_taken_instead(tmp_path):
    found = weights_of(a_candidate("Qwen/Qwen3-8B", "q4_k_m", "llama.cpp"))
    called = convert(found, tmp_path, GGUF_REPO="someone/it")
    assert ["hf", "download", "someone/it", "--include", "*Q4_K_M*.gguf", "--local-dir", "weights"] in called
    assert (tmp_path / found.name).exists()
    assert not any(call[0] == "cmake" for call in called)


@pytest.mark.parametrize(("weights", "host", "is_quantised"), [
    ("int4", "weights/Qwen3-30B-A3B-int4", True), ("int8", "weights/Qwen3-30B-A3B-int8", True),
    ("bf16", "weights/Qwen3-30B-A3B", False),
])  # fmt: skip
def test_experts_for_the_host_lie_in_a_folder_of_their_own(tmp_path, weights, host, is_quantised):
    candidate = a_candidate("Qwen/Qwen3-30B-A3B", weights, "ktransformers")
    found = weights_of(candidate)
    assert (found.name, found.host_name) == ("weights/Qwen3-30B-A3B", host)
    called = convert(found, tmp_path)
    assert any(call[:3] == ["hf", "download", "Qwen/Qwen3-30B-A3B"] for call in called)
    quantised = [call for call in called if call[:2] == ["kt", "quant"]]
    assert len(quantised) == is_quantised
    known = conversions("kt quant")
    for call in quantised:
        assert {word for word in call if word.startswith("--")} <= set(known)
        assert call[call.index("--method") + 1] in known["QuantMethod"]
    assert (tmp_path / host).exists()
    assert convert(found, tmp_path) == []


def test_the_launch_names_the_experts_apart():
    plan = api.plan(
        make_request("Qwen/Qwen3-30B-A3B", gpus=["rtx-4090"], limits={"engines": ["ktransformers"]},
                     pins={"precision.weights": "int4"})
    ).plans[0]  # fmt: skip
    argv = service_of(plan).argv
    assert argv[argv.index("--kt-weight-path") + 1] == "weights/Qwen3-30B-A3B-int4"
    assert argv[argv.index("--model-path") + 1] == "weights/Qwen3-30B-A3B"


def convert(found, folder, **env):
    """Run a conversion with stand-ins that make what they are told to make; return what was called to change something."""
    place = folder / "bin"
    place.mkdir(exist_ok=True)
    log = folder / "called"
    log.write_text("")
    note = f'printf "%s\\0" "$(basename "$0")" "$@" >> {log}; printf "\\n\\0" >> {log}'
    python = f"""#!/bin/bash
case "$1" in
  -m) case "$2" in venv) mkdir -p "$3/bin"; for one in python hf; do cp {place}/$one "$3/bin/$one"; done ;; esac ;;
  *) printf "%s\\0" "$(basename "$1")" "${{@:2}}" >> {log}; printf "\\n\\0" >> {log}
     while [ $# -gt 0 ]; do [ "$1" != --outfile ] || touch "$2"; shift; done ;;
esac"""
    programs = {
        "python": python,
        "python3": python,
        "hf": f'{note}\nfor last in "$@"; do :; done; mkdir -p "$last"; touch "$last/config.json" "$last/x-Q4_K_M.gguf"',
        "git": f'{note}\n[ "$1" != init ] || {{ mkdir -p "$3"; touch "$3/CMakeLists.txt"; }}',
        "cmake": f'{note}\n[ "$1" != --build ] || {{ mkdir -p "$2/bin"; cp {place}/quantize "$2/bin/llama-quantize"; '
                 f'cp {place}/quantize "$2/bin/llama-server"; }}',
        "nvcc": note,
        "quantize": f'{note}\ntouch "$2"',
        "kt": f'{note}\nwhile [ $# -gt 0 ]; do [ "$1" != --output ] || mkdir -p "$2"; shift; done',
    }  # fmt: skip
    for name, body in programs.items():
        (place / name).write_text(body if body.startswith("#!") else f"#!/bin/bash\n{body}\n")
        (place / name).chmod(0o755)
    (folder / ".venv/bin").mkdir(parents=True, exist_ok=True)
    shutil.copy(place / "kt", folder / ".venv/bin/kt")
    text = "set -euo pipefail\n" + "\n".join(found.lines)
    said = subprocess.run(
        ["bash", "-c", text], cwd=folder, env={"PATH": f"{place}:/usr/bin:/bin", "HOME": str(folder), **env},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    calls = [call.strip("\0").split("\0") for call in log.read_text().split("\n\0")]
    return [call for call in calls if call != [""]]


def split(line):
    try:
        return shlex.split(line)
    except ValueError:
        return []
