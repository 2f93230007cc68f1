"""LoRA adapters beside linear modules, allocating as peft's do."""

from __future__ import annotations

from typing import Any

import torch
from transformers.pytorch_utils import Conv1D

from tonnage.errors import RequestError
from tonnage.oracle.types import Job


class _Adapted(torch.nn.Module):
    """A frozen module with a product of two small fp32 matrices added to its output.

    References
    ----------
    .. [1] huggingface/peft v0.21.2, `peft/tuners/lora/layer.py`, `Linear.forward`: the input is cast to the adapters'
       type (fp32, `autocast_adapter_dtype`), the output back to the module's.
    """

    def __init__(self, frozen: torch.nn.Module, num_inputs: int, num_outputs: int, rank: int) -> None:
        super().__init__()
        self.frozen = frozen
        self.down = torch.nn.Parameter(torch.empty((rank, num_inputs), dtype=torch.float32))
        self.up = torch.nn.Parameter(torch.empty((num_outputs, rank), dtype=torch.float32))

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """Return the frozen module's output with the adapter's."""
        result = self.frozen(given)
        inner = torch.nn.functional.linear(given.to(self.down.dtype), self.down)
        return (result + torch.nn.functional.linear(inner, self.up) * 2.0).to(result.dtype)


def adapt(model: Any, job: Job) -> None:
    """Freeze a model and put adapters beside the modules that the job names; the head stays as it is."""
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    head = model.get_output_embeddings()
    names = None if "all-linear" in job.lora_targets else set(job.lora_targets)
    found = [
        (holder, name, child)
        for holder in list(model.modules())
        for name, child in holder.named_children()
        if isinstance(child, (torch.nn.Linear, Conv1D)) and child is not head and (names is None or name in names)
    ]
    if not found:
        raise RequestError(
            f"no module is called {', '.join(job.lora_targets)}"[:200], where="--oracle", fix="use all-linear"
        )
    for holder, name, child in found:
        num_inputs, num_outputs = child.weight.shape if isinstance(child, Conv1D) else child.weight.shape[::-1]
        setattr(holder, name, _Adapted(child, num_inputs, num_outputs, job.lora_rank))
