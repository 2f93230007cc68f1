"""What configs say of their weights' format, in each spelling that publishers use."""

from __future__ import annotations

import pytest

from tonnage.model import catalogue
from tonnage.model.hf import model_from_config
from tonnage.model.hf.quantization import condensed, quantization_from_mapping
from tonnage.model.types import Quantization

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,
}  # fmt: skip


def group(targets, **weights):
    return {"targets": targets, "weights": weights}


def packed(**groups):
    return {"quant_method": "compressed-tensors", "config_groups": groups}


@pytest.mark.parametrize(
    ("said", "scheme", "group_size"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8", None),
        ({"quant_method": "fp8", "activation_scheme": "static"}, "fp8_tensor", None),
        ({"quant_method": "fbgemm_fp8"}, "fp8_channel", None),
        ({"quant_method": "mxfp4"}, "mxfp4", None),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "awq", 128),
        ({"quant_method": "gptq", "bits": 4, "group_size": 32}, "gptq", 32),
        ({"quant_method": "gptq", "bits": 8, "group_size": 128}, "int8", 128),
        ({"quant_method": "auto-round", "bits": 4, "group_size": 128}, "gptq", 128),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, "nf4", 64),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True}, "nf4_double", 64),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8", None),
        ({"quant_method": "quanto", "weights": "int8"}, "int8", None),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}, "nvfp4", 16),
        ({"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}, "fp8_tensor", None),
        (packed(group_0=group(["Linear"], num_bits=8, type="float", strategy="channel")), "fp8_channel", None),
        (packed(group_0=group(["Linear"], num_bits=8, type="float", strategy="block")), "fp8", None),
        (packed(group_0=group(["Linear"], num_bits=8, type="float", strategy="tensor")), "fp8_tensor", None),
        (packed(group_0=group(["Linear"], num_bits=4, type="float", group_size=16)), "nvfp4", 16),
        (packed(group_0=group(["Linear"], num_bits=4, type="float", group_size=32)), "mxfp4", 32),
        (packed(group_0=group(["Linear"], num_bits=4, type="int", group_size=32, symmetric=True)), "int4_g32", 32),
        (packed(group_0=group(["Linear"], num_bits=4, type="int", group_size=128, symmetric=False)), "awq", 128),
        (packed(group_0=group(["Linear"], num_bits=8, type="int")), "int8", None),
    ],
)  # fmt: skip
def test_each_way_to_say_a_format(said, scheme, group_size):
    model = model_from_config({**LLAMA, "quantization_config": said})
    assert model.quantization == Quantization(scheme=scheme, group_size=group_size)
    assert model.warnings == model_from_config(LLAMA).warnings


@pytest.mark.parametrize("said", [{"quant_method": "nosuch"}, {}, {"quant_method": "gptq", "bits": 3}, packed()])
def test_a_format_that_is_not_known_is_said(said):
    model = model_from_config({**LLAMA, "quantization_config": said})
    assert model.quantization is None
    assert "not known" in model.warnings[-1]


@pytest.mark.parametrize("key", ["modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules"])
def test_what_is_left_alone_is_kept_briefly(key):
    names = ["lm_head", "model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.q_proj", "model.norm"]
    said = {"quant_method": "compressed-tensors", "quant_algo": "NVFP4", key: [*names, "model.layers.1.mlp.up_proj"]}
    found = model_from_config({**LLAMA, "quantization_config": said}).quantization
    assert found is not None
    assert found.unquantized == ("lm_head", "model.layers.*.self_attn.q_proj", "model.layers.1.mlp.up_proj")


def test_a_layer_left_alone_whole_does_not_hide_what_the_others_leave():
    names = ["model.layers.0*", "model.layers.1.self_attn*", "model.layers.2.self_attn*"]
    assert condensed([names]) == ("model.layers.0*", "model.layers.*.self_attn*")


def test_mixed_formats_are_told_by_component():
    layers = {
        "model.layers.0.mlp.experts.0.up_proj": {"quant_algo": "NVFP4"},
        "model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"},
        "backbone.layers.1.mixer.in_proj": {"quant_algo": "FP8"},
    }
    found = quantization_from_mapping({"quant_algo": "MIXED_PRECISION", "quantized_layers": layers})
    assert found is not None
    assert found.scheme == "nvfp4"
    assert dict(found.other_schemes) == {
        "attention": "fp8_tensor", "linear_attn_ssm": "fp8_tensor", "mlp": "bf16", "shared_experts": "bf16",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "scheme", "part"),
    [
        ("openai/gpt-oss-120b", "mxfp4", "model.layers.*.self_attn"),
        ("moonshotai/Kimi-K2.5", "int4_g32", "re:.*shared_experts.*"),
        ("nvidia/Llama-3.1-70B-Instruct-FP8", "fp8_tensor", "lm_head"),
        ("nvidia/Gemma-4-31B-IT-NVFP4", "nvfp4", "model.language_model.layers.*.self_attn*"),
    ],
)
def test_known_checkpoints(name, scheme, part):
    found = catalogue.find(name).quantization
    assert found is not None
    assert found.scheme == scheme
    assert part in found.unquantized


def test_experts_of_another_format_than_the_rest():
    found = catalogue.find("deepseek-ai/DeepSeek-V4-Flash").quantization
    assert found == Quantization(scheme="fp8", other_schemes=(("experts", "mxfp4"),))
