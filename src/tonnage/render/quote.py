r"""Literal words in each format: whatever a name holds, it stays one word there.

Each function takes any text that has no NUL and returns it written so that the format's own reader gives it back.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from tonnage.errors import RequestError

__all__ = ["compose_value", "kubernetes_words", "shell_words", "systemd_word", "systemd_words", "to_yaml"]

_PLAIN: Final = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*(?: [A-Za-z0-9_./-]+)*")
# Words that a YAML 1.1 or 1.2 reader takes for something other than text.
_RESERVED: Final = frozenset(
    ("y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf", ".nan", ".inf")
)


def _checked(text: str) -> str:
    if "\0" in text:
        raise RequestError("a NUL character stands in a name", where=repr(text[:40]), fix="rename it")
    return text


def shell_words(words: Iterable[str]) -> str:
    """Return words as a POSIX shell reads them.

    >>> shell_words(["echo", "it's", "$(id)"])
    'echo \\'it\\'"\\'"\\'s\\' \\'$(id)\\''
    """
    return " ".join(shlex.quote(_checked(word)) for word in words)


def systemd_word(word: str, *, is_command: bool = False) -> str:
    r"""Return one word of a unit file (systemd.syntax, systemd.service: quoting, specifiers, variables).

    In a command `$` is a variable and is doubled; `%` is a specifier everywhere.

    >>> systemd_word("50% of $HOME", is_command=True)
    '"50%% of $$HOME"'
    """
    escaped = _checked(word).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    if is_command:
        escaped = escaped.replace("$", "$$")
    escaped = "".join(c if c.isprintable() or ord(c) > 0x7F else f"\\x{ord(c):02x}" for c in escaped)
    is_bare = re.fullmatch(r"[A-Za-z0-9_./:=,@+%$-]+", escaped) is not None
    return escaped if is_bare else f'"{escaped}"'


def systemd_words(words: Iterable[str]) -> str:
    """Return a command as `ExecStart=` reads it; a lone `;` would end it, so it is escaped."""
    return " ".join('"\\x3b"' if word == ";" else systemd_word(word, is_command=True) for word in words)


def compose_value(value: Any) -> Any:
    """Return a value in which `$` is literal to Compose, which interpolates `$NAME` and takes `$$` for `$`.

    >>> compose_value(["a", {"b": "$c"}])
    ['a', {'b': '$$c'}]
    """
    return _replaced(value, "$", "$$")


def kubernetes_words(words: Iterable[str]) -> list[str]:
    """Return a container's command in which `$(NAME)` is literal: Kubernetes takes `$$` for `$`."""
    return [word.replace("$", "$$") for word in words]


def _replaced(value: Any, old: str, new: str) -> Any:
    if isinstance(value, str):
        return value.replace(old, new)
    if isinstance(value, Mapping):
        return {key: _replaced(held, old, new) for key, held in value.items()}
    if isinstance(value, Sequence):
        return [_replaced(held, old, new) for held in value]
    return value


def to_yaml(value: Any, indent: int = 0) -> str:
    r"""Return mappings, sequences and scalars as YAML; text of several lines as a literal block.

    Parameters
    ----------
    value : mapping, sequence, str, int, float, bool or None
        What is written; keys are text.
    indent : int
        Spaces that a nested block stands in. [1]

    Returns
    -------
    str
        Lines, each with its end; readers of YAML 1.1 and 1.2 give the same value back.

    References
    ----------
    .. [1] YAML 1.2.2, chapter 7.3 (flow scalars) and 8.1 (block scalars).

    Examples
    --------
    >>> print(to_yaml({"on": ["a b", "yes", 1, "$(id)"]}), end="")
    "on":
      - a b
      - "yes"
      - 1
      - "$(id)"
    """
    pad = " " * indent
    if isinstance(value, Mapping):
        return "".join(f"{pad}{_yaml_text(str(key))}:{_yaml_nested(held, indent)}" for key, held in value.items())
    return "".join(f"{pad}-{_yaml_item(held, indent)}" for held in value)


def _yaml_nested(value: Any, indent: int) -> str:
    if isinstance(value, Mapping | list | tuple) and value:
        return "\n" + to_yaml(value, indent + 2)
    if isinstance(value, str) and _is_block(value):
        return _yaml_block(value, indent + 2)
    return f" {_yaml_scalar(value)}\n"


def _yaml_item(value: Any, indent: int) -> str:
    if isinstance(value, Mapping | list | tuple) and value:
        return " " + to_yaml(value, indent + 2).lstrip(" ")
    return _yaml_nested(value, indent)


def _is_block(text: str) -> bool:
    """Whether a literal block gives the text back: lines of printable characters, the first not indented."""
    lines = text.split("\n")
    return (
        len(lines) > 2
        and lines[-1] == ""
        and bool(lines[-2])
        and bool(lines[0])
        and lines[0][0] != " "
        and all(line.isprintable() for line in lines)
    )


def _yaml_block(text: str, indent: int) -> str:
    pad = " " * indent
    return " |\n" + "".join(f"{pad}{line}\n" if line else "\n" for line in text[:-1].split("\n"))


def _yaml_scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{}"
    if isinstance(value, list | tuple):
        return "[]"
    return _yaml_text(value)


def _yaml_text(text: str) -> str:
    if _PLAIN.fullmatch(_checked(text)) and text.lower() not in _RESERVED:
        return text
    return '"' + "".join(_yaml_character(c) for c in text) + '"'


def _yaml_character(c: str) -> str:
    if c in '"\\':
        return "\\" + c
    code = ord(c)
    if c.isprintable():
        return c
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
