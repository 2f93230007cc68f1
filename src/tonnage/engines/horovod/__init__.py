"""Horovod: refusals and launch."""

from __future__ import annotations

from tonnage.engines.horovod.launch import launch
from tonnage.engines.trainers import Trainer

__all__ = ["TRAINER"]

TRAINER = Trainer(name="horovod", data="horovod", launcher=launch)
