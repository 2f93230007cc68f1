"""A place that holds a model's files – a folder, a hub – and how a model is read from it, headers only."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol, TypeVar, cast

from tonnage.errors import BadFileError, RequestError
from tonnage.model import gguf, safetensors
from tonnage.model.gguf_model import model_from_gguf
from tonnage.model.hf import model_from_config
from tonnage.model.tensors import StoredTensor, TruncatedError, bytes_by_component
from tonnage.model.types import Model

MAX_JSON_BYTES: Final = 64 << 20
_FIRST_BYTES: Final = 256 << 10
_MAX_SHARDS: Final = 1024
_PICKLES: Final = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
CONFIG: Final = "config.json"
INDEX: Final = "model.safetensors.index.json"
QUANTIZATION: Final = "hf_quant_config.json"
_QUANTIZED: Final = re.compile(r"fp8|fp4|int4|int8|w4a|w8a|awq", re.IGNORECASE)
Parsed = TypeVar("Parsed")


class Repository(Protocol):
    """A model's files by name."""

    @property
    def label(self) -> str:
        """What to call the place in messages."""
        ...

    @property
    def is_local(self) -> bool:
        """Whether headers cost nothing to read."""
        ...

    def names(self) -> tuple[str, ...]:
        """List the files."""
        ...

    def head(self, name: str, num_bytes: int) -> tuple[bytes, int | None]:
        """Return at most so many bytes from the beginning of a file, and its size where it is known."""
        ...

    def whole(self, name: str, most: int) -> bytes | None:
        """Return a small file, or None where there is none of this name."""
        ...


def refuse_pickle(name: str, where: str) -> BadFileError:
    """Return the error for a file of pickled tensors, to be raised."""
    return BadFileError(
        f"'{name[:80]}' is a pickle, and reading one can run any code in it",
        where=where,
        fix="give the model's config.json, .safetensors or .gguf instead",
    )


def is_pickle(name: str) -> bool:
    """Whether a file's name says that it holds pickled tensors."""
    return name.lower().endswith(_PICKLES)


def read_head(
    repository: Repository, name: str, parse: Callable[[bytes, str, int | None], Parsed], most: int
) -> Parsed:
    """Parse a file's header from its first bytes, and from more where it goes on."""
    num_bytes, where = _FIRST_BYTES, f"{repository.label}/{name}" if repository.label else name
    while True:
        data, file_bytes = repository.head(name, num_bytes)
        try:
            return parse(data, where, file_bytes)
        except TruncatedError:
            if len(data) < num_bytes or num_bytes >= most:
                raise
        num_bytes = min(4 * num_bytes, most)


def read_json(repository: Repository, name: str) -> dict[str, Any] | None:
    """Return a JSON object among the files, or None where there is none of this name."""
    data = repository.whole(name, MAX_JSON_BYTES)
    where = f"{repository.label}/{name}" if repository.label else name
    return None if data is None else safetensors.parse_json(data, where)


def read_gguf(repository: Repository, name: str, called: str = "") -> Model:
    """Return the model of a GGUF file, of all its parts where it is one of several."""
    part = gguf.part_of(name.rpartition("/")[2])
    folder = name[: len(name) - len(name.rpartition("/")[2])]
    names = [name]
    if part:
        stem, _, count = part
        if not 0 < count <= _MAX_SHARDS:
            raise BadFileError(
                f"'{name[:80]}' says it is one of {count} parts", where=repository.label, fix="rename it"
            )
        names = [folder + gguf.part_name(stem, number, count) for number in range(1, count + 1)]
        there = set(repository.names())
        missing = [one for one in names if one not in there]
        if missing:
            what = f"{len(missing)} of {count} parts are missing, the first is {missing[0]}"
            raise BadFileError(what, where=repository.label or name, fix="put all parts into one folder")
    headers = [read_head(repository, one, gguf.parse_header, gguf.MAX_HEADER_BYTES) for one in names]
    header = headers[0] if len(headers) == 1 else gguf.merge_parts(headers, name)
    return model_from_gguf(header, called, f"{repository.label}/{name}" if repository.label else name)


