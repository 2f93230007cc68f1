"""Candidates that between them use every way of an engine's launch, and what a launch says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import yaml

from tonnage.engines.types import Launch
from tonnage.estimate.types import Candidate, EngineSettings, Layout, Offload, Recompute
from tonnage.hardware.catalogue import find_device
from tonnage.hardware.types import Cluster, Host, Node
from tonnage.model import catalogue
from tonnage.workload.precision import Precision
from tonnage.workload.types import Serving, Training, TrainingKind

HOST = Host(memory_bytes=1024 << 30, bandwidth_bytes_per_s=3e11)
# weights, compute, gradients, whether fp32 masters are kept
RECIPES = {
    "mixed": Precision(weights="fp32", gradients="fp32"),
    "master": Precision(weights="bf16", gradients="fp32", has_fp32_master=True),
    "pure": Precision(weights="bf16"),
    "half": Precision(weights="fp16", compute="fp16", gradients="fp32", has_fp32_master=True),
    "fp8": Precision(weights="bf16", compute="fp8", gradients="fp32", has_fp32_master=True),
    "fp8_wide": Precision(weights="fp32", compute="fp8", gradients="fp32"),
}


@cache
def cluster(device: str = "h100-sxm5", number: int = 8, nodes: int = 1) -> Cluster:
    return Cluster(node=Node(devices=(find_device(device),) * number, host=HOST), num_nodes=nodes)


def training(model: str = "Qwen/Qwen3-8B", kind: str = "pretrain", **fields: Any) -> Candidate:
    """Return a candidate that trains; its fields by name."""
    load = Training(
        kind=TrainingKind(kind), seq_len=4096, global_batch_size=64, num_tokens=fields.pop("tokens", 10**9),
        lora_targets=fields.pop("targets", ("all-linear",)),
    )  # fmt: skip
    return Candidate(**{
        "model": catalogue.find(model), "workload": load, "cluster": cluster(), "engine": "transformers",
        "precision": RECIPES["mixed"], **fields,
    })  # fmt: skip


def trainings(engine: str) -> Iterator[Candidate]:
    """Yield candidates over models, layouts, precisions, recomputation, offload and machines."""
    layouts = (
        Layout(dp=8), Layout(dp=8, zero_stage=1), Layout(dp=8, zero_stage=2), Layout(dp=8, zero_stage=3),
        Layout(dp=2, tp=4, zero_stage=1, has_sequence_parallel=True), Layout(dp=4, tp=2, zero_stage=3),
        Layout(dp=2, pp=4, zero_stage=1), Layout(dp=2, pp=4, zero_stage=3, num_virtual_stages=2),
        Layout(dp=1, pp=8, first_stage_layers=4, last_stage_layers=4), Layout(dp=4, cp=2, zero_stage=3),
        Layout(dp=8, ep=4, zero_stage=1), Layout(dp=8, ep=8, zero_stage=3), Layout(),
    )  # fmt: skip
    models = ("Qwen/Qwen3-8B", "Qwen/Qwen3-30B-A3B", "meta-llama/Llama-3.2-3B", "deepseek-ai/DeepSeek-V3")
    for model in models:
        for layout in layouts:
            for recipe in RECIPES.values():
                yield training(model, engine=engine, layout=layout, precision=recipe)
            for name in ("mixed", "master"):
                yield training(
                    model, "full", engine=engine, layout=layout, precision=RECIPES[name], recompute=Recompute.FULL,
                    recompute_every=2, micro_batch_size=2, tokens=None, cluster=cluster(nodes=2),
                    settings=EngineSettings(has_fused_loss=True, has_compile=True),
                )  # fmt: skip
            for offload in (
                Offload(optimizer=True), Offload(optimizer=True, parameters=True),
                Offload(optimizer=True, parameters=True, optimizer_nvme=True, parameters_nvme=True),
            ):  # fmt: skip
                yield training(
                    model, "full", engine=engine, layout=layout, precision=RECIPES["master"], offload=offload,
                    recompute=Recompute.SELECTIVE, settings=EngineSettings(recompute_modules=("core_attn", "mlp")),
                )  # fmt: skip
            for kind, weights, targets in (
                ("lora", "bf16", "attention"), ("qlora", "nf4", "all-linear"), ("qlora", "nf4_double", "all"),
                ("qlora", "int8", "attention"),
            ):  # fmt: skip
                yield training(
                    model, kind, engine=engine, layout=layout, precision=Precision(weights=weights),
                    targets=(targets,), recompute=Recompute.FULL, offload=Offload(activations=weights == "nf4"),
                    settings=EngineSettings(has_flash_attention=weights == "nf4"),
                )  # fmt: skip
    for optimizer in ("adamw_8bit", "paged_adamw_8bit", "adafactor", "muon", "sgd", "adamw_bf16"):
        yield training(engine=engine, layout=layouts[3], precision=RECIPES["pure"], optimizer=optimizer)
        yield training(engine=engine, layout=layouts[1], precision=RECIPES["pure"], optimizer=optimizer)


def servings(engine: str) -> Iterator[Candidate]:
    """Yield candidates that serve, over layouts, formats, placements and limits."""
    kinds = (("bf16", "bf16"), ("fp8", "fp8"), ("fp8_channel", "fp8"), ("nf4", "fp16"), ("int8", "bf16"),
             ("awq", "fp16"), ("q4_k_m", "q8_0"), ("q8_0", "fp16"))  # fmt: skip
    layouts = (Layout(), Layout(tp=2), Layout(pp=2), Layout(dp=2), Layout(tp=2, ep=2), Layout(tp=4, pp=2))
    places = (Offload(), Offload(num_cpu_expert_layers=9), Offload(num_cpu_layers=3))
    for name, device, number in (("Qwen/Qwen3-30B-A3B", "h100-sxm5", 8), ("Qwen/Qwen3-8B", "rtx-4090", 2)):
        for layout in layouts:
            for weights, kv in kinds:
                for offload in places:
                    for settings in (EngineSettings(), EngineSettings(max_num_seqs=24, max_batched_tokens=1024)):
                        yield Candidate(
                            model=catalogue.find(name), workload=Serving(context_tokens=16384, concurrency=8),
                            cluster=cluster(device, number), engine=engine, layout=layout,
                            precision=Precision(weights=weights, kv=kv), offload=offload, settings=settings,
                        )  # fmt: skip


def own_words(launch: Launch) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the words of the launcher (torchrun, accelerate) and those of the program that it starts."""
    argv = tuple(launch.argv)
    if argv[0] == "torchrun":
        start = next(
            i for i, word in enumerate(argv) if i and (word == "-m" or word.endswith(".py")) and argv[i - 1] != "--"
        )
        return argv[:start], argv[start + (2 if argv[start] == "-m" else 1) :]
    if argv[:2] == ("accelerate", "launch"):
        start = next(i for i, word in enumerate(argv) if word.endswith(".py"))
        return argv[:start], argv[start + 1 :]
    if argv[:2] == ("python", "-m"):
        return argv[:2], argv[3:]
    return argv[:1], argv[1:]


def tables(launch: Launch) -> dict[str, dict[str, Any]]:
    """Return the configurations that lie beside a launch, read."""
    found = {name: json.loads(text) for name, text in launch.files.items() if name.endswith(".json")}
    return found | {name: yaml.safe_load(text) for name, text in launch.files.items() if name.endswith(".yaml")}


def paths(table: dict[str, Any], prefix: str = "", depth: int = 3) -> set[str]:
    """Return the dotted paths of a configuration's keys, tables inside lists left out."""
    found = set()
    for key, value in table.items():
        found.add(f"{prefix}{key}")
        if isinstance(value, dict) and depth:
            found |= paths(value, f"{prefix}{key}.", depth - 1)
    return found
