"""Vision and audio towers, read from their own config: which architecture it is, and its exact count.

Counted as transformers builds them; fields it does not know (Kimi's `vt_*`) change nothing.

References
----------
.. [1] huggingface/transformers 5.24.0, `models/<family>/configuration_<family>.py` and `modeling_<family>.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, cast

from tonnage.model.hf.fields import Fields
from tonnage.model.hf.omni import audio_encoder
from tonnage.model.hf.tower_counts import (
    clip_parameters,
    conformer_front_end_parameters,
    conformer_parameters,
    encoder_layer_parameters,
    gemma4_vit_parameters,
    glm4v_parameters,
    intern_vit_parameters,
    linear_parameters,
    merger_parameters,
    mllama_vision_parameters,
    mobilenet_v5_parameters,
    moon_vit_parameters,
    pixtral_parameters,
    qwen2_vit_parameters,
    qwen3_vit_parameters,
    siglip_parameters,
    whisper_encoder_parameters,
)
from tonnage.model.types import Encoder


def tower(f: Fields) -> Encoder:
    """Return a tower without its projector, from its own config."""
    build = TOWERS.get(f.model_type)
    if build is None:
        raise f.refuse("model_type", f"names the tower '{f.model_type[:60]}', which is unknown", "add the tower")
    return build(f)


def pair(f: Fields, name: str) -> tuple[int, int]:
    """Return a size that is one number for both sides, or a number a side."""
    value = f.get(name)
    if isinstance(value, list | tuple):
        sides = f.counts(name, least=1)
        if sides is None or len(sides) != 2:
            raise f.refuse(name, "has not two sides")
        return sides[0], sides[1]
    side = f.count(name)
    return side, side


def num_patch_inputs(f: Fields, *, channels: str = "num_channels", frames: str | None = None) -> int:
    """Return the numbers in one patch."""
    height, width = pair(f, "patch_size")
    return (f.count(channels) if channels else 3) * height * width * (f.count(frames) if frames else 1)


def num_patches(f: Fields) -> int:
    """Return the patches of an image of the size the tower was trained on."""
    image, patch = pair(f, "image_size"), pair(f, "patch_size")
    return (image[0] // patch[0]) * (image[1] // patch[1])


def usual(f: Fields, num_parameters: int, **other: Any) -> Encoder:
    """Return a tower whose shape stands under the usual names."""
    shape = {
        "hidden_size": f.count("hidden_size"),
        "num_layers": f.num_layers(),
        "num_heads": f.count("num_attention_heads"),
        "intermediate_size": f.count("intermediate_size"),
        "patch_size": pair(f, "patch_size")[0],
    }
    return Encoder(num_parameters=num_parameters, **cast("Any", shape | other))


def sizes(f: Fields) -> tuple[int, int, int]:
    """Return width, feed-forward width and depth under the usual names."""
    return f.count("hidden_size"), f.count("intermediate_size"), f.num_layers()


def siglip(f: Fields) -> Encoder:
    """SigLIP: positions for one image size."""
    return usual(
        f,
        siglip_parameters(
            *sizes(f),
            num_patch_inputs=num_patch_inputs(f),
            num_positions=num_patches(f),
            has_pooling_head=f.flag("vision_use_head"),
        ),
    )


def siglip2(f: Fields) -> Encoder:
    """SigLIP 2: positions for a number of patches, interpolated to the image."""
    return usual(
        f,
        siglip_parameters(
            *sizes(f),
            num_patch_inputs=num_patch_inputs(f),
            num_positions=f.count("num_patches"),
            has_pooling_head=f.flag("vision_use_head"),
        ),
    )


def clip(f: Fields) -> Encoder:
    """CLIP's vision tower; Llama 4's has the same parts."""
    return usual(f, clip_parameters(*sizes(f), num_patch_inputs=num_patch_inputs(f), num_patches=num_patches(f)))


def pixtral(f: Fields) -> Encoder:
    """Pixtral."""
    return usual(f, pixtral_parameters(*sizes(f), num_patch_inputs=num_patch_inputs(f)))


def intern_vit(f: Fields) -> Encoder:
    """InternViT."""
    return usual(
        f,
        intern_vit_parameters(
            *sizes(f),
            num_patch_inputs=num_patch_inputs(f),
            num_patches=num_patches(f),
            has_qkv_bias=f.flag("attention_bias"),
            has_qk_norm=f.flag("use_qk_norm"),
            is_rms=f.word("norm_type") == "rms_norm",
            has_positions=f.flag("use_absolute_position_embeddings"),
            has_mask_token=f.flag("use_mask_token"),
            has_final_norm=not f.flag("use_mean_pooling"),
        ),
    )


def moon_vit(f: Fields) -> Encoder:
    """MoonViT of Kimi K2.5."""
    return usual(
        f,
        moon_vit_parameters(
            *sizes(f),
            num_patch_inputs=num_patch_inputs(f, channels=""),
            num_positions=f.count("pos_emb_height") * f.count("pos_emb_width"),
        ),
    )


def gemma4_vit(f: Fields) -> Encoder:
    """Gemma 4's vision tower."""
    return usual(
        f,
        gemma4_vit_parameters(
            *sizes(f),
            num_heads=f.count("num_attention_heads"),
            num_kv_heads=f.count("num_key_value_heads"),
            head_dim=f.count("head_dim"),
            num_patch_inputs=num_patch_inputs(f, channels=""),
            num_positions=f.count("position_embedding_size"),
        ),
    )


