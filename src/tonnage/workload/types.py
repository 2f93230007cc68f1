"""The nouns `Training` and `Serving`: what is to be done with a model."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from tonnage.nouns import noun


class TrainingKind(StrEnum):
    """How weights are changed."""

    PRETRAIN = "pretrain"
    FULL = "full"
    LORA = "lora"
    QLORA = "qlora"


LORA_TARGETS: Final = ("attention", "all-linear", "all")


@noun
class Training:
    """A training job; for LoRA and QLoRA with the adapters' rank and targets.

    `lora_targets` names matrices, or one of `LORA_TARGETS`: attention, all-linear (every matrix but routed experts,
    which transformers 5 stacks into one tensor), all (routed experts too).
    """

    kind: TrainingKind
    seq_len: int
    global_batch_size: int
    num_tokens: int | None = None
    lora_rank: int = 16
    lora_targets: tuple[str, ...] = ("all-linear",)
    num_mtp_layers: int = 0  # layers trained to predict further tokens, each with a loss of its own


@noun
class Serving:
    """A serving load: tokens a request may hold, requests in flight, and limits on latency."""

    context_tokens: int = 8192
    concurrency: int = 1
    input_tokens: int = 1024
    output_tokens: int = 256
    ttft_limit_seconds: float | None = None
    tpot_limit_seconds: float | None = None


Workload = Training | Serving
