"""What a check is: the kinds that it looks at, and a function from a document to hits."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator

from tonnage.diagnose.lint.seen import Seen
from tonnage.diagnose.lint.types import Command, Definitions, Hit, Kind
from tonnage.nouns import noun

__all__ = ["Check", "Context", "alike", "basename", "is_script"]

_MOST_ALIKE = 3


@noun
class Context:
    """What a check may know beside its document: names that are defined, and every document of the call."""

    known: Definitions
    seen: tuple[Seen, ...]

    def commands(self) -> Iterator[tuple[Seen, Command]]:
        """Yield every command of every document."""
        for one in self.seen:
            for command in one.commands:
                yield one, command

    def named(self, file: str) -> Iterator[Seen]:
        """Yield the documents whose file has this name, whatever its folder."""
        wanted = basename(file)
        for one in self.seen:
            if basename(one.document.file) == wanted:
                yield one

    def scripts(self, place: Seen, script: str) -> Iterator[Seen]:
        """Yield the scripts that a launch line starts: those of the name, else the snippets of its own page."""
        found = list(self.named(script))
        if not found and not is_script(place.document.file):
            found = [one for one in self.seen if one.document.file == place.document.file and one.code is not None]
        yield from found


@noun
class Check:
    """One check; the rules whose hits it may yield are named, so that every rule has a finder."""

    rules: tuple[str, ...]
    kinds: frozenset[Kind]
    find: Callable[[Seen, Context], Iterator[Hit]]


def alike(name: str, known: frozenset[str] | set[str], least: float = 0.75) -> tuple[str, ...]:
    """Return the known names most like one that is not known.

    >>> alike("gradient_acumulation_steps", {"gradient_accumulation_steps", "seed"})
    ('gradient_accumulation_steps',)
    """
    return tuple(difflib.get_close_matches(name[:80], sorted(known), n=_MOST_ALIKE, cutoff=least))


def is_script(file: str) -> bool:
    """Whether a file is one script, not a page of snippets."""
    return file.endswith((".py", ".sh", ".bash", ".sbatch"))


def basename(path: str) -> str:
    """Return the last part of a path."""
    return path.replace("\\", "/").rstrip("/").rpartition("/")[2]
