"""ik_llama.cpp: abilities, memory rules and launch line."""

from __future__ import annotations

from tonnage.engines.facts import DescribedEngine
from tonnage.engines.ik_llama_cpp.accounting import accounting
from tonnage.engines.ik_llama_cpp.launch import launch

__all__ = ["ENGINE"]

ENGINE = DescribedEngine(name="ik_llama.cpp", data="ik_llama_cpp", rules=accounting, launcher=launch)
