"""Qwen3-Omni of random sizes, with and without its voice, counts as transformers builds it on the meta device."""

from __future__ import annotations

import random
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="platform: optional check, torch is not installed")
transformers = pytest.importorskip("transformers", reason="platform: optional check, transformers is not installed")

from tonnage.estimate.parameters import count  # noqa: E402
from tonnage.model.hf import model_from_config  # noqa: E402

pytestmark = [pytest.mark.trace, pytest.mark.filterwarnings("ignore")]

NUM_TRIALS = 6
IDS = {"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0}
DECODER = {
    "hidden_size": [64, 96],
    "num_hidden_layers": [1, 3],
    "num_attention_heads": [4, 8],
    "num_key_value_heads": [1, 4],
    "intermediate_size": [40, 72],
    "attention_bias": [False, True],
    "vocab_size": [90, 130],
}
EXPERTS = DECODER | {"num_experts": [4, 6], "num_experts_per_tok": [2], "moe_intermediate_size": [24, 40]}


def drawn(choices: dict[str, list[Any]], rng: random.Random, *, keeps: float = 1.0) -> dict[str, Any]:
    return {name: rng.choice(values) for name, values in choices.items() if rng.random() < keeps}


def omni(rng: random.Random) -> dict[str, Any]:
    """Return a random configuration; some fields of the eyes are left out."""
    vision = {
        "depth": [1, 2], "hidden_size": [64, 128], "intermediate_size": [40], "num_heads": [4], "patch_size": [8, 16],
        "spatial_merge_size": [1, 2], "out_hidden_size": [64, 96], "num_position_embeddings": [16, 64],
        "deepstack_visual_indexes": [[], [0], [0, 1]],
    }  # fmt: skip
    audio = {
        "num_mel_bins": [80, 128], "encoder_layers": [1, 2], "encoder_attention_heads": [4], "encoder_ffn_dim": [40, 96],
        "d_model": [64, 128], "output_dim": [64, 96], "downsample_hidden_size": [16, 48],
    }  # fmt: skip
    vocoder = {
        "codebook_size": [64, 128], "hidden_size": [64, 96], "num_attention_heads": [4], "num_key_value_heads": [2, 4],
        "attention_bias": [False, True], "intermediate_size": [40, 96], "num_hidden_layers": [1, 2],
        "num_quantizers": [4, 8], "upsample_rates": [[2, 3], [8, 5, 4]], "upsampling_ratios": [[2], [2, 3]],
        "decoder_dim": [64, 128],
    }  # fmt: skip
    talker = drawn(EXPERTS, rng) | {"shared_expert_intermediate_size": rng.choice([24, 56])} | IDS
    text = drawn(EXPERTS, rng) | {"decoder_sparse_step": rng.choice([1, 2]), "mlp_only_layers": []} | IDS
    return {
        "model_type": "qwen3_omni_moe",
        "enable_audio_output": rng.random() < 0.7,
        "thinker_config": {
            "text_config": text,
            "vision_config": drawn(vision, rng, keeps=0.8),
            "audio_config": drawn(audio, rng),
            "tie_word_embeddings": rng.random() < 0.5,
        },
        "talker_config": {
            "text_config": talker,
            "code_predictor_config": drawn(DECODER | {"head_dim": [8, 16], "num_code_groups": [3, 5]}, rng),
            "thinker_hidden_size": rng.choice([64, 96]),
            "spatial_merge_size": 2,
        },
        "code2wav_config": drawn(vocoder, rng),
    }


@pytest.mark.parametrize("seed", range(NUM_TRIALS))
def test_total_is_exact(seed: int):
    config = omni(random.Random(seed))
    with torch.device("meta"):
        model = transformers.Qwen3OmniMoeForConditionalGeneration(transformers.AutoConfig.for_model(**config))
    model.tie_weights()
    wanted = sum(p.numel() for p in model.parameters())
    assert count(model_from_config(config)).total == wanted, config
