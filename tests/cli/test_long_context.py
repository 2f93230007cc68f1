"""`tonnage plan --context` beyond what a model was trained for."""

from __future__ import annotations

from tests.conftest import call_tonnage


def test_a_context_beyond_what_the_model_was_trained_for_is_warned_of():
    ask = ("plan", "Qwen/Qwen3-8B", "--gpu", "h100-sxm5-80gb", "--engine", "vllm", "--context")
    told = "beyond the 40,960 that the model was trained for: needs RoPE scaling, engines refuse it otherwise"
    beyond = call_tonnage(*ask, "100000", "--json").json
    assert [text for text in beyond["warnings"] if told in text]
    limits = beyond["plans"][0]["limits"]
    assert (limits["trained_context_tokens"], limits["max_context_tokens"] > 100_000) == (40_960, True)
    text = " ".join(call_tonnage(*ask, "100000").out.split())
    assert told in text
    assert "up to 40,960 tokens" not in text
    assert "需要 RoPE 缩放" in call_tonnage(*ask, "100000", "--lang", "zh").out.replace("\n", "")
    within = call_tonnage(*ask, "40960", "--json").json
    assert within["plans"][0]["limits"]["max_context_tokens"] == 40_960
    assert not [text for text in within["warnings"] if "trained for" in text]
