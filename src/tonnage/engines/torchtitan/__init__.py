"""torchtitan: refusals and launch."""

from __future__ import annotations

from tonnage.engines.torchtitan.launch import launch
from tonnage.engines.trainers import Trainer

__all__ = ["TRAINER"]

TRAINER = Trainer(name="torchtitan", data="torchtitan", launcher=launch)
