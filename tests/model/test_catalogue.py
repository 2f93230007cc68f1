import pytest

from tonnage.errors import UnknownNameError
from tonnage.estimate.parameters import count
from tonnage.model import catalogue


def test_a_model_is_found_by_either_name_in_any_case():
    assert catalogue.find("Qwen/Qwen3.5-27B") == catalogue.find("qwen3.5-27b")


@pytest.mark.parametrize("name", ["Llama-3.1-8B", "meta-llama/Meta-Llama-3.1-8B", "Llama-3.1-8B-Instruct"])
def test_words_that_change_nothing_may_be_left_out(name):
    assert count(catalogue.find(name)).total == 8_030_261_248


def test_a_wrong_name_suggests_the_nearest():
    with pytest.raises(UnknownNameError) as caught:
        catalogue.find("Qwen3.5-35B")
    assert caught.value.suggestions[0] == "Qwen/Qwen3.5-35B-A3B"


@pytest.mark.parametrize("name", catalogue.names())
def test_every_model_of_the_catalogue_is_counted(name):
    model = catalogue.find(name)
    found = count(model)
    assert model.source
    assert found.total > found.active_without_embedding > 0
