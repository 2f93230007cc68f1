"""The number formats of ggml: how many bytes a block of how many weights takes, by name and by the id in a file."""

from __future__ import annotations

from functools import cache

from tonnage import datafiles
from tonnage.nouns import noun


@noun
class GgmlType:
    """One format: weights lie in blocks of a row, each with its scales."""

    name: str
    id: int
    block_weights: int
    block_bytes: int

    @property
    def bits_per_weight(self) -> float:
        """Bits a weight takes, its share of the scales in."""
        return 8 * self.block_bytes / self.block_weights


@cache
def types_by_name() -> dict[str, GgmlType]:
    """Return every format of `data/models/gguf_types.csv` by name.

    >>> types_by_name()["Q4_K"].bits_per_weight
    4.5
    """
    found = (
        GgmlType(
            name=row["type"],
            id=int(row["id"]),
            block_weights=int(row["block_weights"]),
            block_bytes=int(row["block_bytes"]),
        )
        for row in datafiles.rows("models/gguf_types.csv")
    )
    return {one.name: one for one in found}


@cache
def types_by_id() -> dict[int, GgmlType]:
    """Return every format by the number that a file names it with."""
    return {one.id: one for one in types_by_name().values()}


def tensor_bytes(type_name: str, num_weights: int) -> int:
    """Return the bytes of whole blocks of a format.

    >>> tensor_bytes("Q8_0", 4096)
    4352
    """
    one = types_by_name()[type_name]
    return num_weights // one.block_weights * one.block_bytes
