"""Thirty bundles as they are written, the articles' example deployments among them; `--update` writes them anew.

Programs and the plan are left out of the files, and `prepare.sh` of most: they have tests of their own.
`bundles/README.md` says what was wrong in each original.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

import pytest
from tests.conftest import ROOT, call_tonnage

from tonnage import api

MOE, DENSE, SMALL = "Qwen/Qwen3.5-35B-A3B", "Qwen/Qwen3.5-27B", "Qwen/Qwen3-8B"
LEFT_OUT = re.compile(r"plan\.toml|.*\.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is planned and deployed, in the words of the command line."""

    plan: str
    deploy: str = ""
    has_prepare: bool = False
    claims: tuple[int, ...] = ()  # of docs/claims.csv: the original's faults


H100 = "--gpu h100-sxm5-80gb"
CASES: dict[str, Case] = {
    # The articles' own examples
    "article-trainer-moe-2xh100": Case(
        plan=f"{MOE} --finetune lora {H100}:2 --engine transformers --global-batch 64",
        claims=(60, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71, 72, 77),
    ),
    "article-nccl-two-machines": Case(
        plan=f"{DENSE} --finetune full {H100}:8 --nodes 2 --network ib-hdr --engine deepspeed --global-batch 64",
        deploy="--place slurm", claims=(43, 61, 75, 76, 79, 87, 95),
    ),
    "article-elastic": Case(
        plan=f"{SMALL} --finetune full {H100}:8 --nodes 2 --network ib-ndr --engine transformers --global-batch 64",
        deploy="--place kubernetes", claims=(78,),
    ),
    "article-horovod": Case(
        plan=f"{SMALL} --finetune full {H100}:8 --engine transformers --global-batch 64",
        deploy="--engine torchrun", claims=(54, 80),
    ),
    "article-systemd-training": Case(
        plan=f"{SMALL} --finetune full {H100}:4 --engine deepspeed --global-batch 64",
        deploy="--place systemd", claims=(84, 85), has_prepare=True,
    ),
    "article-deepspeed-4-cards": Case(
        plan=f"{MOE} --finetune full --gpu h200:4 --engine deepspeed --global-batch 16 --host '1024 GiB ddr5-5600 x8'",
        claims=(92, 93, 94),
    ),
    "article-one-card": Case(
        plan=f"{DENSE} --serve --gpu rtx-4080 --engine llama.cpp", claims=(46, 57, 58, 88, 89), has_prepare=True
    ),
    "article-moe-on-4080": Case(plan=f"{MOE} --serve --gpu rtx-4080 --engine llama.cpp --cpu-experts all", claims=(49,)),
    "article-several-cards": Case(plan=f"{DENSE} --serve --gpu rtx-4090:2 --engine vllm --quant fp8", claims=(90,)),
    "article-docker": Case(
        plan=f"{SMALL} --serve --gpu rtx-5090 --engine vllm --quant bf16", deploy="--place compose", claims=(96,),
        has_prepare=True,
    ),
    "article-tensorrt": Case(
        plan=f"{SMALL} --serve {H100} --engine tensorrt-llm --quant fp8", deploy="--place compose", claims=(97,)
    ),
    "article-load-balancing": Case(
        plan=f"{SMALL} --serve --gpu rtx-4090 --engine vllm --quant fp8 --concurrency 16",
        deploy="--place compose --replicas 4", claims=(98,),
    ),
    # Serving, each engine and each place
    "vllm-local": Case(plan=f"{DENSE} --serve --gpu rtx-pro-6000 --engine vllm --quant bf16"),
    "vllm-systemd": Case(plan=f"{SMALL} --serve --gpu l40s --engine vllm --quant bf16", deploy="--place systemd"),
    "vllm-kubernetes": Case(
        plan=f"{MOE} --serve {H100}:2 --engine vllm --quant bf16 --concurrency 64",
        deploy="--place kubernetes --replicas 2",
    ),
    "vllm-slurm-two-machines": Case(
        plan=f"deepseek-ai/DeepSeek-V3 --serve {H100}:8 --nodes 2 --network ib-ndr --engine vllm --dp 1 --pp 2 --tp 8",
        deploy="--place slurm",
    ),
    "vllm-amd-compose": Case(
        plan=f"{DENSE} --serve --gpu mi300x --engine vllm --quant bf16", deploy="--place compose"
    ),
    "sglang-local": Case(plan=f"{MOE} --serve --gpu h200 --engine sglang --quant bf16"),
    "sglang-kubernetes": Case(
        plan=f"{MOE} --serve --gpu h200:2 --engine sglang --quant bf16", deploy="--place kubernetes"
    ),
    "llama-cpp-compose": Case(
        plan=f"{SMALL} --serve --gpu rtx-4060 --engine llama.cpp --quant q4_k_m", deploy="--place compose"
    ),
    "ik-llama-local": Case(plan=f"{MOE} --serve --gpu rtx-4090 --engine ik_llama.cpp --quant iq4_xs"),
    "ollama-compose": Case(plan=f"{SMALL} --serve --gpu rtx-3060 --engine ollama --quant q4_k_m", deploy="--place compose"),
    "ktransformers-systemd": Case(
        plan="Qwen/Qwen3-30B-A3B --serve --gpu rtx-4090 --engine ktransformers --quant int4 --cpu-experts all",
        deploy="--place systemd",
    ),
    "awq-skypilot": Case(
        plan=f"{SMALL} --serve --gpu l4 --engine vllm --quant awq", deploy="--place skypilot"
    ),
    # Training
    "qlora-local": Case(plan="Qwen/Qwen3-14B --finetune qlora --gpu rtx-4090 --engine transformers"),
    "lora-4xrtx4090": Case(plan=f"{SMALL} --finetune lora --gpu rtx-4090:4 --engine transformers --global-batch 32"),
    "full-spot-skypilot": Case(
        plan=f"{SMALL} --finetune full --gpu a100-sxm4-80gb:8 --spot --engine deepspeed --global-batch 64",
        deploy="--place skypilot",
    ),
    "deepspeed-kubernetes": Case(
        plan=f"{DENSE} --finetune full {H100}:8 --nodes 2 --network roce-400 --engine deepspeed --global-batch 64",
        deploy="--place kubernetes",
    ),
    "megatron-slurm": Case(
        plan=f"{SMALL} --pretrain --tokens 1e9 {H100}:8 --engine megatron", deploy="--place slurm"
    ),
    "torchtitan-slurm": Case(
        plan=f"{SMALL} --pretrain --tokens 1e9 {H100}:8 --engine torchtitan", deploy="--place slurm"
    ),
}  # fmt: skip


