"""Shell scripts: a head that stops at the first failure, and words that stay words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tonnage.engines.types import Late
from tonnage.render.quote import shell_words

HEAD: Final = "#!/usr/bin/env bash\n"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def comment(text: str, mark: str = "# ") -> str:
    """Return text as comment lines; a line break in a name cannot end the comment.

    >>> comment("one\\ntwo")
    '# one two'
    """
    return mark + " ".join(text.split())


def script(purpose: str, lines: Iterable[str]) -> str:
    """Return a script that says what it is for, runs in its own folder and stops at the first failure."""
    return "\n".join((HEAD + comment(purpose), "set -euo pipefail", 'cd "$(dirname "$0")"', *lines)) + "\n"


def exports(env: Mapping[str, str]) -> list[str]:
    """Return lines that set variables, as given."""
    assert all(_NAME.fullmatch(name) for name in env)
    return [f"export {name}={shell_words([value])}" for name, value in env.items()]


def late_word(word: Late) -> str:
    """Return a word that the shell completes: its variables are expanded, nothing else is.

    >>> late_word(Late("$MASTER_ADDR:29500"))
    '"$MASTER_ADDR:29500"'
    """
    assert re.fullmatch(r"[A-Za-z0-9_:.${}-]*", word), "a late word is one of ours"
    return f'"{word}"'


def command_lines(words: Sequence[str], width: int = 100) -> list[str]:
    """Return a command over several lines, a flag with its values on each."""
    lines = [""]
    for word in words:
        quoted = late_word(word) if isinstance(word, Late) else shell_words([word])
        is_flag = word.startswith("-") and lines != [""]
        if lines[-1] and (is_flag or len(lines[-1]) + len(quoted) > width):
            lines.append("  " + quoted)
        else:
            lines[-1] = f"{lines[-1]} {quoted}".strip() if lines == [""] else f"{lines[-1]} {quoted}"
    return [line + (" \\" if n < len(lines) - 1 else "") for n, line in enumerate(lines)]
