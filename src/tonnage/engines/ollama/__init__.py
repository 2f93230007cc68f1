"""ollama: abilities, memory rules and launch line."""

from __future__ import annotations

from tonnage.engines.facts import DescribedEngine
from tonnage.engines.ollama.accounting import accounting
from tonnage.engines.ollama.launch import launch

__all__ = ["ENGINE"]

ENGINE = DescribedEngine(name="ollama", data="ollama", rules=accounting, launcher=launch)
