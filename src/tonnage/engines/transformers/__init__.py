"""transformers: abilities, memory rules and launch line."""

from __future__ import annotations

from tonnage.engines.facts import DescribedEngine
from tonnage.engines.trainers import Trainer
from tonnage.engines.transformers import training
from tonnage.engines.transformers.accounting import accounting
from tonnage.engines.transformers.launch import launch

__all__ = ["ENGINE", "TRAINER"]

ENGINE = DescribedEngine(name="transformers", data="transformers", rules=accounting, launcher=launch)
TRAINER = Trainer(name="transformers", data="transformers", launcher=training.launch)
