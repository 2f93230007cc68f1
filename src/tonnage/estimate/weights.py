"""Bytes of a model's weights in a format: what is quantised, what stays as it was, and what the scales add.

Formats are named as people write them: bf16, fp8, nf4, awq, q4_k_m … (`FORMATS`). One matrix's bytes come from a
formula of its shape; `weights_bytes` applies it to the matrices that the format touches and keeps the rest.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Final

from tonnage.errors import RequestError, UnknownNameError
from tonnage.estimate.gguf_mix import BASE_TYPES, Mix
from tonnage.estimate.kept_modules import KeptModules
from tonnage.estimate.parameters import count
from tonnage.model.ggml import types_by_name
from tonnage.model.matrices import (
    ATTENTION,
    EXPERTS,
    LINEAR_ATTENTION,
    MLP,
    SHARED_EXPERTS,
    Matrix,
    layer_matrices,
    outer_matrices,
)
from tonnage.model.types import Attention, LatentAttention, Model, Moe, Quantization
from tonnage.nouns import noun
from tonnage.units import Bytes, Count


def plain_bytes(num_parameters: Count, bits_per_weight: Count) -> Bytes:
    """Bytes of weights that each take the same number of bits, with nothing beside them.

    Parameters
    ----------
    num_parameters : numeric
        Weights. [1]
    bits_per_weight : numeric
        Bits of each: 32, 16 or 8. [1]

    Returns
    -------
    numeric
        Size. [B]

    References
    ----------
    .. [1] IEEE 754-2019 (32, 16 bits); bfloat16 takes 16.

    Examples
    --------
    >>> plain_bytes(8_030_261_248, 16)
    16060522496.0
    """
    return num_parameters * bits_per_weight / 8


def block_fp8_bytes(rows: Count, columns: Count, block_size: Count = 128) -> Bytes:
    """Bytes of an FP8 matrix with one fp32 scale for each square block.

    Parameters
    ----------
    rows : numeric
        Outputs of the matrix. [1]
    columns : numeric
        Inputs of the matrix. [1]
    block_size : numeric
        Edge of a block. [1]

    Returns
    -------
    numeric
        Size, scales in. [B]

    References
    ----------
    .. [1] DeepSeek-AI, "DeepSeek-V3 Technical Report", arXiv:2412.19437, section 3.3.2; `weight_scale_inv` in fp32.

    Examples
    --------
    >>> block_fp8_bytes(7168, 2048)
    14683648
    """
    return rows * columns + 4 * -(-rows // block_size) * -(-columns // block_size)


def tensor_fp8_bytes(rows: Count, columns: Count) -> Bytes:
    """Bytes of an FP8 matrix with one fp32 scale for its weights and one for its inputs.

    Parameters
    ----------
    rows : numeric
        Outputs of the matrix. [1]
    columns : numeric
        Inputs of the matrix. [1]

    Returns
    -------
    numeric
        Size, scales in. [B]

    References
    ----------
    .. [1] Derived: `weight_scale` and `input_scale` of NVIDIA ModelOpt's FP8 checkpoints are one number each.

    Examples
    --------
    >>> tensor_fp8_bytes(4096, 4096)
    16777224
    """
    return rows * columns + 8


def channel_8bit_bytes(rows: Count, columns: Count) -> Bytes:
    """Bytes of an 8-bit matrix with one fp32 scale for each output: LLM.int8, W8A8 and dynamic FP8.

    Parameters
    ----------
    rows : numeric
        Outputs of the matrix. [1]
    columns : numeric
        Inputs of the matrix. [1]

    Returns
    -------
    numeric
        Size, scales in: 8 + 32/columns bits a weight. [B]

    References
    ----------
    .. [1] T. Dettmers et al., "LLM.int8()", NeurIPS 2022, arXiv:2208.07339; `SCB` of bitsandbytes holds one fp32 a row.

    Examples
    --------
    >>> channel_8bit_bytes(4096, 4096)
    16793600
    """
    return rows * columns + 4 * rows


def grouped_int4_bytes(
    rows: Count, columns: Count, group_size: Count = 128, has_zero_points: Count = 1, has_group_index: Count = 0
) -> Bytes:
    """Bytes of a 4-bit integer matrix with a 16-bit scale for each group of inputs: AWQ, GPTQ and packed int4.

    Parameters
    ----------
    rows : numeric
        Outputs of the matrix. [1]
    columns : numeric
        Inputs of the matrix. [1]
    group_size : numeric
        Inputs that share a scale. [1]
    has_zero_points : numeric
        1 when each group also has a 4-bit zero point, 0 when it is symmetric. [1]
    has_group_index : numeric
        1 when each input names its group by an int32 (`g_idx` of GPTQ). [1]

    Returns
    -------
    numeric
        Size, scales in. [B]

    References
    ----------
    .. [1] E. Frantar et al., "GPTQ", ICLR 2023, arXiv:2210.17323; J. Lin et al., "AWQ", MLSys 2024, arXiv:2306.00978.

    Examples
    --------
    >>> grouped_int4_bytes(4096, 4096) * 8 / 4096**2
    4.15625
    """
    groups = rows * -(-columns // group_size)
    return rows * columns / 2 + groups * (2 + has_zero_points / 2) + has_group_index * 4 * columns


def grouped_int8_bytes(rows: Count, columns: Count, group_size: Count = 128) -> Bytes:
    """Bytes of an 8-bit integer matrix of GPTQ: 16-bit scale and 8-bit zero point a group, an index an input.

    Parameters
    ----------
    rows : numeric
        Outputs of the matrix. [1]
    columns : numeric
        Inputs of the matrix. [1]
    group_size : numeric
        Inputs that share a scale. [1]

    Returns
    -------
    numeric
        Size, scales in. [B]

    References
    ----------
    .. [1] E. Frantar et al., "GPTQ", ICLR 2023, arXiv:2210.17323.

    Examples
    --------
    >>> grouped_int8_bytes(4096, 4096) * 8 / 4096**2
    8.1953125
    """
    return rows * columns + 3 * rows * -(-columns // group_size) + 4 * columns


def nf4_bytes(num_parameters: Count, is_double_quantized: Count = 0) -> Bytes:
    """Bytes of a matrix in bitsandbytes' NF4 or FP4: blocks of 64 with an fp32 maximum, which may be quantised again.

    Parameters
    ----------
    num_parameters : numeric
        Weights of the matrix. [1]
    is_double_quantized : numeric
        1 when the maxima are 8-bit, with an fp32 maximum for 256 of them. [1]

    Returns
    -------
    numeric
        Size, maxima in; the code tables (16 and 256 numbers) are left out. [B]

    References
    ----------
    .. [1] T. Dettmers et al., "QLoRA", NeurIPS 2023, arXiv:2305.14314, section 3.

    Examples
    --------
    >>> round(nf4_bytes(4096**2, 1) * 8 / 4096**2, 3)
    4.127
    """
    blocks = -(-num_parameters // 64)
    double = blocks + 4 * -(-blocks // 256)
    return num_parameters / 2 + is_double_quantized * double + (1 - is_double_quantized) * 4 * blocks


def micro_fp4_bytes(rows: Count, columns: Count, block_size: Count = 32, tensor_scales: Count = 0) -> Bytes:
    """Bytes of a 4-bit floating-point matrix with an 8-bit scale for each block of a row: MXFP4 and NVFP4.

    Parameters
    ----------
    rows : numeric
        Outputs of the matrix. [1]
    columns : numeric
        Inputs of the matrix. [1]
    block_size : numeric
        Weights that share a scale: 32 for MXFP4, 16 for NVFP4. [1]
    tensor_scales : numeric
        fp32 scales of the whole matrix: 0 for MXFP4, 2 for NVFP4. [1]

    Returns
    -------
    numeric
        Size, scales in. [B]

    References
    ----------
    .. [1] Open Compute Project, "OCP Microscaling Formats (MX) Specification v1.0", 2023.
    .. [2] NVIDIA, "Introducing NVFP4", 2025: E4M3 scale for 16 values, one fp32 scale a tensor.

    Examples
    --------
    >>> micro_fp4_bytes(2880, 2880) * 8 / 2880**2
    4.25
    """
    return rows * -(-columns // 2) + rows * -(-columns // block_size) + 4 * tensor_scales


def micro_fp8_bytes(rows: Count, columns: Count, block_size: Count = 32) -> Bytes:
    """Bytes of an 8-bit floating-point matrix with an 8-bit scale for each block of a row: MXFP8.

    Parameters
    ----------
    rows : numeric
        Outputs of the matrix. [1]
    columns : numeric
        Inputs of the matrix. [1]
    block_size : numeric
        Weights that share a scale. [1]

    Returns
    -------
    numeric
        Size, scales in. [B]

    References
    ----------
    .. [1] Open Compute Project, "OCP Microscaling Formats (MX) Specification v1.0", 2023.

    Examples
    --------
    >>> micro_fp8_bytes(4096, 4096) * 8 / 4096**2
    8.25
    """
    return rows * columns + rows * -(-columns // block_size)


def ggml_bytes(rows: Count, columns: Count, block_weights: Count, block_bytes: Bytes) -> Bytes:
    """Bytes of a matrix in a ggml format: whole blocks in each row.

    Parameters
    ----------
    rows : numeric
        Outputs of the matrix. [1]
    columns : numeric
        Inputs of the matrix, a multiple of the block. [1]
    block_weights : numeric
        Weights in a block. [1]
    block_bytes : numeric
        Size of a block with its scales. [B]

    Returns
    -------
    numeric
        Size. [B]

    References
    ----------
    .. [1] ggml-org/llama.cpp, gguf-py 0.19.0, gguf/constants.py, `GGML_QUANT_SIZES`.

    Examples
    --------
    >>> ggml_bytes(4096, 4096, 256, 144)
    9437184
    """
    return rows * (columns // block_weights) * block_bytes


_MOSTLY_KNOWN: Final = 0.97  # biases of experts take less than the rest
MatrixBytes = Callable[[int, int], float]  # of rows and columns

_LINEAR: Final = frozenset({ATTENTION, LINEAR_ATTENTION, MLP, EXPERTS, SHARED_EXPERTS})


@noun
class WeightFormat:
    """One way to store weights.

    `matrix_bytes` gives one matrix of (rows, columns); None for a GGUF file type, whose tensors differ. `quantizes`
    names the components it touches when the checkpoint does not say otherwise.
    """

    name: str
    bits_per_weight: float  # of a large matrix that is quantised, scales in
    matrix_bytes: MatrixBytes | None
    kind: str  # plain, float, integer, bitsandbytes, gguf
    quantizes: frozenset[str] = _LINEAR
    is_experts_first: bool = False  # a mixture of experts has only its routed experts quantised


def _format(
    name: str,
    kind: str,
    matrix_bytes: MatrixBytes,
    *,
    is_experts_first: bool = False,
    quantizes: frozenset[str] = _LINEAR,
) -> WeightFormat:
    bits = round(8 * matrix_bytes(4096, 4096) / 4096**2, 3)
    return WeightFormat(
        name=name,
        bits_per_weight=bits,
        matrix_bytes=matrix_bytes,
        kind=kind,
        is_experts_first=is_experts_first,
        quantizes=quantizes,
    )


def _gguf_format(name: str) -> WeightFormat:
    bits = types_by_name()[BASE_TYPES[name]].bits_per_weight
    return WeightFormat(name=name, bits_per_weight=bits, matrix_bytes=None, kind="gguf")


FORMATS: Final[Mapping[str, WeightFormat]] = {
    one.name: one
    for one in (
        _format("fp32", "plain", lambda rows, columns: plain_bytes(rows * columns, 32)),
        _format("bf16", "plain", lambda rows, columns: plain_bytes(rows * columns, 16)),
        _format("fp16", "plain", lambda rows, columns: plain_bytes(rows * columns, 16)),
        _format("fp8", "float", block_fp8_bytes),
        _format("fp8_tensor", "float", tensor_fp8_bytes),
        _format("fp8_channel", "float", channel_8bit_bytes),
        _format("mxfp8", "float", micro_fp8_bytes),
        _format("int8", "bitsandbytes", channel_8bit_bytes),
        _format("int4", "integer", lambda rows, columns: grouped_int4_bytes(rows, columns, 128, 0)),
        _format("int4_g32", "integer", lambda rows, columns: grouped_int4_bytes(rows, columns, 32, 0)),
        _format("awq", "integer", grouped_int4_bytes),
        _format("gptq", "integer", lambda rows, columns: grouped_int4_bytes(rows, columns, 128, 1, 1)),
        _format("gptq_int8", "integer", grouped_int8_bytes),
        _format("nf4", "bitsandbytes", lambda rows, columns: nf4_bytes(rows * columns)),
        _format("nf4_double", "bitsandbytes", lambda rows, columns: nf4_bytes(rows * columns, 1)),
        _format("mxfp4", "float", micro_fp4_bytes, is_experts_first=True),
        # recipes leave linear attention in 16 bits: vllm-project/llm-compressor examples/quantization_w4a4_fp4
        # (`re:.*linear_attn.*` ignored), nvidia/Qwen3.5-122B-A10B-NVFP4 hf_quant_config.json
        _format(
            "nvfp4",
            "float",
            lambda rows, columns: micro_fp4_bytes(rows, columns, 16, 2),
            quantizes=_LINEAR - {LINEAR_ATTENTION},
        ),
        *(_gguf_format(name) for name in BASE_TYPES),
    )
}

_ALIASES: Final = {
    "float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "half": "fp16",
    "fp8_block": "fp8", "fp8_dynamic": "fp8_channel", "llm_int8": "int8", "w8a8": "int8",
    "int4_g128": "int4", "w4a16": "int4", "nf4_dq": "nf4_double", "gptq_int4": "gptq", "4bit": "nf4", "8bit": "int8",
}  # fmt: skip


@cache
def find_format(name: str) -> WeightFormat:
    """Return a format by its name in any case, with dashes or underscores.

    >>> find_format("Q4_K_M").bits_per_weight, find_format("fp8-block").name
    (4.5, 'fp8')
    """
    key = re.sub(r"[\s-]+", "_", name.strip().lower())
    found = FORMATS.get(_ALIASES.get(key, key))
    if found is None:
        from difflib import get_close_matches  # noqa: PLC0415 - only a wrong name needs it

        close = tuple(get_close_matches(key, (*FORMATS, *_ALIASES), 3, 0.6))
        raise UnknownNameError(
            f"'{name[:40]}' is not a weight format",
            where="format",
            fix=f"known: {', '.join(FORMATS)}",
            suggestions=close,
        )
    return found


def checkpoint_format(model: Model) -> str:
    """Return the name of the format that the checkpoint itself is stored in."""
    if model.quantization is not None:
        return find_format(model.quantization.scheme).name
    return _ALIASES.get(model.dtype, "bf16")


def is_gguf_file(model: Model) -> bool:
    """Whether the model was read from a GGUF file: only programs that read such a file run it."""
    own = None if model.quantization is None else FORMATS.get(model.quantization.scheme)
    return model.status == "header" and own is not None and own.kind == "gguf"


def weights_bytes(model: Model, format_name: str) -> dict[str, int]:
    """Return the bytes of a model's weights in a format, by component.

    A format keeps what its makers keep: routers, norms, embeddings and the head, and the encoder; bitsandbytes
    quantises every linear layer but the head; MXFP4 takes only the experts of a mixture, NVFP4 all but linear attention. Where the format is the
    checkpoint's own, the checkpoint's list of unquantised parts holds. GGUF is the text model's file: the encoder is
    a file of its own and left out.

    Parameters
    ----------
    model : Model
        The model.
    format_name : str
        A name of `FORMATS`.

    Returns
    -------
    dict
        Bytes by component, under the components' names of `parameters.by_component`. [B]

    Raises
    ------
    UnknownNameError
        When no format has that name.
    RequestError
        When the model's layers are not known, and with them what the format would touch.
    """
    chosen = find_format(format_name)
    own = checkpoint_format(model)
    if model.stored_bytes and chosen.name == own:
        return {name: stored for name, stored in model.stored_bytes.items() if name != "mtp"}
    counts = count(model).by_component
    if chosen.kind == "plain":
        return {name: round(plain_bytes(number, chosen.bits_per_weight)) for name, number in counts.items()}
    if not model.layers:
        raise RequestError(
            f"the size of {model.name} in {chosen.name} is not known: its layers are not",
            where="format",
            fix=f"choose {own}, bf16, fp16 or fp32" if model.stored_bytes else "choose bf16, fp16 or fp32",
        )
    if chosen.matrix_bytes is None:
        return _gguf_bytes(model, chosen, counts)
    return _linear_bytes(model, chosen, counts)


def _linear_bytes(model: Model, chosen: WeightFormat, counts: Mapping[str, int]) -> dict[str, int]:
    """Return the bytes by component of a format that takes linear layers and leaves the rest as it was."""
    kept_bits = 32 if model.dtype == "float32" else 16
    bytes_by: dict[str, float] = {}
    weights_by: dict[str, int] = {}
    for matrix, times, formula in _sized_matrices(model, chosen):
        weights = matrix.num_parameters * times
        one = (
            plain_bytes(weights, kept_bits)
            if formula is None
            else formula(matrix.rows, matrix.columns) * matrix.num * times
        )
        bytes_by[matrix.component] = bytes_by.get(matrix.component, 0.0) + one
        weights_by[matrix.component] = weights_by.get(matrix.component, 0) + weights
    if chosen.kind == "bitsandbytes" and model.encoder:
        weights_by["vision_audio"] = _encoder_linear(model)
        bytes_by["vision_audio"] = weights_by["vision_audio"] * chosen.bits_per_weight / 8
    return _with_rest(counts, weights_by, bytes_by, kept_bits)


def _with_rest(
    counts: Mapping[str, int], weights_by: Mapping[str, int], bytes_by: Mapping[str, float], kept_bits: int
) -> dict[str, int]:
    """Add what a component holds beside the matrices that were sized.

    That is biases, norms and what is kept, in their own type; in a component of experts the weights of more experts,
    which some checkpoints hold, in the same type as the others.
    """
    found: dict[str, int] = {}
    for name, number in counts.items():
        sized, known = bytes_by.get(name, 0.0), weights_by.get(name, 0)
        if name == EXPERTS and 0 < known < _MOSTLY_KNOWN * number:
            found[name] = round(sized * number / known)
        else:
            found[name] = round(sized + plain_bytes(number - known, kept_bits))
    return found


def _sized_matrices(model: Model, chosen: WeightFormat) -> list[tuple[Matrix, int, MatrixBytes | None]]:
    """Return the linear matrices, each with how often and the formula of its bytes, None where it is kept."""
    own = model.quantization
    is_own = own is not None and find_format(own.scheme) is chosen
    formulas = _formulas(model, chosen, own if is_own else None)
    kept = KeptModules(own.unquantized if own is not None and is_own else ())

    def formula(layer: int | None, matrix: Matrix) -> MatrixBytes | None:
        return None if kept.has(layer, matrix.name) else formulas.get(matrix.component)

    found: list[tuple[Matrix, int, MatrixBytes | None]] = []
    for layer, matrices, times in _layers(model, one_by_one=kept.names_layers):
        found += [(matrix, times, formula(layer, matrix)) for matrix in matrices if matrix.is_linear]
    return found + [(matrix, 1, formula(None, matrix)) for matrix in outer_matrices(model)]


def _formulas(model: Model, chosen: WeightFormat, own: Quantization | None) -> dict[str, MatrixBytes]:
    """Return the formula of a matrix's bytes by component, for the components that are quantised.

    With the checkpoint's own format comes what it says of components in another one, and of the size of groups.
    """
    assert chosen.matrix_bytes is not None
    formula: MatrixBytes = chosen.matrix_bytes
    if own is not None and own.group_size and chosen.kind == "integer":
        zeros, index = int(chosen.name in ("awq", "gptq")), int(chosen.name == "gptq")
        formula = partial(grouped_int4_bytes, group_size=own.group_size, has_zero_points=zeros, has_group_index=index)
    components = {EXPERTS} if chosen.is_experts_first and model.is_moe else set(chosen.quantizes)
    if own is not None:
        components -= set(own.unquantized)
    found = dict.fromkeys(components, formula)
    for component, scheme in own.other_schemes if own is not None else ():
        other = find_format(scheme)
        found.pop(component, None)
        if other.matrix_bytes is not None and other.kind != "plain":
            found[component] = other.matrix_bytes
    return found


def _layers(model: Model, *, one_by_one: bool) -> list[tuple[int, tuple[Matrix, ...], int]]:
    """Return (index, matrices, how often): distinct layers together, or each by itself."""
    if one_by_one:
        return [(i, layer_matrices(layer, model.hidden_size), 1) for i, layer in enumerate(model.layers)]
    return [(0, layer_matrices(layer, model.hidden_size), times) for layer, times in model.groups()]


def _encoder_linear(model: Model) -> int:
    """Return the linear weights of the encoder's layers: attention and a two-matrix feed-forward."""
    one = model.encoder
    if one is None:
        return 0
    linear = one.num_layers * (4 * one.hidden_size**2 + 2 * one.hidden_size * one.intermediate_size)
    return min(linear, one.num_parameters)


