"""Tensors in pieces: every rank writes what it holds, and any number of ranks reads what it needs.

A piece is a range of a tensor's elements in row-major order. Pieces lie in safetensors files; the header's metadata
says which range each one is. Nothing here is pickled. With compression a file is one Zstandard stream of the same
bytes, where asked with the bytes of each element split into planes first.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

NAMES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8",
    torch.bool: "BOOL", torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2",
}  # fmt: skip
DTYPES = {name: dtype for dtype, name in NAMES.items()}
CHUNK_BYTES = 4 << 20
PLAIN, ZSTD, ZSTD_PLANES = "none", "zstd", "zstd-planes"


class BadCheckpointError(Exception):
    """A checkpoint lacks something, or does not hold what its manifest says."""


@dataclass(kw_only=True)
class Piece:
    """A range of a tensor's elements that this rank holds, as a flat view: to be written, or to be filled."""

    key: str
    shape: tuple[int, ...]  # of the whole tensor
    start: int  # first element
    data: torch.Tensor  # flat; writing into it changes what is trained
    put: Callable[[torch.Tensor], None] | None = None  # called with the filled data, where `data` is a copy

    @property
    def stop(self) -> int:
        """End of the range."""
        return self.start + self.data.numel()


@dataclass(kw_only=True)
class Entry:
    """A piece as a file has it."""

    key: str
    shape: tuple[int, ...]
    start: int
    dtype: torch.dtype
    num_elements: int
    begin: int  # bytes in the data part
    end: int


@dataclass(kw_only=True)
class FileRecord:
    """A file as the manifest names it."""

    name: str
    num_bytes: int
    sha256: str
    num_plain_bytes: int

    def to_json(self) -> dict[str, Any]:
        """Return the manifest's row."""
        return {"name": self.name, "bytes": self.num_bytes, "sha256": self.sha256}


