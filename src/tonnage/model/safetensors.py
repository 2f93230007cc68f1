"""Read a safetensors header: bytes -> tensors; the tensors of all files -> counts and bytes by component.

The format holds no code, and only its JSON header is looked at, under hard limits. Packed weights count as what they
unpack to; scales and zero points count no weights but bytes.

References
----------
.. [1] huggingface/safetensors 0.8, README "Format": eight bytes of length, JSON, data; a header has at most 100 MB.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

from tonnage.errors import BadFileError
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
)
from tonnage.model.tensors import StoredTensor, TruncatedError, bytes_by_component, parameters_by_component
from tonnage.model.types import Model, Quantization

MAX_HEADER_BYTES: Final = 100_000_000
_MAX_TENSORS: Final = 1 << 20
_MAX_DIMENSIONS: Final = 16
_MAX_NAME: Final = 1024
_MAX_OFFSET: Final = 1 << 52
NORM: Final = "norm"
OTHER: Final = "other"
VISION: Final = "vision_audio"
MTP: Final = "mtp"

_BITS: Final = {
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4, "I64": 64, "I32": 32, "I16": 16, "I8": 8, "U64": 64, "U32": 32,
    "U16": 16, "U8": 8, "BOOL": 8, "C64": 64,
}  # fmt: skip

_VISION_PARTS: Final = frozenset({
    "visual", "vision_tower", "vision_model", "vision_encoder", "vision_embed_tokens", "multi_modal_projector",
    "mm_projector", "audio_tower", "audio_model", "embed_vision", "embed_audio", "patch_merge_mlp", "vit",
    "vision_projection", "merger",
})  # fmt: skip
_EMBEDDING_PARTS: Final = frozenset({
    "embed_tokens", "embed_tokens_per_layer", "embed_positions", "wte", "wpe", "word_embeddings", "tok_embeddings",
    "embed_in", "embed", "embeddings", "token_embedding", "position_embeddings", "token_type_embeddings", "shared",
})  # fmt: skip
_HEAD_PARTS: Final = frozenset({"lm_head", "embed_out", "output", "head"})
_ATTENTION_PARTS: Final = frozenset({
    "self_attn", "attn", "attention", "self_attention", "cross_attn", "SelfAttention", "EncDecAttention", "encoder_attn",
})  # fmt: skip
_LINEAR_PARTS: Final = frozenset({"linear_attn", "mamba", "mixer", "conv", "short_conv", "ssm"})
_MLP_PARTS: Final = frozenset({
    "mlp", "feed_forward", "ffn", "block_sparse_moe", "moe", "fc1", "fc2", "c_fc", "DenseReluDense", "intermediate", "mlps", "ffn_output",
})  # fmt: skip
_SCALES: Final = re.compile(
    r"(_scale(_inv|_2)?|\.scales?|\.qzeros|\.g_idx|_zero_point|_global_scale|input_scale|_shape|\.SCB|\.weight_format"
    r"|\.absmax|\.quant_map|\.nested_absmax|\.nested_quant_map|\.quant_state\..*|_scales|\.k_scale|\.v_scale)$"
)
_BUFFERS: Final = ("e_score_correction_bias", "rotary_emb.inv_freq", ".masked_bias", "attn.bias_mask", "layer_scalar")
_SHARD: Final = re.compile(r"(?P<stem>.*)-(?P<number>\d{5,6})-of-(?P<count>\d{5,6})\.safetensors", re.DOTALL)
_MAX_SHARDS: Final = 4096
_LAYER: Final = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d{1,6})\.")


def component_of(name: str, num_layers: int | None = None) -> str:
    """Return the component that a tensor belongs to, by its name in transformers or in the makers' own files.

    >>> component_of("model.layers.3.mlp.experts.7.up_proj.weight"), component_of("model.layers.3.self_attn.q_norm.weight")
    ('experts', 'attention')
    """
    parts = set(name.split("."))
    layer = _LAYER.search(name)
    if parts & _VISION_PARTS:
        return VISION
    if "mtp" in parts or (layer and num_layers is not None and int(layer[1]) >= num_layers):
        return MTP
    if layer is None and parts & _HEAD_PARTS:
        return LM_HEAD
    if layer is None and parts & _EMBEDDING_PARTS:
        return NORM if "norm" in name.lower() else EMBEDDING
    return _inner_component(name, parts)


def _inner_component(name: str, parts: set[str]) -> str:
    if "shared_expert_gate" in parts:
        return SHARED_EXPERT_GATE
    if parts & {"shared_expert", "shared_experts", "shared_mlp"}:
        return SHARED_EXPERTS
    if "experts" in parts:
        return EXPERTS
    if "router" in parts or "e_score_correction_bias" in parts or ("gate" in parts and parts & _MLP_PARTS):
        return ROUTER
    if parts & _ATTENTION_PARTS:
        return ATTENTION
    if parts & _LINEAR_PARTS:
        if parts & {"q_proj", "k_proj", "v_proj", "o_proj"} and "mixer" in parts:
            return ATTENTION
        return MLP if parts & {"up_proj", "down_proj"} and "mixer" in parts else LINEAR_ATTENTION
    if parts & _MLP_PARTS:
        return MLP
    return NORM if "norm" in name.lower() or any(part.startswith("ln_") for part in parts) else OTHER


def header_length(data: bytes, where: str = "safetensors file", file_bytes: int | None = None) -> int:
    """Return how long the header is, from the first eight bytes of a file."""
    if len(data) < 8:
        raise TruncatedError("is too short to be a safetensors file", where=where, fix="fetch it again")
    length = int.from_bytes(data[:8], "little")
    if not 2 <= length <= MAX_HEADER_BYTES:
        raise BadFileError(
            f"is not a safetensors file: its header would have {length} bytes", where=where, fix="fetch it again"
        )
    if file_bytes is not None and 8 + length > file_bytes:
        raise BadFileError(
            f"the file is not whole: its header alone has {length} bytes", where=where, fix="fetch it again"
        )
    return length


def parse_header(
    data: bytes, where: str = "safetensors file", file_bytes: int | None = None
) -> tuple[StoredTensor, ...]:
    """Read the header of one file.

    Parameters
    ----------
    data : bytes
        The beginning of the file, at least as far as its header goes.
    where : str
        The file's name, for errors.
    file_bytes : int
        Size of the whole file, where it is known: a file shorter than its tensors is refused. [B]

    Returns
    -------
    tuple
        Its tensors, each counted as the numbers that are there (`unpacked` counts the weights they stand for).

    Raises
    ------
    TruncatedError
        When the header goes on after the bytes given.
    BadFileError
        When the bytes are no safetensors header, or one that no real file has.
    """
    length = header_length(data, where, file_bytes)
    if len(data) < 8 + length:
        raise TruncatedError(
            f"the header is cut off: it has {length} bytes, {len(data) - 8} are there",
            where=where,
            fix="fetch the file again",
        )
    header = parse_json(data[8 : 8 + length], where)
    header.pop("__metadata__", None)
    if len(header) > _MAX_TENSORS:
        raise BadFileError(f"has {len(header)} tensors, more than any model", where=where, fix="fetch it again")
    room = None if file_bytes is None else file_bytes - 8 - length
    return tuple(_tensor(name, entry, where, room) for name, entry in header.items())


def parse_json(data: bytes | str, where: str) -> dict[str, Any]:
    """Return a JSON object; anything else, and one nested without end, is refused."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        what = "is nested too deeply" if isinstance(error, RecursionError) else f"is not JSON: {error}"
        raise BadFileError(what[:200], where=where, fix="give the file as it was published") from None
    if not isinstance(found, dict):
        raise BadFileError("is not a JSON object", where=where, fix="give the file as it was published")
    return cast("dict[str, Any]", found)


