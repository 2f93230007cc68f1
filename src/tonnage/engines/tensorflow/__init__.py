"""TensorFlow: refusals and launch."""

from __future__ import annotations

from tonnage.engines.tensorflow.launch import launch
from tonnage.engines.trainers import Trainer

__all__ = ["TRAINER"]

TRAINER = Trainer(name="tensorflow", data="tensorflow", launcher=launch)
