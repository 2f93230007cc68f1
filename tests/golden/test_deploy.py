"""The deployments that the articles show, as they are right today, and those that matter beside: files for a reviewer.

Each golden file begins with what was wrong in the original, or what to look at. `pytest tests/golden --update` writes them
anew; the words below stand in them whatever the exact figures. Left out are the files that do not differ between plans.
"""

from __future__ import annotations

import re
import shlex

import pytest
from tests.conftest import call_tonnage

DENSE, MOE, SMALL = "Qwen/Qwen3.5-27B", "Qwen/Qwen3.5-35B-A3B", "Qwen/Qwen3-8B"
SAME = re.compile(
    r"(prepare|install|install-unit|nccl-test|weights)\.sh|README\.md|plan\.toml|manifest\.json|train(?!_unsloth|_horovod)(_\w+)?\.py"
    r"|(all_reduce|interface|quantize)\.py"
)

# name: what to look at, the plan, how it is deployed, words that must stand in the files, words that must not.
DEPLOYMENTS: dict[str, tuple[str, str, str, tuple[str, ...], tuple[str, ...]]] = {
    # What the articles show
    "a3-trainer-2xh100": (
        ("The article loads an MoE with device_map='auto' and trains it by the Trainer in two processes: Accelerate refuses "
        "that. fp8_e4m3fn, devices, num_processes, optimizer='adamw_hf' and checkpoint_dir are no arguments; fp16=False "
        "doubled the memory. Here adapters train under FSDP2 or data parallel, in bf16, two ranks started by Accelerate."),
        f"{MOE} --finetune lora --gpu h100-sxm5:2 --engine transformers",
        "",
        ('"bf16": true', "accelerate launch", '"per_device_train_batch_size"', '"use_reentrant": false'),
        ("device_map", "fp8_e4m3fn", "adamw_hf", "evaluation_strategy", '"devices"', "checkpoint_dir"),
    ),
    "a3-elastic-torchrun": (
        ("The article trusts torch.distributed.elastic to restart a node. torchrun restarts all workers, and from step 0 "
        "unless the program resumes: here it restarts nothing itself, and the unit around it starts a fresh one."),
        f"{SMALL} --finetune full --gpu h100-sxm5:8 --nodes 2 --engine transformers --global-batch 32",
        "--engine torchrun --place slurm",
        ("--rdzv-backend c10d", "--max-restarts 0", '"fsdp"'),
        ("NCCL_SOCKET_IFNAME=eth0",),
    ),
    "b2-horovodrun-8": (
        ("horovodrun -np 8 --hostfile hosts python train.py: the command was right, the project rests since 2023. The template "
        "is there for who must, and says so; the next file is what to use."),
        f"{SMALL} --finetune full --gpu h100-sxm5:8 --engine transformers --zero 0 --precision bf16 --recompute full",
        "--engine horovod",
        ("horovodrun", "-np 8"),
        ("--hostfile",),
    ),
    "b2-torchrun-8": (
        "The same by torchrun --nproc-per-node 8.",
        f"{SMALL} --finetune full --gpu h100-sxm5:8 --engine transformers --zero 3",
        "--engine torchrun",
        ("--nproc-per-node 8", "full_shard"),
        ("horovod",),
    ),
    "b3-tensorflow-limit": (
        "export TF_GPU_MEMORY_LIMIT=32768: TensorFlow reads no such variable. A logical device with a limit does it.",
        f"{SMALL} --finetune lora --gpu rtx-5090 --engine transformers",
        "--engine tensorflow",
        ("set_logical_device_configuration", "limit_memory.py 32607"),
        ("TF_GPU_MEMORY_LIMIT",),
    ),
    "b4-systemd-training": (
        ("Restart=always starts a training again that has finished: on-failure, with a limit on starts, time to save, and "
        "MemoryMax so that the host outlives it."),
        f"{SMALL} --finetune lora --gpu rtx-4090 --engine transformers",
        "--place systemd",
        ("Restart=on-failure", "MemoryMax=", "TimeoutStopSec="),
        ("Restart=always",),
    ),
    "b4-systemd-server": (
        "For a server Restart=always is right, with back-off and a limit on its memory.",
        f"{SMALL} --serve --gpu rtx-4090 --engine vllm --quant fp8",
        "--place systemd",
        ("Restart=always", "RestartSec=", "MemoryMax="),
        (),
    ),
    "c4-27b-on-one-card": (
        ("from_pretrained(torch_dtype=float16, device_map='auto', low_cpu_mem_usage=True).to(device): .to() is refused once "
        "something is offloaded, and 27B in FP16 does not fit one card of 24 GB. At four bits it does."),
        f"{DENSE} --serve --gpu rtx-4090 --engine llama.cpp",
        "",
        ("llama-server", "-ngl"),
        ("float16",),
    ),
    "c4-two-cards": (
        "Several cards need no device_map by hand: the engine splits by itself, here each tensor over both cards.",
        f"{DENSE} --serve --gpu rtx-4090:2 --engine vllm --quant awq --tp 2",
        "",
        ("--tensor-parallel-size 2",),
        ("device_map",),
    ),
    "c4-deepspeed-35b": (
        ("ds_config of stage 2 with fp16: stage 2 keeps all 70 GB of a 35B model on each card. Stage 3 shards them, in bf16; "
        "batch, micro-batch and accumulation are written out and agree."),
        f"{MOE} --finetune full --gpu h200:8 --engine deepspeed --zero 3 --host '2 TiB ddr5-5600 x8'",
        "",
        ('"stage": 3', '"bf16": {', '"train_micro_batch_size_per_gpu"'),
        ('"stage": 2',),
    ),
    "a6-tensorrt-llm": (
        "Inference with TensorRT is TensorRT-LLM today: trtllm-serve, no engine to be built beforehand.",
        f"{DENSE} --serve --gpu h100-sxm5 --engine tensorrt-llm --quant fp8",
        "--place compose",
        ("trtllm-serve", "--kv_cache_free_gpu_memory_fraction"),
        (":latest",),
    ),
    "c2-balanced-replicas": (
        "Load balancing: a router before two copies, each with devices of its own.",
        f"{SMALL} --serve --gpu rtx-4090:2 --engine vllm --quant fp8 --tp 1 --dp 1",
        "--place compose --replicas 2",
        ("device_ids",),
        (":latest", "privileged"),
    ),
    # What matters beside
    **{
        f"train-{engine}": (
            f"{engine}: each flag as the plan counted it.", f"{model} {words} --engine {engine}", how, must, ()
        )
        for engine, model, words, how, must in (
            ("megatron", "Qwen/Qwen3-30B-A3B", "--pretrain --tokens 1e9 --gpu h100-sxm5:8 --nodes 2 --global-batch 64", "",
             ("pretrain_gpt.py", "--num-experts 128")),
            ("torchtitan", SMALL, "--pretrain --tokens 1e9 --gpu h100-sxm5:8 --global-batch 64", "",
             ("plan_recipe", "activation-checkpoint:")),
            ("unsloth", SMALL, "--finetune qlora --gpu rtx-4090", "", ("FastLanguageModel",)),
            ("deepspeed", SMALL, "--finetune full --gpu rtx-4090:4 --set offload.optimizer=true --zero 2", "",
             ('"offload_optimizer"',)),
        )
    },
    **{
        f"train-{engine}": (
            f"{engine} runs a plan of another.", f"{SMALL} {words}", f"--engine {engine}", must, ()
        )
        for engine, words, must in (
            ("accelerate", "--finetune full --gpu h100-sxm5:4 --engine deepspeed --zero 3", ('"DEEPSPEED"',)),
            ("llamafactory", "--finetune qlora --gpu rtx-4090:2 --engine transformers", ("quantization_bit: 4",)),
            ("axolotl", "--finetune lora --gpu h100-sxm5:4 --engine transformers --zero 3", ("fsdp_version: 2",)),
        )
    },
    **{
        f"serve-{engine}": (f"{engine}: the limits that the plan counted.", f"{model} --serve --gpu {gpu} --engine {engine}{more}",
                            how, must, (":latest",))
        for engine, model, gpu, more, how, must in (
            ("vllm", MOE, "h100-sxm5:2", " --quant fp8 --kv fp8", "--place kubernetes", ("--kv-cache-dtype", "fp8")),
            ("sglang", MOE, "h100-sxm5:2", " --quant fp8 --tp 2", "--place slurm", ("--mem-fraction-static",)),
            ("llama.cpp", MOE, "rtx-4080", " --cpu-experts all", "", ("-ncmoe",)),
            ("ik_llama.cpp", MOE, "rtx-4080", " --cpu-experts all", "", ("-ncmoe",)),
            ("ollama", SMALL, "rtx-4090", "", "--place compose", ("OLLAMA_KV_CACHE_TYPE",)),
            ("ktransformers", "Qwen/Qwen3-30B-A3B", "rtx-4090", "", "", ("--kt-num-gpu-experts",)),
            ("transformers", SMALL, "rtx-4090", " --quant bf16", "", ("transformers serve",)),
        )
    },
    "place-skypilot-spot": (
        "Rented machines that may be taken away: the job recovers from its checkpoint.",
        f"{SMALL} --finetune lora --gpu a100-sxm4-80gb --engine transformers",
        "--place skypilot",
        ("accelerators",),
        (),
    ),
    "place-kubernetes-job": (
        "A job over two machines: ranks meet at the first.",
        f"{SMALL} --pretrain --tokens 1e9 --gpu h100-sxm5:8 --nodes 2 --engine megatron --global-batch 64",
        "--place kubernetes",
        ("kind: Job", "--rdzv-backend"),
        (":latest",),
    ),
}  # fmt: skip


