"""Encoders and encoder-decoders: what kind of head a config asks for, and what of them a sequence keeps."""

import pytest

from tonnage.estimate.kv_cache import cache
from tonnage.estimate.parameters import count
from tonnage.model.hf import model_from_config

# counts of huggingface/transformers 5.24.0 for each class with its default configuration
AS_EMBEDDING_MODEL = {
    "albert": ("AlbertModel", 222_595_584),
    "bert": ("BertModel", 109_482_240),
    "camembert": ("CamembertModel", 109_482_240),
    "distilbert": ("DistilBertModel", 66_362_880),
    "electra": ("ElectraModel", 13_483_008),
    "roberta": ("RobertaModel", 124_644_864),
    "xlm-roberta": ("XLMRobertaModel", 109_482_240),
}
WITH_ITS_HEAD = {
    "bart": 406_291_456,
    "bert": 109_514_298,
    "distilbert": 66_985_530,
    "electra": 13_546_682,
    "m2m_100": 483_905_536,
    "mbart": 406_295_552,
    "mt5": 172_119_424,
    "pegasus": 406_287_360,
    "roberta": 124_696_665,
}


@pytest.mark.parametrize("model_type", sorted(AS_EMBEDDING_MODEL))
def test_a_model_without_a_head_has_a_pooler(model_type):
    architecture, wanted = AS_EMBEDDING_MODEL[model_type]
    assert count(model_from_config({"model_type": model_type, "architectures": [architecture]})).total == wanted


@pytest.mark.parametrize("model_type", sorted(WITH_ITS_HEAD))
def test_the_usual_head_is_counted(model_type):
    assert count(model_from_config({"model_type": model_type})).total == WITH_ITS_HEAD[model_type]


def test_an_encoder_keeps_nothing():
    assert cache(model_from_config({"model_type": "bert"})).bytes_at(512) == 0


def test_a_decoder_keeps_its_own_tokens_and_the_input_once():
    found = cache(model_from_config({"model_type": "whisper", "d_model": 384, "decoder_layers": 3}))
    assert found.bytes_per_token == 3 * 2 * 384 * 2
    assert found.state_bytes_per_sequence == 1500 * found.bytes_per_token


def test_layers_that_share_weights_count_once():
    shared = {"model_type": "albert", "num_hidden_layers": 12, "num_hidden_groups": 1}
    assert count(model_from_config(shared)) == count(model_from_config(shared | {"num_hidden_layers": 24}))
    assert count(model_from_config(shared | {"num_hidden_groups": 2})).total > count(model_from_config(shared)).total
