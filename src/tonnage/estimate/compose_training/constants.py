"""The calibrated constants and the traits of training software, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from tonnage import datafiles
from tonnage.errors import UnknownNameError

CALIBRATION: Final = "calibration/training.toml"
TRAITS: Final = "engines/training.toml"
MODE_SEPARATOR: Final = "."

# What other programs train with underneath.
_UNDERNEATH: Final = {
    "peft": "transformers",
    "trl": "transformers",
    "accelerate": "transformers",
    "llamafactory": "transformers",
    "ms-swift": "transformers",
    "axolotl": "transformers",
    "composer": "llm-foundry",
    "fsdp": "torchtitan",
    "nemo": "megatron",
    "megatron-bridge": "megatron",
    "megatron-lm": "megatron",
}

Constants = Mapping[str, Any]


@cache
def training_constants() -> dict[str, float]:
    """Return the calibrated constants by name."""
    return {name: row["value"] for name, row in datafiles.table(CALIBRATION).items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """Traits of training software, see data/engines/training.toml."""

    name: str
    recompute: str
    kernels: str
    operators: str
    attention: str
    norm: str
    activations: str
    keys: str
    qkv: str
    loss: str
    gradients: str
    partition: str
    step: str
    selective: str
    adapter_copy: float
    autocast: bool
    tensor_overlap: bool
    launches: str
    gathered_pp: bool
    frozen_gather: str
    source: str


def software_names() -> tuple[str, ...]:
    """List the software that traits are known of."""
    return tuple(datafiles.table(TRAITS))


@cache
def software(name: str) -> Software:
    """Return the traits of training software by its name or that of a program which trains with it."""
    table = datafiles.table(TRAITS)
    key = _UNDERNEATH.get(name, name)
    if key not in table:
        raise UnknownNameError(
            f"no training software '{name}'", where="engine", fix="choose one", suggestions=tuple(table)
        )
    return Software(name=key, **table[key])
