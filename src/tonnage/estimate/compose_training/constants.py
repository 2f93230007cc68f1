"""The calibrated constants and the traits of training software, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from tonnage import datafiles
from tonnage.errors import UnknownNameError

CALIBRATION: Final = "calibration/training.toml"
EVIDENCE: Final = "calibration/constant_evidence.csv"
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
class Evidence:
    """Which measured rows constrain a constant; `validation/constant_evidence.py` counts them."""

    num_rows: int  # whose prediction it moves
    num_sources: int
    measured_ratio: float | None  # information from rows over that from rows and prior; None: it is not fitted to rows
    sources: tuple[str, ...]  # those that say most


@cache
def _evidence() -> dict[str, Evidence]:
    return {
        row["constant"]: Evidence(
            num_rows=int(row["num_rows"]),
            num_sources=int(row["num_sources"]),
            measured_ratio=float(row["measured_ratio"]) if row["measured_ratio"] else None,
            sources=tuple(part for part in row["sources"].split(" | ") if part),
        )
        for row in datafiles.rows(EVIDENCE)
    }


def evidence_of(name: str) -> Evidence:
    """Return which measured rows constrain a calibrated constant."""
    return _evidence()[name]


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
