"""What transformers keeps of a sequence in tiny models of every family, byte for byte."""

from __future__ import annotations

import random
from typing import Any

import pytest

pytest.importorskip("torch", reason="platform: optional check, torch is not installed")
pytest.importorskip("transformers", reason="platform: optional check, transformers is not installed")

from tests.model.random_configs import Dice, class_of, drawn, shares_equally, torch, total, transformers

from tonnage.estimate.kv_cache import cache
from tonnage.model.hf import BUILDERS, model_from_config
from tonnage.model.hf.multimodal import TEXT
from tonnage.model.types import CompressedAttention

pytestmark = [pytest.mark.trace, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

LENGTHS = (5, 40)
NUM_DRAWS = 80
MOST_PARAMETERS = 10**7
# transformers 5.24.0 cannot run these after a random change of their shape
BROKEN = {"dbrx", "gptj", "longcat_flash"}
PARTS_ONLY = {
    "glm4v_moe_text",
    "glm4v_text",
    "qwen2_5_vl_text",
    "qwen2_vl_text",
    "qwen3_omni_moe_text",
    "qwen3_vl_moe_text",
    "qwen3_vl_text",
    "step3p5",
    "mllama_text_model",
}
FAMILIES = sorted((set(TEXT) & set(transformers.CONFIG_MAPPING) & set(BUILDERS)) - BROKEN - PARTS_ONLY)


def floats_in(value: Any, seen: set[Any], depth: int = 0) -> int:
    """Return the bytes of every floating-point tensor that an object holds, each storage once."""
    if isinstance(value, torch.Tensor):
        key = (value.untyped_storage().data_ptr(), value.storage_offset(), tuple(value.shape))
        if key in seen or not value.is_floating_point():
            return 0
        seen.add(key)
        return value.numel() * value.element_size()
    if depth > 6 or isinstance(value, torch.nn.Module | type):
        return 0
    inside = value if isinstance(value, list | tuple) else ()
    if isinstance(value, dict):
        inside = value.values()
    elif hasattr(value, "__dict__"):
        inside = [item for key, item in vars(value).items() if "config" not in key]
    return sum(floats_in(item, seen, depth + 1) for item in inside)


def kept_by(outputs: Any) -> Any:
    names = ("past_key_values", "cache_params", "cache")
    return next(found for name in names if (found := getattr(outputs, name, None)) is not None)


def measured(config: dict[str, Any]) -> list[int]:
    """Return the bytes that a tiny model in bfloat16 keeps after a prompt and one step, for two lengths."""
    parsed = transformers.AutoConfig.for_model(**config)
    assert shares_equally(parsed.get_text_config())
    assert parsed.hidden_size // getattr(parsed, "num_attention_heads", 1) >= 8, "too narrow for a partial rotation"
    assert total(config)[0] < MOST_PARAMETERS
    parsed._attn_implementation = "eager"
    model = class_of(parsed)(parsed).to(torch.bfloat16).eval()
    found = []
    for length in LENGTHS:
        tokens = torch.randint(1, 50, (1, length))
        with torch.no_grad():
            kept = kept_by(model(tokens[:, :-1], use_cache=True))
            name = "cache_params" if config["model_type"] in ("mamba", "mamba2", "falcon_mamba") else "past_key_values"
            kept = kept_by(model(tokens[:, -1:], use_cache=True, **{name: kept}))
        found.append(floats_in(kept, set()))
    return found


def tried(model_type: str) -> tuple[dict[str, Any], list[int]]:
    rng = random.Random(model_type)
    refused = []
    for _ in range(NUM_DRAWS):
        config = drawn(transformers.CONFIG_MAPPING[model_type], Dice(rng)) | {"model_type": model_type}
        try:
            return config, measured(config)
        except Exception as error:  # noqa: BLE001 - whatever the class raises means "not valid"
            refused.append(f"{type(error).__name__}: {str(error)[:200]}")
    pytest.fail(f"no valid configuration drawn; the last was refused for {refused[-3:]}")


@pytest.mark.parametrize("model_type", FAMILIES)
def test_cache_is_what_transformers_keeps(model_type):
    config, kept = tried(model_type)
    model = model_from_config(config)
    found = cache(model)
    expected = [found.bytes_at(length) for length in LENGTHS]
    if any(isinstance(mixer, CompressedAttention) for layer in model.layers for mixer in layer.mixers):
        # what waits to fill an entry is counted at its most, and comes and goes
        slack = found.state_bytes_per_sequence
        assert all(most - slack - 1024 <= real <= most for most, real in zip(expected, kept, strict=True)), config
    else:
        assert expected == kept, config
