"""The tower beside a text model, with the projector between them, counted exactly.

References
----------
.. [1] huggingface/transformers 5.24.0, the projector of each family in `models/<family>/modeling_<family>.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, cast

from tonnage.model.hf.fields import Fields
from tonnage.model.hf.omni import speech_parameters
from tonnage.model.hf.tower_counts import (
    linear_parameters,
    merger_parameters,
    two_layer_projector_parameters,
)
from tonnage.model.hf.towers import num_patches, pair, tower
from tonnage.model.types import Encoder


def encoder_from_config(f: Fields) -> Encoder | None:
    """Return the tower of a model, with the projector into the text model; None where the model has none."""
    family = FAMILIES.get(f.model_type)
    return family(f) if family is not None else None


def joined(vision: Encoder, projector_parameters: int, num_merged: int = 1) -> Encoder:
    """Return a tower with its projector, which makes one token of `num_merged` patches."""
    return replace(
        vision, num_parameters=vision.num_parameters + projector_parameters, tokens_per_patch_group=num_merged
    )


def text_width(f: Fields) -> int:
    """Return the width of the text model."""
    return f.part("text_config").count("hidden_size")


def num_feature_layers(f: Fields) -> int:
    """Return how many layers' features the projector takes side by side."""
    value = f.get("vision_feature_layer")
    return max(1, len(cast("list[Any]", value))) if isinstance(value, list | tuple) else 1


def with_own_merger(f: Fields) -> Encoder:
    """Qwen: the merger is part of the tower."""
    return tower(f.part("vision_config"))


