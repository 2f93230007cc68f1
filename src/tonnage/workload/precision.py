"""The noun `Precision`: in which formats weights, cache, gradients and optimizer states are held and computed."""

from __future__ import annotations

from typing import Final

from tonnage.nouns import noun

BYTES_PER_ELEMENT: Final = {
    "fp64": 8.0, "fp32": 4.0, "tf32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5,
}  # fmt: skip


def is_plain(name: str) -> bool:
    """Whether a format is a type of numbers, without scales: what can be trained as it is.

    >>> is_plain("bf16"), is_plain("int8"), is_plain("nf4")
    (True, False, False)
    """
    return name in BYTES_PER_ELEMENT and name != "int8"


@noun
class Precision:
    """Formats by use.

    `weights` is a name in `estimate.weights.FORMATS` (bf16, fp8, nf4, q4_k_m …); `compute` the type matrices are
    multiplied in; `kv` the cache's; for training `gradients` and whether fp32 masters are kept.
    """

    weights: str = "bf16"
    compute: str = "bf16"
    kv: str = "fp16"
    gradients: str = "bf16"
    has_fp32_master: bool = False
    attention: str | None = None  # type scores are computed in, where it is not the compute type
    unquantized: str | None = None  # embedding, head and norms, where they are not held as the compute type
    experts: str | None = None  # routed experts, where a format leaves them as they were
