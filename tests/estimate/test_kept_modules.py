"""Lists of modules that checkpoints leave alone, in the spellings that makers use."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.estimate.kept_modules import KeptModules

EXPERTS, SHARED, ATTENTION, ROUTER, DENSE = (
    (3, "mlp.experts.up_proj"), (3, "mlp.shared_experts.up_proj"), (3, "self_attn.q_proj"), (3, "mlp.gate"),
    (3, "mlp.gate_proj"),
)  # fmt: skip
LINEAR, HEAD, FIRST = (3, "linear_attn.out_proj"), (None, "lm_head"), (0, "mlp.up_proj")
ALL = (EXPERTS, SHARED, ATTENTION, ROUTER, DENSE, LINEAR, HEAD, FIRST)


@pytest.mark.parametrize(
    ("patterns", "kept"),
    [
        ((), set()),
        (("lm_head", "head"), {HEAD}),
        (("gate", "e_score_correction_bias"), {ROUTER}),
        (("model.layers.3.mlp.gate",), {ROUTER}),
        (("model.layers.*.self_attn", "model.embed_tokens"), {ATTENTION}),
        (("re:.*self_attn.*", "re:.*shared_experts.*"), {ATTENTION, SHARED}),
        ((r"re:.*mlp\.(gate|up|gate_up|down)_proj.*",), {DENSE, FIRST}),
        (("model.language_model.layers.3.linear_attn*", "model.language_model.layers.3.mlp.shared_expert*"), {LINEAR, SHARED}),
        (("language_model.model.layers.0*",), {FIRST}),
        (("model.layers.0.*",), {FIRST}),
        (("*.mlp.shared_expert.*",), {SHARED}),
        (("*.attn.*", "*.ffn.shared_experts.*", "mtp.*"), {ATTENTION, SHARED}),
        (("model.layers.3.block_sparse_moe.gate", "model.layers.3.block_sparse_moe.experts"), {ROUTER, EXPERTS}),
        (("backbone.layers.3.mixer.out_proj",), {LINEAR}),
        (("mtp.layers.0*", "visual.layers.3*", "vision_tower"), set()),
        (("self_attn.q_proj",), {ATTENTION}),
        (("model.layers.3.self_attn.q_proj.weight",), {ATTENTION}),
        (("model.layers.30", "model.layers.31.self_attn*"), set()),
    ],
)  # fmt: skip
def test_what_is_kept(patterns, kept):
    found = KeptModules(patterns)
    assert {module for module in ALL if found.has(*module)} == kept


@pytest.mark.parametrize(
    "pattern", ["re:(a+)+$", "re:" + "(.*)*" * 9, "re:(", "re:[", "*b" * 250, "re:" + "a" * 9999, "[", "?*[!"]
)
def test_a_list_cannot_hang_or_break(pattern):
    begin = time.perf_counter()
    found = KeptModules([pattern])
    assert not found.has(3, "a" * 60 + "!")
    assert time.perf_counter() - begin < 0.5


def test_long_lists_are_quick():
    patterns = [
        f"model.layers.{i}.{part}*" for i in range(100) for part in ("self_attn", "mlp.shared_experts", "x", "y")
    ]
    found = KeptModules(patterns)
    begin = time.perf_counter()
    assert sum(found.has(i, name) for i in range(100) for name in ("self_attn.q_proj", "mlp.experts.up_proj")) == 100
    assert time.perf_counter() - begin < 0.5


@given(st.lists(st.text("abmodel.layers0123456789*?[]()|\\re:_", max_size=30), max_size=6))
def test_any_list_is_answered(patterns):
    assert KeptModules(patterns).has(1, "self_attn.q_proj") in {True, False}
