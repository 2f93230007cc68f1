"""vllm: abilities, memory rules and launch line."""

from __future__ import annotations

from tonnage.engines.facts import DescribedEngine
from tonnage.engines.vllm.accounting import accounting
from tonnage.engines.vllm.launch import launch

__all__ = ["ENGINE"]

ENGINE = DescribedEngine(name="vllm", data="vllm", rules=accounting, launcher=launch)
