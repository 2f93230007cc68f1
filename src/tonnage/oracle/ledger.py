"""Notes every storage that PyTorch allocates and frees while it is active."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from torch.utils.weak import WeakIdKeyDictionary

from tonnage.errors import RequestError
from tonnage.oracle.types import Timeline

_MOST_STORAGES: Final = 300_000  # about a minute


class Ledger(TorchDispatchMode):
    """Watch operations; a storage seen for the first time was allocated by the operation that returns it.

    References
    ----------
    .. [1] pytorch v2.13.0, `torch/distributed/_tools/mem_tracker.py` watches storages in the same way, and sorts them
       module by module, which takes far longer.
    """

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[int, int]] = []
        self.pools: dict[int, str] = {}
        self.marks: list[tuple[int, str]] = []
        self.pool: str | None = None  # what new storages are, None: temporaries
        self._numbers: Any = WeakIdKeyDictionary()
        self._watched: dict[int, Any] = {}

    def number(self, tensor: torch.Tensor) -> int:
        """Return a storage's number, noting it where it is new."""
        storage = tensor.untyped_storage()
        known = self._numbers.get(storage)
        if known is not None:
            return known
        number, num_bytes = len(self._watched), storage.nbytes()
        if number > _MOST_STORAGES:
            raise RequestError(
                "its code makes too many tensors, one token after another",
                where="--oracle",
                fix="give a shorter --seq-len; what is kept grows in proportion",
            )
        self._numbers[storage] = number
        self.events.append((number, num_bytes))
        if self.pool is not None:
            self.pools[number] = self.pool

        def freed(_: object) -> None:
            self.events.append((number, -num_bytes))

        self._watched[number] = weakref.ref(storage, freed)
        return number

    def name(self, tensors: Iterable[torch.Tensor], pool: str) -> None:
        """Say what tensors are."""
        for tensor in tensors:
            self.pools[self.number(tensor)] = pool

    def mark(self, name: str) -> None:
        """Begin a part of the step."""
        self.marks.append((len(self.events), name))

    def timeline(self, **facts: Any) -> Timeline:
        """Return what was noted."""
        return Timeline(events=tuple(self.events), pools=dict(self.pools), marks=tuple(self.marks), **facts)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        result = func(*args, **(kwargs or {}))
        for value in tree_iter(result):
            if isinstance(value, torch.Tensor):
                self.number(value)
        return result