def minimax_m3_vit(f: Fields) -> Encoder:
    """MiniMax M3's tower: CLIP's layers behind patches of two frames and a norm, with rotary positions."""
    hidden_size, intermediate_size, num_layers = sizes(f)
    layers = qwen2_vit_parameters(
        hidden_size, intermediate_size, num_layers, num_patch_inputs=num_patch_inputs(f, frames="temporal_patch_size")
    )
    return usual(f, layers + 2 * hidden_size)


def qwen2_vit(f: Fields) -> Encoder:
    """Qwen2-VL's tower, whose `hidden_size` is the text width, with its merger."""
    width = f.count("embed_dim")
    intermediate_size = int(width * f.number("mlp_ratio"))
    merged = width * f.count("spatial_merge_size") ** 2
    count = qwen2_vit_parameters(
        width,
        intermediate_size,
        f.num_layers("depth"),
        num_patch_inputs=num_patch_inputs(f, channels="in_channels", frames="temporal_patch_size"),
    ) + merger_parameters(merged, f.count("hidden_size"), num_norm_parameters=2 * width)
    return qwen_shape(f, count, hidden_size=width, intermediate_size=intermediate_size)


def qwen2_5_vit(f: Fields) -> Encoder:
    """Qwen2.5-VL's tower with its merger."""
    width, intermediate_size = f.count("hidden_size"), f.count("intermediate_size")
    merged = width * f.count("spatial_merge_size") ** 2
    count = qwen2_vit_parameters(
        width,
        intermediate_size,
        f.num_layers("depth"),
        num_patch_inputs=num_patch_inputs(f, channels="in_channels", frames="temporal_patch_size"),
        is_gated=True,
    ) + merger_parameters(merged, f.count("out_hidden_size"), num_norm_parameters=width)
    return qwen_shape(f, count, hidden_size=width, intermediate_size=intermediate_size)


def qwen3_vit(f: Fields) -> Encoder:
    """Qwen3.5's tower with its merger."""
    width, intermediate_size = f.count("hidden_size"), f.count("intermediate_size")
    merged = width * f.count("spatial_merge_size") ** 2
    count = qwen3_vit_parameters(
        width,
        intermediate_size,
        f.num_layers("depth"),
        num_patch_inputs=num_patch_inputs(f, channels="in_channels", frames="temporal_patch_size"),
        num_positions=f.count("num_position_embeddings"),
    ) + merger_parameters(merged, f.count("out_hidden_size"), num_norm_parameters=2 * width)
    return qwen_shape(f, count, hidden_size=width, intermediate_size=intermediate_size)


def deepstack_vit(f: Fields) -> Encoder:
    """Qwen3-VL's tower: Qwen3.5's, and one more merger a layer whose features enter the text model's first layers."""
    plain = qwen3_vit(f)
    merged = plain.hidden_size * plain.tokens_per_patch_group
    merger = merger_parameters(merged, f.count("out_hidden_size"), num_norm_parameters=2 * merged)
    num_mergers = len(f.counts("deepstack_visual_indexes") or ())
    return replace(plain, num_parameters=plain.num_parameters + num_mergers * merger)


