"""ktransformers: abilities, memory rules and launch line."""

from __future__ import annotations

from tonnage.engines.facts import DescribedEngine
from tonnage.engines.ktransformers.accounting import accounting
from tonnage.engines.ktransformers.launch import launch

__all__ = ["ENGINE"]

ENGINE = DescribedEngine(name="ktransformers", data="ktransformers", rules=accounting, launcher=launch)
