"""KTransformers' memory: SGLang's on the device, the routed experts in host memory."""

from __future__ import annotations

from functools import cache

from tonnage.engines.facts import constants_of
from tonnage.engines.sglang.accounting import Accounting


@cache
def accounting() -> Accounting:
    """Return the rules, their constants read at the first use."""
    return Accounting("ktransformers", constants_of("ktransformers"))
