"""Parameters of vision and audio towers and of the projectors behind them, as functions of their sizes.

Every function counts one architecture from its matrices; none looks at a configuration. A matrix from `a` to `b` is
`a·b` weights and, with a bias, `b` more; a LayerNorm over `h` is `2·h`, an RMSNorm `h`.
"""

from __future__ import annotations

from tonnage.units import Count


def linear_parameters(num_inputs: Count, num_outputs: Count, *, has_bias: bool = True) -> Count:
    """Weights of one matrix; a convolution is one whose inputs are channels times kernel positions.

    Parameters
    ----------
    num_inputs, num_outputs : numeric
        Widths. [1]
    has_bias : bool
        Whether a bias is added.

    Returns
    -------
    numeric
        Parameters. [1]

    Notes
    -----
    Derived: one weight a pair of input and output, one bias an output.

    Examples
    --------
    >>> linear_parameters(588, 1152)
    678528
    """
    return num_inputs * num_outputs + (num_outputs if has_bias else 0)


def encoder_layer_parameters(
    hidden_size: Count,
    intermediate_size: Count,
    *,
    num_attention_biases: int = 4,
    is_gated: bool = False,
    has_mlp_bias: bool = True,
    num_norm_vectors: int = 4,
    num_scale_vectors: int = 0,
) -> Count:
    """Weights of one bidirectional layer: four square attention matrices, a feed-forward, its norms and scales.

    Parameters
    ----------
    hidden_size, intermediate_size : numeric
        Width of the stream and of the feed-forward. [1]
    num_attention_biases : int
        How many of the query, key, value and output matrices have a bias: 4 in ViT, SigLIP, CLIP; 3 in Whisper
        (no key bias); 0 in Pixtral.
    is_gated : bool
        Whether the feed-forward has a gate beside its first matrix.
    has_mlp_bias : bool
        Whether the feed-forward's matrices have biases.
    num_norm_vectors : int
        Vectors of `hidden_size` in the norms: two LayerNorms are 4, two RMSNorms 2.
    num_scale_vectors : int
        Further vectors of `hidden_size`, such as the two of LayerScale.

    Returns
    -------
    numeric
        Parameters of one layer. [1]

    References
    ----------
    .. [1] A. Dosovitskiy et al., "An Image is Worth 16x16 Words", ICLR 2021, arXiv:2010.11929.
    .. [2] huggingface/transformers 5.24.0, `SiglipEncoderLayer`, `CLIPEncoderLayer`, `PixtralAttentionLayer`,
       `WhisperEncoderLayer`, `InternVLVisionLayer`, `Qwen3VLVisionBlock`.

    Examples
    --------
    >>> encoder_layer_parameters(1152, 4304)
    15239504
    """
    num_inner = 2 if is_gated else 1
    biases = num_inner * intermediate_size + hidden_size if has_mlp_bias else 0
    return (
        4 * hidden_size * hidden_size
        + (num_inner + 1) * hidden_size * intermediate_size
        + biases
        + (num_attention_biases + num_norm_vectors + num_scale_vectors) * hidden_size
    )


def siglip_parameters(
    hidden_size: Count,
    intermediate_size: Count,
    num_layers: Count,
    *,
    num_patch_inputs: Count,
    num_positions: Count,
    has_pooling_head: bool = False,
) -> Count:
    """Weights of SigLIP and SigLIP 2: patches with a bias, learned positions, a last norm, an optional pooling head.

    Parameters
    ----------
    hidden_size, intermediate_size, num_layers : numeric
        Widths and depth. [1]
    num_patch_inputs : numeric
        Numbers in one patch: channels times its area. [1]
    num_positions : numeric
        Learned positions. [1]
    has_pooling_head : bool
        Whether an attention head pools the image: a probe vector, a multi-head attention, a norm, a feed-forward.

    Returns
    -------
    numeric
        Parameters. [1]

    References
    ----------
    .. [1] X. Zhai et al., "Sigmoid Loss for Language Image Pre-Training", ICCV 2023, arXiv:2303.15343.
    .. [2] huggingface/transformers 5.24.0, `siglip/modeling_siglip.py`, `siglip2/modeling_siglip2.py`.

    Examples
    --------
    >>> siglip_parameters(1152, 4304, 27, num_patch_inputs=588, num_positions=4096)
    416866032
    """
    # The head is a layer's matrices and one norm, with a probe in place of the other norm's two vectors.
    head = encoder_layer_parameters(hidden_size, intermediate_size, num_norm_vectors=3) if has_pooling_head else 0
    return (
        linear_parameters(num_patch_inputs, hidden_size)
        + num_positions * hidden_size
        + num_layers * encoder_layer_parameters(hidden_size, intermediate_size)
        + 2 * hidden_size
        + head
    )