def qwen_shape(f: Fields, num_parameters: int, *, hidden_size: int, intermediate_size: int) -> Encoder:
    """Return a Qwen tower's shape, whose depth and heads have their own names."""
    return Encoder(
        num_parameters=num_parameters,
        hidden_size=hidden_size,
        num_layers=f.num_layers("depth"),
        num_heads=f.count("num_heads"),
        intermediate_size=intermediate_size,
        patch_size=pair(f, "patch_size")[0],
        tokens_per_patch_group=f.count("spatial_merge_size") ** 2,
    )


def mllama_vision(f: Fields) -> Encoder:
    """Llama 3.2's vision tower."""
    ratios = f.items("supported_aspect_ratios")
    return Encoder(
        num_parameters=mllama_vision_parameters(
            *sizes(f),
            f.num_layers("num_global_layers"),
            num_patch_inputs=num_patch_inputs(f),
            num_patches=num_patches(f),
            num_tiles=f.count("max_num_tiles"),
            num_aspect_ratios=_MLLAMA_ASPECT_RATIOS if ratios is None else len(ratios),
        ),
        hidden_size=f.count("hidden_size"),
        num_layers=f.num_layers() + f.num_layers("num_global_layers"),
        num_heads=f.count("attention_heads"),
        intermediate_size=f.count("intermediate_size"),
        patch_size=pair(f, "patch_size")[0],
    )


# of up to four tiles: 1x1, 1x2, 1x3, 1x4, 2x1, 2x2, 3x1, 4x1 (configuration_mllama.py)
_MLLAMA_ASPECT_RATIOS: Final = 8


def step_vit(f: Fields) -> Encoder:
    """Step 3.7's tower: CLIP-like with LayerScale, no class token, two convolutions that halve the sides and double the width."""
    hidden_size, num_layers = (
        f.count_or("width", f.count("hidden_size")),
        f.num_layers("layers" if f.has("layers") else "num_hidden_layers"),
    )
    intermediate_size = int(hidden_size * f.number("mlp_ratio"))
    layer = encoder_layer_parameters(hidden_size, intermediate_size, num_scale_vectors=2)
    count = (
        linear_parameters(num_patch_inputs(f), hidden_size, has_bias=False)
        + (num_patches(f) + 2) * hidden_size
        + num_layers * layer
        + linear_parameters(9 * hidden_size, 2 * hidden_size)
        + linear_parameters(18 * hidden_size, 4 * hidden_size)
    )
    return Encoder(
        num_parameters=count,
        hidden_size=hidden_size,
        num_layers=num_layers,
        num_heads=f.count_or("heads", f.count("num_attention_heads")),
        intermediate_size=intermediate_size,
        patch_size=pair(f, "patch_size")[0],
        tokens_per_patch_group=16,
    )


def whisper_encoder(f: Fields) -> Encoder:
    """Whisper's encoder, also in Voxtral and Qwen2-Audio; a token is the frames left after its convolutions."""
    return Encoder(
        num_parameters=whisper_encoder_parameters(
            *sizes(f), num_mel_bins=f.count("num_mel_bins"), num_positions=f.count("max_source_positions")
        ),
        hidden_size=f.count("hidden_size"),
        num_layers=f.num_layers(),
        num_heads=f.count("num_attention_heads"),
        intermediate_size=f.count("intermediate_size"),
        kind="audio",
    )


def gemma4_conformer(f: Fields) -> Encoder:
    """Gemma 4's audio tower, with the matrix to its output width."""
    hidden_size, num_heads = f.count("hidden_size"), f.count("num_attention_heads")
    channels = f.counts("subsampling_conv_channels", least=1) or []
    if len(channels) != 2:
        raise f.refuse("subsampling_conv_channels", "has not two entries")
    # transformers derives the frequencies left from the first convolution's channels (128, as the mel bins are)
    front_end = conformer_front_end_parameters(
        hidden_size, channels=(channels[0], channels[1]), kernel_areas=(9, 9), num_features=channels[0] // 4
    )
    count = conformer_parameters(
        hidden_size,
        f.num_layers(),
        num_heads=num_heads,
        conv_kernel=f.count("conv_kernel_size"),
        num_front_end=front_end,
    ) + linear_parameters(hidden_size, f.count("output_proj_dims"))
    return Encoder(
        num_parameters=count,
        hidden_size=hidden_size,
        num_layers=f.num_layers(),
        num_heads=num_heads,
        intermediate_size=4 * hidden_size,
        kind="audio",
    )