def _tensor(name: str, entry: Any, where: str, room: int | None) -> StoredTensor:
    fields = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
    kind: Any = fields.get("dtype")
    shape, offsets = _counts(fields.get("shape"), _MAX_DIMENSIONS), _counts(fields.get("data_offsets"), 2)
    if not isinstance(kind, str) or shape is None or offsets is None or len(name) > _MAX_NAME:
        raise BadFileError(f"its entry for '{name[:60]}' is not a tensor's", where=where, fix="fetch it again")
    if len(offsets) != 2 or offsets[0] > offsets[1]:
        raise BadFileError(f"tensor '{name[:60]}' lies nowhere", where=where, fix="fetch it again")
    num_bytes, numbers = offsets[1] - offsets[0], math.prod(shape)
    bits = _BITS.get(kind)
    if bits is not None and -(-numbers * bits // 8) != num_bytes:
        what = f"tensor '{name[:60]}' has {num_bytes} bytes, its shape and type {kind} need {-(-numbers * bits // 8)}"
        raise BadFileError(what, where=where, fix="fetch it again")
    if room is not None and offsets[1] > room:
        raise BadFileError(
            f"the file is not whole: {offsets[1] - room} bytes or more are missing", where=where, fix="fetch it again"
        )
    return StoredTensor(
        name=name,
        type_name=kind[:20],
        shape=shape,
        num_parameters=numbers,
        num_bytes=num_bytes,
        component=component_of(name),
    )


def _counts(value: Any, most: int) -> tuple[int, ...] | None:
    """Return a list of whole numbers, or None for anything else."""
    items = cast("list[Any]", value) if isinstance(value, list) else None
    if items is None or len(items) > most:
        return None
    is_good = all(isinstance(item, int) and not isinstance(item, bool) and 0 <= item <= _MAX_OFFSET for item in items)
    return tuple(items) if is_good else None


def parse_index(index: Mapping[str, Any], where: str = "model.safetensors.index.json") -> dict[str, str]:
    """Return which file holds which tensor; names that would leave the folder are refused.

    >>> parse_index({"weight_map": {"lm_head.weight": "model-00001-of-00002.safetensors"}})
    {'lm_head.weight': 'model-00001-of-00002.safetensors'}
    """
    found = index.get("weight_map")
    places = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    if not places or len(places) > _MAX_TENSORS:
        raise BadFileError(
            "has no 'weight_map'", where=where, fix="give model.safetensors.index.json as it was published"
        )
    for name, place in places.items():
        if not isinstance(place, str) or not re.fullmatch(r"[\w.+ -]{1,200}", place) or place.startswith("."):
            raise BadFileError(f"'{name[:60]}' lies in no file of this folder", where=where, fix="fetch it again")
    return cast("dict[str, str]", places)


def shards_of(name: str, there: Collection[str]) -> list[str]:
    """Return the files of a model that is split without an index, by the name of one of them; those missing as well.

    >>> shards_of("model-00002-of-00002.safetensors", [])
    ['model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors']
    """
    match = _SHARD.fullmatch(name)
    if match is None or not 0 < int(match["count"]) <= _MAX_SHARDS or int(match["number"]) > int(match["count"]):
        return [name]
    width = len(match["number"])
    names = [
        f"{match['stem']}-{i:0{width}d}-of-{match['count']}.safetensors" for i in range(1, int(match["count"]) + 1)
    ]
    from_zero = f"{match['stem']}-{0:0{width}d}-of-{match['count']}.safetensors"
    return [from_zero, *names[:-1]] if from_zero in there else names


def unpacked(
    tensors: Sequence[StoredTensor], num_layers: int | None = None, packed_bits: int = 4
) -> tuple[StoredTensor, ...]:
    """Count the weights that tensors stand for: packed ones unpacked, scales and buffers none.

    Parameters
    ----------
    tensors : sequence
        The tensors of all files of a model.
    num_layers : int
        Layers of the model where known: what comes after them predicts further tokens.
    packed_bits : int
        Bits of a weight packed into 32-bit words. [1]

    Returns
    -------
    tuple
        The same tensors with `num_parameters` and `component` set.
    """
    names = {tensor.name for tensor in tensors}
    return tuple(
        replace(
            tensor,
            num_parameters=_num_weights(tensor, names, packed_bits),
            component=component_of(tensor.name, num_layers),
        )
        for tensor in tensors
    )


def _num_weights(tensor: StoredTensor, names: Collection[str], packed_bits: int) -> int:
    name, numbers = tensor.name, tensor.num_parameters
    if _SCALES.search(name) or any(part in name for part in _BUFFERS):
        return 0
    if name.endswith((".qweight", "_packed")):
        return numbers * (32 // packed_bits if tensor.type_name in ("I32", "U32") else 2)
    if tensor.type_name in ("U8", "I8") and _holds_two(name, names):
        return 2 * numbers
    return numbers


def _holds_two(name: str, names: Collection[str]) -> bool:
    """Whether each byte of a tensor holds two 4-bit weights, by what lies beside it."""
    if name.endswith("_blocks"):
        return f"{name.removesuffix('_blocks')}_scales" in names
    return any(f"{name}{other}" in names for other in ("_scale_2", ".absmax", ".quant_map"))


def counted_model(
    tensors: Sequence[StoredTensor], name: str, where: str, quantization: Quantization | None = None
) -> Model:
    """Return a model known by its header alone: exact counts and bytes, no layers.

    Parameters
    ----------
    tensors : sequence
        The tensors of all files, unpacked.
    name : str
        What to call it.
    where : str
        Where the header came from.
    quantization : Quantization
        What its configuration says of the format, if anything.

    Returns
    -------
    Model
        With status `header`; cache and operations cannot be known from it.
    """
    counts = parameters_by_component(tensors)
    counts.pop(MTP, None)
    if not counts:
        raise BadFileError("holds no weights", where=where, fix="give the weights of a model")
    tables = [tensor for tensor in tensors if tensor.component == EMBEDDING and len(tensor.shape) == 2]
    table = max(tables, key=lambda tensor: tensor.num_parameters, default=None)
    return Model(
        name=name,
        family="",
        hidden_size=table.shape[1] if table else 0,
        vocab_size=table.shape[0] if table else 0,
        layers=(),
        other_parameters=counts,
        is_tied=LM_HEAD not in counts,
        quantization=quantization,
        source=where,
        status="header",
        warnings=("counted only, its layers are not known: the header names tensors, not how they are used",),
        stored_parameters=counts,
        stored_bytes=bytes_by_component(tensors),
    )
