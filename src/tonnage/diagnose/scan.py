"""Finds the few lines of a large log that a rule may meet, quickly enough for gigabytes.

Logs repeat themselves: without its digits, and the letters that hexadecimal numbers have, a line is one of few *shapes*. A shape is tried once; a line whose shape
held no wanted text before is passed over. What is new is tried against some short texts, at least one of which every
rule's literal holds (data/symptoms/anchors.txt), and only then against the literals themselves and the expressions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final

from tonnage import datafiles
from tonnage.diagnose.symptoms import symptoms
from tonnage.diagnose.types import Pattern, Symptom

DROPPED: Final = b"0123456789abcdef"  # numbers and the letters of addresses and request ids
_LONGEST_LINE: Final = 1 << 20  # a longer line is read in pieces
_LONGEST_SHAPE: Final = 400
_MOST_QUIET: Final = 120_000
_MOST_HOT: Final = 20_000
_MOST_WORDS: Final = 200_000
_MOST_SAME: Final = 500  # lines of one shape that met the same rules; more are counted only
_SEGMENT: Final = re.compile(r"\r|\\n|\\r")
_LONGEST_SEGMENT: Final = 6000
_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-9;:?]{0,40}[ -/]?[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[@-Z\\-_])")


@cache
def compiled(expression: str) -> re.Pattern[str]:
    """Return an expression, compiled once: most are never asked for."""
    return re.compile(expression)


@cache
def key_of(text: str) -> bytes:
    """Return a literal as it stands in a line's shape.

    >>> key_of("exit code 137")
    b'xit o '
    """
    return text.encode().translate(None, DROPPED)


def clean(text: str) -> str:
    """Take the colours and control characters of terminals out of a line."""
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    return "".join(c if c.isprintable() or c == "\t" else " " for c in text) if not text.isprintable() else text


def segments(line: bytes) -> Iterator[str]:
    """Yield the parts of a line: what progress bars wrote over, and lines that were escaped into one."""
    for part in _SEGMENT.split(line.decode("utf-8", errors="replace")):
        if part:
            yield clean(part)


# What a literal's key belongs to: a rule's pattern, or a text that another pattern follows.
Wanted = tuple[bytes, Symptom | None, Pattern | None, str]


def keys(rules: Iterable[Symptom]) -> list[Wanted]:
    """Return the first literal of each pattern as it stands in shapes, with what wants it."""
    wanted: list[Wanted] = []
    for rule in rules:
        for pattern in rule.patterns:
            wanted.append((key_of(pattern.find[0]), rule, pattern, ""))
            if pattern.follows:
                wanted.append((key_of(pattern.follows), None, None, pattern.follows))
    return wanted


def buckets(wanted: Iterable[Wanted]) -> dict[bytes, list[int]]:
    """Return for each short text the places of the keys that hold it, each key under one text only."""
    texts = datafiles.text("symptoms/anchors.txt").encode().split()
    found: dict[bytes, list[int]] = {text: [] for text in texts}
    for i, (key, *_) in enumerate(wanted):
        loose = max(key.split(), key=len)
        found.setdefault(next((text for text in texts if text in key), loose), []).append(i)
    return {text: places for text, places in found.items() if places}


@cache
def index() -> tuple[list[Wanted], dict[bytes, list[int]]]:
    """Return the keys of all rules and their buckets."""
    wanted = keys(symptoms().values())
    return wanted, buckets(wanted)


class Scanner:
    """Holds the rules' literals against lines; one for each run, as it remembers shapes."""

    def __init__(self) -> None:
        self._wanted, self._buckets = index()
        self._literals = [(pattern.find[0] if pattern else mark).encode() for _, _, pattern, mark in self._wanted]
        self._keys = [key for key, *_ in self._wanted]
        self._quiet: set[bytes] = set()
        self._hot: dict[bytes, tuple[int, ...]] = {}
        self._met: dict[bytes, int] = {}
        self._plain_words: set[bytes] = set()
        self._hot_words: dict[bytes, tuple[int, ...]] = {}
        self.num_lines = 0

    def _hot_shapes(self, shapes: Iterable[bytes]) -> dict[bytes, tuple[int, ...]]:
        """Return the shapes that hold a literal, with the rules that want it."""
        new = set(shapes) - self._quiet
        hot = {shape: self._hot[shape] for shape in new if shape in self._hot}
        new.difference_update(hot)
        if not new:
            return hot
        self._learn(b"\n".join(new))
        for shape in new:
            wanting = self._wanting(shape)
            if wanting:
                hot[shape] = wanting
                if len(self._hot) < _MOST_HOT and len(shape) <= _LONGEST_SHAPE:
                    self._hot[shape] = wanting
            elif len(shape) <= _LONGEST_SHAPE:
                if len(self._quiet) >= _MOST_QUIET:
                    self._quiet.clear()
                self._quiet.add(shape)
        return hot

    def _learn(self, together: bytes) -> None:
        """Try every word of some lines that was not met before against the short texts."""
        new = set(together.split()) - self._plain_words
        new.difference_update(self._hot_words)
        if not new:
            return
        if len(self._plain_words) + len(self._hot_words) + len(new) > _MOST_WORDS:
            self._plain_words.clear()
            self._hot_words.clear()
            new = set(together.split())
        joined = b"\n".join(new)
        texts = [item for item in self._buckets.items() if item[0] in joined]
        for word in new:
            places = tuple(i for text, places in texts if text in word for i in places)
            if places:
                self._hot_words[word] = places
            else:
                self._plain_words.add(word)

    def _wanting(self, shape: bytes) -> tuple[int, ...]:
        """Return the keys that a shape holds."""
        hot = self._hot_words
        places = {i for word in set(shape.split()) if word in hot for i in hot[word]}
        return tuple(i for i in places if self._keys[i] in shape) if places else ()

    def lines(self, blocks: Iterable[bytes]) -> Iterator[tuple[int, bytes, bytes, tuple[int, ...]]]:
        """Yield number, bytes, shape and wanting rules of each line that holds a literal; the last item counts lines."""
        number, rest = 1, b""
        for block in blocks:
            data = rest + block
            cut = data.rfind(b"\n") + 1
            if not cut and len(data) < _LONGEST_LINE:
                rest = data
                continue
            whole, rest = (data[: cut - 1], data[cut:]) if cut else (data, b"")
            yield from self._of_block(number, whole)
            number += whole.count(b"\n") + bool(cut)
        if rest:
            yield from self._of_block(number, rest)
            number += 1
        self.num_lines = number - 1

    def _of_block(self, number: int, whole: bytes) -> Iterator[tuple[int, bytes, bytes, tuple[int, ...]]]:
        lines = whole.split(b"\n")
        shapes = [line.translate(None, DROPPED) for line in lines]
        hot = self._hot_shapes(shapes)
        if not hot:
            return
        for i, shape in enumerate(shapes):
            if shape in hot:
                yield number + i, lines[i], shape, hot[shape]

    def hits(self, blocks: Iterable[bytes]) -> Iterator[tuple[str, int, str, dict[str, str]]]:
        """Yield rule id, line number, text and named groups of every line that a rule meets."""
        marks: dict[str, int] = {}
        for number, line, shape, wanting in self.lines(blocks):
            if self._met.get(shape, 0) >= _MOST_SAME:
                continue
            if not any(self._literals[i] in line for i in wanting):
                continue
            met = False
            for text in segments(line):
                for found in self._of_text(text, number, wanting, marks):
                    met = True
                    yield found
            if met and shape in self._hot:
                self._met[shape] = self._met.get(shape, 0) + 1

    def _of_text(
        self, text: str, number: int, wanting: tuple[int, ...], marks: dict[str, int]
    ) -> Iterator[tuple[str, int, str, dict[str, str]]]:
        done: set[str] = set()
        for index in wanting:
            _, rule, pattern, mark = self._wanted[index]
            if rule is None or pattern is None:
                if mark in text:
                    marks[mark] = number
                continue
            if rule.id in done or not all(literal in text for literal in pattern.find):
                continue
            if pattern.follows and number - marks.get(pattern.follows, -(1 << 60)) > pattern.within:
                continue
            part = _around(text, pattern.find[0])
            match = compiled(pattern.regex).search(part) if pattern.regex else None
            if (pattern.regex and not match) or (pattern.unless and compiled(pattern.unless).search(part)):
                continue
            done.add(rule.id)
            yield (
                rule.id,
                number,
                part,
                {k: v for k, v in (match.groupdict() if match else {}).items() if v is not None},
            )


def _around(text: str, literal: str) -> str:
    """Return at most some thousand characters of a text, around a literal that it holds."""
    if len(text) <= _LONGEST_SEGMENT:
        return text
    start = max(0, text.find(literal) - _LONGEST_SEGMENT // 2)
    return text[start : start + _LONGEST_SEGMENT]
