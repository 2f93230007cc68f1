"""How many places an image takes in the text sequence.

Two kinds of families: those that scale every image to one size, and those that cut an image of any size into groups
of patches. What a processor adds (tiles of a large image, limits on pixels, begin and end tokens) stands in its own
file, not in config.json, and is left out.

References
----------
.. [1] huggingface/transformers 5.24.0, `models/<family>/processing_<family>.py` and `image_processing_<family>.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from tonnage.model.hf.fields import Fields
from tonnage.model.hf.towers import num_patches, pair
from tonnage.model.hf.vision import encoder_from_config

DEFAULT_SIDE_PIXELS: Final = 1024


def num_image_tokens(
    f: Fields, *, height_pixels: int = DEFAULT_SIDE_PIXELS, width_pixels: int = DEFAULT_SIDE_PIXELS
) -> int:
    """Return the tokens of one image; 0 where the model sees none.

    Parameters
    ----------
    f : Fields
        The whole model's config.
    height_pixels, width_pixels : int
        Size of the image; families that scale every image to one size do not look at it.

    Returns
    -------
    int
        Tokens in the text sequence. [1]
    """
    rule = RULES.get(f.model_type)
    return rule(f, height_pixels, width_pixels) if rule is not None else 0


def stated(f: Fields, height_pixels: int, width_pixels: int) -> int:
    """Gemma 3: the config says it."""
    del height_pixels, width_pixels
    return f.count("mm_tokens_per_image")


def one_size(f: Fields, height_pixels: int, width_pixels: int) -> int:
    """Return the groups of patches in an image of the size the tower was trained on; one tile."""
    del height_pixels, width_pixels
    encoder = encoder_from_config(f)
    return num_patches(f.part("vision_config")) // encoder.tokens_per_patch_group if encoder else 0


def side_of_group(f: Fields) -> int:
    """Return the pixels along a side of the group of patches that becomes one token."""
    encoder = encoder_from_config(f)
    return pair(f.part("vision_config"), "patch_size")[0] * math.isqrt(encoder.tokens_per_patch_group if encoder else 1)


def nearest_grid(f: Fields, height_pixels: int, width_pixels: int) -> int:
    """Qwen, MiniMax: each side is rounded to whole groups."""
    side = side_of_group(f)
    return max(1, round(height_pixels / side)) * max(1, round(width_pixels / side))


def padded_grid(f: Fields, height_pixels: int, width_pixels: int) -> int:
    """Kimi: each side is padded to whole groups."""
    side = side_of_group(f)
    return math.ceil(height_pixels / side) * math.ceil(width_pixels / side)


def rows_with_breaks(f: Fields, height_pixels: int, width_pixels: int) -> int:
    """Mistral: the image is scaled down into the tower's size, padded to whole groups, and each row ends in a token."""
    height_limit, width_limit = pair(f.part("vision_config"), "image_size")
    ratio = max(1.0, height_pixels / height_limit, width_pixels / width_limit)
    side = side_of_group(f)
    num_rows, num_columns = (math.ceil(int(pixels / ratio) / side) for pixels in (height_pixels, width_pixels))
    return num_rows * (num_columns + 1)


def within_budget(f: Fields, height_pixels: int, width_pixels: int, budget: int) -> int:
    """Return the groups of the largest image of the same shape that has at most `budget` of them."""
    del f
    scale = math.sqrt(budget / (height_pixels * width_pixels))
    num_rows, num_columns = (max(1, int(pixels * scale)) for pixels in (height_pixels, width_pixels))
    return min(budget, num_rows * num_columns)


def llava(f: Fields, height_pixels: int, width_pixels: int) -> int:
    """LLaVA: one size, unless its tower is Pixtral's."""
    is_pixtral = f.part("vision_config").model_type == "pixtral"
    return (rows_with_breaks if is_pixtral else one_size)(f, height_pixels, width_pixels)


def gemma4(f: Fields, height_pixels: int, width_pixels: int) -> int:
    """Gemma 4: every image is scaled to the budget of the config, 280 tokens where it says none."""
    budget = f.count_or("vision_soft_tokens_per_image", GEMMA4_TOKENS)
    return within_budget(f, height_pixels, width_pixels, budget) if f.has("vision_config") else 0


def lfm2_vl(f: Fields, height_pixels: int, width_pixels: int) -> int:
    """LFM2-VL: the nearest grid, scaled down to 256 tokens; the tiles of a larger image come on top."""
    return min(
        nearest_grid(f, height_pixels, width_pixels), within_budget(f, height_pixels, width_pixels, LFM2_VL_TOKENS)
    )


GEMMA4_TOKENS: Final = 280  # image_processing_gemma4.py, max_soft_tokens
LFM2_VL_TOKENS: Final = 256  # image_processing_lfm2_vl.py, max_image_tokens

RULES: Final[dict[str, Callable[[Fields, int, int], int]]] = {
    "aya_vision": one_size,
    "cohere2_vision": one_size,
    "glm46v": nearest_grid,
    "glm4v": nearest_grid,
    "glm4v_moe": nearest_grid,
    "idefics3": one_size,
    "llava_next": one_size,
    "llava_onevision": one_size,
    "paligemma": one_size,
    "smolvlm": one_size,
    "gemma3": stated,
    "gemma4": gemma4,
    "internvl": one_size,
    "kimi_k25": padded_grid,
    "lfm2_vl": lfm2_vl,
    "llama4": one_size,
    "llava": llava,
    "minimax_m3_vl": nearest_grid,
    "mistral3": rows_with_breaks,
    "qwen2_5_vl": nearest_grid,
    "qwen2_vl": nearest_grid,
    "qwen3_5": nearest_grid,
    "qwen3_5_moe": nearest_grid,
    "qwen3_vl": nearest_grid,
    "qwen3_vl_moe": nearest_grid,
    "step3p7": one_size,
}