def read_repository(repository: Repository, called: str, chosen: str = "") -> Model:
    """Return the model whose files these are: by its config.json, else from its weights' headers."""
    config = None if chosen else read_json(repository, CONFIG)
    if config is not None:
        return _configured(repository, _with_quantization(repository, config), called)
    names = repository.names()
    files = sorted(name for name in names if name.endswith(".gguf") and _is_wanted(name, chosen))
    whole = sorted({_first_part(name) for name in files})
    if len(whole) == 1:
        return read_gguf(repository, whole[0], called if not chosen else f"{called}:{chosen}")
    if whole:
        shown = ", ".join(name.removesuffix(".gguf") for name in whole[:12])
        raise RequestError(f"holds {len(whole)} GGUF models", where=repository.label, fix=f"name one of: {shown}")
    if not chosen and (tensors := _tensors(repository, names)):
        return safetensors.counted_model(safetensors.unpacked(tensors), called, repository.label)
    if any(is_pickle(name) for name in names):
        raise refuse_pickle(next(name for name in names if is_pickle(name)), repository.label)
    wanted = f"no GGUF file named like '{chosen[:60]}'" if chosen else "neither config.json nor weights"
    raise BadFileError(f"holds {wanted}", where=repository.label, fix="give a folder or repository of a model")


def _with_quantization(repository: Repository, config: dict[str, Any]) -> dict[str, Any]:
    """Return a config with what NVIDIA's Model Optimizer writes into a file of its own.

    Over a network the file is asked for only where the model's name says that it is quantised.
    """
    if "quantization_config" in config or not (repository.is_local or _QUANTIZED.search(repository.label)):
        return config
    beside = read_json(repository, QUANTIZATION)
    return config if beside is None else config | {"quantization_config": {"quant_method": "modelopt"} | beside}


def _first_part(name: str) -> str:
    """Return a GGUF file's name, of a split model its first part's."""
    folder, slash, last = name.rpartition("/")
    part = gguf.part_of(last)
    return f"{folder}{slash}{gguf.part_name(part[0], 1, part[2])}" if part else name


def _is_wanted(name: str, chosen: str) -> bool:
    last = name.lower()
    if "mmproj" in last or "imatrix" in last:
        return False
    return chosen.lower() in last


def _configured(repository: Repository, config: dict[str, Any], called: str) -> Model:
    """Return the model of a config.json with the bytes of its weights' headers; count those where the family is new."""
    where = f"{repository.label}/{CONFIG}" if repository.label else CONFIG
    try:
        model = model_from_config(config, called, where)
    except BadFileError:
        raise
    except RequestError as unknown:
        model_type = config.get("model_type")
        tensors = _tensors(repository)
        if not tensors:
            raise
        counted = safetensors.counted_model(
            safetensors.unpacked(tensors, _num_layers(config)), called, repository.label
        )
        family = model_type if isinstance(model_type, str) else ""
        return replace(counted, family=family, warnings=(f"{unknown.what}: counted from the header of its weights",))
    if not repository.is_local and model.quantization is None:
        return model
    tensors = _tensors(repository)
    stored = bytes_by_component(safetensors.unpacked(tensors, model.num_layers)) if tensors else {}
    return replace(model, stored_bytes=stored)


def _num_layers(config: dict[str, Any]) -> int | None:
    text = config.get("text_config")
    inner = cast("dict[str, Any]", text) if isinstance(text, dict) else config
    value = inner.get("num_hidden_layers")
    return value if isinstance(value, int) and value > 0 else None


def _tensors(repository: Repository, names: tuple[str, ...] | None = None) -> tuple[StoredTensor, ...]:
    """Return the tensors of all safetensors files, or none where there are none or not all of them."""
    index = read_json(repository, INDEX)
    there = repository.names() if names is None else names
    if index is not None:
        files = sorted(set(safetensors.parse_index(index, INDEX).values()))
    elif "model.safetensors" in there:
        files = ["model.safetensors"]
    else:
        first = next((name for name in there if name.endswith(".safetensors")), None)
        files = safetensors.shards_of(first, there) if first else []
        others = {name for name in there if name.endswith(".safetensors")} - set(files)
        files = [] if others else files
    return read_shards(repository, files) if files and set(files) <= set(there) else ()


def read_shards(repository: Repository, files: Sequence[str]) -> tuple[StoredTensor, ...]:
    """Return the tensors of several safetensors files."""
    if len(files) > _MAX_SHARDS:
        raise BadFileError(f"is split into {len(files)} files", where=repository.label, fix="give its config.json")
    found: list[StoredTensor] = []
    for name in files:
        found += read_head(repository, name, safetensors.parse_header, 8 + safetensors.MAX_HEADER_BYTES)
    return tuple(found)
