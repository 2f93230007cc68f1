"""A config.json, read exactly into a `Model`: which family it is, and what the family makes of its fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, cast

from tonnage.errors import BadFileError, RequestError
from tonnage.model.hf.classic import CLASSIC
from tonnage.model.hf.encoders import ENCODERS
from tonnage.model.hf.families import SAME_AS, family
from tonnage.model.hf.fields import Fields
from tonnage.model.hf.image_tokens import num_image_tokens
from tonnage.model.hf.multimodal import MULTIMODAL, TEXT
from tonnage.model.hf.quantization import quantization_from_config
from tonnage.model.hf.vision import encoder_from_config
from tonnage.model.types import Model

__all__ = ["BUILDERS", "model_from_config"]

Builder = Callable[[Fields], Model]

_NAMED: Final[dict[str, Builder]] = {**TEXT, **CLASSIC, **MULTIMODAL, **ENCODERS}
BUILDERS: Final[dict[str, Builder]] = {**{name: _NAMED[other] for name, other in SAME_AS.items()}, **_NAMED}


def model_from_config(config: Mapping[str, Any], name: str = "", source: str = "") -> Model:
    """Return the model that a config.json describes.

    Parameters
    ----------
    config : mapping
        The parsed config.json.
    name : str
        What the model is called; the config's own `_name_or_path` where empty.
    source : str
        Where the config came from, for messages and provenance.

    Returns
    -------
    Model
        Its layers with exact sizes.

    Raises
    ------
    BadFileError
        It is not the configuration of a model.
    RequestError
        A field has the wrong type or is missing, or the family is unknown: a guess would look like a fact.
    """
    where = source or name or "config.json"
    model_type = config.get("model_type") if isinstance(config, Mapping) else None  # pyright: ignore[reportUnnecessaryIsInstance] - it is parsed JSON, anything
    if not isinstance(model_type, str) or not model_type:
        raise BadFileError(
            "no 'model_type': not a model's config.json", where=where, fix="give the config.json beside the weights"
        )
    builder = BUILDERS.get(model_type)
    if builder is None:
        raise unknown_family(model_type, where)
    f = Fields(config, family(model_type), where=where)
    model = builder(f)
    called = config.get("_name_or_path")
    quantization, warning = quantization_from_config(f, model.layers)
    return replace(
        model,
        name=name or (called if isinstance(called, str) else "") or model_type,
        family=model_type,
        source=source,
        dtype=dtype_of(f),
        quantization=quantization,
        encoder=model.encoder or encoder_from_config(f),
        default_num_image_tokens=num_image_tokens(f),
        warnings=(*model.warnings, *((warning,) if warning else ())),
    )


def dtype_of(f: Fields) -> str:
    """Return the type the weights are kept in: the whole model's, else the text model's, else bfloat16."""
    text: object = f.config.get("text_config")
    parts = (f.config, cast("Mapping[str, Any]", text)) if isinstance(text, Mapping) else (f.config,)
    for config in parts:
        for name in ("dtype", "torch_dtype"):
            value = config.get(name)
            if value is not None:
                if not isinstance(value, str):
                    raise f.refuse(name, "is not text")
                return value.removeprefix("torch.")
    return "bfloat16"


def unknown_family(model_type: str, where: str) -> RequestError:
    """Return the error for a family without a formula, to be raised."""
    return RequestError(
        f"the family '{model_type[:60]}' is unknown",
        where=where,
        fix="give a .safetensors index or .gguf of the model, whose header is counted instead, "
        "trace its training with plan --oracle, or add the family (CONTRIBUTING: add a model family)",
    )
