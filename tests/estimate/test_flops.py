"""Operations of a forward pass: matrices against counts of transformers, attention against sums over tokens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.estimate.flops import (
    causal_pairs_per_token,
    forward_flop_by_part,
    forward_flop_per_token,
    matrix_weights_per_token,
)
from tonnage.model import catalogue
from tonnage.model.hf import model_from_config
from tonnage.model.types import Attention, Layer, Mlp, Model


@given(st.integers(1, 200), st.none() | st.integers(1, 250))
def test_pairs_are_the_mean_of_what_each_token_sees(tokens, window):
    wanted = sum(min(i, window or tokens) for i in range(1, tokens + 1)) / tokens
    assert causal_pairs_per_token(tokens, window) == pytest.approx(wanted)


# Weights that multiply one token: everything but the embedding's table, norms and idle experts, as transformers 5.24.0
# builds the model on the meta device; biases and convolutions, which are counted there, are what is allowed for.
@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("Qwen/Qwen3.5-27B", 25_623_939_584),
        ("Qwen/Qwen3.5-35B-A3B", 2_946_263_680),
        ("meta-llama/Llama-3.1-8B-Instruct", 7_504_658_432),
        ("Qwen/Qwen3-30B-A3B", 3_041_669_120),
    ],
)
def test_the_weights_that_multiply_a_token(name, weights):
    model = catalogue.find(name)
    inner = sum(times * matrix_weights_per_token(layer, model.hidden_size) for layer, times in model.groups())
    assert inner + model.vocab_size * model.hidden_size == pytest.approx(weights, rel=4e-4)
    assert forward_flop_per_token(model, 1) > 2 * weights * (1 - 4e-4)


def test_attention_grows_with_the_context_and_stops_at_the_window():
    def model(window):
        mixer = Attention(num_heads=4, num_kv_heads=2, head_dim=8, window_tokens=window)
        layer = Layer(mixers=(mixer,), feed_forwards=(Mlp(intermediate_size=64),), norm_parameters=64)
        return Model(
            name="m",
            family="m",
            hidden_size=32,
            vocab_size=100,
            layers=(layer,) * 3,
            other_parameters={"embedding": 3200},
        )

    matrices = 2 * (100 * 32 + 3 * (32 * 32 + 2 * 32 * 16 + 32 * 32 + 3 * 32 * 64))
    assert forward_flop_per_token(model(None), 1001) == matrices + 3 * 4 * 4 * 8 * 501
    assert forward_flop_per_token(model(16), 10**6) == pytest.approx(matrices + 3 * 4 * 4 * 8 * 16, rel=1e-4)


CONFIGS = Path(__file__).parents[1] / "model" / "configs.jsonl"
ACTIVE = [row for row in map(json.loads, CONFIGS.read_text("utf-8").splitlines()) if "active_matmul_params" in row]


# All weights on a token's way but those of the embedding, counted on transformers 5.24.0 modules; biases, norms and
# convolutions are in that count, and so are the embeddings that layers have of their own, which are only looked up.
@pytest.mark.parametrize("row", ACTIVE, ids=lambda row: f"{row['config']['model_type']}-{row['total_params']}")
def test_each_familys_matrices_meet_a_token_once(row):
    model = model_from_config(row["config"])
    flop = forward_flop_by_part(model, 1)
    of_matrices = sum(value for part, value in flop.items() if part not in ("attention_scores", "state"))
    weights = row["active_matmul_params"] - model.per_layer_embedding_parameters
    assert of_matrices / 2 == pytest.approx(weights, rel=0.008)
