"""Whole files: clean ones give no finding, hostile ones end soon, bundles of our own are clean, articles give their errors."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tonnage import api
from tonnage.diagnose.lint import lint
from tonnage.diagnose.lint.edits import apply_edits
from tonnage.plan.request import make_request
from tonnage.probe.lint_files import read_sources
from tonnage.render.services import service_of
from tonnage.render.targets import PLACES, find_place

# Scripts end in .clean as well, so that no test runner takes them for its own.
CLEAN = sorted((Path(__file__).parent / "clean_files").iterdir())

# Items of the three articles that are about code, configuration or commands -> the rules that name them.
ARTICLES = {
    "000_49a16e6735598141.txt": {
        61: "nccl-debug-info", 62: "device-map-distributed", 64: "trainer-full-precision", 65: "trainer-fp8-argument",
        66: "trainer-process-argument", 68: "trainer-optimizer-argument trainer-optim-value", 70: "trainer-load-best",
        71: "dataset-script", 72: "collator-without-tokenizer", 74: "cuda-amp", 75: "nccl-interface-guessed",
        76: "nccl-sockets-alone", 77: "checkpoint-dir", 78: "elastic-restart", 133: "memory-profiler",
    },
    "001_336850a9246f7f14.txt": {
        23: "ktransformer-module", 50: "fdisk-check", 51: "iperf3-one-stream", 52: "nvcc-version",
        57: "nouveau-half-blacklisted", 58: "driver-version-unreleased driver-runfile", 61: "nccl-debug-info",
        75: "nccl-interface-guessed", 79: "nccl-debug-info", 80: "horovod", 81: "tf-gpu-memory-limit",
        82: "prometheus-image prometheus-without-config image-unpinned", 83: "grafana-default-password port-on-all-interfaces",
        85: "restart-always-job start-limit-never-bites", 86: "checkpoint-reentrant", 87: "nccl-ib-disable-zero",
    },
    "002_94d6704e990cbcd1.txt": {
        54: "horovod", 88: "torch-dtype low-cpu-mem-usage moved-after-device-map", 90: "device-map-placeholder",
        93: "zero-stage-memory deepspeed-fp16", 141: "cuda-amp", 142: "xformers-attention",
    },
}  # fmt: skip
# An article of our own making, without fences, in Chinese: snippets between running text.
TWIN = """我们在一台机器上微调模型，先安装驱动。

# 禁用开源驱动
echo "blacklist nouveau" | sudo tee /etc/modprobe.d/nouveau.conf

训练脚本如下：

  import os
  os.environ["NCCL_SOCKET_IFNAME"] = "eth0"  # 网卡
  from transformers import TrainingArguments
  args = TrainingArguments(
      output_dir="o",
      num_processes=4,
  )

• 另外设置NCCL_IB_DISABLE=0，并用nvcc --version确认版本
• 配置服务：

  [Service]
  Restart=always

配置文件：

