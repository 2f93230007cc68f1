"""Megatron-LM: refusals and launch."""

from __future__ import annotations

from tonnage.engines.megatron.launch import launch
from tonnage.engines.trainers import Trainer

__all__ = ["TRAINER"]

TRAINER = Trainer(name="megatron", data="megatron", launcher=launch)
