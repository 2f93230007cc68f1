"""llama.cpp: abilities, memory rules and launch line."""

from __future__ import annotations

from tonnage.engines.facts import DescribedEngine
from tonnage.engines.llama_cpp.accounting import accounting
from tonnage.engines.llama_cpp.launch import launch

__all__ = ["ENGINE"]

ENGINE = DescribedEngine(name="llama.cpp", data="llama_cpp", rules=accounting, launcher=launch)
