"""An encoder-decoder keeps its decoder's tokens, and once the encoder's output; byte for byte as transformers does."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="platform: optional check, torch is not installed")
transformers = pytest.importorskip("transformers", reason="platform: optional check, transformers is not installed")

from tonnage.estimate.kv_cache import cache, mixer_bytes_per_token  # noqa: E402
from tonnage.model.hf import model_from_config  # noqa: E402
from tonnage.model.types import Attention  # noqa: E402

pytestmark = [pytest.mark.trace, pytest.mark.filterwarnings("ignore")]

T5 = {"model_type": "t5", "d_model": 32, "d_kv": 8, "d_ff": 40, "num_layers": 2, "num_decoder_layers": 3,
      "num_heads": 6, "vocab_size": 64}  # fmt: skip
WHISPER = {"model_type": "whisper", "d_model": 32, "encoder_layers": 1, "decoder_layers": 3, "vocab_size": 64,
           "encoder_attention_heads": 2, "decoder_attention_heads": 4, "encoder_ffn_dim": 40, "decoder_ffn_dim": 40,
           "num_mel_bins": 16, "max_source_positions": 30, "max_target_positions": 50, "pad_token_id": 0,
           "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}  # fmt: skip


def measured(config, **inputs):
    """Return the bytes of decoder and cross-attention caches of a tiny model in bfloat16."""
    parsed = transformers.AutoConfig.for_model(**config)
    kind = {"t5": transformers.T5ForConditionalGeneration, "whisper": transformers.WhisperForConditionalGeneration}
    model = kind[config["model_type"]](parsed).to(torch.bfloat16).eval()
    with torch.no_grad():
        kept = model(**inputs, use_cache=True)["past_key_values"]
    return [
        sum(part.numel() * part.element_size() for layer in half.layers for part in (layer.keys, layer.values))
        for half in (kept.self_attention_cache, kept.cross_attention_cache)
    ]


def tokens(number):
    return torch.randint(3, 60, (1, number))


def test_whisper_keeps_the_whole_recording_once():
    sound = torch.zeros(1, 16, 60, dtype=torch.bfloat16)
    own, cross = measured(WHISPER, input_features=sound, decoder_input_ids=tokens(20))
    found = cache(model_from_config(WHISPER))
    assert found.bytes_per_token * 20 == own
    assert found.state_bytes_per_sequence == cross


def test_t5_keeps_an_input_of_any_length():
    own, cross = measured(T5, input_ids=tokens(33), decoder_input_ids=tokens(20))
    model = model_from_config(T5)
    assert cache(model).bytes_at(20) == own
    crossed = [m for layer in model.layers for m in layer.mixers if isinstance(m, Attention) and m.source_width]
    assert 33 * sum(mixer_bytes_per_token(mixer, 2) for mixer in crossed) == cross