def clip_parameters(
    hidden_size: Count, intermediate_size: Count, num_layers: Count, *, num_patch_inputs: Count, num_patches: Count
) -> Count:
    """Weights of CLIP's vision tower: patches without a bias, a class token, positions, norms before and after.

    Parameters
    ----------
    hidden_size, intermediate_size, num_layers : numeric
        Widths and depth. [1]
    num_patch_inputs, num_patches : numeric
        Numbers in one patch; patches of the image it was trained on. [1]

    Returns
    -------
    numeric
        Parameters. [1]

    Notes
    -----
    Llama 4's vision model has the same parts.

    References
    ----------
    .. [1] A. Radford et al., "Learning Transferable Visual Models From Natural Language Supervision", ICML 2021,
       arXiv:2103.00020.
    .. [2] huggingface/transformers 5.24.0, `clip/modeling_clip.py`, `Llama4VisionModel`.

    Examples
    --------
    >>> clip_parameters(1024, 4096, 24, num_patch_inputs=588, num_patches=576)
    303507456
    """
    return (
        linear_parameters(num_patch_inputs, hidden_size, has_bias=False)
        + (num_patches + 2) * hidden_size
        + num_layers * encoder_layer_parameters(hidden_size, intermediate_size)
        + 4 * hidden_size
    )


def pixtral_parameters(
    hidden_size: Count, intermediate_size: Count, num_layers: Count, *, num_patch_inputs: Count
) -> Count:
    """Weights of Pixtral's tower: rotary positions, RMSNorms, a gated feed-forward, no bias anywhere.

    Parameters
    ----------
    hidden_size, intermediate_size, num_layers : numeric
        Widths and depth. [1]
    num_patch_inputs : numeric
        Numbers in one patch. [1]

    Returns
    -------
    numeric
        Parameters. [1]

    References
    ----------
    .. [1] P. Agrawal et al., "Pixtral 12B", 2024, arXiv:2410.07073.
    .. [2] huggingface/transformers 5.24.0, `pixtral/modeling_pixtral.py`.

    Examples
    --------
    >>> pixtral_parameters(1024, 4096, 24, num_patch_inputs=588)
    403305472
    """
    layer = encoder_layer_parameters(
        hidden_size, intermediate_size, num_attention_biases=0, is_gated=True, has_mlp_bias=False, num_norm_vectors=2
    )
    return linear_parameters(num_patch_inputs, hidden_size, has_bias=False) + hidden_size + num_layers * layer


