"""ik_llama.cpp's memory: llama.cpp's buffers."""

from __future__ import annotations

from functools import cache

from tonnage.engines.facts import constants_of
from tonnage.engines.llama_cpp.accounting import Accounting


@cache
def accounting() -> Accounting:
    """Return the rules, their constants read at the first use."""
    return Accounting("ik_llama.cpp", constants_of("ik_llama_cpp"))
