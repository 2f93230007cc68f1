"""Towers are counted exactly, say how many tokens an image takes, and refuse what they do not know."""

import json
from pathlib import Path

import pytest

from tonnage.errors import RequestError
from tonnage.model.hf.families import family
from tonnage.model.hf.fields import Fields
from tonnage.model.hf.image_tokens import RULES, num_image_tokens
from tonnage.model.hf.vision import FAMILIES, encoder_from_config

ROWS = [json.loads(line) for line in Path(__file__).with_name("towers.jsonl").read_text("utf-8").splitlines()]


def fields(config):
    return Fields(config, family(config["model_type"]))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['config']['model_type']}-{row['vision_params']}")
def test_a_published_tower_is_exact(row):
    encoder = encoder_from_config(fields(row["config"]))
    assert encoder is not None
    assert encoder.num_parameters == row["vision_params"]


def test_every_family_has_a_row():
    assert {row["config"]["model_type"] for row in ROWS} == set(FAMILIES)
    assert set(RULES) <= set(FAMILIES)


def test_a_text_model_has_no_tower():
    f = fields({"model_type": "llama", "hidden_size": 64})
    assert encoder_from_config(f) is None
    assert num_image_tokens(f) == 0


def test_gemma4_may_have_neither_eyes_nor_ears():
    assert encoder_from_config(fields({"model_type": "gemma4", "vision_config": None, "audio_config": None})) is None
    both = encoder_from_config(fields({"model_type": "gemma4", "vision_config": {}, "audio_config": {}}))
    assert both is not None
    assert both.kind == "vision+audio"


def test_llava_takes_another_tower():
    def count(tower):
        return encoder_from_config(fields({"model_type": "llava", "vision_config": {"model_type": tower}}))

    assert count("siglip_vision_model").num_parameters != count("clip_vision_model").num_parameters
    with pytest.raises(RequestError, match=r"vision_config: field 'model_type' names the tower 'nosuch'"):
        count("nosuch")


@pytest.mark.parametrize(
    ("model_type", "vision", "size", "wanted"),
    [
        ("gemma3", {}, (480, 640), 256),
        ("llama4", {"image_size": 336, "patch_size": 14, "pixel_shuffle_ratio": 0.5}, (480, 640), 144),
        ("internvl", {"image_size": [448, 448]}, (100, 100), 256),
        ("llava", {"model_type": "clip_vision_model", "image_size": 336, "patch_size": 14}, (100, 100), 576),
        ("qwen2_5_vl", {}, (1120, 1400), 40 * 50),
        ("qwen3_vl", {}, (640, 480), 20 * 15),
        ("qwen3_vl", {}, (1, 1), 1),
        ("kimi_k25", {}, (57, 28), 3),
        ("mistral3", {"image_size": 1540, "patch_size": 14}, (1540, 770), 55 * 29),
        ("mistral3", {"image_size": 1540, "patch_size": 14}, (3080, 1540), 55 * 29),
        ("gemma4", {}, (1000, 1000), 256),
        ("step3p7", {}, (728, 728), 169),
    ],
)
def test_tokens_of_an_image(model_type, vision, size, wanted):
    f = fields({"model_type": model_type, "vision_config": vision})
    assert num_image_tokens(f, height_pixels=size[0], width_pixels=size[1]) == wanted


def test_an_image_encoder_that_only_has_a_name_is_known_by_it():
    def count(**vision):
        return encoder_from_config(fields({"model_type": "gemma3n", "vision_config": vision}))

    assert count().num_parameters == count(architecture="mobilenetv5_300m_enc").num_parameters
    with pytest.raises(RequestError, match="'architecture' is 'resnet50', an image encoder that is unknown"):
        count(architecture="resnet50")


@pytest.mark.parametrize(
    ("vision", "what"),
    [
        ({"patch_size": [14, 14, 14]}, "'patch_size' has not two sides"),
        ({"patch_size": "14"}, "'patch_size' is '14', not a whole number"),
        ({"hidden_size": -1}, "'hidden_size' is -1"),
        ({"mlp_ratio": 0}, "'mlp_ratio' is 0, not a number above zero"),
    ],
)
def test_odd_values_are_refused(vision, what):
    with pytest.raises(RequestError, match=what):
        encoder_from_config(fields({"model_type": "step3p7", "vision_config": vision}))
