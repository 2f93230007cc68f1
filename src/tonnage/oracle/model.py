"""A transformers model of a config.json, on fake tensors: installed code only, no weights, nothing downloaded."""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from copy import deepcopy
from typing import Any, Final

from tonnage.errors import BadFileError, OutsideError, RequestError
from tonnage.oracle.types import Job

_CLASSES: Final = ("AutoModelForCausalLM", "AutoModelForImageTextToText", "AutoModelForMaskedLM")
# What would make transformers fetch code or kernels, or store weights in another format.
_LEFT_OUT: Final = ("auto_map", "quantization_config", "attn_implementation", "experts_implementation")
_MOST_LAYERS: Final = 1000
_TRAITS: Final = ("layer_type", "attention_type", "is_sliding", "sliding_window", "use_rope", "is_moe_layer")


def require_torch() -> None:
    """Refuse, in one line, where torch or transformers is not installed."""
    os.environ["HF_HUB_OFFLINE"], os.environ["USE_HUB_KERNELS"] = "1", "0"
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    for name in ("torch", "transformers"):
        try:
            importlib.import_module(name)
        except ImportError:
            raise OutsideError(
                f"{name} is not installed", where="--oracle", fix="pip install 'tonnage[trace]'"
            ) from None
    if not hasattr(importlib.import_module("transformers"), "AttentionInterface"):
        raise OutsideError("transformers is too old", where="--oracle", fix="pip install --upgrade 'tonnage[trace]'")


def configuration(config: Mapping[str, Any]) -> Any:
    """Return transformers' own configuration object."""
    from transformers import CONFIG_MAPPING  # noqa: PLC0415 - after `require_torch`
    from transformers import __version__ as version  # noqa: PLC0415

    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in CONFIG_MAPPING:
        raise RequestError(
            f"the family '{str(model_type)[:60]}' is unknown to transformers {version}",
            where="--oracle",
            fix="install a release that has it; code of a repository is never run",
        )
    fields = {name: value for name, value in config.items() if name not in _LEFT_OUT and not name.startswith("_")}
    try:
        found: Any = CONFIG_MAPPING[model_type].from_dict(fields)
    except Exception as error:  # noqa: BLE001 - each family checks its fields in its own way
        raise BadFileError(
            f"transformers refuses it: {error}"[:300], where="config.json", fix="give the model's own file"
        ) from None
    layers = getattr(found.get_text_config(), "num_hidden_layers", None)
    if not isinstance(layers, int) or not 1 <= layers <= _MOST_LAYERS:
        raise BadFileError(
            f"{layers} layers cannot be traced", where="num_hidden_layers", fix=f"give 1 to {_MOST_LAYERS}"
        )
    return found


def build(config: Any, job: Job, attention: str) -> Any:
    """Return a model; call it under a fake tensor mode."""
    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415

    names = (_CLASSES[1], *_CLASSES) if hasattr(config, "vision_config") else _CLASSES
    classes = [getattr(transformers, name) for name in names if hasattr(transformers, name)]
    chosen = next((one for one in classes if type(config) in one._model_mapping), None)  # noqa: SLF001
    if chosen is None:
        raise RequestError(f"'{config.model_type}' makes no text", where="--oracle", fix="give a language model")
    dtype = {"fp32": torch.float32, "fp16": torch.float16}.get(job.weights, torch.bfloat16)
    with _without_initialization():
        try:
            model = chosen.from_config(deepcopy(config), attn_implementation=attention, dtype=dtype)
        except (KeyError, ValueError):  # a table of its own, without ours
            model = chosen.from_config(deepcopy(config), attn_implementation="eager", dtype=dtype)
    model.tie_weights()
    model.train()
    for part in model.modules():
        if isinstance(part, transformers.PreTrainedModel):
            part.config.use_cache = False
    if not job.has_dropout:
        _without_dropout(model)
    return model


def _without_initialization() -> Any:
    """Return a context in which weights stay as they are allocated."""
    for place in ("transformers.initialization", "transformers.modeling_utils"):
        try:
            return importlib.import_module(place).no_init_weights()
        except (ImportError, AttributeError):
            continue
    return nullcontext()


def _without_dropout(model: Any) -> None:
    import torch  # noqa: PLC0415

    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
        for name, value in vars(part).items():
            if "dropout" in name and isinstance(value, float):
                setattr(part, name, 0.0)


def layers_of(model: Any, num_layers: int) -> tuple[Any, str]:
    """Return the module that holds the list of the text model's layers, and the list's name there."""
    import torch  # noqa: PLC0415

    found: list[tuple[int, Any, str]] = []
    for part in model.modules():
        for name, child in part.named_children():
            if isinstance(child, torch.nn.ModuleList) and len(child) == num_layers:
                found.append((sum(p.numel() for p in child.parameters()), part, name))
    if not found:
        raise RequestError(
            "no list of its layers is found in transformers' class", where="--oracle", fix="this model cannot be traced"
        )
    _, holder, name = max(found, key=lambda one: one[0])
    return holder, name


def kinds_of(layers: Sequence[Any]) -> list[Hashable]:
    """Return, layer by layer, what makes it cost what it costs: its modules, their traits and their weights' shapes."""
    return [tuple(_described(layer)) for layer in layers]


def _described(layer: Any) -> Iterator[Hashable]:
    for name, part in layer.named_modules():
        yield name, type(part).__name__
        for trait in _TRAITS:
            value = getattr(part, trait, None)
            if isinstance(value, (str, int, bool)):
                yield trait, value
    for name, parameter in layer.named_parameters():
        yield name, tuple(parameter.shape)


def keep_layers(model: Any, chosen: Sequence[int], num_layers: int) -> None:
    """Shorten the stack: the list of layers, and what the configuration says of each."""
    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415

    holder, name = layers_of(model, num_layers)
    layers = getattr(holder, name)
    setattr(holder, name, torch.nn.ModuleList([layers[index] for index in chosen]))
    configs = {
        id(c): c
        for part in model.modules()
        if isinstance(part, transformers.PreTrainedModel)
        for c in (part.config, part.config.get_text_config())
    }
    for config in configs.values():
        if getattr(config, "num_hidden_layers", None) != num_layers:
            continue
        for field, value in vars(config).items():
            if isinstance(value, list) and len(value) == num_layers:
                setattr(config, field, [value[index] for index in chosen])
        config.num_hidden_layers = len(chosen)


def recompute_layers(model: Any) -> None:
    """Recompute each layer in backward."""
    enable = getattr(model, "activation_checkpointing_enable", None)
    if enable is None:
        enable, name = model.gradient_checkpointing_enable, "gradient_checkpointing_kwargs"
    else:
        name = next(iter(inspect.signature(enable).parameters))
    enable(**{name: {"use_reentrant": False, "preserve_rng_state": False}})
