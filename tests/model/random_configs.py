"""Random small configurations of any family, as its own class in transformers takes them.

A configuration is made from the fields of the family's own class: sizes, head counts, expert counts, ranks, every
yes-or-no trait, the kind of each layer, spellings that older files use; fields are left out at random. What the class
refuses is drawn again.
"""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from tonnage.model.hf.families import SAME_AS

torch = pytest.importorskip("torch", reason="platform: optional check, torch is not installed")
transformers = pytest.importorskip("transformers", reason="platform: optional check, transformers is not installed")

NUM_DRAWS = 60

FULL, SLIDING, CHUNKED, LINEAR, CONV = (
    "full_attention", "sliding_attention", "chunked_attention", "linear_attention", "conv",
)  # fmt: skip
LAYER_TYPES: dict[str, list[str]] = {
    "bailing_hybrid": [FULL, LINEAR],
    "deepseek_v4": ["compressed_sparse_attention", "heavily_compressed_attention", SLIDING],
    "falcon_h1": ["hybrid"],
    "granitemoehybrid": [FULL, "mamba"],
    "jamba": [FULL, "mamba"],
    "kimi_linear": [FULL, LINEAR],
    "lfm2": [FULL, CONV],
    "lfm2_moe": [FULL, CONV],
    "llama4_text": [FULL, CHUNKED],
    "minimax": [FULL, LINEAR],
    "minimax_m3_vl_text": [FULL, "minimax_m3_sparse"],
    "nemotron_h": [FULL, "mamba", "moe", "mlp"],
    "olmo_hybrid": [FULL, LINEAR],
    "qwen3_5_moe_text": [FULL, LINEAR],
    "qwen3_5_text": [FULL, LINEAR],
    "qwen3_next": [FULL, LINEAR],
    "qwen4_exp_text": [FULL, LINEAR],
    "zamba2": ["mamba", "hybrid"],
}
# Traits that change no weight, or make another model of the class.
LEFT_ALONE = {
    "add_cross_attention", "is_decoder", "is_encoder_decoder", "return_dict", "use_cache", "enable_audio_output",
    "is_causal", "use_mamba_kernels", "use_bidirectional_attention", "use_mem_eff_path", "use_long_context",
    "sparse_prediction", "use_weighted_layer_sum", "apply_spec_augment",
}  # fmt: skip