{
  "train_batch_size": 10,
  "train_micro_batch_size_per_gpu": 4
}
"""


def test_there_are_enough_clean_files():
    assert len(CLEAN) >= 30


@pytest.mark.parametrize("path", CLEAN, ids=lambda p: p.name)
def test_a_clean_file_gives_nothing(path):
    report = lint({path.name.removesuffix(".clean"): path.read_text("utf-8")})
    assert [(f.line, f.id, f.what) for f in report.findings] == []
    assert report.unread == ()
    assert report.num_documents


def test_clean_files_together_give_nothing():
    assert lint({p.name.removesuffix(".clean"): p.read_text("utf-8") for p in CLEAN}).findings == ()


@pytest.mark.parametrize("article", sorted(ARTICLES))
def test_the_articles_give_their_errors(shared, article):
    report = lint({article: (shared / "seeds" / article).read_text("utf-8")})
    found = {f.id for f in report.findings}
    wanted = ARTICLES[article]
    assert {item: rules for item, rules in wanted.items() if not set(rules.split()) <= found} == {}


def test_a_page_without_fences_is_taken_apart():
    report = lint({"page.txt": TWIN})
    lines = TWIN.split("\n")
    found = {(f.id, lines[f.line - 1].strip()[:24]) for f in report.findings}
    assert found == {
        ("nouveau-half-blacklisted", 'echo "blacklist nouveau"'),
        ("nccl-interface-guessed", 'os.environ["NCCL_SOCKET_'),
        ("trainer-process-argument", "num_processes=4,"),
        ("nccl-ib-disable-zero", "• 另外设置NCCL_IB_DISABLE=0，"),
        ("nvcc-version", "• 另外设置NCCL_IB_DISABLE=0，"),
        ("restart-always-job", "Restart=always"),
        ("deepspeed-batch", '"train_batch_size": 10,'),
    }


@pytest.fixture(scope="module")
def plans():
    serve = {"gpus": ["rtx-4090:2"]}
    found = [
        api.plan(make_request("Qwen/Qwen3-8B", limits={"engines": [e]}, **serve)).plans[0]
        for e in ("vllm", "llama.cpp")
    ]
    train = make_request(
        "Qwen/Qwen3-8B", goal="finetune", finetune="full", gpus=["h100-sxm5-80gb:8"], load={"global_batch": 32},
        limits={"engines": ["deepspeed", "transformers"]},
    )  # fmt: skip
    return [*found, api.plan(train).plans[0]]


@pytest.mark.parametrize("place", PLACES)
def test_our_own_bundles_are_clean(plans, place):
    """What deploy writes has no finding, whatever the place; a unit and the script that it starts are looked at together."""
    target = find_place(place)
    for plan in plans:
        bundle = target.bundle(service_of(plan, host=target.host))
        report = lint({file.path: file.text for file in bundle.files})
        assert [(f.file, f.line, f.id, f.what) for f in report.findings] == []
        assert report.unread == ()


HOSTILE = {
    "deep.py": "x = " + "[" * 5000 + "]" * 5000,
    "deep_names.py": "x = " + "a." * 5000 + "b()",
    "deep.json": '{"zero_optimization": ' * 3000 + "1" + "}" * 3000,
    "deep.yaml": "services:\n" + "".join(" " * i + "a:\n" for i in range(1, 3000)),
    "flow.yaml": "services: " + "[" * 5000,
    "long.sh": "echo " + "a" * (3 << 20),
    "quotes.sh": 'echo "' * 20000,
    "colons.yaml": "services:\n  a: " + "x: " * 200_000,
    "spaces.py": "x = 1 " + " " * (1 << 20) + "\ny = (\n" + "(" * 100,
    "invalid.py": "\ufffd\ufffd = \x01",
    "ticks.md": "```python\n" * 20_000,
    "unit.service": "[Service]\n" + "Restart=always\\\n" * 20_000,
    "escapes.json": '{"train_batch_size": "' + "\\\\" * 300_000 + '"}',
    "alerts.yml": "groups:\n- rules:\n  - alert: A\n    expr: '" + "rate(" * 50_000 + "'\n",
    "regex.sh": "docker run " + "-p 1:1 " * 5_000 + "x",
    "page.txt": ("x = (\n" * 300 + "\n") * 30,
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_hostile_texts_end_soon(name):
    start = time.process_time()
    lint({name: HOSTILE[name]})
    assert time.process_time() - start < 4


def test_what_is_not_read_is_told(tmp_path):
    (tmp_path / "big.py").write_bytes(b"x = 1 # " + b"a" * (10 << 20))
    (tmp_path / "binary.sh").write_bytes(b"\x7fELF\0\0")
    (tmp_path / "broken.py").write_bytes(b"print 'old'\n")
    (tmp_path / "latin.sh").write_bytes(b"# caf\xe9\nexport NCCL_IB_DISABLE=0\n")
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "link.py").symlink_to("link.py")
    report = api.lint([str(tmp_path)])
    told = {Path(u.file).name: u.reason for u in report.unread}
    assert told["big.py"] == "larger than 4 MiB"
    assert told["binary.sh"] == "binary"
    assert told["link.py"] == "a link"
    assert "line 1" in told["broken.py"]
    assert [(Path(f.file).name, f.id, f.line) for f in report.findings] == [("latin.sh", "nccl-ib-disable-zero", 2)]


def test_folders_of_others_are_left_out(tmp_path):
    for name in (".git", "node_modules", "venv"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.sh").write_text("export NCCL_IB_DISABLE=0\n")
    assert read_sources([str(tmp_path)]).texts == {}


def test_a_notebook_is_told_in_its_own_lines_and_never_edited():
    text = """{"cells": [
 {"cell_type": "code", "source": ["!export NCCL_IB_DISABLE=0\\n", "import torch\\n"]},
 {"cell_type": "markdown", "source": ["torch.cuda.amp"]},
 {"cell_type": "code", "source": [
  "x = 1\\n",
  "s = torch.load('m.pt')\\n"
 ]}
], "nbformat": 4}
"""
    report = lint({"a.ipynb": text})
    assert [(f.id, f.line, f.edit) for f in report.findings] == [
        ("nccl-ib-disable-zero", 2, None),
        ("torch-load-unsaid", 6, None),
    ]


NAMES = ("a.py", "a.sh", "Dockerfile", "compose.yaml", "a.service", "ds.json", "alerts.yml", "k.yaml", "a.md", "a.txt", "a.ipynb",
         "prometheus.yml", "a.conf", "x")  # fmt: skip
WORDS = (
    "services:", "image: ", "  ", "\n", "- ", "{", "}", "[", "]", '"', "'", "\\", "$", "|", "> ", "&a", "*a", ": ", "#", "\t",
    "```bash", "```", "FROM x", "RUN ", "export A=", "docker run -p ", "torchrun --nproc-per-node ", "TrainingArguments(", ")",
    "zero_optimization", "train_batch_size", "expr: ", "groups:", "rules:", "alert: A", "[Service]", "Restart=always", "import ",
    "torch.load(", "device_map=", ",", "=", "1", "apiVersion: v1", "kind: PrometheusRule", "cells", "source", "é", "\u6587", "<<EOF",
)  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(NAMES), st.lists(st.sampled_from(WORDS), max_size=60).map("".join))
def test_any_text_gets_an_answer(name, text):
    """Whatever stands in a file: an answer, lines inside the file, and edits that apply."""
    report = lint({name: text})
    for finding in report.findings:
        assert 1 <= finding.line <= text.count("\n") + 2
    apply_edits(text, [f.edit for f in report.findings if f.edit], name)


POD = """apiVersion: {version}
kind: {kind}
metadata: {{name: x}}
spec:
  template:
    spec:
      containers:
        - name: x
          image: vllm/vllm-openai:v0.33.0
          command: [{command}]
