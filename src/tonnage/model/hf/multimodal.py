"""Models with a tower beside the text: the text model's layers, and which of the configs decides about the head.

The tower itself is counted by `vision.encoder_from_config` and added by `model_from_config`.

References
----------
.. [1] huggingface/transformers 5.24.0, `models/<family>/modeling_<family>.py`.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final, Literal, cast

from tonnage.model.hf.decoder import DENSE
from tonnage.model.hf.families import SAME_AS
from tonnage.model.hf.fields import Fields
from tonnage.model.hf.gemma import GEMMA
from tonnage.model.hf.hybrid import HYBRID, tied_as_lfm
from tonnage.model.hf.latent import LATENT
from tonnage.model.hf.moe import SPARSE
from tonnage.model.hf.vision import with_usual_text
from tonnage.model.types import Model

TEXT: Final[dict[str, Callable[[Fields], Model]]] = {**DENSE, **SPARSE, **LATENT, **HYBRID, **GEMMA}

# whose word on the head counts: the whole model's, the text model's, either's, or nobody's
Tie = Literal["whole", "text", "either", "never"]


def text_of(f: Fields) -> Model:
    """Return the text model of any family that `text_config` names."""
    builder = TEXT.get(SAME_AS.get(f.model_type, f.model_type))
    if builder is None:
        raise f.refuse("model_type", f"names '{f.model_type[:60]}', a text model that is unknown")
    return builder(f)


def with_tower(f: Fields, *, tie: Tie = "whole", part: str = "text_config") -> Model:
    """Return the text model of a larger one."""
    text = text_of(f.part(part))
    whole = f.flag("tie_word_embeddings")
    is_tied = {"whole": whole, "text": text.is_tied, "either": whole or text.is_tied, "never": False}[tie]
    return tied_as(text, is_tied=is_tied)


def qwen_vl(f: Fields) -> Model:
    """Return the text model of Qwen2-VL, whose older configs keep the text's fields beside the others."""
    if f.config.get("text_config") is None:
        text = ChainMap({"model_type": f"{f.model_type}_text"}, cast("dict[str, Any]", f.config))
        return with_tower(f.with_fields({"text_config": text}), tie="either")
    return with_tower(f, tie="either")


def lfm2_vl(f: Fields) -> Model:
    """Return the text model of LFM2-VL, with its own name for the tie."""
    return tied_as(text_of(f.part("text_config")), is_tied=tied_as_lfm(f))


def tied_as(model: Model, *, is_tied: bool) -> Model:
    """Return a model whose head is the embedding, or is not."""
    if model.is_tied == is_tied:
        return model
    embedding = model.vocab_size * model.hidden_size
    head = model.other_parameters.get("lm_head", 0) + (-embedding if is_tied else embedding)
    other = {**model.other_parameters, "lm_head": head}
    return replace(model, is_tied=is_tied, other_parameters={name: count for name, count in other.items() if count})


MULTIMODAL: Final[dict[str, Callable[[Fields], Model]]] = {
    "aya_vision": with_tower,
    "cohere2_vision": with_tower,
    "glm46v": partial(with_tower, tie="either"),
    "glm4v": partial(with_tower, tie="either"),
    "glm4v_moe": partial(with_tower, tie="either"),
    "idefics3": with_tower,
    "llava_next": with_tower,
    "llava_onevision": partial(with_tower, tie="either"),
    "paligemma": with_tower,
    "qwen2_audio": partial(with_tower, tie="never"),
    "smolvlm": with_tower,
    "gemma3": with_tower,
    "gemma3n": with_tower,
    "gemma4": with_tower,
    "internvl": with_tower,
    "kimi_k25": with_tower,
    "lfm2_vl": lfm2_vl,
    "llama4": partial(with_tower, tie="text"),
    "llava": partial(with_tower, tie="either"),
    "minimax_m3_vl": partial(with_tower, tie="either"),
    "mistral3": with_tower,
    "qwen2_vl": qwen_vl,
    "qwen2_5_vl": qwen_vl,
    "qwen3_5": with_tower,
    "qwen3_5_moe": with_tower,
    "qwen3_omni_moe": lambda f: with_tower(f.part("thinker_config")),
    "qwen3_vl": with_tower,
    "qwen3_vl_moe": with_tower,
    "step3p7": with_tower,
    "voxtral": lambda f: with_tower(with_usual_text(f), tie="never"),
}