def intern_vit_parameters(
    hidden_size: Count,
    intermediate_size: Count,
    num_layers: Count,
    *,
    num_patch_inputs: Count,
    num_patches: Count,
    has_qkv_bias: bool = False,
    has_qk_norm: bool = False,
    is_rms: bool = False,
    has_positions: bool = True,
    has_mask_token: bool = False,
    has_final_norm: bool = False,
) -> Count:
    """Weights of InternViT: a ViT with a class token and LayerScale.

    Parameters
    ----------
    hidden_size, intermediate_size, num_layers : numeric
        Widths and depth. [1]
    num_patch_inputs, num_patches : numeric
        Numbers in one patch; patches of the image it was trained on. [1]
    has_qkv_bias, has_qk_norm, is_rms, has_positions, has_mask_token, has_final_norm : bool
        Options of the tower: biases of query, key and value; RMSNorms over whole query and key rows; RMSNorm instead
        of LayerNorm; learned positions; a mask token; a norm at the end.

    Returns
    -------
    numeric
        Parameters. [1]

    References
    ----------
    .. [1] Z. Chen et al., "InternVL", CVPR 2024, arXiv:2312.14238.
    .. [2] huggingface/transformers 5.24.0, `internvl/modeling_internvl.py`.

    Examples
    --------
    >>> intern_vit_parameters(1024, 4096, 24, num_patch_inputs=588, num_patches=1024, has_qkv_bias=True)
    304012288
    """
    layer = encoder_layer_parameters(
        hidden_size,
        intermediate_size,
        num_attention_biases=4 if has_qkv_bias else 1,
        num_norm_vectors=(2 if is_rms else 4) + (2 if has_qk_norm else 0),
        num_scale_vectors=2,
    )
    num_vectors = 1 + (num_patches + 1 if has_positions else 0) + has_mask_token + (2 if has_final_norm else 0)
    return linear_parameters(num_patch_inputs, hidden_size) + num_vectors * hidden_size + num_layers * layer


def moon_vit_parameters(
    hidden_size: Count, intermediate_size: Count, num_layers: Count, *, num_patch_inputs: Count, num_positions: Count
) -> Count:
    """Weights of MoonViT: SigLIP's layers with a learned grid of positions that is interpolated to the image.

    Parameters
    ----------
    hidden_size, intermediate_size, num_layers : numeric
        Widths and depth. [1]
    num_patch_inputs, num_positions : numeric
        Numbers in one patch; points of the grid. [1]

    Returns
    -------
    numeric
        Parameters. [1]

    Notes
    -----
    Positions in time are computed, not learned.

    References
    ----------
    .. [1] Kimi Team, "Kimi-VL Technical Report", 2025, arXiv:2504.07491.
    .. [2] huggingface/transformers 5.24.0, `kimi_k25/modeling_kimi_k25.py`.

    Examples
    --------
    >>> moon_vit_parameters(1152, 4304, 27, num_patch_inputs=588, num_positions=4096)
    416866032
    """
    return siglip_parameters(
        hidden_size, intermediate_size, num_layers, num_patch_inputs=num_patch_inputs, num_positions=num_positions
    )


def qwen2_vit_parameters(
    hidden_size: Count, intermediate_size: Count, num_layers: Count, *, num_patch_inputs: Count, is_gated: bool = False
) -> Count:
    """Weights of the Qwen2-VL tower (LayerNorms, plain feed-forward) or the Qwen2.5-VL one (RMSNorms, gated).

    Parameters
    ----------
    hidden_size, intermediate_size, num_layers : numeric
        Widths and depth. [1]
    num_patch_inputs : numeric
        Numbers in one patch, both frames of it: channels times frames times area. [1]
    is_gated : bool
        Whether it is the Qwen2.5 form.

    Returns
    -------
    numeric
        Parameters, without the merger. [1]

    References
    ----------
    .. [1] P. Wang et al., "Qwen2-VL", 2024, arXiv:2409.12191; S. Bai et al., "Qwen2.5-VL", 2025, arXiv:2502.13923.
    .. [2] huggingface/transformers 5.24.0, `qwen2_vl/modeling_qwen2_vl.py`, `qwen2_5_vl/modeling_qwen2_5_vl.py`.

    Examples
    --------
    >>> qwen2_vit_parameters(1280, 3420, 32, num_patch_inputs=1176, is_gated=True)
    631975680
    """
    layer = encoder_layer_parameters(
        hidden_size, intermediate_size, is_gated=is_gated, num_norm_vectors=2 if is_gated else 4
    )
    return linear_parameters(num_patch_inputs, hidden_size, has_bias=False) + num_layers * layer