# Families whose GGUF keeps queries, keys and values in one tensor (llama.cpp, src/llama-arch.cpp, LLM_TENSOR_ATTN_QKV).
_FUSED_QKV: Final = frozenset({
    "bloom", "codeshell", "dbrx", "falcon", "gpt2", "gpt_bigcode", "gpt_neox", "mpt", "phi", "phi3", "qwen",
})  # fmt: skip


def _gguf_bytes(model: Model, chosen: WeightFormat, counts: Mapping[str, int]) -> dict[str, int]:
    """Return the bytes of llama.cpp's file of a type, by component; vectors are F32."""
    mix = _mix(model, chosen.name)
    has_mxfp4_experts = model.quantization is not None and model.quantization.scheme == "mxfp4"
    seen = Counter[str]()
    bytes_by: dict[str, float] = {}
    weights_by: dict[str, int] = {}
    is_fused = model.family in _FUSED_QKV
    outer = [(-1, matrix) for matrix in outer_matrices(model)]
    inner = [
        (index, matrix)
        for index, layer in enumerate(model.layers)
        for matrix in layer_matrices(layer, model.hidden_size, is_fused)
    ]
    for index, matrix in outer + inner:
        kind = mix.tensor_type(matrix.gguf, index, matrix.columns, matrix.num, seen=seen)
        if has_mxfp4_experts and matrix.component == EXPERTS:
            kind = "MXFP4"
        one = types_by_name()[kind]
        num_bytes = ggml_bytes(matrix.rows, matrix.columns, one.block_weights, one.block_bytes) * matrix.num
        bytes_by[matrix.component] = bytes_by.get(matrix.component, 0.0) + num_bytes
        weights_by[matrix.component] = weights_by.get(matrix.component, 0) + matrix.num_parameters
    text = {name: number for name, number in counts.items() if name != "vision_audio"}
    return _with_rest(text, weights_by, bytes_by, 32)


def _mix(model: Model, file_type: str) -> Mix:
    mixers = [mixer for layer, _ in model.groups() for mixer in layer.mixers]
    attention = next((mixer for mixer in mixers if isinstance(mixer, Attention)), None)
    moe = next((p for layer, _ in model.groups() for p in layer.feed_forwards if isinstance(p, Moe)), None)
    has_latent = any(isinstance(mixer, LatentAttention) for mixer in mixers)
    ratio = attention.num_heads / attention.num_kv_heads if attention and attention.num_kv_heads else 1.0
    is_grouped = ratio > 1
    values = sum(
        any(matrix.gguf in ("attn_v", "attn_qkv", "attn_kv_b") for matrix in layer_matrices(layer, model.hidden_size))
        for layer in model.layers
    )
    return Mix(
        file_type=file_type,
        num_layers=model.num_layers,
        num_value_tensors=values,
        num_experts=moe.num_experts if moe else 0,
        group_ratio=1.0 if has_latent else ratio,
        is_tied=model.is_tied,
        is_falcon=model.family == "falcon",
        is_llama_70b=model.family == "llama" and model.num_layers == 80 and is_grouped,
        has_importance_matrix=file_type.startswith("iq"),
    )
