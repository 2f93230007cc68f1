"""What runs a model: one small folder an engine, all pure. `ENGINES` is written out; nothing is discovered."""

from __future__ import annotations

from tonnage.engines import (
    accelerate,
    axolotl,
    deepspeed,
    horovod,
    ik_llama_cpp,
    ktransformers,
    llama_cpp,
    llamafactory,
    megatron,
    ollama,
    sglang,
    tensorflow,
    tensorrt_llm,
    torchrun,
    torchtitan,
    transformers,
    unsloth,
    vllm,
)
from tonnage.engines.trainers import Trainer
from tonnage.engines.types import Engine
from tonnage.errors import UnknownNameError

ENGINES: tuple[Engine, ...] = (
    vllm.ENGINE,
    sglang.ENGINE,
    llama_cpp.ENGINE,
    ik_llama_cpp.ENGINE,
    ollama.ENGINE,
    ktransformers.ENGINE,
    tensorrt_llm.ENGINE,
    transformers.ENGINE,
)

TRAINERS: tuple[Trainer, ...] = (
    transformers.TRAINER,
    torchrun.TRAINER,
    deepspeed.TRAINER,
    accelerate.TRAINER,
    megatron.TRAINER,
    torchtitan.TRAINER,
    llamafactory.TRAINER,
    axolotl.TRAINER,
    unsloth.TRAINER,
    horovod.TRAINER,
    tensorflow.TRAINER,
)


def find_trainer(name: str) -> Trainer | None:
    """Return a program that trains by its name, or None where no launch of it is known."""
    return next((one for one in TRAINERS if one.name == name), None)


def find_engine(name: str) -> Engine:
    """Return an engine by its name in any case, with dots, dashes or underscores."""
    key = name.strip().lower().replace("_", "-").replace(".", "-")
    known = {engine.name.replace("_", "-").replace(".", "-"): engine for engine in ENGINES}
    if key not in known:
        from difflib import get_close_matches  # noqa: PLC0415  only a wrong name needs it

        raise UnknownNameError(
            f"'{name[:40]}' is not an engine",
            where="--engine",
            fix=f"known: {', '.join(engine.name for engine in ENGINES)}",
            suggestions=tuple(known[close].name for close in get_close_matches(key, known, 3, 0.5)),
        )
    return known[key]
