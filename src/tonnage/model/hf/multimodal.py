"""Models with a tower beside the text: the text model's layers, the tower's exact count, one tie between them.

References
----------
.. [1] huggingface/transformers 5.24.0, `models/<family>/modeling_<family>.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tonnage.model.hf.fields import Fields
from tonnage.model.types import Model


def with_tower(f: Fields, build_text: Callable[[Fields], Model]) -> Model:
    """Return the text model under the whole model's own tie; its tower is added by `model_from_config`."""
    text = build_text(f.part("text_config"))
    return tied_as(text, is_tied=f.flag("tie_word_embeddings"))


def tied_as(model: Model, *, is_tied: bool) -> Model:
    """Return a model whose head is the embedding, or is not."""
    if model.is_tied == is_tied:
        return model
    embedding = model.vocab_size * model.hidden_size
    head = model.other_parameters.get("lm_head", 0) + (-embedding if is_tied else embedding)
    other = {**model.other_parameters, "lm_head": head}
    return replace(model, is_tied=is_tied, other_parameters={name: count for name, count in other.items() if count})
