"""Every configuration of the test set is counted exactly, or refused."""

import csv
import json
import time
from collections import Counter
from pathlib import Path

import pytest

from tonnage.errors import RequestError
from tonnage.estimate.kv_cache import cache
from tonnage.estimate.parameters import count
from tonnage.model.hf import BUILDERS, model_from_config
from tonnage.model.matrices import layer_matrices

ROWS = [json.loads(line) for line in Path(__file__).with_name("configs.jsonl").read_text("utf-8").splitlines()]
COUNTED = [row for row in ROWS if "total_params" in row and row["config"]["model_type"] in BUILDERS]
# What a row of MiniMax-M3 says leaves out the index keys, which a tiny model of the family keeps
# (tests/estimate/test_cache_against_transformers.py).
WITHOUT_INDEX_KEYS = {"minimax_m3", "minimax_m3_vl"}
CACHED = [
    row for row in ROWS if "bytes_at" in row and row["config"]["model_type"] in set(BUILDERS) - WITHOUT_INDEX_KEYS
]


def name_of(row):
    return f"{row['config']['model_type']}-{row.get('total_params')}"


@pytest.mark.parametrize("row", COUNTED, ids=name_of)
def test_parameters_are_exact(row):
    found = count(model_from_config(row["config"]))
    assert found.text == row["text_params"]
    assert found.total == sum(found.by_component.values()) == row["total_params"]
    assert found.by_component == row["by_component"]
    assert found.by_component.get("experts", 0) == row["expert_params"]
    if "active_text_params" in row:
        assert found.active == row["active_text_params"]
        assert found.active_without_embedding == row["active_excl_embed"]


@pytest.mark.parametrize("row", CACHED, ids=name_of)
def test_cache_is_exact(row):
    found = cache(model_from_config(row["config"]))
    assert found.bytes_per_token == row["bytes_per_token_growing"]
    assert {str(window): size for window, size in found.window_bytes_per_token.items()} == row["window_bytes_per_token"]
    assert found.state_bytes_per_sequence == row["fixed_state_bytes"]
    assert {length: found.bytes_at(int(length)) for length in row["bytes_at"]} == row["bytes_at"]


def test_an_unknown_family_is_refused_with_a_way_out():
    with pytest.raises(RequestError, match=r"family 'nosuch' is unknown.*safetensors"):
        model_from_config({"model_type": "nosuch", "hidden_size": 64})


@pytest.mark.parametrize("row", COUNTED, ids=name_of)
def test_matrices_make_up_what_their_component_counts(row):
    model = model_from_config(row["config"])
    counts = count(model).by_component
    found = Counter()
    for layer, times in model.groups():
        for matrix in layer_matrices(layer, model.hidden_size) if not layer.is_repeat else ():
            found[matrix.component] += times * matrix.num_parameters
    # biases, norms and scales are small; adapters and what is kept for experts without work are no matrices
    least = {"zamba2": 0.7, "longcat_flash": 0.7}.get(model.family, 0.996)
    assert {name for name, number in found.items() if not least * counts[name] <= number <= counts[name]} == set()


# Answers that transformers does not give: what it cannot build, or cannot tell the family of.
NOT_IN_TRANSFORMERS = {"deepseek_ref", "mimo", "minimax_m3", "nemotron-nas"}


def test_every_configuration_of_the_shared_facts_is_counted_or_refused(shared):
    folder = shared / "data" / "models"
    with (folder / "index.csv").open(encoding="utf-8") as file:
        files = {row["hub_id"]: row["file"] for row in csv.DictReader(file)}
    refused = set()
    for line in (folder / "oracle.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        config = json.loads((folder / "configs" / files[row["hub_id"]]).read_text("utf-8"))
        try:
            found = count(model_from_config(config))
        except RequestError as error:
            assert "total_params" not in row
            # a family that is not known, or Qwen3-Omni without a size of its talker, which has no usual value
            assert "is unknown" in str(error) or "'shared_expert_intermediate_size' is missing" in str(error)
            refused.add(row["model_type"])
            continue
        if "total_params" in row:
            assert (found.total, found.text) == (row["total_params"], row["text_params"]), row["hub_id"]
            assert found.by_component == row["by_component"], row["hub_id"]
        else:
            assert row["model_type"] in NOT_IN_TRANSFORMERS | {"gemma3n"}
    assert refused <= {"kimi_k3", "qwen3_omni_moe", "qwen4_exp"}


def test_counting_a_model_takes_no_time():
    slow = {}
    for row in COUNTED:
        times = []
        for _ in range(5):
            start = time.perf_counter()
            count(model_from_config(row["config"]))
            times.append(time.perf_counter() - start)
        if min(times) > 0.002:
            slow[name_of(row)] = min(times)
    assert slow == {}
