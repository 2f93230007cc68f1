import re
import time

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


SIZED = re.compile(r"(?<![a-z\d.])(?:(\d+)x)?(\d+(?:\.\d+)?)([bm])(?![a-z\d])")
# of these, the first number in the name is not that of all parameters, or experts share the rest
NAMED_OTHERWISE = {
    "allenai/OLMoE-1B-7B-0924",
    "meta-llama/Llama-4-Maverick-17B-128E-Instruct",
    "meta-llama/Llama-4-Scout-17B-16E-Instruct",
    "mistralai/Voxtral-Mini-3B-2507",
    "RedHatAI/Llama-4-Scout-17B-16E-Instruct-FP8-dynamic",
    "tiiuae/Falcon3-1B-Instruct",
}


@pytest.mark.parametrize("name", sorted(set(catalogue.names()) - NAMED_OTHERWISE))
def test_a_model_is_about_as_large_as_its_name_says(name):
    named = SIZED.search(name.partition("/")[2].casefold())
    if named is None:
        return
    size = float(named[2]) * int(named[1] or 1) * (1e9 if named[3] == "b" else 1e6)
    assert 0.79 * size < count(catalogue.find(name)).total < 1.31 * size


def test_a_model_is_found_without_reading_the_others():
    catalogue.find("Qwen3.5-27B")
    start = time.perf_counter()
    for _ in range(20):
        catalogue.find("Qwen3.5-27B")
    assert (time.perf_counter() - start) / 20 < 0.002


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("meta-llama/Llama-3.1-405B", "meta-llama/Meta-Llama-3.1-405B"),
        ("meta-llama/Llama-3.1-8B", "meta-llama/Meta-Llama-3.1-8B"),
        ("meta-llama/Llama-3.1-70B", "meta-llama/Meta-Llama-3.1-70B"),
        ("meta-llama/Meta-Llama-3.1-8B", "meta-llama/Meta-Llama-3.1-8B"),
        ("meta-llama/Meta-Llama-3.3-70B-Instruct", "meta-llama/Llama-3.3-70B-Instruct"),
    ],
)
def test_a_hub_id_is_found_with_its_makers_name_or_without(name, full):
    assert catalogue.has(name)
    assert catalogue.find(name).name == full
    assert catalogue.config(name) == catalogue.config(full)
