"""What a model is, in numbers: parameters, cache, operations, bytes in every format; unknown is None."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tonnage.estimate.flops import forward_flop_per_token
from tonnage.estimate.kv_cache import Cache, cache
from tonnage.estimate.parameters import ParameterCounts, count
from tonnage.estimate.weights import FORMATS, checkpoint_format, weights_bytes
from tonnage.model.types import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSummary:
    """The numbers of one model; what cannot be known from what was read is None."""

    model: Model
    context_tokens: int
    parameters: ParameterCounts
    active: int | None
    active_without_embedding: int | None
    cache: Cache | None
    forward_flop_per_token: float | None
    weights_bytes: Mapping[str, int]
    checkpoint_format: str
    checkpoint_bytes: int | None


def summarize(model: Model, context_tokens: int = 4096, formats: Collection[str] | None = None) -> ModelSummary:
    """Return what there is to know of a model.

    Parameters
    ----------
    model : Model
        The model.
    context_tokens : int
        Length of the sequence that operations a token are counted in. [1]
    formats : collection of str
        Names of `FORMATS` to give bytes in, beside the checkpoint's own; all by default.

    Returns
    -------
    ModelSummary
        Its numbers. Of a model known by its header alone, cache and operations are None, and so are the weights a
        token touches where it has experts.
    """
    counts = count(model)
    has_layers = bool(model.layers)
    is_dense = "experts" not in counts.by_component
    is_known = has_layers or is_dense
    stored = {name: kept for name, kept in model.stored_bytes.items() if name != "mtp"}
    return ModelSummary(
        model=model,
        context_tokens=context_tokens,
        parameters=counts,
        active=counts.active if is_known else None,
        active_without_embedding=counts.active_without_embedding if is_known else None,
        cache=cache(model) if has_layers else None,
        forward_flop_per_token=forward_flop_per_token(model, context_tokens) if has_layers else None,
        weights_bytes=_formats(model, formats),
        checkpoint_format=checkpoint_format(model),
        checkpoint_bytes=sum(stored.values()) if stored else None,
    )


def _formats(model: Model, wanted: Collection[str] | None) -> dict[str, int]:
    """Return the bytes in each format asked for that they are known in."""
    own = checkpoint_format(model)
    has_stored = bool(model.stored_bytes)
    names = [
        name
        for name, one in FORMATS.items()
        if (wanted is None or name in wanted or (name == own and has_stored))
        and (model.layers or one.kind == "plain" or (name == own and has_stored))
    ]
    return {name: sum(weights_bytes(model, name).values()) for name in names}