def glm4v(f: Fields) -> Encoder:
    """GLM-4.1V's tower with its merger."""
    width, num_merged = f.count("hidden_size"), f.count("spatial_merge_size") ** 2
    count = glm4v_parameters(
        width,
        f.count("intermediate_size"),
        f.count("out_hidden_size"),
        f.num_layers("depth"),
        num_patch_inputs=num_patch_inputs(f, channels="in_channels", frames="temporal_patch_size"),
        num_patches=num_patches(f),
        num_merged=num_merged,
        has_qkv_bias=f.flag("attention_bias"),
    )
    return qwen_shape(f, count, hidden_size=width, intermediate_size=f.count("out_hidden_size"))


def gemma3n_conformer(f: Fields) -> Encoder:
    """Gemma 3n's audio tower: Gemma 4's, with kernels and strides of its own in front."""
    hidden_size, num_heads = f.count("hidden_size"), f.count("conf_num_attention_heads")
    channels, num_features = f.counts("sscp_conv_channel_size", least=1) or [], f.count("input_feat_size")
    kernels, strides = f.items("sscp_conv_kernel_size") or [], f.items("sscp_conv_stride_size") or []
    try:
        areas = [int(height) * int(width) for height, width in kernels]
        for (_, width), (_, stride) in zip(kernels, strides, strict=True):
            num_features = (num_features + 2 - int(width)) // int(stride) + 1  # one column of padding on each side
    except (TypeError, ValueError, ZeroDivisionError):
        areas = []
    if len(channels) != 2 or len(areas) != 2:
        raise f.refuse("sscp_conv_kernel_size", "does not describe two convolutions")
    front_end = conformer_front_end_parameters(
        hidden_size,
        channels=(channels[0], channels[1]),
        kernel_areas=(areas[0], areas[1]),
        num_features=num_features,
    )
    num_layers = f.num_layers("conf_num_hidden_layers")
    return Encoder(
        num_parameters=conformer_parameters(
            hidden_size,
            num_layers,
            num_heads=num_heads,
            conv_kernel=f.count("conf_conv_kernel_size"),
            num_front_end=front_end,
        ),
        hidden_size=hidden_size,
        num_layers=num_layers,
        num_heads=num_heads,
        intermediate_size=4 * hidden_size,
        kind="audio",
    )


def mobilenet_v5(f: Fields) -> Encoder:
    """Gemma 3n's image encoder, a network of convolutions that its config names; seen here as its attention blocks."""
    architecture = f.word("architecture")
    if architecture != "mobilenetv5_300m_enc":
        raise f.refuse("architecture", f"is '{architecture}', an image encoder that is unknown", "add the encoder")
    return Encoder(
        num_parameters=mobilenet_v5_parameters(),
        hidden_size=1280,
        num_layers=33,
        num_heads=16,
        intermediate_size=2560,
    )


TOWERS: Final[dict[str, Callable[[Fields], Encoder]]] = {
    "clip_vision_model": clip,
    "gemma3n_audio": gemma3n_conformer,
    "gemma3n_vision": mobilenet_v5,
    "gemma4_audio": gemma4_conformer,
    "gemma4_vision": gemma4_vit,
    "glm4v_moe_vision": glm4v,
    "glm4v_vision": glm4v,
    "idefics3_vision": siglip,
    "internvl_vision": intern_vit,
    "kimi_k25_vision": moon_vit,
    "llama4_vision_model": clip,
    "minimax_m3_vl_vision": minimax_m3_vit,
    "mllama_vision_model": mllama_vision,
    "pixtral": pixtral,
    "qwen2_5_vl_vision": qwen2_5_vit,
    "qwen2_audio_encoder": whisper_encoder,
    "qwen2_vl_vision": qwen2_vit,
    "qwen3_omni_moe_audio_encoder": audio_encoder,
    "qwen3_omni_moe_vision_encoder": deepstack_vit,
    "qwen3_5_moe_vision": qwen3_vit,
    "qwen3_5_vision": qwen3_vit,
    "qwen3_vl_moe_vision": deepstack_vit,
    "qwen3_vl_vision": deepstack_vit,
    "siglip2_vision_model": siglip2,
    "siglip_vision_model": siglip,
    "smolvlm_vision": siglip,
    "step3p5_vision": step_vit,
    "voxtral_encoder": whisper_encoder,
}