def qwen3_vit_parameters(
    hidden_size: Count, intermediate_size: Count, num_layers: Count, *, num_patch_inputs: Count, num_positions: Count
) -> Count:
    """Weights of the Qwen3-VL and Qwen3.5 tower: SigLIP 2's, with frames in pairs and no last norm.

    Parameters
    ----------
    hidden_size, intermediate_size, num_layers : numeric
        Widths and depth. [1]
    num_patch_inputs, num_positions : numeric
        Numbers in one patch, both frames of it; learned positions. [1]

    Returns
    -------
    numeric
        Parameters, without the mergers. [1]

    References
    ----------
    .. [1] huggingface/transformers 5.24.0, `qwen3_vl/modeling_qwen3_vl.py`, `qwen3_5/modeling_qwen3_5.py`.

    Examples
    --------
    >>> qwen3_vit_parameters(1152, 4304, 27, num_patch_inputs=1536, num_positions=2304)
    415891440
    """
    return (
        linear_parameters(num_patch_inputs, hidden_size)
        + num_positions * hidden_size
        + num_layers * encoder_layer_parameters(hidden_size, intermediate_size)
    )


def glm4v_parameters(
    hidden_size: Count,
    intermediate_size: Count,
    out_hidden_size: Count,
    num_layers: Count,
    *,
    num_patch_inputs: Count,
    num_patches: Count,
    num_merged: Count,
    has_qkv_bias: bool = False,
) -> Count:
    """Weights of GLM-4.1V's tower and merger: feed-forwards as wide as the text model, the merger's as the text's.

    Parameters
    ----------
    hidden_size, intermediate_size, out_hidden_size, num_layers : numeric
        Width, width of the merger's feed-forward, width handed to the text model, depth. [1]
    num_patch_inputs, num_patches, num_merged : numeric
        Numbers in one patch, both frames of it; patches of the image it was trained on; patches of one token. [1]
    has_qkv_bias : bool
        Whether query, key and value have biases.

    Returns
    -------
    numeric
        Parameters. [1]

    References
    ----------
    .. [1] GLM-V Team, "GLM-4.1V-Thinking", 2025, arXiv:2507.01006.
    .. [2] huggingface/transformers 5.24.0, `glm4v/modeling_glm4v.py`.

    Examples
    --------
    >>> glm4v_parameters(1536, 13696, 4096, 24, num_patch_inputs=1176, num_patches=576, num_merged=4)
    892498432
    """
    layer = encoder_layer_parameters(
        hidden_size,
        out_hidden_size,
        num_attention_biases=3 if has_qkv_bias else 0,
        is_gated=True,
        has_mlp_bias=False,
        num_norm_vectors=2,
    )
    merger = out_hidden_size * out_hidden_size + 2 * out_hidden_size + 3 * out_hidden_size * intermediate_size
    return (
        linear_parameters(num_patch_inputs, hidden_size)
        + (num_patches + 2) * hidden_size
        + num_layers * layer
        + linear_parameters(num_merged * hidden_size, out_hidden_size)
        + merger
    )


def merger_parameters(merged_size: Count, out_hidden_size: Count, *, num_norm_parameters: Count) -> Count:
    """Weights of a patch merger: a norm and two matrices, square then to the text width.

    Parameters
    ----------
    merged_size : numeric
        Width of the patches that are merged into one. [1]
    out_hidden_size : numeric
        Width handed to the text model. [1]
    num_norm_parameters : numeric
        Weights of the norm in front. [1]

    Returns
    -------
    numeric
        Parameters. [1]

    References
    ----------
    .. [1] huggingface/transformers 5.24.0, `PatchMerger` of qwen2_vl, `Qwen3VLVisionPatchMerger`,
       `Kimi_K25MultimodalProjection`.

    Examples
    --------
    >>> merger_parameters(4608, 5120, num_norm_parameters=2304)
    44838656
    """
    return (
        num_norm_parameters
        + linear_parameters(merged_size, merged_size)
        + linear_parameters(merged_size, out_hidden_size)
    )


