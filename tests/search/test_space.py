"""The axes of the search: layouts that multiply out, formats that an engine loads, batches that divide."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage import api
from tonnage.engines import ENGINES
from tonnage.estimate.weights import FORMATS
from tonnage.search.constraints import head_counts, num_experts
from tonnage.search.space import (
    bits_of,
    cache_formats,
    divisors,
    micro_batches,
    serving_layouts,
    training_layouts,
    weight_formats,
)

DENSE, SPARSE, QUANTIZED = (
    api.read_model(name) for name in ("Qwen/Qwen3.5-27B", "Qwen/Qwen3.5-35B-A3B", "nvidia/Qwen3.5-122B-A10B-NVFP4")
)
WAYS = ("tp", "pp", "dp", "ep")


@given(st.integers(1, 5000))
def test_divisors(number):
    assert divisors(number) == tuple(i for i in range(1, number + 1) if number % i == 0)


@given(st.integers(1, 64), st.sampled_from([1, 2, 4, 8]), st.sampled_from([DENSE, SPARSE]))
def test_serving_layouts_use_every_device_once(num_devices, per_node, model):
    layouts = serving_layouts(model, num_devices, per_node, WAYS)
    assert layouts
    assert len(set(layouts)) == len(layouts)
    for layout in layouts:
        assert layout.num_devices == num_devices
        assert layout.tp <= per_node
        assert all(heads % layout.tp == 0 for heads in head_counts(model))


def test_an_engine_without_copies_uses_what_it_can_split_over():
    assert {layout.num_devices for layout in serving_layouts(DENSE, 4, 4, ("pp",))} == {4}
    assert {layout.num_devices for layout in serving_layouts(DENSE, 3, 3, ("tp",))} == {2}


@given(st.integers(1, 64), st.sampled_from([1, 8]), st.sampled_from([DENSE, SPARSE]))
def test_training_layouts_multiply_out(num_devices, per_node, model):
    for layout in training_layouts(model, num_devices, per_node, ("tp", "pp", "ep"), (1, 3)):
        assert layout.num_devices == num_devices
        assert layout.ep == 1 or num_experts(model) % layout.ep == 0
        assert not (layout.zero_stage > 1 and layout.pp > 1)


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
@pytest.mark.parametrize("model", [DENSE, SPARSE, QUANTIZED], ids=lambda model: model.name)
def test_formats_are_loadable_and_fall(engine, model):
    names = weight_formats(model, engine.traits)
    assert all(name in FORMATS for name in names)
    bits = [bits_of(name) for name in names]
    assert bits == sorted(bits, reverse=True)
    assert len(set(names)) == len(names)


def test_a_quantised_checkpoint_is_served_as_it_is():
    vllm = next(engine for engine in ENGINES if engine.name == "vllm")
    names = weight_formats(QUANTIZED, vllm.traits)
    assert names[0] == "nvfp4"
    assert "bf16" not in names


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_the_first_cache_format_has_sixteen_bits(engine):
    assert cache_formats(engine.traits)[0] in ("fp16", "bf16")


@given(st.integers(1, 512), st.integers(1, 64))
def test_micro_batches_divide_the_global_batch(total, dp):
    options = micro_batches(total, dp)
    assert bool(options) == (total % dp == 0)
    assert all(total % (dp * option) == 0 for option in options)


def test_copies_that_share_experts_are_a_layout_of_their_own():
    plain = serving_layouts(SPARSE, 4, 4, WAYS)
    shared = serving_layouts(SPARSE, 4, 4, WAYS, "copies")
    assert set(plain) < set(shared)
    assert {layout.ep for layout in set(shared) - set(plain)} == {4, 2}
    assert all(layout.ep in (1, layout.tp * layout.dp) for layout in shared)
    assert serving_layouts(DENSE, 4, 4, WAYS, "copies") == serving_layouts(DENSE, 4, 4, WAYS)