class _Hashing:
    """A file that hashes what goes to the disk."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("wb")
        self.hash = hashlib.sha256()
        self.num_bytes = 0

    def write(self, data: Any) -> int:
        view = memoryview(data)
        self.file.write(view)
        self.hash.update(view)
        self.num_bytes += view.nbytes
        return view.nbytes

    def close(self) -> None:
        try:
            self.file.flush()
            os.fsync(self.file.fileno())
        finally:
            self.file.close()


def _header(pieces: list[Piece]) -> bytes:
    table: dict[str, Any] = {}
    where: dict[str, Any] = {}
    at = 0
    for piece in pieces:
        end = at + piece.data.numel() * piece.data.element_size()
        is_whole = piece.data.numel() == _numel(piece.shape)
        shape = list(piece.shape) if is_whole else [piece.data.numel()]
        table[piece.key] = {"dtype": NAMES[piece.data.dtype], "shape": shape, "data_offsets": [at, end]}
        if not is_whole:
            where[piece.key] = {"shape": list(piece.shape), "start": piece.start}
        at = end
    text = json.dumps({"__metadata__": {"format": "pt", "pieces": json.dumps(where)}, **table}).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def _numel(shape: Iterable[int]) -> int:
    number = 1
    for size in shape:
        number *= size
    return number


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return memoryview(flat.view(torch.uint8).numpy()) if flat.numel() else memoryview(b"")


def split_planes(data: memoryview, width: int) -> bytes:
    """Return first bytes of all elements, then second bytes, and so on."""
    flat = torch.frombuffer(data, dtype=torch.uint8)
    return flat.view(-1, width).t().contiguous().numpy().tobytes()


def join_planes(data: bytes, width: int) -> bytes:
    """Undo `split_planes`."""
    flat = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    return flat.view(width, -1).t().contiguous().numpy().tobytes()


def write(path: Path, pieces: list[Piece], compression: str = PLAIN) -> FileRecord:
    """Write the pieces that this rank holds; the widest types first, so that all lie aligned."""
    pieces = sorted(pieces, key=lambda piece: -piece.data.element_size())
    head = _header(pieces)
    file = _Hashing(path)
    num_plain_bytes = len(head)
    try:
        out = file if compression == PLAIN else _compressor(file)
        out.write(head)
        for piece in pieces:
            data = _bytes_of(piece.data)
            num_plain_bytes += data.nbytes
            for at in range(0, data.nbytes, CHUNK_BYTES):
                chunk = data[at : at + CHUNK_BYTES]
                width = piece.data.element_size()
                out.write(split_planes(chunk, width) if compression == ZSTD_PLANES and width > 1 else chunk)
        if out is not file:
            out.close()
    except BaseException:
        file.file.close()
        raise
    file.close()
    return FileRecord(
        name=path.name, num_bytes=file.num_bytes, sha256=file.hash.hexdigest(), num_plain_bytes=num_plain_bytes
    )


def _compressor(file: _Hashing) -> Any:
    import zstandard  # noqa: PLC0415  only where asked

    return zstandard.ZstdCompressor(level=1).stream_writer(file, closefd=False)


def _parse(head: bytes) -> list[Entry]:
    table = json.loads(head)
    where = json.loads(table.pop("__metadata__", {}).get("pieces", "{}"))
    entries = []
    for key, row in table.items():
        begin, end = row["data_offsets"]
        place = where.get(key, {"shape": row["shape"], "start": 0})
        entries.append(
            Entry(
                key=key, shape=tuple(place["shape"]), start=place["start"], dtype=DTYPES[row["dtype"]],
                num_elements=_numel(row["shape"]), begin=begin, end=end,
            )
        )  # fmt: skip
    return sorted(entries, key=lambda entry: entry.begin)


class _Stream:
    """A compressed file, read from front to back."""

    def __init__(self, path: Path) -> None:
        import zstandard  # noqa: PLC0415  only where asked

        self._file = path.open("rb")
        self._reader = zstandard.ZstdDecompressor().stream_reader(self._file)

    def read(self, num_bytes: int) -> bytes:
        parts = []
        while num_bytes > 0:
            part = self._reader.read(num_bytes)
            if not part:
                raise BadCheckpointError(f"{self._file.name}: ends too early")
            parts.append(part)
            num_bytes -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        self._file.close()


def entries(path: Path, compression: str = PLAIN) -> list[Entry]:
    """Return what a file holds."""
    if compression == PLAIN:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            return _parse(file.read(length))
    stream = _Stream(path)
    try:
        (length,) = struct.unpack("<Q", stream.read(8))
        return _parse(stream.read(length))
    finally:
        stream.close()


def read(path: Path, compression: str = PLAIN) -> Iterator[tuple[Entry, Callable[[], torch.Tensor]]]:
    """Yield each entry with a function that returns its elements, flat; not to be kept beyond the next one."""
    if compression == PLAIN:
        yield from _read_plain(path)
        return
    stream = _Stream(path)
    try:
        (length,) = struct.unpack("<Q", stream.read(8))
        for entry in _parse(stream.read(length)):
            data = bytearray()
            width = torch.empty(0, dtype=entry.dtype).element_size()
            for at in range(entry.begin, entry.end, CHUNK_BYTES):
                chunk = stream.read(min(CHUNK_BYTES, entry.end - at))
                data += join_planes(chunk, width) if compression == ZSTD_PLANES and width > 1 else chunk
            yield entry, lambda data=data, entry=entry: _flat(data, entry.dtype)
    finally:
        stream.close()


def _read_plain(path: Path) -> Iterator[tuple[Entry, Callable[[], torch.Tensor]]]:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as whole:
        (length,) = struct.unpack("<Q", whole[:8])
        for entry in _parse(whole[8 : 8 + length]):
            at = 8 + length + entry.begin
            yield entry, lambda at=at, entry=entry: _flat(_copy(whole, at, entry.end - entry.begin), entry.dtype)


def _copy(whole: mmap.mmap, at: int, num_bytes: int) -> bytearray:
    with memoryview(whole) as view:
        return bytearray(view[at : at + num_bytes])


def _flat(data: bytearray, dtype: torch.dtype) -> torch.Tensor:
    return torch.frombuffer(data, dtype=torch.uint8).view(dtype) if data else torch.empty(0, dtype=dtype)


def fill(wanted: list[Piece], files: Iterable[Path], compression: str = PLAIN) -> None:
    """Fill pieces from files that any number of ranks wrote; what stays unfilled is an error.

    Raises
    ------
    BadCheckpointError
        A tensor is absent, incomplete or of another shape.
    """
    by_key: dict[str, list[Piece]] = {}
    for piece in wanted:
        by_key.setdefault(piece.key, []).append(piece)
    num_missing = {id(piece): piece.data.numel() for piece in wanted}
    for path in files:
        for entry, elements in read(path, compression):
            for piece in by_key.get(entry.key, ()):
                if entry.shape != piece.shape:
                    raise BadCheckpointError(
                        f"{entry.key}: {entry.shape} in the checkpoint, {piece.shape} in the model"
                    )
                first, last = max(entry.start, piece.start), min(entry.start + entry.num_elements, piece.stop)
                if first >= last and piece.data.numel():
                    continue
                found = elements()[first - entry.start : last - entry.start]
                piece.data[first - piece.start : last - piece.start].copy_(found)
                num_missing[id(piece)] -= last - first
    lacking = sorted({piece.key for piece in wanted if num_missing[id(piece)] > 0})
    if lacking:
        raise BadCheckpointError(f"the checkpoint lacks {len(lacking)} tensors of the model: {', '.join(lacking[:4])}")
    for piece in wanted:
        if piece.put is not None:
            piece.put(piece.data)
