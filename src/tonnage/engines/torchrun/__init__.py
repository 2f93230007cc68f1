"""torchrun with FSDP2 under the Transformers Trainer: refusals and launch."""

from __future__ import annotations

from tonnage.engines.torchrun.launch import launch
from tonnage.engines.trainers import Trainer

__all__ = ["TRAINER"]

TRAINER = Trainer(name="torchrun", data="torchrun", launcher=launch)
