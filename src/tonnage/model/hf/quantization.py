"""What a checkpoint's own `quantization_config` says of its weights."""

from __future__ import annotations

from tonnage.model.hf.fields import Fields
from tonnage.model.types import Quantization


def quantization_from_config(f: Fields) -> Quantization | None:
    """Return the format of the weights on disk, or None where they are in the model's own type."""
    del f
    return None
