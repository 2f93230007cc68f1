"""axolotl: refusals and launch."""

from __future__ import annotations

from tonnage.engines.axolotl.launch import launch
from tonnage.engines.trainers import Trainer

__all__ = ["TRAINER"]

TRAINER = Trainer(name="axolotl", data="axolotl", launcher=launch)
