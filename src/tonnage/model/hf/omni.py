"""Qwen3-Omni beside its text model: eyes, ears, and the talker and vocoder that speak, counted exactly.

References
----------
.. [1] Qwen Team, "Qwen3-Omni Technical Report", 2025, arXiv:2509.17765.
.. [2] huggingface/transformers 5.24.0, `qwen3_omni_moe/modeling_qwen3_omni_moe.py`.
"""

from __future__ import annotations

from tonnage.model.hf.fields import Fields
from tonnage.model.hf.tower_counts import encoder_layer_parameters, linear_parameters, two_layer_projector_parameters
from tonnage.model.types import Encoder


def audio_encoder(f: Fields) -> Encoder:
    """Qwen3-Omni's ears: three convolutions that halve time and frequency, layers with all biases, two matrices."""
    width, intermediate_size, channels = (
        f.count("d_model"),
        f.count("encoder_ffn_dim"),
        f.count("downsample_hidden_size"),
    )
    num_frequencies = f.count("num_mel_bins")
    for _ in range(3):
        num_frequencies = (num_frequencies + 1) // 2
    front_end = (
        linear_parameters(9, channels)
        + 2 * linear_parameters(9 * channels, channels)
        + channels * num_frequencies * width
    )
    behind = 2 * width + two_layer_projector_parameters(width, width, f.count("output_dim"))
    num_layers = f.num_layers("encoder_layers")
    return Encoder(
        num_parameters=front_end + num_layers * encoder_layer_parameters(width, intermediate_size) + behind,
        hidden_size=width,
        num_layers=num_layers,
        num_heads=f.count("encoder_attention_heads"),
        intermediate_size=intermediate_size,
        kind="audio",
    )


def speech_parameters(f: Fields) -> int:
    """Return the weights that only speaking needs; none where `enable_audio_output` is off."""
    if not f.flag("enable_audio_output"):
        return 0
    talker = f.part("talker_config")
    return (
        talker_parameters(talker)
        + predictor_parameters(talker.part("code_predictor_config"))
        + vocoder_parameters(f.part("code2wav_config"))
    )


def decoder_layer_parameters(f: Fields, feed_forward: int, *, has_qk_norm: bool = True, num_scales: int = 0) -> int:
    """Return the weights of one decoder layer around a feed-forward of known size."""
    hidden_size, heads = f.count("hidden_size"), f.count("num_attention_heads")
    kv_heads = f.count_or("num_key_value_heads", heads)
    head_dim = f.count_or("head_dim", hidden_size // heads)
    attention = 2 * hidden_size * (heads + kv_heads) * head_dim
    biases = (heads + 2 * kv_heads) * head_dim + hidden_size if f.flag("attention_bias") else 0
    norms = 2 * hidden_size + (2 * head_dim if has_qk_norm else 0)
    return attention + biases + norms + num_scales * hidden_size + feed_forward


def talker_parameters(f: Fields) -> int:
    """Return the weights of the talker: experts in every layer, tables of codes, two projections from the thinker."""
    text = f.part("text_config")
    hidden_size, num_experts = text.count("hidden_size"), text.count("num_experts")
    experts = num_experts * 3 * hidden_size * text.count("moe_intermediate_size") + num_experts * hidden_size
    shared = 3 * hidden_size * text.count("shared_expert_intermediate_size") + hidden_size
    projection = two_layer_projector_parameters(
        f.count("thinker_hidden_size"), text.count("intermediate_size"), hidden_size
    )
    return (
        text.num_layers() * decoder_layer_parameters(text, experts + shared)
        + hidden_size
        + 2 * text.count("vocab_size") * hidden_size
        + 2 * projection
    )


def predictor_parameters(f: Fields) -> int:
    """Return the weights of the code predictor: a small decoder with a table and a head for each further codebook."""
    hidden_size = f.count("hidden_size")
    layer = decoder_layer_parameters(f, 3 * hidden_size * f.count("intermediate_size"))
    tables = 2 * (f.count("num_code_groups") - 1) * f.count("vocab_size") * hidden_size
    return f.num_layers() * layer + hidden_size + tables


def vocoder_parameters(f: Fields) -> int:
    """Return the weights of Code2Wav: a decoder with layer scales, upsampling blocks, and convolutions to a waveform."""
    hidden_size, width = f.count("hidden_size"), f.count("decoder_dim")
    layer = decoder_layer_parameters(f, 3 * hidden_size * f.count("intermediate_size"), has_qk_norm=False, num_scales=2)
    total = f.num_layers() * layer + hidden_size + f.count("codebook_size") * f.count("num_quantizers") * hidden_size
    block = two_layer_projector_parameters(hidden_size, 4 * hidden_size, hidden_size) + 11 * hidden_size
    for ratio in f.counts("upsampling_ratios", least=1) or ():
        total += linear_parameters(hidden_size * ratio, hidden_size) + block
    total += linear_parameters(7 * hidden_size, width)
    for rate in f.counts("upsample_rates", least=1) or ():
        # a periodic activation has two vectors; three residual units of convolutions of seven taps and of one
        half = width // 2
        unit = 4 * half + linear_parameters(7 * half, half) + linear_parameters(half, half)
        total += 2 * width + linear_parameters(2 * rate * width, half) + 3 * unit
        width = half
    return total + 2 * width + linear_parameters(7 * width, 1)