def test_there_are_the_thirty_that_matter():
    assert len(DEPLOYMENTS) >= 28
    assert all(note.endswith(".") for note, *_ in DEPLOYMENTS.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_deployment(name, golden, tmp_path):
    note, asked, how, must, never = DEPLOYMENTS[name]
    plan = tmp_path / "plan.toml"
    planned = call_tonnage("plan", *shlex.split(asked), "--pick", "1", "-o", str(plan), "--quiet")
    assert planned.code == 0, planned.out + planned.err
    answer = call_tonnage("deploy", str(plan), "--to", "-", *shlex.split(how))
    assert (answer.code, answer.err) == (0, "")
    parts = re.split(r"^==> (.+) <==\n", answer.out, flags=re.MULTILINE)[1:]
    kept = {path: text for path, text in zip(parts[::2], parts[1::2], strict=True) if not SAME.fullmatch(path)}
    text = "\n".join(f"==> {path} <==\n{text}" for path, text in kept.items())
    for word in must:
        assert word in text, word
    for word in never:
        assert word not in text, word
    commands = f"$ tonnage plan {asked} --pick 1 -o plan.toml\n$ tonnage deploy plan.toml --to bundle {how}".rstrip()
    golden(f"deploy/{name}.txt", f"# {note}\n\n{commands}\n\n{text}")
