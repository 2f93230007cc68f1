"""DeepSpeed under the Transformers Trainer: refusals and launches, by torchrun or by Accelerate's plugin."""

from __future__ import annotations

from tonnage.engines.deepspeed import plugin
from tonnage.engines.deepspeed.launch import launch
from tonnage.engines.trainers import Trainer

__all__ = ["ACCELERATE", "TRAINER"]

TRAINER = Trainer(name="deepspeed", data="deepspeed", launcher=launch)
ACCELERATE = Trainer(name="accelerate", data="accelerate", launcher=plugin.launch)
