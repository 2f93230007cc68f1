"""A folder's files, read with limits: only headers and small JSON files, never a weight."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final

from tonnage.errors import BadFileError
from tonnage.model import gguf, safetensors
from tonnage.model.gguf_model import model_from_gguf
from tonnage.model.hf import model_from_config
from tonnage.model.types import Model
from tonnage.nouns import noun
from tonnage.probe.plain_file import read_bytes
from tonnage.probe.repository import (
    CONFIG,
    MAX_JSON_BYTES,
    is_pickle,
    read_gguf,
    read_json,
    read_repository,
    read_shards,
    refuse_pickle,
)

_MOST_FILES: Final = 10_000
_SUFFIXES: Final = (".json", ".gguf", ".safetensors", ".bin", ".pt", ".pth", ".ckpt")


@noun
class Folder:
    """A folder as a `Repository`."""

    path: Path
    is_local: bool = True

    @property
    def label(self) -> str:
        """What to call the folder in messages."""
        return "" if self.path == Path() else str(self.path)

    def names(self) -> tuple[str, ...]:
        """List the folder's own files."""
        try:
            found = sorted(entry.name for entry in self.path.iterdir() if entry.is_file())
        except OSError as error:
            raise _unreadable(error, str(self.path)) from None
        return tuple(found[:_MOST_FILES])

    def head(self, name: str, num_bytes: int) -> tuple[bytes, int | None]:
        """Return the beginning of a file and its size."""
        path = self.path / name
        try:
            return read_bytes(path, num_bytes), path.stat().st_size
        except (OSError, ValueError) as error:
            raise _unreadable(error, str(path)) from None

    def whole(self, name: str, most: int) -> bytes | None:
        """Return a small file, or None where there is none of this name."""
        path = self.path / name
        try:
            if not path.is_file():
                return None
            data = read_bytes(path, most + 1)
        except (OSError, ValueError) as error:
            raise _unreadable(error, str(path)) from None
        if len(data) > most:
            raise BadFileError(
                f"is larger than {most >> 20} MiB", where=str(path), fix="give a config.json or an index"
            )
        return data


def _unreadable(error: Exception, where: str) -> BadFileError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return BadFileError(f"cannot be read: {reason}", where=where[:200], fix="check the path")


def looks_like_path(spec: str) -> bool:
    """Whether a text can only mean a file or a folder.

    >>> looks_like_path("./m"), looks_like_path("model.gguf"), looks_like_path("Qwen/Qwen3-8B")
    (True, True, False)
    """
    return spec.startswith(("/", "./", "../", "~", ".\\")) or spec in (".", "..") or spec.lower().endswith(_SUFFIXES)


def existing_path(spec: str) -> Path | None:
    """Return the file or folder that a text names, or None where there is none."""
    try:
        path = Path(spec).expanduser()
        return path if path.exists() else None
    except (OSError, ValueError, RuntimeError):
        return None


def read_path(path: Path, called: str = "") -> Model:
    """Return the model of a folder, a config.json, a .gguf, a .safetensors or its index."""
    if path.is_dir():
        return read_repository(Folder(path=path), called or path.resolve().name or str(path))
    if not path.is_file():
        raise BadFileError("is neither a file nor a folder", where=str(path)[:200], fix="give a file of a model")
    folder, name = Folder(path=path.parent), path.name
    if is_pickle(name):
        raise refuse_pickle(name, str(path.parent))
    beginning = folder.head(name, 16)[0]
    if beginning[:4] == gguf.MAGIC or name.lower().endswith(".gguf"):
        return read_gguf(folder, name, called or path.stem)
    if name.lower().endswith(".safetensors"):
        return _read_safetensors(folder, name, called or path.stem)
    if _is_zip_or_pickle(beginning):
        raise refuse_pickle(name, str(path.parent))
    return _read_json_file(folder, name, called)


def _is_zip_or_pickle(beginning: bytes) -> bool:
    return beginning[:2] == b"PK" or (beginning[:1] == b"\x80" and beginning[1:2] in b"\x02\x03\x04\x05")


def _read_safetensors(folder: Folder, name: str, called: str) -> Model:
    files = safetensors.shards_of(name, folder.names())
    if len(files) > 1 and folder.whole(CONFIG, MAX_JSON_BYTES) is not None:
        return read_repository(folder, folder.path.resolve().name)
    _refuse_missing(folder, files, name)
    tensors = read_shards(folder, files)
    return safetensors.counted_model(safetensors.unpacked(tensors), called, f"{folder.label}/{name}")


def _read_json_file(folder: Folder, name: str, called: str) -> Model:
    found = read_json(folder, name)
    if found is None:
        raise BadFileError("cannot be read", where=name, fix="check the path")
    if "weight_map" in found:
        return _read_index(folder, found, name, called)
    where = f"{folder.label}/{name}" if folder.label else name
    generic = folder.path.resolve().name if name == CONFIG else Path(name).stem
    return model_from_config(found, called or generic, where)


def _read_index(folder: Folder, index: dict[str, object], name: str, called: str) -> Model:
    """Return the model of an index: by the config.json beside it, else counted from its files' headers."""
    if folder.whole(CONFIG, MAX_JSON_BYTES) is not None:
        return read_repository(folder, called or folder.path.resolve().name)
    files = sorted(set(safetensors.parse_index(index, name).values()))
    _refuse_missing(folder, files, name)
    tensors = read_shards(folder, files)
    return safetensors.counted_model(
        safetensors.unpacked(tensors), called or folder.path.resolve().name, str(folder.path)
    )


def _refuse_missing(folder: Folder, files: list[str], name: str) -> None:
    missing = sorted(set(files) - set(folder.names()))
    if missing:
        what = f"{len(missing)} of its {len(files)} files are missing, the first is {missing[0]}"
        raise BadFileError(what, where=str(folder.path / name), fix="put config.json or the files beside it")


def read_stream(stream: BinaryIO) -> Model:
    """Return the model of a config.json, a GGUF or a safetensors header that comes through a pipe."""
    data = stream.read(16)
    if data[:4] == gguf.MAGIC:
        data += stream.read(gguf.MAX_HEADER_BYTES)
        return model_from_gguf(gguf.parse_header(data, "-"), "stdin", "-")
    if data[8:9] == b"{":
        data += stream.read(safetensors.MAX_HEADER_BYTES)
        return safetensors.counted_model(safetensors.unpacked(safetensors.parse_header(data, "-")), "stdin", "-")
    data += stream.read(MAX_JSON_BYTES)
    if len(data) > MAX_JSON_BYTES:
        raise BadFileError(f"is larger than {MAX_JSON_BYTES >> 20} MiB", where="-", fix="give a config.json")
    if not data.strip():
        raise BadFileError("nothing came through the pipe", where="-", fix="cat config.json | tonnage model -")
    found = safetensors.parse_json(data, "-")
    if "weight_map" in found:
        raise BadFileError(
            "an index says which file holds a tensor, not how large it is", where="-", fix="give config.json"
        )
    return model_from_config(found, "", "-")


def refuse_path(spec: str, suggestions: Sequence[str] = ()) -> BadFileError:
    """Return the error for a path that names nothing, to be raised."""
    fix = f"did you mean {', '.join(suggestions)}?" if suggestions else "check the path"
    return BadFileError("no such file or folder", where=spec[:200], fix=fix)