def gemma3(f: Fields) -> Encoder:
    """Gemma 3: patches are averaged, normed and projected by one matrix."""
    part = f.part("vision_config")
    vision, num_tokens = tower(part), f.count("mm_tokens_per_image")
    return joined(vision, vision.hidden_size * (text_width(f) + 1), max(1, num_patches(part) // num_tokens))


def gemma3n(f: Fields) -> Encoder | None:
    """Gemma 3n: image and sound, each with a table of tokens of its own, two norms and a matrix."""
    found: list[Encoder] = []
    for name in ("vision_config", "audio_config"):
        part = f.part(name)
        width = part.count("hidden_size")
        found.append(joined(tower(part), width * (part.count("vocab_size") + 2 + text_width(f))))
    return together(found)


def gemma4(f: Fields) -> Encoder | None:
    """Gemma 4: vision and audio, each optional, each projected by one matrix."""
    found: list[Encoder] = []
    if f.has("vision_config"):
        part = f.part("vision_config")
        vision = tower(part)
        found.append(joined(vision, vision.hidden_size * text_width(f), part.count("pooling_kernel_size") ** 2))
    if f.has("audio_config"):
        part = f.part("audio_config")
        found.append(joined(tower(part), part.count("output_proj_dims") * text_width(f)))
    return together(found)


def together(towers: list[Encoder]) -> Encoder | None:
    """Return towers as one: the first one's shape, the parameters of all."""
    if not towers:
        return None
    kinds = "+".join(part.kind for part in towers)
    return replace(towers[0], num_parameters=sum(part.num_parameters for part in towers), kind=kinds)


def internvl(f: Fields) -> Encoder:
    """InternVL: pixels are unshuffled, normed and projected by two matrices."""
    vision, width = tower(f.part("vision_config")), text_width(f)
    num_merged = int(1 / f.number("downsample_ratio")) ** 2
    merged = vision.hidden_size * num_merged
    return joined(vision, 2 * merged + two_layer_projector_parameters(merged, width, width), num_merged)


def kimi_k25(f: Fields) -> Encoder:
    """Kimi K2.5: a patch merger behind a last norm."""
    part = f.part("vision_config")
    vision, (height, width) = tower(part), pair(part, "merge_kernel_size")
    merger = merger_parameters(
        vision.hidden_size * height * width,
        text_width(f),
        num_norm_parameters=2 * f.count_or("projection_hidden_size", vision.hidden_size),
    )
    return joined(vision, merger, height * width)


def lfm2_vl(f: Fields) -> Encoder:
    """LFM2-VL: pixels are unshuffled and projected by two matrices, with an optional norm in front."""
    vision, factor = tower(f.part("vision_config")), f.count("downsample_factor")
    merged = vision.hidden_size * factor**2
    projector = two_layer_projector_parameters(
        merged, f.count("projector_hidden_size"), text_width(f), has_bias=f.flag("projector_bias")
    )
    norm = 2 * merged if f.flag("projector_use_layernorm") else 0
    return joined(vision, projector + norm, factor**2)


def llama4(f: Fields) -> Encoder:
    """Llama 4: pixels are shuffled into channels, two matrices in the tower, one into the text width; no biases."""
    part = f.part("vision_config")
    vision, out = tower(part), part.count("projector_output_dim")
    projector = (
        part.count("intermediate_size") * part.count("projector_input_dim")
        + out * out
        + part.count("vision_output_dim") * text_width(f)
    )
    return joined(vision, projector, round(1 / part.number("pixel_shuffle_ratio")) ** 2)


def llava(f: Fields) -> Encoder:
    """LLaVA: two matrices."""
    vision, width = tower(f.part("vision_config")), text_width(f)
    projector = two_layer_projector_parameters(
        vision.hidden_size * num_feature_layers(f), width, width, has_bias=f.flag("multimodal_projector_bias")
    )
    return joined(vision, projector)


def llava_next(f: Fields) -> Encoder:
    """LLaVA-NeXT and LLaVA-OneVision: LLaVA's projector, and a vector that ends each row of tiles."""
    plain = llava(f)
    return replace(plain, num_parameters=plain.num_parameters + text_width(f))


def paligemma(f: Fields) -> Encoder:
    """PaliGemma: one matrix."""
    vision = tower(f.part("vision_config"))
    return joined(vision, linear_parameters(vision.hidden_size, f.count("projection_dim")))


def idefics3(f: Fields) -> Encoder:
    """Idefics 3 and SmolVLM: pixels are unshuffled and projected by one matrix without a bias."""
    vision, num_merged = tower(f.part("vision_config")), f.count("scale_factor") ** 2
    return joined(vision, vision.hidden_size * num_merged * text_width(f), num_merged)


def cohere(f: Fields, *, has_norm: bool) -> Encoder:
    """Aya Vision and Command A Vision: pixels are unshuffled, normed in the former, and projected through a gate."""
    vision, num_merged, width = tower(f.part("vision_config")), f.count("downsample_factor") ** 2, text_width(f)
    merged, inner = vision.hidden_size * num_merged, f.count_or("alignment_intermediate_size", width)
    projector = linear_parameters(merged, inner) + linear_parameters(inner // 2, width)
    return joined(vision, projector + (2 * merged if has_norm else 0), num_merged)


def qwen2_audio(f: Fields) -> Encoder:
    """Qwen2-Audio: pairs of frames are averaged and projected by one matrix."""
    audio = tower(f.part("audio_config"))
    return joined(audio, linear_parameters(audio.hidden_size, text_width(f)), 2)


def qwen3_omni(f: Fields) -> Encoder | None:
    """Qwen3-Omni: eyes and ears with their own projections, and what it speaks with."""
    thinker = f.part("thinker_config")
    found = together([tower(thinker.part("vision_config")), tower(thinker.part("audio_config"))])
    return replace(found, num_parameters=found.num_parameters + speech_parameters(f)) if found else None


def minimax_m3(f: Fields) -> Encoder:
    """MiniMax M3: two matrices a patch, then two more for each group of merged patches."""
    part = f.part("vision_config")
    vision, width, inner = tower(part), text_width(f), f.count("projector_hidden_size")
    num_merged = part.count("spatial_merge_size") ** 2
    projector = two_layer_projector_parameters(vision.hidden_size, inner, width) + two_layer_projector_parameters(
        width * num_merged, inner, width
    )
    return joined(vision, projector, num_merged)


def mistral3(f: Fields) -> Encoder:
    """Mistral Small 3.1 and later: a norm, a merger matrix, then LLaVA's projector."""
    vision, width = tower(f.part("vision_config")), text_width(f)
    num_merged = f.count("spatial_merge_size") ** 2
    projector = two_layer_projector_parameters(
        vision.hidden_size * num_feature_layers(f), width, width, has_bias=f.flag("multimodal_projector_bias")
    )
    merger = vision.hidden_size * (1 + num_merged * vision.hidden_size)
    return joined(vision, merger + projector, num_merged)


def mllama(f: Fields) -> Encoder:
    """Llama 3.2 Vision: one matrix to the width that the cross-attention layers read."""
    part = f.part("vision_config")
    return joined(tower(part), linear_parameters(part.count("vision_output_dim"), text_width(f)))


def step3p7(f: Fields) -> Encoder:
    """Step 3.7: one matrix behind the tower's convolutions."""
    vision = tower(f.part("vision_config"))
    projector = linear_parameters(4 * vision.hidden_size, text_width(f), has_bias=f.flag("projector_bias"))
    return joined(vision, projector, vision.tokens_per_patch_group)


def with_usual_text(f: Fields) -> Fields:
    """Return Voxtral's config with what its text config leaves out as in the published model, not as in Llama."""
    given = f.config.get("text_config")
    if not isinstance(given, Mapping):
        return f
    _, usual, _ = f.family.part("text_config")
    return f.with_fields({"text_config": {**usual, **cast("Mapping[str, Any]", given)}})


def voxtral(f: Fields) -> Encoder:
    """Voxtral: frames are stacked to the width of the feed-forward and projected by two matrices without biases."""
    audio, width = tower(f.part("audio_config")), text_width(with_usual_text(f))
    projector = two_layer_projector_parameters(audio.intermediate_size, width, width, has_bias=False)
    return joined(audio, projector, audio.intermediate_size // audio.hidden_size)


FAMILIES: Final[dict[str, Callable[[Fields], Encoder | None]]] = {
    "aya_vision": partial(cohere, has_norm=True),
    "cohere2_vision": partial(cohere, has_norm=False),
    "gemma3": gemma3,
    "gemma3n": gemma3n,
    "gemma4": gemma4,
    "glm46v": with_own_merger,
    "glm4v": with_own_merger,
    "glm4v_moe": with_own_merger,
    "idefics3": idefics3,
    "internvl": internvl,
    "kimi_k25": kimi_k25,
    "lfm2_vl": lfm2_vl,
    "llama4": llama4,
    "llava": llava,
    "llava_next": llava_next,
    "llava_onevision": llava_next,
    "minimax_m3_vl": minimax_m3,
    "mistral3": mistral3,
    "mllama": mllama,
    "paligemma": paligemma,
    "qwen2_5_vl": with_own_merger,
    "qwen2_audio": qwen2_audio,
    "qwen2_vl": with_own_merger,
    "qwen3_5": with_own_merger,
    "qwen3_5_moe": with_own_merger,
    "qwen3_omni_moe": qwen3_omni,
    "qwen3_vl": with_own_merger,
    "qwen3_vl_moe": with_own_merger,
    "smolvlm": idefics3,
    "step3p7": step3p7,
    "voxtral": voxtral,
}