class Dice:
    """Sizes that fit together, for one configuration."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.heads = rng.choice([4, 8])
        self.kv_heads = rng.choice([1, 2, self.heads])
        self.hidden = self.heads * rng.choice([8, 16, 24])
        self.layers = rng.choice([2, 3, 4, 5, 6, 7])
        self.experts = rng.choice([4, 8])
        self.chosen = rng.choice([1, 2, 4])
        self.head = rng.choice([8, 16, 32])

    def one_of(self, *values: Any) -> Any:
        return self.rng.choice(values)

    def size(self) -> int:
        return 8 * self.rng.randint(2, 12)


Choose = Callable[[Dice], Any]
SIZES: dict[str, Choose] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd"), lambda d: d.hidden),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), lambda d: d.heads),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), lambda d: d.heads),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads"), lambda d: d.kv_heads),
    **dict.fromkeys(
        ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers"), lambda d: d.layers
    ),
    **dict.fromkeys(("num_decoder_layers", "decoder_layers"), lambda d: d.rng.randint(1, 4)),
    **dict.fromkeys(
        (
            "intermediate_size", "intermediate_size_mlp", "dense_intermediate_size", "shared_intermediate_size",
            "moe_intermediate_size", "shared_expert_intermediate_size", "moe_shared_expert_intermediate_size",
            "ffn_hidden_size", "expert_ffn_hidden_size", "n_inner", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim",
            "d_ff", "share_expert_dim", "embedding_size", "block_ff_dim", "laurel_rank", "adapter_rank",
            "hidden_size_per_layer_input", "moe_latent_size", "word_embed_proj_dim", "o_lora_rank", "hc_lowrank",
        ),
        lambda d: d.size(),
    ),
    **dict.fromkeys(
        ("vocab_size", "vocab_size_per_layer_input", "max_position_embeddings", "n_positions", "max_seq_len",
         "max_source_positions", "max_target_positions"),
        lambda d: d.rng.randint(64, 300),
    ),
    **dict.fromkeys(("head_dim", "v_head_dim", "d_kv", "linear_head_dim", "global_head_dim", "swa_head_dim"),
                    lambda d: d.one_of(8, 16, 32)),
    **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim", "index_head_dim"), lambda d: d.one_of(16, 32)),
    **dict.fromkeys(("qk_nope_head_dim", "qk_rope_head_dim"), lambda d: d.one_of(8, 16)),
    **dict.fromkeys(("linear_num_key_heads", "linear_num_heads", "index_n_heads"), lambda d: d.one_of(2, 4)),
    "linear_num_value_heads": lambda d: d.one_of(4, 8),
    **dict.fromkeys(("linear_conv_kernel_dim", "conv_kernel", "mamba_d_conv", "conv_L_cache", "short_conv_kernel_size"),
                    lambda d: d.one_of(2, 3, 4)),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), lambda d: d.experts),
    **dict.fromkeys(("num_experts_per_tok", "moe_k", "moe_topk", "top_k_experts"), lambda d: d.chosen),
    **dict.fromkeys(("n_shared_experts", "num_shared_experts", "moe_num_shared_experts"),
                    lambda d: d.one_of(0, 1, 2)),
    **dict.fromkeys(("n_group", "topk_group"), lambda _: 1),
    "q_lora_rank": lambda d: d.one_of(None, 24, 40),
    "kv_lora_rank": lambda d: d.one_of(16, 48),
    "first_k_dense_replace": lambda d: d.rng.randint(0, 3),
    "num_dense_layers": lambda d: d.rng.randint(0, 3),
    "decoder_sparse_step": lambda d: d.one_of(1, 2, 3),
    "mlp_only_layers": lambda d: d.one_of([], [0], [1, 2]),
    "interleave_moe_layer_step": lambda d: d.one_of(1, 2),
    "moe_layers": lambda d: d.one_of(None, [], [0, 1]),
    "moe_layer_interval": lambda d: d.one_of(1, 2),
    "moe_layer_start_index": lambda d: d.rng.randint(0, 2),
    "moe_layer_end_index": lambda d: d.one_of(-1, 1, 2),
    "no_rope_layers": lambda d: d.one_of(None, [1] * d.layers, [0] * d.layers),
    "sliding_window": lambda d: d.one_of(None, 8, 32),
    "attention_chunk_size": lambda d: d.one_of(None, 16),
    "max_window_layers": lambda d: d.rng.randint(0, 4),
    "sliding_window_pattern": lambda d: d.one_of(2, 3, 4),
    "full_attention_interval": lambda d: d.one_of(2, 3),
    "global_attn_every_n_layers": lambda d: d.one_of(1, 2, 3),
    "num_hidden_groups": lambda d: d.one_of(1, 2),
    "inner_group_num": lambda d: d.one_of(1, 2),
    "type_vocab_size": lambda d: d.one_of(0, 1, 2) or 1,
    "cross_attention_layers": lambda d: d.one_of([], [1], [0, 1]),
    "relative_attention_num_buckets": lambda d: d.one_of(8, 32),
    "feed_forward_proj": lambda d: d.one_of("relu", "gated-gelu", "gated-silu"),
    "num_mel_bins": lambda d: d.one_of(16, 80),
    **dict.fromkeys(("state_size", "mamba_d_state", "ssm_state_size"), lambda d: d.one_of(8, 16)),
    **dict.fromkeys(("expand", "mamba_expand"), lambda d: d.one_of(1, 2)),
    **dict.fromkeys(("time_step_rank", "mamba_dt_rank"), lambda d: d.one_of("auto", 6, 10)),
    **dict.fromkeys(("n_groups", "mamba_n_groups", "mamba_ngroups"), lambda d: d.one_of(1, 2)),
    "attn_layer_period": lambda d: d.one_of(2, 3),
    "attn_layer_offset": lambda d: d.one_of(0, 1),
    "expert_layer_period": lambda d: d.one_of(1, 2),
    "expert_layer_offset": lambda d: d.one_of(0, 1),
    "attn_layer_indices": lambda d: d.one_of(None, [1], [0, 2]),
    "block_multiple_of": lambda d: d.one_of(8, 32),
    "block_ffn_dim_multiplier": lambda d: d.one_of(1.0, 1.5),
    "num_kv_shared_layers": lambda d: d.one_of(0, 0, 1, 2),
    "altup_num_inputs": lambda d: d.one_of(2, 4),
    "zero_expert_num": lambda d: d.one_of(0, 2),
    "num_mem_blocks": lambda d: d.one_of(1, 2),
    "layer_group_size": lambda d: d.one_of(2, 3),
    "num_sliding_attention_heads": lambda d: d.one_of(None, 4, 12),
    "hc_mult": lambda d: d.one_of(2, 4),
    "o_groups": lambda d: d.one_of(1, 2),
    "index_topk": lambda d: d.one_of(4, 16),
    "num_hash_layers": lambda d: d.one_of(0, 1, 2),
    "expansion_ratio": lambda d: d.one_of(2, 4),
    "position_embedding_type": lambda d: d.one_of("rope", None),
    "num_ln_in_parallel_attn": lambda d: d.one_of(None, 1, 2),
    "mtp_num_hidden_layers": lambda d: d.one_of(0, 1),
    **dict.fromkeys(("num_nextn_predict_layers", "num_mtp_layers"), lambda d: d.one_of(0, 1)),
}  # fmt: skip
# Fields that older files have and that the class takes without declaring them.
OLDER: dict[str, dict[str, Choose]] = {
    "cohere2": {"sliding_window_pattern": SIZES["sliding_window_pattern"]},
    "gemma3_text": {"sliding_window_pattern": SIZES["sliding_window_pattern"]},
    "gemma4_text": {
        "global_head_dim": SIZES["global_head_dim"],
        "num_global_key_value_heads": lambda d: d.one_of(None, 1, 2),
    },
    "lfm2": {"block_ff_dim": SIZES["block_ff_dim"], "tie_embedding": lambda d: d.one_of(True, False)},
    "lfm2_moe": {"tie_embedding": lambda d: d.one_of(True, False)},
    "minimax_m3_vl_text": {"moe_layer_freq": lambda d: [d.one_of(0, 1) for _ in range(d.layers)]},
    "modernbert": {"global_attn_every_n_layers": SIZES["global_attn_every_n_layers"]},
    "nemotron_h": {"hybrid_override_pattern": lambda d: "".join(d.one_of(*"M*E-") for _ in range(d.layers))},
    "qwen3_5_moe_text": {"full_attention_interval": SIZES["full_attention_interval"]},
    "qwen3_5_text": {"full_attention_interval": SIZES["full_attention_interval"]},
    "qwen3_next": {"full_attention_interval": SIZES["full_attention_interval"]},
    "deepseek_v4": {"num_hash_layers": SIZES["num_hash_layers"]},
    "glm_moe_dsa": {"index_topk_freq": lambda d: d.one_of(1, 2, 3), "index_skip_topk_offset": lambda d: d.one_of(1, 2)},
}  # fmt: skip
# What a family wants instead of the general choice.
OWN: dict[str, dict[str, Choose]] = {
    "dbrx": {
        "attn_config": lambda d: {"kv_n_heads": d.kv_heads, "clip_qkv": None, "rope_theta": 1e4},
        "tie_word_embeddings": lambda _: False,
        "ffn_config": lambda d: {
            "ffn_hidden_size": d.size(), "moe_num_experts": d.experts, "moe_top_k": d.chosen,
        },
    },
    "mpt": {
        "attn_config": lambda d: {"qk_ln": d.one_of(True, False), "alibi": d.one_of(True, False)},
    },
    "mamba2": {
        "num_heads": lambda d: 2 * d.heads, "hidden_size": lambda d: d.heads * 16, "head_dim": lambda _: 16,
        "expand": lambda _: 2,
    },
    "gpt_neo": {"attention_types": lambda d: [[[d.one_of("global", "local")], d.layers]]},
    "gemma4_text": {"sliding_window": lambda d: d.one_of(8, 32), "num_experts": lambda d: d.experts},
    "opt": {"word_embed_proj_dim": lambda d: d.one_of(d.hidden, 40)},
    "bamba": {"mamba_n_heads": lambda d: 4, "mamba_d_head": lambda _: "auto"},
    "granitemoehybrid": {"mamba_n_heads": lambda d: 4, "mamba_d_head": lambda _: "auto"},
    "falcon_h1": {"mamba_n_heads": lambda d: 4, "mamba_d_head": lambda d: d.one_of(8, 16),
                  "mamba_d_ssm": lambda d: d.one_of(32, 64)},
    "nemotron_h": {"mamba_num_heads": lambda d: d.one_of(4, 8), "mamba_head_dim": lambda d: d.one_of(8, 16)},
    "diffllama": {"num_key_value_heads": lambda d: d.one_of(2, d.heads)},
    "laguna": {"num_attention_heads_per_layer": lambda d: [d.one_of(4, 8) for _ in range(d.layers)]},
    "zamba2": {"n_mamba_heads": lambda d: d.one_of(4, 8)},
}  # fmt: skip
# The class of model, where the general mapping means another.
CLASSES = {
    "albert": "AlbertForMaskedLM", "bert": "BertForMaskedLM", "camembert": "CamembertForMaskedLM",
    "electra": "ElectraForMaskedLM", "mllama_text_model": "MllamaForCausalLM", "roberta": "RobertaForMaskedLM",
    "xlm-roberta": "XLMRobertaForMaskedLM",
}  # fmt: skip


@cache
def own_fields(cls: type) -> tuple[tuple[str, Any], ...]:
    """Return a class's own fields with their defaults."""
    general = {field.name for field in dataclasses.fields(transformers.PreTrainedConfig)}
    found = []
    for field in dataclasses.fields(cls):
        default = field.default if field.default is not dataclasses.MISSING else None
        if field.name not in general:
            found.append((field.name, default))
    return tuple(found)


