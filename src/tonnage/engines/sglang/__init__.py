"""sglang: abilities, memory rules and launch line."""

from __future__ import annotations

from tonnage.engines.facts import DescribedEngine
from tonnage.engines.sglang.accounting import accounting
from tonnage.engines.sglang.launch import launch

__all__ = ["ENGINE"]

ENGINE = DescribedEngine(name="sglang", data="sglang", rules=accounting, launcher=launch)
