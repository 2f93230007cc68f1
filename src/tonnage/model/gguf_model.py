"""From a GGUF header to a `Model`: layers from the tensors that are there and the metadata that shapes them.

A layer is read off its tensors (which projections, which biases, whose norms), so an architecture needs no entry here
to be understood; what metadata does not say (heads, experts a token, windows) comes from its keys. Counts and bytes
are the header's own. Where the layers found do not add up to the tensors, the model is counted and nothing more.

References
----------
.. [1] gguf-py 0.19.0, gguf/constants.py: keys and tensor names.
.. [2] ggml-org/llama.cpp, src/models/*.cpp, `load_arch_hparams`: periods of sliding windows by architecture.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from tonnage.errors import BadFileError
from tonnage.model.gguf import GgufHeader, GgufTensor, LongArray
from tonnage.model.matrices import (
    ATTENTION,
    EMBEDDING,
    EXPERTS,
    LINEAR_ATTENTION,
    LM_HEAD,
    MLP,
    ROUTER,
    SHARED_EXPERT_GATE,
    SHARED_EXPERTS,
    layer_matrices,
)
from tonnage.model.tensors import StoredTensor, bytes_by_component, parameters_by_component, parameters_by_type
from tonnage.model.types import (
    Attention,
    FeedForward,
    GatedDeltaNet,
    Indexer,
    LatentAttention,
    Layer,
    Mamba1,
    Mamba2,
    Mixer,
    Mlp,
    Model,
    Moe,
    Quantization,
    ShortConvolution,
)

NORM: Final = "norm"
OTHER: Final = "other"
VISION: Final = "vision_audio"
MTP: Final = "mtp"

# llama.cpp's names of architectures -> transformers' model types, where they differ by more than a dash.
_FAMILIES: Final = {
    "command-r": "cohere", "gptneox": "gpt_neox", "starcoder": "gpt_bigcode", "qwen2moe": "qwen2_moe",
    "qwen3moe": "qwen3_moe", "qwen3next": "qwen3_next", "qwen35": "qwen3_5", "qwen35moe": "qwen3_5_moe",
    "glm4moe": "glm4_moe", "phi2": "phi", "qwen2vl": "qwen2_vl", "qwen3vl": "qwen3_vl", "qwen3vlmoe": "qwen3_vl_moe",
    "granitehybrid": "granitemoehybrid", "granitemoe": "granitemoe", "minimax-m2": "minimax_m2", "ernie4_5-moe": "ernie4_5_moe",
    "hunyuan-moe": "hunyuan_v1_moe", "lfm2moe": "lfm2_moe", "bailingmoe2": "bailing_moe_v2",
}  # fmt: skip

# Every how many layers one attends to everything, where the file does not say [2]; the rest slide.
_WINDOW_PERIODS: Final = {
    "gemma2": 2, "gemma3": 6, "gemma3n": 5, "cohere2": 4, "gpt-oss": 2, "olmo2": 4, "plamo3": 8, "exaone4": 4,
    "exaone-moe": 4, "llama4": 4,
}  # fmt: skip
_LLAMA4_CHUNK: Final = 8192

# general.file_type -> name of the mix (gguf-py 0.19.0, LlamaFileType).
_FILE_TYPES: Final = {
    0: "f32", 1: "f16", 2: "q4_0", 3: "q4_1", 7: "q8_0", 8: "q5_0", 9: "q5_1", 10: "q2_k", 11: "q3_k_s", 12: "q3_k_m",
    13: "q3_k_l", 14: "q4_k_s", 15: "q4_k_m", 16: "q5_k_s", 17: "q5_k_m", 18: "q6_k", 19: "iq2_xxs", 20: "iq2_xs",
    21: "q2_k_s", 22: "iq3_xs", 23: "iq3_xxs", 24: "iq1_s", 25: "iq4_nl", 26: "iq3_s", 27: "iq3_m", 28: "iq2_s",
    29: "iq2_m", 30: "iq4_xs", 31: "iq1_m", 32: "gguf_bf16", 36: "tq1_0", 37: "tq2_0", 38: "mxfp4_moe",
}  # fmt: skip

_BLOCK: Final = re.compile(r"blk\.(\d{1,6})\.(.+)", re.DOTALL)
_EMBEDDINGS: Final = ("token_embd", "per_layer_token_embd", "position_embd", "token_types")
_INNER_NORMS: Final = ("attn_q_norm", "attn_k_norm", "attn_q_a_norm", "attn_kv_a_norm", "attn_sub_norm", "indexer.")
_NO_WEIGHTS: Final = ("rope_freqs", "rope_factors", "exp_probs_b", "layer_output_scale", "attn_rot_embd", "tid2eid")
_MOST_LAYERS: Final = 10_000
_MOST: Final = 1 << 40


def component_of(name: str, num_layers: int, linear_layers: frozenset[int] = frozenset()) -> str:
    """Return the component that a tensor belongs to, by its name; layers from `num_layers` on predict further tokens.

    >>> component_of("blk.3.ffn_down_exps.weight", 4), component_of("output.weight", 4)
    ('experts', 'lm_head')
    """
    match = _BLOCK.fullmatch(name)
    if match is None:
        return _outer_component(name)
    if int(match[1]) >= num_layers or match[2].startswith("nextn."):
        return MTP
    inner = match[2]
    if inner.startswith("ffn_gate_inp_shexp"):
        return SHARED_EXPERT_GATE
    if inner.startswith(("ffn_gate_inp", "exp_probs_b")):
        return ROUTER
    for part, component in (("_shexp", SHARED_EXPERTS), ("_exps", EXPERTS), ("_chexps", EXPERTS)):
        if part in inner and inner.startswith("ffn_"):
            return component
    if re.match(r"ffn_(gate|up|down)\.\d+\.", inner):
        return EXPERTS
    if inner.startswith(("ssm_", "shortconv.", "time_mix_")):
        return LINEAR_ATTENTION
    if inner.startswith(("attn_qkv", "attn_gate")) and int(match[1]) in linear_layers:
        return LINEAR_ATTENTION
    if inner.startswith(_INNER_NORMS) or (inner.startswith("attn_") and "norm" not in inner):
        return ATTENTION
    if "norm" in inner:
        return NORM
    return MLP if inner.startswith("ffn_") else OTHER


def _outer_component(name: str) -> str:
    if name.startswith(("v.", "mm.", "a.", "resampler.")):
        return VISION
    if "norm" in name:
        return NORM
    if name.startswith(_EMBEDDINGS):
        return EMBEDDING
    return LM_HEAD if name.startswith("output") else OTHER


class _Metadata:
    """The metadata keys of one architecture, read strictly."""

    def __init__(self, header: GgufHeader, where: str) -> None:
        self.values, self.where = header.metadata, where
        arch = self.values.get("general.architecture")
        if not isinstance(arch, str) or not arch:
            raise BadFileError("does not name its architecture", where=where, fix="convert it with today's llama.cpp")
        self.arch = arch

    def get(self, key: str) -> Any:
        return self.values.get(f"{self.arch}.{key}")

    def count(self, key: str, layer: int | None = None) -> int | None:
        """Return a whole number; of a list, the one for a layer."""
        value = self.get(key)
        if isinstance(value, tuple):
            items = cast("tuple[Any, ...]", value)
            value = items[layer] if layer is not None and layer < len(items) else None
        if value is None or isinstance(value, LongArray):
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST:
            raise BadFileError(
                f"'{self.arch}.{key}' is not a reasonable number", where=self.where, fix="fetch the file again"
            )
        return value

    def need(self, key: str, layer: int | None = None) -> int:
        value = self.count(key, layer)
        if not value:
            raise _UnknownStructureError(f"'{self.arch}.{key}' is missing")
        return value


class _UnknownStructureError(Exception):
    """The header does not tell how the layers are built."""


def stored_tensors(header: GgufHeader, where: str = "GGUF file") -> tuple[StoredTensor, ...]:
    """Return a header's tensors with their component; tables that transformers computes count no weights."""
    meta = _Metadata(header, where)
    num_layers = (meta.count("block_count") or _MOST_LAYERS) - (meta.count("nextn_predict_layers") or 0)
    linear = frozenset(
        int(match[1]) for t in header.tensors if (match := _BLOCK.fullmatch(t.name)) and ".ssm_out." in t.name
    )
    is_encoder = meta.arch == "clip" or header.metadata.get("general.type") == "mmproj"
    return tuple(
        StoredTensor(
            name=tensor.name,
            type_name=tensor.type_name,
            shape=tensor.shape,
            num_parameters=0 if any(part in tensor.name for part in _NO_WEIGHTS) else tensor.num_weights,
            num_bytes=tensor.num_bytes,
            component=VISION if is_encoder else component_of(tensor.name, num_layers, linear),
        )
        for tensor in header.tensors
    )