def drawn(cls: type, dice: Dice) -> dict[str, Any]:
    """Return a random configuration of a class, valid or not."""
    rng, name = dice.rng, cls.model_type
    parts = getattr(cls, "sub_configs_defaults", None) or {}
    config: dict[str, Any] = {}
    choices = SIZES | OWN.get(name, {})
    always = {"num_hidden_layers", "n_layer", "n_layers", "num_layers", "vocab_size", "top_k_experts"}
    keeps = rng.choice([1.0, 0.9, 0.7])
    for field, default in own_fields(cls):
        if field in parts or field in LEFT_ALONE or (field not in always and rng.random() > keeps):
            continue
        if field in choices:
            config[field] = choices[field](dice)
        elif isinstance(default, bool):
            config[field] = rng.random() < 0.5
        elif field in ("layer_types", "layers_block_type") and rng.random() < 0.7:
            config[field] = [rng.choice(LAYER_TYPES.get(name, [FULL, SLIDING])) for _ in range(dice.layers)]
        elif field == "mlp_layer_types" and rng.random() < 0.5:
            config[field] = [rng.choice(["dense", "sparse"]) for _ in range(dice.layers)]
        elif field == "indexer_types" and rng.random() < 0.5:
            config[field] = ["full"] + [rng.choice(["full", "shared"]) for _ in range(dice.layers - 1)]
        elif field.endswith("_token_id"):
            config[field] = 0
    for field, choose in OLDER.get(name, {}).items():
        if rng.random() < 0.4:
            config[field] = choose(dice)
    for part, given in parts.items():
        if rng.random() < 0.1 and "text" not in part:
            continue
        inner = part_class(given)
        config[part] = drawn(inner, Dice(rng)) if "text" in part else {}
        if inner.model_type:
            config[part]["model_type"] = inner.model_type
    return config


