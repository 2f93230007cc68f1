"""LLaMA-Factory: refusals and launch."""

from __future__ import annotations

from tonnage.engines.llamafactory.launch import launch
from tonnage.engines.trainers import Trainer

__all__ = ["TRAINER"]

TRAINER = Trainer(name="llamafactory", data="llamafactory", launcher=launch)
