"""tensorrt-llm: abilities, memory rules and launch line."""

from __future__ import annotations

from tonnage.engines.facts import DescribedEngine
from tonnage.engines.tensorrt_llm.accounting import accounting
from tonnage.engines.tensorrt_llm.launch import launch

__all__ = ["ENGINE"]

ENGINE = DescribedEngine(name="tensorrt-llm", data="tensorrt_llm", rules=accounting, launcher=launch)