def model_from_gguf(header: GgufHeader, name: str = "", where: str = "GGUF file") -> Model:
    """Return the model that a GGUF header describes.

    Parameters
    ----------
    header : GgufHeader
        The header, of all parts together.
    name : str
        A name for a file that has none inside.
    where : str
        The file's name, for errors.

    Returns
    -------
    Model
        With counts and bytes as stored; `layers` is empty where the header does not tell how they are built.

    Raises
    ------
    BadFileError
        When the header names no architecture or says something absurd.
    """
    meta = _Metadata(header, where)
    tensors = stored_tensors(header, where)
    counts = parameters_by_component(tensors)
    counts.pop(MTP, None)
    warnings: list[str] = []
    layers: tuple[Layer, ...] = ()
    by_name = {tensor.name: tensor for tensor in header.tensors}
    try:
        layers = _layers(meta, header, tensors)
    except _UnknownStructureError as error:
        warnings.append(f"counted only, its layers are not known: {error}")
    embedding = by_name.get("token_embd.weight")
    return Model(
        name=_name(header, name),
        family=_FAMILIES.get(meta.arch, meta.arch.replace("-", "_")),
        hidden_size=meta.count("embedding_length") or (embedding.shape[0] if embedding and embedding.shape else 0),
        vocab_size=_vocab_size(meta, embedding),
        layers=layers,
        other_parameters=_other_parameters(counts, layers),
        is_tied="output.weight" not in by_name and embedding is not None,
        max_position_tokens=meta.count("context_length"),
        quantization=_quantization(header, tensors),
        source=where,
        status="header",
        warnings=tuple(warnings),
        stored_parameters=counts,
        stored_bytes=bytes_by_component(tensors),
    )


