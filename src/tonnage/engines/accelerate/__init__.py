"""Accelerate with the DeepSpeed plugin: refusals and launch."""

from __future__ import annotations

from tonnage.engines.accelerate.launch import launch
from tonnage.engines.trainers import Trainer

__all__ = ["TRAINER"]

TRAINER = Trainer(name="accelerate", data="accelerate", launcher=launch)
