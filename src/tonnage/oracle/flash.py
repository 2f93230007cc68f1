"""Attention that allocates as FlashAttention does, for tensors without data: nothing is computed.

transformers' `sdpa` on a fake CPU device takes another way than on a GPU (a mask of all pairs, repeated keys), so the
kernel that GPUs run is stood in for here.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from transformers import AttentionInterface, AttentionMaskInterface

NAME: Final = "tonnage_kernel"


class _Flash(torch.autograd.Function):
    """Keep queries, keys, values, output and one fp32 log-sum a query.

    References
    ----------
    .. [1] Dao-AILab/flash-attention v2.8.3, `csrc/flash_attn/flash_api.cpp`, `mha_fwd` and `mha_bwd`:
       `softmax_lse`, `softmax_d`, `dq_accum`, and `dk_expanded`, `dv_expanded` where keys are shared by queries.
    """

    @staticmethod
    def forward(ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Return the output, laid out (batch, tokens, heads, width)."""
        batch, heads, tokens, _ = query.shape
        output = query.new_empty((batch, tokens, heads, value.shape[-1]))
        log_sums = query.new_empty((batch, heads, tokens), dtype=torch.float32)
        ctx.save_for_backward(query, key, value, output, log_sums)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return gradients of queries, keys and values."""
        query, key, value, _, log_sums = ctx.saved_tensors
        batch, heads, tokens, width = query.shape
        gradient = gradients[0].contiguous()
        del gradient
        row_sums = torch.empty_like(log_sums)
        accumulated = query.new_empty((batch, tokens, heads, width), dtype=torch.float32)
        by_query, by_key, by_value = torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)
        if key.shape[1] != heads:
            expanded = (
                key.new_empty((batch, key.shape[2], heads, width)),
                value.new_empty((batch, value.shape[2], heads, value.shape[-1])),
            )
            del expanded
        del row_sums, accumulated
        return by_query, by_key, by_value


class Calls:
    """How often the attention was called: a family's own code may take no notice of it."""

    number: int = 0


def _forward(
    module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any
) -> tuple[torch.Tensor, None]:
    del module
    Calls.number += 1
    return _Flash.apply(query, key, value), None  # pyright: ignore[reportReturnType]


def _no_mask(*_: Any, **__: Any) -> None:
    return None


def register() -> str:
    """Make transformers know the attention; return its name."""
    AttentionInterface.register(NAME, _forward)
    AttentionMaskInterface.register(NAME, _no_mask)
    return NAME
