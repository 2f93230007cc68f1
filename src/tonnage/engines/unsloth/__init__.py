"""Unsloth: refusals and launch."""

from __future__ import annotations

from tonnage.engines.trainers import Trainer
from tonnage.engines.unsloth.launch import launch

__all__ = ["TRAINER"]

TRAINER = Trainer(name="unsloth", data="unsloth", launcher=launch)
