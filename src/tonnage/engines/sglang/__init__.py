"""sglang: abilities, memory rules and launch line."""

from __future__ import annotations

from tonnage.engines.facts import DescribedEngine
from tonnage.engines.sglang.accounting import ACCOUNTING
from tonnage.engines.sglang.launch import launch

__all__ = ["ENGINE"]

ENGINE = DescribedEngine(name="sglang", data="sglang", accounting=ACCOUNTING, launcher=launch)