def bundle_of(case: Case, folder):
    path = folder / "plan.toml"
    said = call_tonnage("plan", *shlex.split(case.plan), "--pick", "1", "-o", str(path), "--quiet")
    assert path.exists(), said
    words = dict(zip(shlex.split(case.deploy)[::2], shlex.split(case.deploy)[1::2], strict=True))
    return api.deploy(
        api.read_plan(path.read_text(encoding="utf-8")),
        place=words.get("--place", "local"), num_replicas=int(words.get("--replicas", 1)), engine=words.get("--engine"),
    )  # fmt: skip


def without_programs(text: str) -> str:
    """Leave programs out of a ConfigMap too."""
    kept, is_program = [], False
    for line in text.splitlines():
        if re.match(r"  \S", line):
            is_program = re.match(r"  [\w.]+\.py:", line) is not None
            line = f"{line.partition(':')[0]}: (left out)" if is_program else line  # noqa: PLW2901
            kept.append(line)
        elif not is_program or re.match(r"\S", line):
            is_program = False
            kept.append(line)
    return "\n".join(kept) + "\n"


def shown(case: Case, bundle) -> str:
    lines = [f"$ tonnage plan {case.plan} --pick 1 -o plan.toml", f"$ tonnage deploy plan.toml --to bundle {case.deploy}".rstrip(),
             f"starts with: {bundle.start}", ""]  # fmt: skip
    for file in sorted(bundle.files, key=lambda one: one.path):
        is_left_out = LEFT_OUT.fullmatch(file.path) or (file.path == "prepare.sh" and not case.has_prepare)
        lines += [f"==> {file.path}: {file.purpose}", *(() if is_left_out else (without_programs(file.text),))]
    return "\n".join(lines) + "\n"


def test_there_are_thirty():
    assert len(CASES) == 30


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_bundle(name, golden, tmp_path):
    case = CASES[name]
    bundle = bundle_of(case, tmp_path)
    golden(f"bundles/{name}.txt", shown(case, bundle))
    assert all(str(tmp_path) not in file.text for file in bundle.files)


def test_each_article_example_says_what_was_wrong():
    page = (ROOT / "tests" / "golden" / "bundles" / "README.md").read_text(encoding="utf-8")
    for name, case in CASES.items():
        if name.startswith("article-"):
            part = page.partition(f"## {name}\n")[2].partition("\n## ")[0]
            assert part, name
            told = {int(n) for these in re.findall(r"\(claims? ([\d, ]+)\)", part) for n in these.split(",")}
            assert told == set(case.claims), name
