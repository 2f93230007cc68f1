"""transformers: abilities, memory rules and launch line."""

from __future__ import annotations

from tonnage.engines.facts import DescribedEngine
from tonnage.engines.transformers.accounting import ACCOUNTING
from tonnage.engines.transformers.launch import launch

__all__ = ["ENGINE"]

ENGINE = DescribedEngine(name="transformers", data="transformers", accounting=ACCOUNTING, launcher=launch)
