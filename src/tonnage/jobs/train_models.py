"""The model that a job names, ready to train: random or from weights, whole or with adapters, routers in fp32."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM


def load_model(job: dict[str, Any]) -> Any:
    """Return the model: with random weights for pre-training, from its weights else."""
    kwargs = {"dtype": getattr(torch, job["dtype"]), "attn_implementation": job["attn_implementation"]}
    if job["kind"] == "pretrain":
        return _ready(AutoModelForCausalLM.from_config(_config(job), **kwargs))
    if "quantization" in job:
        from transformers import BitsAndBytesConfig  # noqa: PLC0415  only where asked

        kwargs["quantization_config"] = BitsAndBytesConfig(**job["quantization"])
    model = AutoModelForCausalLM.from_pretrained(job["model"], **kwargs)
    return _ready(_with_adapters(model, job) if "lora" in job else model)


def _config(job: dict[str, Any]) -> Any:
    model = job["model"]
    if isinstance(model, dict):
        table = dict(model)
        return AutoConfig.for_model(table.pop("model_type"), **table)
    place = Path(model)
    return AutoConfig.from_pretrained(place.parent if place.name == "config.json" else model)


def _ready(model: Any) -> Any:
    model.config.use_cache = False
    return model


def _with_adapters(model: Any, job: dict[str, Any]) -> Any:
    from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training  # noqa: PLC0415  only for adapters

    if "quantization" in job:
        model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    return get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **job["lora"]))


def routers(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return the modules that choose experts: those called router or gate that have one score an expert."""
    return [
        (name, module)
        for name, module in model.named_modules()
        if name.rsplit(".", 1)[-1] in ("gate", "router")
        and isinstance(getattr(module, "weight", None), torch.Tensor)
        and len(getattr(module.weight, "ds_shape", module.weight.shape)) == 2  # ZeRO-3 leaves an empty weight behind
        and any(hasattr(parent, "experts") for parent in [model.get_submodule(name.rpartition(".")[0])])
    ]


def keep_routers_in_fp32(model: nn.Module) -> int:
    """Hold every router's weights in fp32 and let it compute in fp32; return how many there are.

    In 16 bits the scores of experts are rounded, and close ones would choose other experts. An engine that casts the
    whole model (DeepSpeed with bf16 or fp16) still computes with its rounded copy, but in fp32.
    """
    found = routers(model)
    for _, module in found:
        if next(module.parameters()).is_floating_point():
            module.float()
        module.forward = _in_fp32(module)
    return len(found)


@contextmanager
def shard_routers_apart(model: nn.Module) -> Iterator[None]:
    """Let FSDP2 shard routers by themselves and gather them in fp32, where it gathers the rest in 16 bits.

    Accelerate 1.15 (utils/fsdp_utils.py, fsdp2_prepare_model) has one policy for all modules, and asks torch for
    `fully_shard` each time.
    """
    import torch.distributed.fsdp as engine  # noqa: PLC0415  only where it shards

    inner = engine.fully_shard
    kept = [module for _, module in routers(model)]
    wide = engine.MixedPrecisionPolicy(param_dtype=torch.float32, reduce_dtype=torch.float32)

    def fully_shard(module: Any, **kwargs: Any) -> Any:
        inside = {
            id(one) for part in (module if isinstance(module, (list, tuple)) else [module]) for one in part.modules()
        }
        for one in kept:
            if id(one) in inside and not isinstance(one, engine.FSDPModule):
                inner(one, **{**kwargs, "mp_policy": wide})
        return inner(module, **kwargs)

    engine.fully_shard = fully_shard
    try:
        yield
    finally:
        engine.fully_shard = inner


def _in_fp32(module: nn.Module) -> Any:
    inner = module.forward

    def forward(hidden: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        own = module._parameters  # noqa: SLF001  no other way to lend a module wider weights for one call
        with torch.autocast(device_type=hidden.device.type, enabled=False):
            if all(one is None or one.dtype == torch.float32 for one in own.values()):
                return inner(hidden.float(), *args, **kwargs)
            module.__dict__["_parameters"] = {name: None if one is None else one.float() for name, one in own.items()}
            try:
                return inner(hidden.float(), *args, **kwargs)
            finally:
                module.__dict__["_parameters"] = own

    return forward