def _name(header: GgufHeader, name: str) -> str:
    inside = header.metadata.get("general.name")
    return name or (inside if isinstance(inside, str) and inside.isprintable() and inside else "GGUF model")


def _vocab_size(meta: _Metadata, embedding: GgufTensor | None) -> int:
    if embedding is not None and len(embedding.shape) == 2:
        return embedding.shape[1]
    return meta.count("vocab_size") or 0


def _other_parameters(counts: Mapping[str, int], layers: Sequence[Layer]) -> dict[str, int]:
    """Return what lies outside the layers; everything, where the layers are not known."""
    if not layers:
        return dict(counts)
    return {name: counts[name] for name in (EMBEDDING, LM_HEAD, NORM, OTHER, VISION) if name in counts}


def _quantization(header: GgufHeader, tensors: Sequence[StoredTensor]) -> Quantization:
    """Return the file type that the header names, else the format that most weights are in."""
    named = _FILE_TYPES.get(cast("int", header.metadata.get("general.file_type", -1)))
    if named is None:
        by_type = parameters_by_type(tensors)
        most = max(by_type, key=lambda kind: by_type[kind], default="F16")
        named = _MOSTLY.get(most, most.lower())
    return Quantization(scheme=named)


_MOSTLY: Final = {
    "Q2_K": "q2_k",
    "Q3_K": "q3_k_m",
    "Q4_K": "q4_k_m",
    "Q5_K": "q5_k_m",
    "BF16": "gguf_bf16",
    "MXFP4": "mxfp4_moe",
}


def _layers(meta: _Metadata, header: GgufHeader, stored: Sequence[StoredTensor]) -> tuple[Layer, ...]:
    """Build every layer and hold it against its tensors."""
    num_blocks = meta.need("block_count")
    num_layers = num_blocks - (meta.count("nextn_predict_layers") or 0)
    if not 0 < num_layers <= _MOST_LAYERS:
        raise _UnknownStructureError(f"{num_layers} layers")
    blocks: list[dict[str, GgufTensor]] = [{} for _ in range(num_layers)]
    sizes: list[dict[str, int]] = [{} for _ in range(num_layers)]
    for tensor, kept in zip(header.tensors, stored, strict=True):
        match = _BLOCK.fullmatch(tensor.name)
        if match and int(match[1]) < num_layers:
            blocks[int(match[1])][match[2]] = tensor
            if len(tensor.shape) > 1 and not match[2].endswith(".bias"):
                found = sizes[int(match[1])]
                found[kept.component] = found.get(kept.component, 0) + kept.num_parameters
    windows = _windows(meta, num_layers)
    hidden_size = meta.need("embedding_length")
    layers: list[Layer] = []
    for index, block in enumerate(blocks):
        layer = _layer(meta, block, index, windows[index], num_layers)
        _check(layer, hidden_size, sizes[index], index)
        layers.append(layer)
    return tuple(layers)


