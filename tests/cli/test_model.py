"""`tonnage model`: the object scripts rely on, the text people read, and one line for every mistake."""

from __future__ import annotations

import io
import json
import sys

import pytest
from tests.model.test_safetensors import header

from tonnage.estimate.weights import FORMATS

KEYS = {"schema", "name", "family", "parameters", "cache", "flops", "weights_bytes", "source", "status"}


@pytest.mark.parametrize(
    ("name", "total", "active"),
    [
        ("Qwen/Qwen3.5-35B-A3B", 35_107_181_936, 3_454_988_928),
        ("Qwen/Qwen3.5-27B", 27_356_728_560, 26_895_998_464),
    ],
)
def test_json_says_what_a_model_is(tonnage, name, total, active):
    answer = tonnage("model", name, "--json")
    found = answer.json
    assert answer.code == 0
    assert set(found) >= KEYS
    assert found["name"] == name
    assert found["parameters"]["total"] == sum(found["parameters"]["by_component"].values()) == total
    assert found["parameters"]["active"] == active
    assert found["parameters"]["active_without_embedding"] < active
    assert set(found["weights_bytes"]) == set(FORMATS)
    assert found["weights_bytes"]["bf16"] == 2 * total
    assert found["status"] == "catalogue"


def test_text_says_that_all_experts_have_to_be_in_memory(tonnage):
    answer = tonnage("model", "Qwen/Qwen3.5-35B-A3B")
    assert answer.code == 0
    assert "all 35.1 B parameters have to be in memory" in " ".join(answer.out.split())
    assert "what one token touches" in " ".join(answer.out.split())
    dense = tonnage("model", "Qwen/Qwen3.5-27B").out
    assert "token touches" not in dense


def test_text_in_chinese(tonnage):
    assert "每 token 激活" in tonnage("model", "Qwen/Qwen3.5-35B-A3B", "--lang", "zh").out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("model",), "Missing argument"),
        (("model", "Qwen3.5-27"), "did you mean Qwen/Qwen3.5-27B"),
        (("model", ""), "no model is named"),
        (("model", "./nowhere.gguf"), "no such file"),
        (("model", "$(touch x); `id` | rm"), "no model is called"),
        (("model", "a\x1b[31mb"), "is not a name"),
        (("model", "x" * 10_000), "is not a name"),
        (("model", "Qwen/Qwen3.5-27B", "--context", "many"), "not a quantity"),
        (("model", "Qwen/Qwen3.5-27B", "--context", "0"), "above zero"),
    ],
)
def test_a_mistake_is_one_line(tonnage, arguments, says):
    answer = tonnage(*arguments)
    assert answer.code == 2
    assert answer.out == ""
    assert answer.err.count("\n") == 1
    assert says in answer.err
    assert answer.err.strip().isprintable()


def test_a_failure_is_an_object_with_json(tonnage):
    answer = tonnage("model", "Qwen3.5-27", "--json")
    assert answer.code == 2
    assert set(answer.json["error"]) == {"what", "where", "fix"}


def test_standard_input_is_a_config(tonnage, monkeypatch):
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
              "intermediate_size": 128, "vocab_size": 100, "num_key_value_heads": 2}  # fmt: skip
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(config).encode())))
    found = tonnage("model", "-", "--json").json
    layer = 2 * 64 + 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128
    assert found["parameters"]["total"] == 2 * 100 * 64 + 64 + 2 * layer
    assert found["cache"] == {
        "bytes_per_token": 2 * 2 * 2 * 16 * 2,
        "window_bytes_per_token": {},
        "state_bytes_per_sequence": 0,
    }


def test_what_a_header_does_not_tell_is_null(tonnage, tmp_path):
    data, stored = header(
        {
            "model.embed_tokens.weight": ("BF16", (64, 32)),
            "model.layers.0.mlp.experts.0.up_proj.weight": ("BF16", (64, 32)),
        }
    )
    (tmp_path / "x.safetensors").write_bytes(data + bytes(stored))
    answer = tonnage("model", str(tmp_path / "x.safetensors"), "--json")
    found = answer.json
    assert (found["status"], found["family"], found["num_layers"]) == ("header", None, None)
    assert found["parameters"]["total"] == 2 * 64 * 32
    assert found["parameters"]["active"] is None
    assert found["cache"] == dict.fromkeys(("bytes_per_token", "window_bytes_per_token", "state_bytes_per_sequence"))
    assert found["flops"]["forward_per_token"] is None
    assert found["checkpoint"] == {"format": "bf16", "bytes": 2 * 2 * 64 * 32}
    assert set(found["weights_bytes"]) == {"fp32", "bf16", "fp16"}
    assert "counted only" in answer.err
    assert "counted only" not in tonnage("model", str(tmp_path / "x.safetensors"), "--quiet").err
    assert "not known" in tonnage("model", str(tmp_path / "x.safetensors")).out


def test_the_context_asked_for_is_in_the_table(tonnage):
    out = tonnage("model", "Qwen/Qwen3.5-27B", "--context", "100k").out
    assert "at 100,000 tokens" in out
    assert "a sequence of 100,000" in out


def test_a_quantised_checkpoint_is_marked(tonnage):
    lines = tonnage("model", "openai/gpt-oss-20b").out.splitlines()
    assert [line.split()[0] for line in lines if line.endswith("this checkpoint")] == ["mxfp4"]
