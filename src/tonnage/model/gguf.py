"""Read a GGUF header: bytes -> metadata and tensors; several parts of one model -> one header.

Only the header is looked at, under hard limits: a length or a count that no real file has is an error, and so is a
header that ends too early (`TruncatedError`, so that a reader may fetch more).

References
----------
.. [1] ggml-org/ggml, docs/gguf.md (versions 2 and 3), and gguf-py 0.19.0, gguf/constants.py.
"""

from __future__ import annotations

import itertools
import math
import re
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tonnage.errors import BadFileError
from tonnage.model.ggml import types_by_id
from tonnage.model.tensors import TruncatedError
from tonnage.nouns import noun

MAGIC: Final = b"GGUF"
MAX_HEADER_BYTES: Final = 256 << 20  # the largest vocabularies take some 20 MB
_MAX_KEYS: Final = 1 << 16
_MAX_TENSORS: Final = 1 << 17
_MAX_KEY_BYTES: Final = 1 << 16
_MAX_TEXT_BYTES: Final = 64 << 20
_MAX_ITEMS: Final = 1 << 26
_MAX_KEPT_ITEMS: Final = 1 << 12  # longer arrays are vocabularies: only their length is kept
_MAX_NAME_BYTES: Final = 512
_MAX_DIMENSIONS: Final = 4
_MAX_WEIGHTS: Final = 1 << 50
_MAX_ALIGNMENT: Final = 1 << 20

_STRING, _ARRAY = 8, 9
_SCALARS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_PART: Final = re.compile(r"(?P<stem>.*)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})\.gguf", re.DOTALL)


@noun
class LongArray:
    """An array too long to keep: a vocabulary's tokens, scores or merges."""

    num_items: int


@noun
class GgufTensor:
    """A tensor as the file lists it; `shape` begins with the length of a row."""

    name: str
    type_name: str
    shape: tuple[int, ...]
    offset: int
    num_bytes: int

    @property
    def num_weights(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.shape)


@noun
class GgufHeader:
    """A file's header: what it says of the model, its tensors, and where their data begins."""

    version: int
    metadata: Mapping[str, Any]
    tensors: tuple[GgufTensor, ...]
    data_offset: int
    alignment: int


class _Reader:
    """A place in the bytes at hand; every step checks that it stays inside them."""

    def __init__(self, data: bytes, where: str) -> None:
        self.data, self.where, self.position, self.order = data, where, 0, "<"

    def bad(self, what: str, fix: str = "is it whole, and a GGUF file? fetch it again") -> BadFileError:
        return BadFileError(what, where=self.where, fix=fix)

    def take(self, num_bytes: int) -> bytes:
        end = self.position + num_bytes
        if end > len(self.data):
            raise TruncatedError(
                f"the GGUF header is cut off: it goes on after {len(self.data)} bytes",
                where=self.where,
                fix="fetch the file again",
            )
        piece = self.data[self.position : end]
        self.position = end
        return piece

    def number(self, code: str) -> Any:
        return struct.unpack(self.order + code, self.take(struct.calcsize(self.order + code)))[0]

    def count(self, most: int, what: str) -> int:
        found = self.number("Q")
        if found > most:
            raise self.bad(f"the GGUF header says {found} {what}, more than {most}")
        return found

    def text(self, most: int, what: str) -> str:
        piece = self.take(self.count(most, f"bytes of {what}"))
        try:
            return piece.decode("utf-8")
        except UnicodeDecodeError:
            raise self.bad(f"the {what} at byte {self.position - len(piece)} is not UTF-8 text") from None

    def value(self, kind: int, key: str) -> Any:
        if kind == _STRING:
            return self.text(_MAX_TEXT_BYTES, f"text of '{key[:60]}'")
        if kind == _ARRAY:
            return self.array(key)
        if kind not in _SCALARS:
            raise self.bad(f"'{key[:60]}' has the unknown value type {kind}")
        return self.number(_SCALARS[kind])

    def array(self, key: str) -> Any:
        kind = self.number("I")
        num_items = self.count(_MAX_ITEMS, f"items in '{key[:60]}'")
        if kind == _STRING:
            return self._texts(num_items, key)
        if kind not in _SCALARS:
            what = "holds arrays inside an array" if kind == _ARRAY else f"has items of the unknown type {kind}"
            raise self.bad(f"'{key[:60]}' {what}")
        one = struct.calcsize(self.order + _SCALARS[kind])
        piece = self.take(num_items * one)
        if num_items > _MAX_KEPT_ITEMS:
            return LongArray(num_items=num_items)
        return struct.unpack(f"{self.order}{num_items}{_SCALARS[kind]}", piece)

    def _texts(self, num_items: int, key: str) -> Any:
        if num_items <= _MAX_KEPT_ITEMS:
            return tuple(self.text(_MAX_TEXT_BYTES, f"text of '{key[:60]}'") for _ in range(num_items))
        length, end = struct.Struct(self.order + "Q").unpack_from, len(self.data) - 8
        position = self.position
        for _ in range(num_items):
            if position > end:
                break
            position += 8 + length(self.data, position)[0]
        self.position = 0
        self.take(position if position <= len(self.data) else len(self.data) + 1)
        return LongArray(num_items=num_items)


