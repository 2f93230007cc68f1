"""Optimizers by name: bytes of state a trained parameter needs."""

from __future__ import annotations

from typing import Final

from tonnage.nouns import noun


@noun
class Optimizer:
    """State bytes per trained parameter, and whether the step works out of place (foreach) on the whole list."""

    name: str
    state_bytes_per_parameter: float
    is_paged: bool = False
    is_factored: bool = False


OPTIMIZERS: Final = {
    o.name: o
    for o in (
        Optimizer(name="adamw", state_bytes_per_parameter=8.0),
        Optimizer(name="adamw_bf16", state_bytes_per_parameter=4.0),
        Optimizer(name="adamw_8bit", state_bytes_per_parameter=2.0),
        Optimizer(name="paged_adamw_8bit", state_bytes_per_parameter=2.0, is_paged=True),
        Optimizer(name="paged_adamw", state_bytes_per_parameter=8.0, is_paged=True),
        Optimizer(name="adafactor", state_bytes_per_parameter=0.0, is_factored=True),
        Optimizer(name="muon", state_bytes_per_parameter=4.0),
        Optimizer(name="sgd", state_bytes_per_parameter=0.0),
        Optimizer(name="sgd_momentum", state_bytes_per_parameter=4.0),
    )
}