def part_class(given: Any) -> type:
    """Return the class of a nested configuration."""
    cls = getattr(given, "config_class", given)
    if isinstance(cls, type) and issubclass(cls, transformers.PreTrainedConfig):
        return cls
    return transformers.CONFIG_MAPPING[given.model_type]


def class_of(parsed: Any) -> Any:
    """Return the class of model that a configuration is tried with."""
    named = CLASSES.get(parsed.model_type)
    return getattr(transformers, named) if named else mapped(parsed)


def mapped(parsed: Any) -> type | None:
    """Return the class of model that a configuration stands for."""
    auto = transformers.models.auto.modeling_auto
    for mapping in (
        auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
        auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING,
        auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
        auto.MODEL_FOR_CAUSAL_LM_MAPPING,
        auto.MODEL_FOR_MASKED_LM_MAPPING,
    ):
        if type(parsed) in mapping:
            found = mapping[type(parsed)]
            return found[0] if isinstance(found, tuple) else found
    return None


def shares_equally(parsed: Any) -> bool:
    """Whether the width is a multiple of the heads, or the heads' width is given."""
    given = vars(parsed)
    return bool(given.get("head_dim")) or given.get("hidden_size", 0) % (given.get("num_attention_heads") or 1) == 0


def total(config: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Return the parameters of the model that transformers builds, tied ones once, and the configuration it saves."""
    parsed = transformers.AutoConfig.for_model(**config)
    assert shares_equally(parsed.get_text_config()), "the heads do not share the width equally"
    with torch.device("meta"):
        model = class_of(parsed)(parsed)
    model.tie_weights()
    return sum(p.numel() for p in model.parameters()), json.loads(parsed.to_json_string(use_diff=False))


def valid(model_type: str, seed: str) -> tuple[dict[str, Any], int, dict[str, Any]]:
    """Return a configuration that transformers takes, its count, and the configuration as transformers saves it."""
    rng = random.Random(seed)
    refused = []
    for _ in range(NUM_DRAWS):
        config = drawn(transformers.CONFIG_MAPPING[model_type], Dice(rng)) | {"model_type": model_type}
        try:
            return config, *total(config)
        except Exception as error:  # noqa: BLE001 - whatever the class raises means "not valid"
            refused.append(f"{type(error).__name__}: {str(error)[:200]}")
    pytest.fail(f"no valid configuration drawn; the last was refused for {refused[-3:]}")


# No class of model of their own: text parts are tried inside the whole, Kimi K2 is DeepSeek-V3 under another name.
PARTS = {
    "gemma3n",  # its image encoder needs timm; its text part is tried by itself
    "qwen3_omni_moe", "qwen3_omni_moe_text",  # tried by itself, with its voice
    "glm4v_moe_text", "glm4v_text", "qwen2_5_vl_text", "qwen2_vl_text", "qwen3_vl_moe_text", "qwen3_vl_text", "step3p5", *SAME_AS,
}  # fmt: skip