def part_of(name: str) -> tuple[str, int, int] | None:
    """Return (stem, number from 1, how many) of a part's file name, or None for a whole file.

    >>> part_of("Qwen3-235B-Q4_K_M-00002-of-00003.gguf")
    ('Qwen3-235B-Q4_K_M', 2, 3)
    """
    match = _PART.fullmatch(name)
    return (match["stem"], int(match["number"]), int(match["count"])) if match else None


def part_name(stem: str, number: int, count: int) -> str:
    """Return the file name of a part, numbered from 1."""
    return f"{stem}-{number:05d}-of-{count:05d}.gguf"


def parse_header(data: bytes, where: str = "GGUF file", file_bytes: int | None = None) -> GgufHeader:
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
    GgufHeader
        Metadata and tensors.

    Raises
    ------
    TruncatedError
        When the header goes on after the bytes given.
    BadFileError
        When the bytes are no GGUF header, or one that no real file has.
    """
    reader = _Reader(data, where)
    if reader.take(4) != MAGIC:
        raise reader.bad("is not a GGUF file: it does not begin with 'GGUF'")
    version = reader.number("I")
    if version & 0xFFFF == 0:  # written by a big-endian machine
        reader.order = ">"
        version = int.from_bytes(version.to_bytes(4, "little"), "big")
    if version not in (2, 3):
        raise reader.bad(f"has GGUF version {version}; versions 2 and 3 are known", "convert it with today's llama.cpp")
    num_tensors = reader.count(_MAX_TENSORS, "tensors")
    num_keys = reader.count(_MAX_KEYS, "metadata keys")
    metadata: dict[str, Any] = {}
    for _ in range(num_keys):
        key = reader.text(_MAX_KEY_BYTES, "a metadata key")
        if key in metadata:
            raise reader.bad(f"the metadata key '{key[:60]}' stands twice")
        metadata[key] = reader.value(reader.number("I"), key)
    listed = [_listed(reader) for _ in range(num_tensors)]
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or not 0 < alignment <= _MAX_ALIGNMENT:
        raise reader.bad("'general.alignment' is not a reasonable number")
    data_offset = -(-reader.position // alignment) * alignment
    tensors = _sized(listed, reader, None if file_bytes is None else file_bytes - data_offset)
    if len({tensor.name for tensor in tensors}) != num_tensors:
        raise reader.bad("two tensors have the same name")
    return GgufHeader(version=version, metadata=metadata, tensors=tensors, data_offset=data_offset, alignment=alignment)


def _listed(reader: _Reader) -> tuple[str, tuple[int, ...], int, int]:
    """Read a tensor's name, shape, format and place."""
    name = reader.text(_MAX_NAME_BYTES, "a tensor name")
    num_dimensions = reader.number("I")
    if num_dimensions > _MAX_DIMENSIONS:
        raise reader.bad(f"tensor '{name[:60]}' has {num_dimensions} dimensions, more than {_MAX_DIMENSIONS}")
    shape = tuple(reader.number("Q") for _ in range(num_dimensions))
    type_id, offset = reader.number("I"), reader.number("Q")
    if math.prod(shape) > _MAX_WEIGHTS:
        raise reader.bad(f"tensor '{name[:60]}' has the absurd shape {'x'.join(map(str, shape))[:80]}")
    return name, shape, type_id, offset


def _sized(
    listed: list[tuple[str, tuple[int, ...], int, int]], reader: _Reader, data_bytes: int | None
) -> tuple[GgufTensor, ...]:
    """Give each tensor its bytes: from its format, or, for one that is not known, from where the next tensor begins."""
    places = sorted({offset for *_, offset in listed})
    ends = dict(itertools.pairwise(places))
    found: list[GgufTensor] = []
    for name, shape, type_id, offset in listed:
        known = types_by_id().get(type_id)
        if known is None:
            end = ends.get(offset, data_bytes)
            if end is None or end < offset:
                raise reader.bad(f"tensor '{name[:60]}' is in the unknown format {type_id}", "update tonnage")
            type_name, num_bytes = f"type {type_id}", end - offset
        else:
            if shape and shape[0] % known.block_weights:
                raise reader.bad(f"tensor '{name[:60]}' has rows of {shape[0]}, no multiple of a block of {known.name}")
            type_name, num_bytes = known.name, math.prod(shape) // known.block_weights * known.block_bytes
        if data_bytes is not None and offset + num_bytes > data_bytes:
            missing = offset + num_bytes - data_bytes
            raise reader.bad(f"the file is not whole: at least {missing} bytes are missing", "fetch it again")
        found.append(GgufTensor(name=name, type_name=type_name, shape=shape, offset=offset, num_bytes=num_bytes))
    return tuple(found)


def merge_parts(parts: Sequence[GgufHeader], where: str = "GGUF file") -> GgufHeader:
    """Return one header of all parts of a split model: the first one's metadata, everybody's tensors."""
    first = parts[0]
    tensors = tuple(tensor for part in parts for tensor in part.tensors)
    wanted = first.metadata.get("split.tensors.count")
    if len({tensor.name for tensor in tensors}) != len(tensors):
        raise BadFileError("two parts hold the same tensor", where=where, fix="keep the parts of one model only")
    if isinstance(wanted, int) and wanted != len(tensors):
        raise BadFileError(
            f"the parts hold {len(tensors)} tensors, not {wanted}",
            where=where,
            fix="fetch all parts of one model again",
        )
    return GgufHeader(
        version=first.version,
        metadata=first.metadata,
        tensors=tensors,
        data_offset=first.data_offset,
        alignment=first.alignment,
    )
