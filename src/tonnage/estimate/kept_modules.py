"""Which modules a quantised checkpoint leaves alone: its list of names, globs and regular expressions, asked quickly.

Lists may be long (a name for each module of each layer) and use other spellings than transformers: nested models,
`shared_expert`, `block_sparse_moe`, `ffn`, `mixer`, one expert by one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_PREFIXES: Final = re.compile(
    r"^(?:(?:model|language_model|text_model|backbone|decoder|transformer)\.){1,4}(?=layers\.)"
)
_LAYERED: Final = re.compile(r"layers\.\d")
# What lists really use: names, dots, alternatives, a few wildcards. Anything else could take for ever to match.
_SIMPLE: Final = re.compile(r"(?:\w|-|\\?\.|\.\*|\\d\+?|\[[\w-]{1,20}\]\+?|\((?:\?:)?[\w.|$\\-]{1,200}\)|\^|\$){1,400}")
_MOST_WILDCARDS: Final = 5
# transformers' name of a part -> names that other checkpoints use
_SPELLINGS: Final = (
    (".shared_experts.", (".shared_expert.",)),
    (".mlp.experts.", (".block_sparse_moe.experts.", ".mlp.experts.0.", ".block_sparse_moe.experts.0.", ".ffn.experts.0.")),
    (".mlp.", (".ffn.", ".block_sparse_moe.", ".mixer.", ".feed_forward.")),
    (".self_attn.", (".attn.", ".mixer.", ".attention.")),
    (".linear_attn.", (".mixer.", ".mamba.")),
)  # fmt: skip


class KeptModules:
    """A list of modules to keep; `names_layers` says whether layers are told apart."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self.names_layers = any(_LAYERED.search(pattern) for pattern in patterns)
        self._exact: set[str] = set()
        self._parts: set[str] = set()
        self._beginnings: set[str] = set()
        self._expressions: list[re.Pattern[str]] = []
        for pattern in patterns:
            self._add(pattern.removesuffix(".weight"))

    def _add(self, pattern: str) -> None:
        if pattern.startswith("re:"):
            self._compile(pattern[3:])
            return
        plain = _PREFIXES.sub("", pattern)
        stem = plain.removesuffix("*")
        if not re.search(r"[*?\[]", plain):
            (self._exact if "." in plain else self._parts).add(plain)
        elif stem.startswith("layers.") and not re.search(r"[*?\[]", stem):
            self._beginnings.add(stem)
        else:
            self._compile(self._glob(plain))

    @staticmethod
    def _glob(pattern: str) -> str:
        """Return a glob as an expression that also takes what lies inside a module of that name."""
        inner = pattern.strip("*").replace(".", r"\.").replace("*", ".*").replace("?", ".")
        begin = ".*" if pattern.startswith("*") else "^"
        return begin + inner + (".*" if pattern.endswith("*") else r"(\.|$)")

    def _compile(self, expression: str) -> None:
        if expression.count("*") + expression.count("+") <= _MOST_WILDCARDS and _SIMPLE.fullmatch(expression):
            self._expressions.append(re.compile(expression))

    def has(self, layer: int | None, name: str) -> bool:
        """Whether a module is kept, by its layer (None outside them) and its name inside it.

        >>> KeptModules(["lm_head", "model.layers.*.self_attn", "re:.*shared_experts.*"]).has(3, "self_attn.q_proj")
        True
        """
        full = name if layer is None else f"layers.{layer}.{name}"
        return any(self._has(spelled) for spelled in _spelled(full))

    def _has(self, full: str) -> bool:
        parts = full.split(".")
        if not self._parts.isdisjoint(parts):
            return True
        if self._exact and any(".".join(parts[: i + 1]) in self._exact for i in range(len(parts))):
            return True
        if self._exact and any(
            ".".join(parts[i:j]) in self._exact for i in range(2, len(parts)) for j in range(i + 2, len(parts) + 1)
        ):
            return True
        if self._beginnings and any(full[:i] in self._beginnings for i in range(len("layers."), len(full) + 1)):
            return True
        return any(e.match(full) or e.match(f"model.{full}") for e in self._expressions)


def _spelled(full: str) -> list[str]:
    found = [full]
    for part, others in _SPELLINGS:
        if part in full:
            found += [full.replace(part, other) for other in others]
    return found
