"""Whatever a config.json holds: a model whose parts add up, or one clear error, and never a long wait."""

from __future__ import annotations

import copy
import json
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tonnage.errors import BadFileError, RequestError
from tonnage.estimate.flops import forward_flop_per_token
from tonnage.estimate.kv_cache import cache
from tonnage.estimate.parameters import count
from tonnage.model.hf import BUILDERS, model_from_config
from tonnage.model.hf.quantization import quantization_from_mapping

ROWS = [json.loads(line) for line in Path(__file__).with_name("configs.jsonl").read_text("utf-8").splitlines()]
CONFIGS = [row["config"] for row in ROWS if "total_params" in row]

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=True) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=6,
)
ODD = (
    st.sampled_from([None, True, -1, 0, 1, 3, 2**31, 2**40, 2**63, 10**5000, 1.5, float("nan"), float("inf"), "", "7"])
    | st.sampled_from([[], [[]], {}, {"model_type": "llama"}, {"model_type": 3}, [0] * 20_000, ["x"] * 7, "a" * 10_000])
    | JSON
)


def judged(config):
    """Return the model or None where it is refused; anything else that is raised is a bug."""
    try:
        model = model_from_config(config)
        found = count(model)
        assert found.total == sum(found.by_component.values())
        assert all(number >= 0 for number in found.by_component.values())
        assert 0 <= found.active_without_embedding <= found.active <= found.total
        assert found.text <= found.total
        assert cache(model, 2).bytes_per_token >= 0
        assert forward_flop_per_token(model, 128) >= 0
    except RequestError as error:
        assert len(str(error)) < 1000
        assert str(error).isprintable()
        return None
    return model


def places(config, path=()):
    """Yield every place of a config where a value stands."""
    for key, value in config.items():
        yield (*path, key)
        if isinstance(value, dict):
            yield from places(value, (*path, key))


def changed(config, path, value):
    config = copy.deepcopy(config)
    at = config
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return config


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data())
def test_a_config_with_odd_fields_is_counted_or_refused(data):
    config = data.draw(st.sampled_from(CONFIGS))
    for _ in range(data.draw(st.integers(1, 2))):
        config = changed(config, data.draw(st.sampled_from(list(places(config)))), data.draw(ODD))
    judged(config)


@pytest.mark.parametrize(
    "odd", [None, "x", -1, 1.5, [], {}, 2**40, 10**5000], ids=lambda odd: str(odd)[:8] if odd != 10**5000 else "huge"
)
@pytest.mark.parametrize("model_type", sorted({config["model_type"] for config in CONFIGS}))
def test_any_field_may_be_odd(model_type, odd):
    config = next(config for config in CONFIGS if config["model_type"] == model_type)
    for path in places(config):
        judged(changed(config, path, odd))


@pytest.mark.parametrize("model_type", sorted({config["model_type"] for config in CONFIGS}))
def test_any_field_may_be_missing(model_type):
    config = next(config for config in CONFIGS if config["model_type"] == model_type)
    for path in places(config):
        less = changed(config, path, None)
        at = less
        for key in path[:-1]:
            at = at[key]
        del at[path[-1]]
        judged(less)


@pytest.mark.parametrize("model_type", sorted(BUILDERS))
def test_a_config_that_says_only_its_family_is_counted_or_refused(model_type):
    judged({"model_type": model_type})


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(sorted(BUILDERS)),
    st.dictionaries(st.sampled_from(sorted({p[-1] for c in CONFIGS for p in places(c)})), ODD, max_size=6),
)
def test_a_config_of_odd_fields_only_is_counted_or_refused(model_type, fields):
    judged({**fields, "model_type": model_type})


@settings(max_examples=100, deadline=None)
@given(JSON)
def test_anything_else_is_refused(value):
    with pytest.raises(RequestError):
        model_from_config(value)
    with pytest.raises(RequestError):
        model_from_config({"model_type": value, "hidden_size": value})


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(
            [
                "quant_method",
                "quant_algo",
                "bits",
                "group_size",
                "config_groups",
                "ignore",
                "quantized_layers",
                "quantization",
                "weight_block_size",
                "load_in_4bit",
                "moe_quant_algo",
            ]
        ),
        ODD | st.sampled_from(["fp8", "gptq", "NVFP4", "MIXED_PRECISION", "compressed-tensors"]),
        max_size=6,
    )
)
def test_any_quantisation_is_read_or_not_known(fields):
    quantization_from_mapping(fields)


@pytest.mark.parametrize("model_type", sorted(BUILDERS))
def test_configs_that_contain_themselves_come_to_an_end(model_type):
    config = {"model_type": model_type}
    for name in ("text_config", "vision_config", "audio_config", "encoder", "decoder", "quantization_config"):
        config[name] = config
    judged(config)


def test_too_many_layers_are_refused_at_once():
    start = time.perf_counter()
    for config in CONFIGS:
        for path in places(config):
            if path[-1] in ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth"):
                judged(changed(config, path, 10**9))
    assert time.perf_counter() - start < 10


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config["model_type"])
def test_more_layers_never_have_fewer_parameters(config):
    text = config.get("text_config") or config
    name = next((name for name in ("num_hidden_layers", "n_layer", "n_layers") if name in text), None)
    lists = [key for key, value in text.items() if isinstance(value, list)]
    if name is None or lists:
        return
    totals = []
    for more in range(8):
        longer = {**text, name: text[name] + more}
        model = judged({**config, "text_config": longer} if text is not config else longer)
        if model is not None:
            totals.append(count(model).total)
    assert totals == sorted(totals)


def test_a_file_without_a_family_says_so():
    with pytest.raises(BadFileError, match="model_type"):
        model_from_config({"hidden_size": 64})