def two_layer_projector_parameters(
    num_inputs: Count, inner_size: Count, num_outputs: Count, *, has_bias: bool = True
) -> Count:
    """Weights of the usual projector: two matrices with a non-linearity between them.

    Parameters
    ----------
    num_inputs, inner_size, num_outputs : numeric
        Widths. [1]
    has_bias : bool
        Whether both have biases.

    Returns
    -------
    numeric
        Parameters. [1]

    References
    ----------
    .. [1] H. Liu et al., "Improved Baselines with Visual Instruction Tuning", CVPR 2024, arXiv:2310.03744.

    Examples
    --------
    >>> two_layer_projector_parameters(1024, 4096, 4096)
    20979712
    """
    return linear_parameters(num_inputs, inner_size, has_bias=has_bias) + linear_parameters(
        inner_size, num_outputs, has_bias=has_bias
    )


def gemma4_vit_parameters(
    hidden_size: Count,
    intermediate_size: Count,
    num_layers: Count,
    *,
    num_heads: Count,
    num_kv_heads: Count,
    head_dim: Count,
    num_patch_inputs: Count,
    num_positions: Count,
) -> Count:
    """Weights of Gemma 4's vision tower: grouped heads with query and key norms, four RMSNorms, a gated feed-forward.

    Parameters
    ----------
    hidden_size, intermediate_size, num_layers : numeric
        Widths and depth. [1]
    num_heads, num_kv_heads, head_dim : numeric
        Heads and their width. [1]
    num_patch_inputs : numeric
        Numbers in one patch. [1]
    num_positions : numeric
        Learned positions along each of the two axes. [1]

    Returns
    -------
    numeric
        Parameters. [1]

    Notes
    -----
    The value norm has no weight; bounds of clipped matrices and the standardizing shift and scale are buffers.

    References
    ----------
    .. [1] huggingface/transformers 5.24.0, `gemma4/modeling_gemma4.py`.

    Examples
    --------
    >>> gemma4_vit_parameters(
    ...     768, 3072, 16, num_heads=12, num_kv_heads=12, head_dim=64, num_patch_inputs=768, num_positions=10240
    ... )
    167364608
    """
    layer = (
        2 * hidden_size * (num_heads + num_kv_heads) * head_dim
        + 2 * head_dim
        + 3 * hidden_size * intermediate_size
        + 4 * hidden_size
    )
    return num_patch_inputs * hidden_size + 2 * num_positions * hidden_size + num_layers * layer


