"""Write small GGUF headers for tests: metadata and tensors of any shape, without their data."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence

from tonnage.model.ggml import types_by_name

U32, F32, BOOL, STRING, ARRAY, U64 = 4, 6, 7, 8, 9, 10


def text(value: str | bytes, order: str = "<") -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack(order + "Q", len(data)) + data


def value(item: object, order: str = "<") -> bytes:
    """Write a value with its type before it."""
    if isinstance(item, bool):
        return struct.pack(order + "I?", BOOL, item)
    if isinstance(item, int):
        return struct.pack(order + "IQ", U64, item)
    if isinstance(item, float):
        return struct.pack(order + "If", F32, item)
    if isinstance(item, str):
        return struct.pack(order + "I", STRING) + text(item, order)
    assert isinstance(item, Sequence)
    if item and isinstance(item[0], str):
        return struct.pack(order + "IIQ", ARRAY, STRING, len(item)) + b"".join(text(one, order) for one in item)
    if item and isinstance(item[0], bool):
        return struct.pack(order + "IIQ", ARRAY, BOOL, len(item)) + bytes(item)
    return struct.pack(order + "IIQ", ARRAY, U32, len(item)) + struct.pack(f"{order}{len(item)}I", *item)


def header(
    metadata: Mapping[str, object],
    tensors: Mapping[str, tuple[str | int, tuple[int, ...]]],
    *,
    version: int = 3,
    order: str = "<",
) -> bytes:
    """Write a header; a tensor is (format, shape), shapes beginning with the length of a row."""
    parts = [b"GGUF", struct.pack(order + "IQQ", version, len(tensors), len(metadata))]
    parts += [text(key, order) + value(item, order) for key, item in metadata.items()]
    offset = 0
    for name, (kind, shape) in tensors.items():
        number = kind if isinstance(kind, int) else types_by_name()[kind].id
        parts.append(text(name, order) + struct.pack(order + "I", len(shape)))
        parts.append(struct.pack(f"{order}{len(shape)}QIQ", *shape, number, offset))
        offset += -(-tensor_bytes(kind, shape) // 32) * 32
    data = b"".join(parts)
    return data + b"\0" * (-len(data) % 32)


def tensor_bytes(kind: str | int, shape: tuple[int, ...]) -> int:
    if isinstance(kind, int):
        return math.prod(shape)
    one = types_by_name()[kind]
    return math.prod(shape) // one.block_weights * one.block_bytes


def data_bytes(tensors: Mapping[str, tuple[str | int, tuple[int, ...]]]) -> int:
    """Bytes of all tensors, each padded to 32."""
    return sum(-(-tensor_bytes(kind, shape) // 32) * 32 for kind, shape in tensors.values())
