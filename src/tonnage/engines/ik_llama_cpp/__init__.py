"""ik_llama.cpp: abilities, memory rules and launch line."""

from __future__ import annotations

from tonnage.engines.facts import DescribedEngine
from tonnage.engines.ik_llama_cpp.accounting import ACCOUNTING
from tonnage.engines.ik_llama_cpp.launch import launch

__all__ = ["ENGINE"]

ENGINE = DescribedEngine(name="ik_llama.cpp", data="ik_llama_cpp", accounting=ACCOUNTING, launcher=launch)
