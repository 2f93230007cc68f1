"""Which model a measurement row means: by its name, or a shape made of the figures that the row itself states."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from tonnage import datafiles
from tonnage.errors import RequestError
from tonnage.estimate.parameters import count
from tonnage.model import catalogue
from tonnage.model.hf import model_from_config
from tonnage.model.types import Attention, Layer, Mlp, Model

__all__ = ["NamedModel", "model_of_row"]

_SHAPES = "measurements/model_shapes.jsonl"
# What publishers add to a name without changing the shape.
_SUFFIXES = re.compile(
    r"(instruct|chat|thinking|base|hf|it|fp8|fp8dynamic|nvfp4|pt|preview|\d{4}|v0\d|nemotron|staticpertensor|dynamic)$"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedModel:
    """A model and whether its shape is known, or only made of a few figures."""

    model: Model
    is_known: bool
    is_cache_known: bool = True  # or at least the layers and heads that a cache is made of


def _compact(name: str) -> str:
    """Return letters and digits only, in lower case, without folder, shard number and file type."""
    text = (name if re.search(r"[\s(]", name) else name.rsplit("/", 1)[-1]).lower()
    text = re.sub(r"\.(gguf|safetensors)$", "", text)
    text = re.sub(r"-\d{5}-of-\d{5}$", "", text)
    return re.sub(r"[^a-z0-9]", "", text)


def _core(name: str) -> str:
    """Return a compact name without what publishers add."""
    text = re.sub(r"^(meta|nvidia|redhatai)(?=llama|qwen|deepseek)", "", _compact(name))
    while (shorter := _SUFFIXES.sub("", text)) != text and len(shorter) > 5:
        text = shorter
    return text


@cache
def _shapes() -> dict[str, dict[str, Any]]:
    """Return the shapes kept for scoring, by compact alias."""
    found: dict[str, dict[str, Any]] = {}
    for line in datafiles.text(_SHAPES).splitlines():
        if line:
            one = json.loads(line)
            for alias in one["aliases"]:
                found[_compact(alias)] = one
    return found


@cache
def _known() -> tuple[tuple[str, str, bool], ...]:
    """Return (compact name, name, whether the catalogue has it), longest first; shapes kept for scoring win ties."""
    names = {_core(name): (name, True) for name in reversed(catalogue.names())}
    names |= {alias: (alias, False) for alias in _shapes()}
    return tuple((core, name, is_listed) for core, (name, is_listed) in sorted(names.items(), key=lambda i: -len(i[0])))


@cache
def _find(name: str, is_listed: bool) -> Model:
    if is_listed:
        return catalogue.find(name)
    one = _shapes()[name]
    if "same_as" in one:
        return catalogue.find(one["same_as"])
    return model_from_config(one["config"], name=one["aliases"][0], source=one["source"])


@cache
def _by_name(text: str) -> Model | None:
    """Return the model whose name is the longest that the text holds."""
    compact = _compact(text)
    for core, name, is_listed in _known():
        at = compact.find(core)
        while at >= 0:
            digits = re.match(r"\d*", compact[at + len(core) :])
            is_end = not core[-1].isdigit() or (
                digits is not None and len(digits[0]) in (0, 4, 6, 8)
            )  # a date may follow
            if is_end and not (core[0].isdigit() and compact[at - 1 : at].isdigit()):
                return _find(name, is_listed)
            at = compact.find(core, at + 1)
    return None


def model_of_row(row: Mapping[str, Any]) -> NamedModel:
    """Return the model that a row means: of the config.json that it carries, else by its name.

    Raises
    ------
    RequestError
        The name is unknown and the row states too little of the shape.
    """
    if isinstance(config := row.get("config"), dict):
        text = json.dumps(config, sort_keys=True)
        return NamedModel(model=_of_config(text, str(row.get("model", ""))), is_known=True)
    found = _by_name(str(row.get("model", "")))
    stated = row.get("params_b")
    if found is not None and (not stated or _is_near(found, float(stated))):
        return NamedModel(model=found, is_known=True)
    arch = row.get("arch") or {}
    has_cache = {"n_layers", "n_kv_heads", "head_dim_k"} <= arch.keys() and arch["head_dim_k"] == arch.get("head_dim_v")
    return NamedModel(model=_made_of(row), is_known=False, is_cache_known=has_cache)


@lru_cache(maxsize=64)
def _of_config(text: str, name: str) -> Model:
    return model_from_config(json.loads(text), name=name)


def _is_near(model: Model, num_billions: float) -> bool:
    """Whether a stated count can be this model's: tools count tied embeddings once or twice, and leave towers out."""
    total = count(model).total / 1e9
    return 0.8 < total / num_billions < 1.3


@cache
def _dense(
    num_layers: int,
    hidden_size: int,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    intermediate_size: int,
    vocab: int,
) -> Model:
    attention = Attention(num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim)
    layer = Layer(
        mixers=(attention,), feed_forwards=(Mlp(intermediate_size=intermediate_size),), norm_parameters=2 * hidden_size
    )
    embedding = vocab * hidden_size
    return Model(
        name="dense decoder",
        family="llama",
        hidden_size=hidden_size,
        vocab_size=vocab,
        layers=(layer,) * num_layers,
        other_parameters={"embedding": embedding, "lm_head": embedding, "norm": hidden_size},
        status="reconstructed",
    )


def _made_of(row: Mapping[str, Any]) -> Model:
    """Return a dense decoder of a row's own figures: layers, heads, width and number of weights.

    What is not stated follows the usual proportions of dense decoders: heads of 128, a width of 128 per layer, a
    vocabulary of 64 thousand, and feed-forwards that take the weights that remain.
    """
    arch = row.get("arch") or {}
    total = float(row.get("params_b") or 0.0) * 1e9
    if row.get("is_moe") or not (total or (arch.get("n_layers") and arch.get("hidden"))):
        raise RequestError(
            "the model's shape is not known", where="model", fix="give a name of the catalogue, or layers and width"
        )
    num_layers = int(arch.get("n_layers") or max(4, round((total / (12 * 128**2)) ** (1 / 3))))
    hidden_size = int(arch.get("hidden") or max(256, 128 * round((total / (12 * num_layers)) ** 0.5 / 128)))
    head_dim = int(arch.get("head_dim") or arch.get("head_dim_k") or 128)
    num_heads = max(1, hidden_size // head_dim)
    num_kv_heads = int(arch.get("n_kv_heads") or min(8, num_heads))
    vocab = 64_000
    attention = 2 * hidden_size * head_dim * (num_heads + num_kv_heads)
    left = (total or 12.0 * num_layers * hidden_size**2) - 2 * vocab * hidden_size - num_layers * attention
    intermediate = max(hidden_size, round(left / num_layers / (3 * hidden_size)))
    return _dense(num_layers, hidden_size, num_heads, num_kv_heads, head_dim, intermediate, vocab)