def _check(layer: Layer, hidden_size: int, wanted: Mapping[str, int], index: int) -> None:
    """Refuse a layer whose matrices are not those of the file."""
    found: dict[str, int] = {}
    for matrix in layer_matrices(layer, hidden_size):
        found[matrix.component] = found.get(matrix.component, 0) + matrix.num_parameters
    for component in (ATTENTION, LINEAR_ATTENTION, MLP, EXPERTS, SHARED_EXPERTS):
        if found.get(component, 0) != wanted.get(component, 0):
            raise _UnknownStructureError(
                f"layer {index} holds {wanted.get(component, 0)} weights of {component}, its shape means {found.get(component, 0)}"
            )


def _windows(meta: _Metadata, num_layers: int) -> list[int | None]:
    """Return each layer's window, or None for a layer that attends to everything."""
    window = meta.count("attention.sliding_window")
    if meta.arch == "llama4" and window is None:
        window = _LLAMA4_CHUNK
    pattern = meta.get("attention.sliding_window_pattern")
    if not window or (pattern is None and meta.arch not in _WINDOW_PERIODS):
        return [None] * num_layers
    if isinstance(pattern, tuple):
        flags = cast("tuple[Any, ...]", pattern)
        return [window if flags and flags[i % len(flags)] else None for i in range(num_layers)]
    period = meta.count("attention.sliding_window_pattern")
    period = _WINDOW_PERIODS.get(meta.arch, 1) if period is None else period
    return [window if period == 0 or i % period < period - 1 else None for i in range(num_layers)]


def _layer(meta: _Metadata, block: Mapping[str, GgufTensor], index: int, window: int | None, num_layers: int) -> Layer:
    mixers: list[Mixer] = []
    if "attn_kv_a_mqa.weight" in block:
        mixers.append(_latent_attention(meta, block))
    elif "ssm_out.weight" in block and ("ssm_ba.weight" in block or "ssm_beta.weight" in block):
        mixers.append(_gated_delta_net(meta, block))
    else:
        if "attn_q.weight" in block or "attn_qkv.weight" in block:
            mixers.append(_attention(meta, block, index, window, num_layers))
        if "ssm_out.weight" in block:
            mixers.append(_mamba(meta, block))
        if "shortconv.out_proj.weight" in block:
            mixers.append(
                ShortConvolution(
                    channels=block["shortconv.out_proj.weight"].shape[0], conv_kernel=meta.need("shortconv.l_cache")
                )
            )
    return Layer(mixers=tuple(mixers), feed_forwards=tuple(_feed_forwards(meta, block)), norm_parameters=_norms(block))


def _norms(block: Mapping[str, GgufTensor]) -> int:
    return sum(
        t.num_weights for name, t in block.items() if "norm" in name and not name.startswith((*_INNER_NORMS, "ssm_"))
    )


def _attention(
    meta: _Metadata, block: Mapping[str, GgufTensor], index: int, window: int | None, num_layers: int
) -> Attention:
    heads = meta.need("attention.head_count", index)
    kv_heads = meta.count("attention.head_count_kv", index)
    kv_heads = heads if kv_heads is None else kv_heads
    swa = "_swa" if window and meta.count("attention.key_length_swa") else ""
    head_dim = meta.count(f"attention.key_length{swa}") or meta.need("embedding_length") // heads
    value_dim = meta.count(f"attention.value_length{swa}") or head_dim
    query = block.get("attn_q.weight")
    norm = block.get("attn_q_norm.weight")
    shared = meta.count("attention.shared_kv_layers") or 0
    is_fused = "attn_qkv.weight" in block
    is_chunked = meta.arch == "llama4"
    return Attention(
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        value_head_dim=None if value_dim == head_dim else value_dim,
        window_tokens=None if is_chunked else window,
        chunk_tokens=window if is_chunked else None,
        has_qkv_bias="attn_q.bias" in block or "attn_qkv.bias" in block,
        has_output_bias="attn_output.bias" in block,
        qk_norm="none" if norm is None else "head" if norm.num_weights == head_dim else "row",
        has_output_gate=query is not None and query.shape[1] == 2 * heads * head_dim,
        num_sinks=block["attn_sinks.weight"].num_weights if "attn_sinks.weight" in block else 0,
        stores_cache=(is_fused or "attn_k.weight" in block) and index < num_layers - shared,
        key_is_value=not is_fused and "attn_k.weight" in block and "attn_v.weight" not in block,
    )


