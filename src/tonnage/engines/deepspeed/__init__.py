"""DeepSpeed under the Transformers Trainer: refusals and launch."""

from __future__ import annotations

from tonnage.engines.deepspeed.launch import launch
from tonnage.engines.trainers import Trainer

__all__ = ["TRAINER"]

TRAINER = Trainer(name="deepspeed", data="deepspeed", launcher=launch)