def conformer_parameters(
    hidden_size: Count, num_layers: Count, *, num_heads: Count, conv_kernel: Count, num_front_end: Count
) -> Count:
    """Weights of the conformer of Gemma 3n and Gemma 4.

    Parameters
    ----------
    hidden_size, num_layers, num_heads : numeric
        Width, depth and heads. [1]
    conv_kernel : numeric
        Taps of the depthwise convolution. [1]
    num_front_end : numeric
        Weights in front of the layers (`conformer_front_end_parameters`). [1]

    Returns
    -------
    numeric
        Parameters. [1]

    Notes
    -----
    Derived, a layer: two feed-forwards of 4 h with two RMSNorms each (8 h² + 2 h); attention with query, key, value,
    output and relative-position matrices (5 h²), one scale a head's dimension, two norms (2 h); a convolution block
    with matrices of 2 h² and h², `conv_kernel` taps a channel, two norms (2 h); a last norm (h).

    References
    ----------
    .. [1] A. Gulati et al., "Conformer", Interspeech 2020, arXiv:2005.08100.
    .. [2] huggingface/transformers 5.24.0, `gemma4/modeling_gemma4.py`, `gemma3n/modeling_gemma3n.py`.

    Examples
    --------
    >>> conformer_parameters(1024, 12, num_heads=8, conv_kernel=5, num_front_end=0)
    302163456
    """
    heads_width = num_heads * (hidden_size // num_heads)
    attention = 4 * hidden_size * heads_width + hidden_size * hidden_size + hidden_size // num_heads
    feed_forwards = 2 * (8 * hidden_size * hidden_size + 2 * hidden_size)
    convolution = 3 * hidden_size * hidden_size + conv_kernel * hidden_size
    return num_front_end + num_layers * (attention + feed_forwards + convolution + 5 * hidden_size)


def conformer_front_end_parameters(
    hidden_size: Count, *, channels: tuple[int, int], kernel_areas: tuple[int, int], num_features: Count
) -> Count:
    """Weights in front of a conformer: two normed convolutions over time and frequency, and a matrix.

    Parameters
    ----------
    hidden_size : numeric
        Width of the conformer. [1]
    channels, kernel_areas : tuple of int
        Channels and kernel areas of the two convolutions.
    num_features : numeric
        Frequencies left after both. [1]

    Returns
    -------
    numeric
        Parameters. [1]

    References
    ----------
    .. [1] huggingface/transformers 5.24.0, `Gemma4AudioSubSampleConvProjection`,
       `Gemma3nAudioSubSampleConvProjection`.

    Examples
    --------
    >>> conformer_front_end_parameters(1024, channels=(128, 32), kernel_areas=(9, 9), num_features=32)
    1086752
    """
    first, second = channels
    return (
        first * kernel_areas[0]
        + first
        + first * second * kernel_areas[1]
        + second
        + second * num_features * hidden_size
    )


def mobilenet_v5_parameters() -> Count:
    """Weights of MobileNetV5-300M, the image encoder of Gemma 3n, which has one published size.

    Returns
    -------
    numeric
        Parameters. [1]

    Notes
    -----
    Derived from the published sequence of blocks: three edge residuals of 128 channels, five inverted residuals of
    256, then at 640 and at 1280 channels inverted residuals and pairs of multi-query attention and a feed-forward.
    The features of the last two widths are fused into 2048 channels. RMSNorms have a weight a channel; blocks
    other than the edge residuals have a layer scale.

    References
    ----------
    .. [1] huggingface/pytorch-image-models 1.0, `timm/models/mobilenetv5.py` (`_gen_mobilenet_v5`) and
       `timm/models/_efficientnet_blocks.py`; D. Qin et al., "MobileNetV4", ECCV 2024, arXiv:2404.10518.

    Examples
    --------
    >>> mobilenet_v5_parameters()
    294126912
    """
    stem = linear_parameters(27, 64) + 64
    edges = sum(_edge_residual(num_inputs, 128, kernel=3, expansion=4) for num_inputs in (64, 128, 128))
    narrow = _inverted_residual(128, 256, start=3, middle=5, expansion=6) + sum(
        _inverted_residual(256, 256, start=start, expansion=4) for start in (5, 3, 5, 3)
    )
    middle = (
        _inverted_residual(256, 640, start=5, middle=5, expansion=6)
        + 7 * _inverted_residual(640, 640, start=5, expansion=4)
        + _inverted_residual(640, 640, expansion=1)
        + 14
        * (_mobile_attention(640, num_heads=12, head_dim=64, reduces=True) + _inverted_residual(640, 640, expansion=2))
    )
    wide = _inverted_residual(640, 1280, start=5, middle=5, expansion=6) + 19 * (
        _mobile_attention(1280, num_heads=16, head_dim=96) + _inverted_residual(1280, 1280, expansion=2)
    )
    fusion = _inverted_residual(640 + 1280, 2048, expansion=2)  # no layer scale, but a norm of the same size behind
    return stem + edges + narrow + middle + wide + fusion


def _edge_residual(num_inputs: int, num_outputs: int, *, kernel: int, expansion: int) -> int:
    """Return the weights of a full convolution that widens and a pointwise one that narrows, each with a norm."""
    inner = num_inputs * expansion
    return num_inputs * inner * kernel**2 + inner + inner * num_outputs + num_outputs


def _inverted_residual(num_inputs: int, num_outputs: int, *, expansion: int, start: int = 0, middle: int = 0) -> int:
    """Return the weights of pointwise convolutions around optional depthwise ones, a norm each, and a layer scale."""
    inner = num_inputs * expansion
    depthwise = (num_inputs * (start**2 + 1) if start else 0) + (inner * (middle**2 + 1) if middle else 0)
    return depthwise + num_inputs * inner + inner + inner * num_outputs + 2 * num_outputs


def _mobile_attention(width: int, *, num_heads: int, head_dim: int, reduces: bool = False) -> int:
    """Return the weights of multi-query attention over pixels, keys and values from a coarser grid where it reduces."""
    reduction = width * (3**2 + 1) if reduces else 0
    return 2 * width * num_heads * head_dim + 2 * (width * head_dim + reduction) + 2 * width


def whisper_encoder_parameters(
    hidden_size: Count, intermediate_size: Count, num_layers: Count, *, num_mel_bins: Count, num_positions: Count
) -> Count:
    """Weights of Whisper's encoder: two convolutions of three taps, positions, layers without key biases, a norm.

    Parameters
    ----------
    hidden_size, intermediate_size, num_layers : numeric
        Widths and depth. [1]
    num_mel_bins, num_positions : numeric
        Frequencies of the spectrogram; positions after the second convolution halves the frames. [1]

    Returns
    -------
    numeric
        Parameters. [1]

    References
    ----------
    .. [1] A. Radford et al., "Robust Speech Recognition via Large-Scale Weak Supervision", 2022, arXiv:2212.04356.
    .. [2] huggingface/transformers 5.24.0, `whisper/modeling_whisper.py`, `voxtral/modeling_voxtral.py`.

    Examples
    --------
    >>> whisper_encoder_parameters(1280, 5120, 32, num_mel_bins=128, num_positions=1500)
    636968960
    """
    return (
        linear_parameters(3 * num_mel_bins, hidden_size)
        + linear_parameters(3 * hidden_size, hidden_size)
        + num_positions * hidden_size
        + num_layers * encoder_layer_parameters(hidden_size, intermediate_size, num_attention_biases=3)
        + 2 * hidden_size
    )


def mllama_vision_parameters(
    hidden_size: Count,
    intermediate_size: Count,
    num_layers: Count,
    num_global_layers: Count,
    *,
    num_patch_inputs: Count,
    num_patches: Count,
    num_tiles: Count,
    num_aspect_ratios: Count,
) -> Count:
    """Weights of Llama 3.2's vision tower: local and gated global layers, and positions by tile and aspect ratio.

    Parameters
    ----------
    hidden_size, intermediate_size, num_layers, num_global_layers : numeric
        Widths and depths. [1]
    num_patch_inputs, num_patches : numeric
        Numbers in one patch; patches of one tile. [1]
    num_tiles, num_aspect_ratios : numeric
        Tiles of one image at most; ways to lay them out. [1]

    Returns
    -------
    numeric
        Parameters. [1]

    Notes
    -----
    Derived: with the class token a tile has `num_patches + 1` positions. One table of positions, one of them for
    each tile of each layout and for "no image", two smaller tables of a vector a tile (before and after the local
    layers), one gate each; class token and two LayerNorms (5 h); two gates a global layer.

    References
    ----------
    .. [1] Llama Team, "The Llama 3 Herd of Models", 2024, arXiv:2407.21783.
    .. [2] huggingface/transformers 5.24.0, `mllama/modeling_mllama.py`.

    Examples
    --------
    >>> mllama_vision_parameters(
    ...     1280, 5120, 32, 8, num_patch_inputs=588, num_patches=1024, num_tiles=4, num_aspect_ratios=8
    ... )
    836288019
    """
    num_positions, num_layouts = num_patches + 1, num_aspect_ratios + 1
    layer = encoder_layer_parameters(hidden_size, intermediate_size, num_attention_biases=0)
    positions = num_positions * hidden_size * (1 + num_layouts * num_tiles) + 1
    tile_positions = 2 * (num_layouts * num_tiles * hidden_size + 1)
    return (
        num_patch_inputs * hidden_size
        + positions
        + tile_positions
        + 5 * hidden_size
        + num_layers * layer
        + num_global_layers * (layer + 2)
    )
