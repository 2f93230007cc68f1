"""What is fixed in a set of training candidates, and the columns that may differ between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tonnage.estimate.compose_training.constants import Software
from tonnage.hardware.siblings import Lender
from tonnage.hardware.types import Device
from tonnage.model.types import Model
from tonnage.workload.precision import BYTES_PER_ELEMENT, Precision
from tonnage.workload.types import TrainingKind

Columns = Mapping[str, Any]

# Every column with the value of one device that does nothing special.
COLUMN_DEFAULTS: Final[dict[str, float]] = {
    "dp": 1,
    "tp": 1,
    "pp": 1,
    "cp": 1,
    "ep": 1,
    "etp": 0,  # 0: as tp when experts are not spread, else 1
    "num_virtual_stages": 1,
    "zero_stage": 0,
    "has_sequence_parallel": 0,
    "first_stage_layers": 0,  # 0: an equal share
    "last_stage_layers": 0,
    "micro_batch_size": 1,
    "num_micro_batches": 1,  # of one pipeline in one step
    "seq_len": 2048,
    "recompute": 0,  # 0 none, 1 selective, 2 full
    "recompute_every": 1,
    "lora_rank": 16,
    "offload_optimizer": 0,
    "offload_parameters": 0,
    "offload_activations": 0,
    "num_cpu_expert_layers": 0,
    "nvme_optimizer": 0,
    "nvme_parameters": 0,
}

ADAPTER_TARGETS: Final = {
    "q": ("q",), "k": ("k",), "v": ("v",), "o": ("o",), "gate": ("gate",), "up": ("up",), "down": ("down",),
    "q_proj": ("q",), "k_proj": ("k",), "v_proj": ("v",), "o_proj": ("o",),
    "gate_proj": ("gate",), "up_proj": ("up",), "down_proj": ("down",),
    "query": ("q",), "key": ("k",), "value": ("v",), "projection": ("o",), "output": ("head",),
    "mlp": ("gate", "up", "down"), "fc1": ("up",), "fc2": ("down",),
    "qkv": ("q", "k", "v"), "c_attn": ("q", "k", "v"), "query_key_value": ("q", "k", "v"),
    "head": ("head",), "lm_head": ("head",),
}  # fmt: skip

_FEED_FORWARD: Final = ("gate", "up", "down")

_COMPUTE: Final = {
    "mxfp8": "fp8", "fp8": "fp8", "fp8_rowwise": "fp8", "nvfp4": "fp4", "fp4": "fp4", "mxfp4": "fp4",
    "bf16": "bf16", "fp16": "fp16", "fp32": "fp32", "tf32": "tf32",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingCase:
    """All of a training candidate that is no column."""

    model: Model
    kind: TrainingKind
    device: Device
    software: Software
    precision: Precision = field(default_factory=Precision)
    optimizer: str = "adamw"
    lora_targets: tuple[str, ...] = ("all-linear",)
    has_flash_attention: bool = True
    has_fused_loss: bool = False
    has_compile: bool = False
    has_dropout: bool = False
    has_cuda_graphs: bool = False
    recompute_modules: tuple[str, ...] = ()
    num_image_tokens: int = 0
    num_mtp_layers: int = 0  # layers that predict further tokens, each with a loss of its own
    steps_in_backward: bool = False  # the optimizer steps a layer as soon as its gradient is there
    release_year: float | None = None  # of the software; None: as new as its traits
    devices_per_node: int = 8
    intra_bytes_per_s: float = 32e9
    intra_kind: str = "pcie"
    inter_bytes_per_s: float = 12.5e9  # of one device
    host_link_bytes_per_s: float = 32e9
    host_bytes_per_s: float = 8e10
    drive_read_bytes_per_s: float = 0.0  # of the machine; 0: it has no drive that training swaps with
    drive_write_bytes_per_s: float = 0.0
    matmul_lender: Lender | None = None  # measured device whose fraction of peak in products this one is taken to reach
    stream_lender: Lender | None = None  # the same of memory bandwidth

    @property
    def trains_all(self) -> bool:
        """Whether all weights are trained, not adapters beside them."""
        return self.kind in (TrainingKind.PRETRAIN, TrainingKind.FULL)

    @property
    def compute(self) -> str:
        """Type that the layers' matrices are multiplied in, as a key of a device's rates."""
        return _COMPUTE.get(self.precision.compute, self.precision.compute)

    @property
    def element_bytes(self) -> float:
        """Bytes of one element of the residual stream."""
        return 4.0 if self.compute in ("fp32", "tf32") else 2.0

    @property
    def residual_bytes(self) -> float:
        """Bytes of one element between layers: fp32 where embedding or norms are held and run in fp32."""
        return 4.0 if self.precision.unquantized == "fp32" or self.is_autocast else self.element_bytes

    @property
    def is_autocast(self) -> bool:
        """Whether fp32 weights are cast operator by operator, each cast living until backward has used it."""
        return self.precision.weights == "fp32" and self.software.autocast and self.element_bytes == 2.0

    @property
    def trained_bytes(self) -> float:
        """Bytes of one trained weight as it is stored."""
        return BYTES_PER_ELEMENT[self.precision.weights if self.trains_all else self.precision.gradients]

    def targets(self, name: str) -> bool:
        """Whether a matrix carries an adapter."""
        return not self.trains_all and carries_adapter(name, self.lora_targets)


def carries_adapter(name: str, lora_targets: tuple[str, ...]) -> bool:
    """Whether LoRA with some targets adapts a matrix.

    >>> carries_adapter("up", ("all-linear",)), carries_adapter("expert_up", ("all-linear",))
    (True, False)
    """
    plain = name.removeprefix("expert_")
    if name != "head" and "all" in lora_targets:
        return True
    if name != "head" and plain == name:  # routed experts are no linear layers of their own
        if "all-linear" in lora_targets:
            return True
        if "attention" in lora_targets and name not in _FEED_FORWARD:
            return True
    return any(plain in ADAPTER_TARGETS.get(target, (target,)) for target in lora_targets)


def filled(columns: Columns) -> dict[str, Any]:
    """Return the columns with the defaults of those not given; expert-tensor ranks follow tp unless said otherwise."""
    full = {**COLUMN_DEFAULTS, **columns}
    unknown = set(columns) - set(COLUMN_DEFAULTS)
    assert not unknown, unknown
    return full
