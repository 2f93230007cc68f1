"""Towers of random sizes count as transformers builds them on the meta device, defaults of left-out fields included."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="platform: optional check, torch is not installed")
transformers = pytest.importorskip("transformers", reason="platform: optional check, transformers is not installed")

from tonnage.model.hf.families import family  # noqa: E402
from tonnage.model.hf.fields import Fields  # noqa: E402
from tonnage.model.hf.vision import FAMILIES, encoder_from_config  # noqa: E402

pytestmark = [pytest.mark.trace, pytest.mark.filterwarnings("ignore")]

NUM_TRIALS = 3
IS_TOWER = re.compile(r"vision|visual|audio|projector|connector|image_newline|(^|\.)mm_")

BOTH = [False, True]
WIDTHS = [480, 960]  # multiples of every default number of heads, of an even width each
DEPTHS = [1, 2, 3]
PIXELS = {"image_size": [56, 84, 112], "patch_size": [7, 14]}
VIT = {
    "hidden_size": WIDTHS,
    "intermediate_size": [40, 72, 100],
    "num_hidden_layers": DEPTHS,
    "num_attention_heads": [2, 4],
    "num_channels": [1, 3],
}
QWEN = {
    "depth": DEPTHS,
    "hidden_size": WIDTHS,
    "intermediate_size": [40, 72, 100],
    "num_heads": [2, 4],
    "in_channels": [1, 3],
    "patch_size": [7, 14],
    "temporal_patch_size": [1, 2],
    "spatial_merge_size": [1, 2, 3],
    "out_hidden_size": [32, 64],
}
QWEN3 = QWEN | {"num_position_embeddings": [16, 49, 64]}
DEEP = QWEN3 | {"deepstack_visual_indexes": [[], [0], [0, 1]]}
FEATURE_LAYERS = [-1, [-1, -2]]

SIGLIP = {"vision_config": VIT | PIXELS | {"model_type": ["siglip_vision_model"], "vision_use_head": BOTH}}
GLM = {
    "vision_config": {k: v for k, v in QWEN.items() if k != "out_hidden_size"}
    | {"attention_bias": BOTH, "image_size": [56, 84], "out_hidden_size": [64, 128]}
}
IDEFICS = {"vision_config": VIT | PIXELS, "": {"scale_factor": [1, 2, 3]}}

# what may vary, by the object it stands in ("" is the top)
CASES: dict[str, dict[str, dict[str, list[Any]]]] = {
    "aya_vision": SIGLIP | {"": {"downsample_factor": [1, 2], "alignment_intermediate_size": [40, 64]}},
    "cohere2_vision": SIGLIP | {"": {"downsample_factor": [1, 2], "alignment_intermediate_size": [40, 64]}},
    "glm46v": GLM,
    "glm4v": GLM,
    "glm4v_moe": GLM,
    "idefics3": IDEFICS,
    "llava_next": SIGLIP | {"": {"vision_feature_layer": FEATURE_LAYERS, "multimodal_projector_bias": BOTH}},
    "llava_onevision": SIGLIP | {"": {"vision_feature_layer": FEATURE_LAYERS, "multimodal_projector_bias": BOTH}},
    "paligemma": SIGLIP | {"": {"projection_dim": [64, 96]}},
    "qwen2_audio": {
        "audio_config": {
            "d_model": WIDTHS,
            "encoder_ffn_dim": [96, 192],
            "encoder_layers": DEPTHS,
            "encoder_attention_heads": [2, 4],
            "num_mel_bins": [16, 80],
            "max_source_positions": [30, 50],
        },
    },
    "smolvlm": IDEFICS,
    "gemma3": {
        "vision_config": VIT | {"image_size": [56, 112], "patch_size": [7, 14], "vision_use_head": BOTH},
        "": {"mm_tokens_per_image": [4, 16]},
    },
    "gemma4": {
        "vision_config": {
            "hidden_size": WIDTHS,
            "intermediate_size": [40, 72],
            "num_hidden_layers": DEPTHS,
            "num_attention_heads": [2, 4],
            "num_key_value_heads": [2, 4],
            "head_dim": [8, 24],
            "patch_size": [8, 16],
            "position_embedding_size": [16, 100],
            "standardize": BOTH,
            "use_clipped_linears": BOTH,
        },
        "audio_config": {
            "hidden_size": [64, 128],
            "num_hidden_layers": DEPTHS,
            "num_attention_heads": [2, 4],
            "subsampling_conv_channels": [[16, 8], [128, 32]],
            "conv_kernel_size": [3, 5],
            "use_clipped_linears": BOTH,
            "output_proj_dims": [32, 96],
        },
    },
    "internvl": {
        "vision_config": VIT
        | {
            "image_size": [56, [56, 112]],
            "patch_size": [14, [14, 7]],
            "attention_bias": BOTH,
            "use_qk_norm": BOTH,
            "norm_type": ["layer_norm", "rms_norm"],
            "use_mask_token": BOTH,
            "use_absolute_position_embeddings": BOTH,
            "use_mean_pooling": BOTH,
        },
        "": {"downsample_ratio": [0.5, 0.25, 1.0]},
    },
    "kimi_k25": {
        "vision_config": {k: v for k, v in VIT.items() if k != "num_channels"}
        | {
            "pos_emb_height": [8, 16],
            "pos_emb_width": [4, 16],
            "patch_size": [7, 14],
            "merge_kernel_size": [[2, 2], [1, 2], [3, 3]],
            "vt_hidden_size": [64],
        },
        "": {"projection_hidden_size": [48, 1152]},
    },
    "lfm2_vl": {
        "vision_config": VIT | {"num_patches": [16, 64], "patch_size": [7, 14], "vision_use_head": BOTH},
        "": {
            "downsample_factor": [1, 2, 3],
            "projector_hidden_size": [40, 80],
            "projector_bias": BOTH,
            "projector_use_layernorm": BOTH,
        },
    },
    "llama4": {
        "vision_config": VIT
        | PIXELS
        | {
            "vision_output_dim": [40, 80],
            "projector_input_dim": [32, 64],
            "projector_output_dim": [32, 48],
            "pixel_shuffle_ratio": [0.5],
        },
    },
    "llava": {
        "vision_config": VIT | PIXELS | {"model_type": ["clip_vision_model", "siglip_vision_model", "pixtral"]},
        "": {"vision_feature_layer": FEATURE_LAYERS, "multimodal_projector_bias": BOTH},
    },
    "minimax_m3_vl": {
        "vision_config": VIT | PIXELS | {"temporal_patch_size": [1, 2], "spatial_merge_size": [1, 2, 3]},
        "": {"projector_hidden_size": [40, 96]},
    },
    "mistral3": {
        "vision_config": VIT | PIXELS | {"model_type": ["pixtral"]},
        "": {
            "vision_feature_layer": FEATURE_LAYERS,
            "multimodal_projector_bias": BOTH,
            "spatial_merge_size": [1, 2, 3],
        },
    },
    "mllama": {
        "vision_config": {k: v for k, v in VIT.items() if k != "num_attention_heads"}
        | PIXELS
        | {
            "attention_heads": [2, 4],
            "num_global_layers": [1, 2],
            "vision_output_dim": [40, 80],
            "supported_aspect_ratios": [[[1, 1], [1, 2], [2, 1]], [[1, 1]]],
        },
    },
    "qwen2_5_vl": {"vision_config": QWEN},
    "qwen2_vl": {
        "vision_config": {k: v for k, v in QWEN.items() if k not in ("intermediate_size", "out_hidden_size")}
        | {"embed_dim": WIDTHS, "mlp_ratio": [2, 3, 4]},
    },
    "qwen3_5": {"vision_config": DEEP},
    "qwen3_5_moe": {"vision_config": QWEN3},
    "qwen3_vl": {"vision_config": DEEP},
    "qwen3_vl_moe": {"vision_config": DEEP},
    "step3p7": {
        "vision_config": VIT | PIXELS | {"mlp_ratio": [2.5, 4.0, 8960 / 1536], "width": [480], "layers": [2], "heads": [4]},
        "": {"projector_bias": BOTH},
    },
    "voxtral": {
        "audio_config": {
            "hidden_size": WIDTHS,
            "intermediate_size": [96, 192],
            "num_hidden_layers": DEPTHS,
            "num_attention_heads": [2, 4],
            "num_mel_bins": [16, 80],
            "max_source_positions": [30, 50],
        },
    },
}  # fmt: skip

# the text model is small: only its width reaches the projector
TEXT: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 32,
    "moe_intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 96,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "n_routed_experts": 4,
    "num_experts": 4,
    "num_local_experts": 4,
    "cross_attention_layers": [],
    "layer_types": ["full_attention"],
}
TEXT_TYPES = {
    "aya_vision": "cohere2", "cohere2_vision": "cohere2", "idefics3": "llama", "llava_next": "llama",
    "llava_onevision": "qwen2", "paligemma": "gemma", "qwen2_audio": "qwen2", "smolvlm": "llama",
    "glm46v": "glm4v_text", "internvl": "qwen2", "kimi_k25": "deepseek_v3", "lfm2_vl": "lfm2", "llava": "llama", "mistral3": "mistral",
    "voxtral": "llama", "llama4": "llama4_text",
}  # fmt: skip


def perturbed(model_type: str, rng: random.Random) -> dict[str, Any]:
    """Return a random config of a family, some fields left out."""
    width = rng.choice([64, 128])
    config: dict[str, Any] = {"model_type": model_type, "text_config": TEXT | {"hidden_size": width}}
    if model_type in TEXT_TYPES:
        config["text_config"]["model_type"] = TEXT_TYPES[model_type]
    for part, choices in CASES[model_type].items():
        chosen = {name: rng.choice(values) for name, values in choices.items() if rng.random() < 0.8}
        if not part:
            config |= chosen
        elif model_type == "gemma4" and rng.random() < 0.3:
            config[part] = None
        elif model_type == "aya_vision" or rng.random() < 0.95:  # Aya's usual tower has heads of no whole width
            config[part] = chosen
    return config


def built(config: dict[str, Any]) -> Any:
    """Return the model that transformers builds, without memory behind it."""
    mappings = transformers.models.auto.modeling_auto
    parsed = transformers.AutoConfig.for_model(**config)
    cls = mappings.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING.get(type(parsed), None)
    cls = cls or mappings.MODEL_FOR_MULTIMODAL_LM_MAPPING.get(type(parsed), None)
    cls = cls or mappings.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING[type(parsed)]
    with torch.device("meta"):
        return cls(parsed)


def num_tower_parameters(model: Any) -> int:
    return sum(p.numel() for name, p in model.named_parameters() if IS_TOWER.search(name))


def test_every_family_is_tried():
    assert set(CASES) == set(FAMILIES) - {"gemma3n", "qwen3_omni_moe"}  # needs timm; tried as a whole


@pytest.mark.parametrize("seed", range(NUM_TRIALS))
@pytest.mark.parametrize("model_type", sorted(CASES))
def test_tower_is_exact(model_type: str, seed: int):
    config = perturbed(model_type, random.Random(f"{model_type} {seed}"))
    encoder = encoder_from_config(Fields(config, family(model_type)))
    wanted = num_tower_parameters(built(config))
    assert (encoder.num_parameters if encoder else 0) == wanted, config