def _latent_attention(meta: _Metadata, block: Mapping[str, GgufTensor]) -> LatentAttention:
    rank, rope = meta.need("attention.kv_lora_rank"), meta.need("rope.dimension_count")
    key = meta.count("attention.key_length_mla") or meta.need("attention.key_length")
    value = meta.count("attention.value_length_mla") or meta.need("attention.value_length")
    has_low_rank_query = "attn_q_a.weight" in block
    indexer = None
    if "indexer.attn_q_b.weight" in block:
        indexer = Indexer(
            num_heads=meta.need("attention.indexer.head_count"),
            head_dim=meta.need("attention.indexer.key_length"),
            top_k=meta.need("attention.indexer.top_k"),
        )
    return LatentAttention(
        num_heads=meta.need("attention.head_count", 0),
        q_lora_rank=meta.need("attention.q_lora_rank") if has_low_rank_query else None,
        kv_lora_rank=rank,
        qk_nope_head_dim=key - rope,
        qk_rope_head_dim=rope,
        v_head_dim=value,
        indexer=indexer,
    )


def _gated_delta_net(meta: _Metadata, block: Mapping[str, GgufTensor]) -> GatedDeltaNet:
    if "attn_qkv.weight" not in block and "ssm_in.weight" not in block:
        raise _UnknownStructureError(f"linear attention of '{meta.arch}'")
    inner, heads, state = meta.need("ssm.inner_size"), meta.need("ssm.time_step_rank"), meta.need("ssm.state_size")
    return GatedDeltaNet(
        num_key_heads=meta.need("ssm.group_count"),
        num_value_heads=heads,
        key_head_dim=state,
        value_head_dim=inner // heads,
        conv_kernel=meta.need("ssm.conv_kernel"),
    )


def _mamba(meta: _Metadata, block: Mapping[str, GgufTensor]) -> Mamba1 | Mamba2:
    if "ssm_in.weight" not in block:
        raise _UnknownStructureError(f"state space of '{meta.arch}'")
    inner, state, kernel = meta.need("ssm.inner_size"), meta.need("ssm.state_size"), meta.need("ssm.conv_kernel")
    has_bias = "ssm_conv1d.bias" in block
    if "ssm_x.weight" in block:
        return Mamba1(
            inner_size=inner,
            state_size=state,
            conv_kernel=kernel,
            dt_rank=meta.need("ssm.time_step_rank"),
            has_conv_bias=has_bias,
        )
    heads = meta.need("ssm.time_step_rank")
    return Mamba2(
        num_heads=heads,
        head_dim=inner // heads,
        num_groups=meta.need("ssm.group_count"),
        state_size=state,
        conv_kernel=kernel,
        has_conv_bias=has_bias,
        has_norm="ssm_norm.weight" in block,
    )


def _feed_forwards(meta: _Metadata, block: Mapping[str, GgufTensor]) -> list[FeedForward]:
    found: list[FeedForward] = []
    if "ffn_down.weight" in block:
        found.append(_mlp(block, ""))
    if "ffn_gate_inp.weight" in block:
        found.append(_moe(meta, block))
    return found


def _mlp(block: Mapping[str, GgufTensor], suffix: str) -> Mlp:
    down, up = block[f"ffn_down{suffix}.weight"], block.get(f"ffn_up{suffix}.weight")
    width = down.shape[0]
    is_gated = f"ffn_gate{suffix}.weight" in block or (up is not None and up.shape[1:] == (2 * width,))
    return Mlp(intermediate_size=width, is_gated=is_gated, has_bias=f"ffn_down{suffix}.bias" in block)


def _moe(meta: _Metadata, block: Mapping[str, GgufTensor]) -> Moe:
    down = block.get("ffn_down_exps.weight") or block.get("ffn_down.0.weight")
    if down is None:
        raise _UnknownStructureError(f"experts of '{meta.arch}'")
    gates = ("ffn_gate_exps.weight", "ffn_gate_up_exps.weight", "ffn_gate.0.weight")
    shared_gate = block.get("ffn_gate_inp_shexp.weight")
    return Moe(
        num_experts=meta.need("expert_count"),
        top_k=meta.need("expert_used_count"),
        expert_size=down.shape[0],
        is_gated=any(name in block for name in gates),
        has_expert_bias="ffn_down_exps.bias" in block,
        shared=_mlp(block, "_shexp") if "ffn_down_shexp.weight" in block else None,
        shared_gate_parameters=shared_gate.num_weights if shared_gate else 0,
    )
