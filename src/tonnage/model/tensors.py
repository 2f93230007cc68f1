"""What the header of a weights file says: tensors by name, format, shape and bytes; no weight is ever read."""

from __future__ import annotations

from collections.abc import Iterable

from tonnage.errors import BadFileError
from tonnage.nouns import noun


class TruncatedError(BadFileError):
    """A header that goes on after the bytes at hand; more of the file may mend it."""


@noun
class StoredTensor:
    """One tensor of a file; `num_parameters` is 0 for scales, tables and other things that are no weights."""

    name: str
    type_name: str
    shape: tuple[int, ...]
    num_parameters: int
    num_bytes: int
    component: str


def parameters_by_component(tensors: Iterable[StoredTensor]) -> dict[str, int]:
    """Add up the weights of each component."""
    found: dict[str, int] = {}
    for tensor in tensors:
        if tensor.num_parameters:
            found[tensor.component] = found.get(tensor.component, 0) + tensor.num_parameters
    return found


def bytes_by_component(tensors: Iterable[StoredTensor]) -> dict[str, int]:
    """Add up the bytes of each component, scales and tables included."""
    found: dict[str, int] = {}
    for tensor in tensors:
        found[tensor.component] = found.get(tensor.component, 0) + tensor.num_bytes
    return found


def bytes_by_type(tensors: Iterable[StoredTensor]) -> dict[str, int]:
    """Add up the bytes in each number format."""
    found: dict[str, int] = {}
    for tensor in tensors:
        found[tensor.type_name] = found.get(tensor.type_name, 0) + tensor.num_bytes
    return found


def parameters_by_type(tensors: Iterable[StoredTensor]) -> dict[str, int]:
    """Add up the weights in each number format."""
    found: dict[str, int] = {}
    for tensor in tensors:
        found[tensor.type_name] = found.get(tensor.type_name, 0) + tensor.num_parameters
    return found