"""


@pytest.mark.parametrize(
    ("kind", "command", "wanted"),
    [
        ("Deployment", "vllm, serve, m", {"container-without-gpus", "container-shared-memory"}),
        ("Deployment", "torchrun, --nproc-per-node, '2', train.py",
         {"restart-always-job", "container-without-gpus", "container-shared-memory"}),
        ("Job", "torchrun, --nproc-per-node, '2', train.py", {"container-without-gpus", "container-shared-memory"}),
        ("Job", "chown, '1000', /cache", set()),
    ],
)  # fmt: skip
def test_pods_need_cards_and_shared_memory(kind, command, wanted):
    version = "batch/v1" if kind == "Job" else "apps/v1"
    report = lint({"k.yaml": POD.format(version=version, kind=kind, command=command)})
    assert {f.id for f in report.findings} == wanted


NOT_MEANT = {
    "said.sh": "# export NCCL_IB_DISABLE=0\necho 'NCCL_IB_DISABLE=0 is the default'\nmake NCCL_DEBUG=INFO\n",
    "here.sh": "cat > x.service <<EOF\n[Service]\nRestart=always\nEOF\n",
    "open.sh": "CUDA_VISIBLE_DEVICES=$GPUS torchrun --nproc-per-node 4 t.py\ntorchrun --standalone --nproc_per_node=gpu t.py\n",
    "placeholder.yaml": "services:\n  a:\n    image: ${IMG:-x}:${TAG}\n    environment: [HF_TOKEN=hf_" + "x" * 34 + "]\n",
    "before.py": 'import torch\nmodel.to("cuda")\nmodel = X.from_pretrained("a", device_map="auto")\nmodel = model.to(torch.float16)\n',
    "other.service": "[Unit]\nStartLimitIntervalSec=1h\n[Service]\nExecStart=/usr/bin/python3 -m http.server\nRestart=always\nRestartSec=30\n",
    "open.py": "from transformers import TrainingArguments\nTrainingArguments(**args, load_best_model_at_end=True)\n",
    "foreign.py": "from mine import TrainingArguments\nTrainingArguments(cutoff_len=4)\n",
    "flags.sh": 'vllm serve m --api-key "$KEY" -tp 2 --no-enable-prefix-caching --served_model_name x --help\n',
    "page.md": "The default of `NCCL_IB_DISABLE` is 0, see `torch.cuda.memory`.\n",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(NOT_MEANT))
def test_what_only_looks_like_a_fault_is_none(name):
    assert [(f.id, f.line) for f in lint({name: NOT_MEANT[name]}).findings] == []


MEANT = {
    "front.sh": ("FOO=1 NCCL_IB_DISABLE=0 torchrun --nproc-per-node 2 t.py\n", "nccl-ib-disable-zero"),
    "env.sh": ("env NCCL_IB_DISABLE=0 python t.py\n", "nccl-ib-disable-zero"),
    "docker.sh": ("docker run --gpus all -e NCCL_IB_DISABLE=0 a/b:1.2\n", "nccl-ib-disable-zero"),
    "mpi.sh": ("mpirun -np 2 -x NCCL_IB_DISABLE=0 python t.py\n", "nccl-ib-disable-zero"),
    "second.sh": ("echo start && NCCL_IB_DISABLE=0 python t.py\n", "nccl-ib-disable-zero"),
    "alias.py": ('from transformers import TrainingArguments as TA\nTA(output_dir="o", optimizer="adamw_torch")\n', "trainer-optimizer-argument"),
    "module.py": ('import transformers\ntransformers.TrainingArguments("o", evaluation_strategy="no")\n', "trainer-renamed-argument"),
    "dict.py": ('import subprocess\nsubprocess.run(["x"], env={"NCCL_IB_DISABLE": "0"})\n', "nccl-ib-disable-zero"),
    "run.py": ('import os\nos.system("horovodrun -np 2 python t.py")\n', "horovod"),
    "task.yaml": ("resources: {}\nrun: |\n  export NCCL_IB_DISABLE=0\n", "nccl-ib-disable-zero"),
    "pod.yaml": (("apiVersion: v1\nkind: Pod\nspec:\n  containers:\n    - name: x\n      image: a/b:1\n      env:\n"
                 "        - {name: NCCL_IB_DISABLE, value: '0'}\n"), "nccl-ib-disable-zero"),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(MEANT))
def test_a_fault_is_found_wherever_it_stands(name):
    text, rule = MEANT[name]
    assert [f.id for f in lint({name: text}).findings] == [rule]
