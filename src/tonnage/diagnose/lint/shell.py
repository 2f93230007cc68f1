"""Shell scripts as commands with lines: enough to see what is started with which words, never run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from tonnage.diagnose.lint.types import Command, Edit, Setting

__all__ = ["commands_of", "settings_of", "split_words"]

_ASSIGNMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,99})=(.*)", re.DOTALL)
_EXPORT: Final = ("export", "declare", "typeset", "local", "readonly")
_PREFIXES: Final = frozenset((
    "sudo", "exec", "nohup", "time", "env", "command", "then", "do", "else", "if", "while", "until", "!", "{", "RUN",
    "root", "srun", "nice", "setsid",
))  # fmt: skip
_ENDS: Final = frozenset((";", "&&", "||", "|", "&", "(", ")", ";;", "|&"))
_HEREDOC: Final = re.compile(r"<<-?\s*(['\"]?)([A-Za-z_]\w{0,40})\1")
_LONGEST: Final = 1 << 15
_MOST_JOINED: Final = 200


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with escaped line ends joined, here-documents left out, each with the number of its first line."""
    lines = text.split("\n")
    i = 0
    while i < len(lines):
        start, line = i, lines[i]
        while _continues(line) and i + 1 < len(lines) and i - start < _MOST_JOINED:
            i += 1
            line = line.rstrip()[:-1].rstrip() + " " + _after_comment(lines, i)
        i += 1
        yield start + 1, line
        for mark in _HEREDOC.findall(line):
            while i < len(lines) and lines[i].strip() != mark[1]:
                i += 1
            i += 1


def _continues(line: str) -> bool:
    return line.rstrip().endswith("\\") and not line.lstrip().startswith("#")


def _after_comment(lines: list[str], i: int) -> str:
    """Return a continued line; comments of pasted commands (`\\  # why`) are dropped."""
    return re.sub(r"\\\s+#.*$", "\\\\", lines[i].strip())


def split_words(line: str) -> list[str] | None:
    """Split a line as a shell does; None where a quote is not closed."""
    if len(line) > _LONGEST:
        return None
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|()")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    try:
        return list(lexer)
    except ValueError:
        return None


def commands_of(text: str, first_line: int = 1) -> tuple[Command, ...]:
    """Return the commands of a script, with the assignments in front of each.

    >>> commands_of("A=1 torchrun --nproc-per-node 2 \\\\\\n  train.py && echo done")[0].words
    ('torchrun', '--nproc-per-node', '2', 'train.py')
    """
    found: list[Command] = []
    held = ""
    for number, line in logical_lines(text):
        joined = f"{held}\n{line}" if held else line
        words = split_words(joined)
        if words is None:  # a quote goes on over the line's end: not followed further than a few lines
            held = joined if joined.count("\n") < 40 and len(joined) < _LONGEST else ""
            continue
        held = ""
        at = first_line + number - 1
        part: list[str] = []
        for word in [*words, ";"]:
            if word not in _ENDS:
                part.append(word)
            elif part:
                found += _command(part, at)
                part = []
    return tuple(found)


def _command(words: list[str], line: int) -> Iterator[Command]:
    env: dict[str, str] = {}
    i = 0
    while i < len(words):
        match = _ASSIGNMENT.fullmatch(words[i])
        if match:
            env[match[1]] = match[2]
        elif words[i] in _EXPORT:
            return
        elif words[i] in _PREFIXES:
            while words[i] in ("sudo", "env", "srun", "nice") and i + 1 < len(words) and words[i + 1].startswith("-"):
                i += 1
                if words[i] in ("-u", "-g", "-n") and i + 1 < len(words):
                    i += 1
        elif words[i].startswith("-") and i and words[i - 1] in ("-u", "-n"):
            pass
        else:
            break
        i += 1
    if i < len(words):
        yield Command(words=tuple(words[i:]), env=env, line=line)


def settings_of(text: str, first_line: int = 1) -> tuple[Setting, ...]:
    """Return the variables that a script sets, exported or in front of a command.

    >>> [(s.name, s.value) for s in settings_of("export NCCL_DEBUG=INFO  # loud")]
    [('NCCL_DEBUG', 'INFO')]
    >>> settings_of("echo NCCL_DEBUG=INFO")
    ()
    """
    found: list[Setting] = []
    for number, line in logical_lines(text):
        words = split_words(line)
        if not words:
            continue
        line_at = first_line + number - 1
        is_alone = all(_ASSIGNMENT.fullmatch(w) or w in _EXPORT or w.startswith("-") for w in words)
        one = sum(1 for w in words if _ASSIGNMENT.fullmatch(w)) == 1
        whole = Edit(line=line_at, start=0, end_line=line_at + 1, end=0, text="") if is_alone and one else None
        is_command = False  # behind a command's name an assignment is a word like any other
        for before, word in pairwise(["", *words]):
            match = _ASSIGNMENT.fullmatch(word.removeprefix("--env="))
            if word in _ENDS:
                is_command = False
            elif match and (not is_command or before in ("-e", "--env", "-x") or word.startswith("--env=")):
                found.append(Setting(name=match[1], value=match[2], line=line_at, edit=whole))
            elif not match and word not in _EXPORT and word not in _PREFIXES and not word.startswith("-"):
                is_command = True
    unique = {(s.name, s.value, s.line): s for s in found}
    return tuple(unique.values())
