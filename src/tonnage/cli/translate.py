"""Failures and help in Chinese: texts that stand in English where they belong, looked up when they are shown."""

from __future__ import annotations

import inspect
import re
from functools import cache
from importlib import import_module
from typing import Any, Final

import click

from tonnage.messages import language

_FIELD: Final = re.compile(r"\{(\d)\}")
_LONGEST: Final = 2000
_DEEPEST: Final = 3


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], list[int], str], ...]:
    """Return what English texts look like, the ones with most words first, and their Chinese."""
    pairs = import_module("tonnage.messages.errors").MESSAGES.values()
    found = []
    for english, chinese in sorted(pairs, key=lambda pair: -len(_FIELD.sub("", pair[0]))):
        parts = _FIELD.split(english.replace("{{", "\0").replace("}}", "\1"))
        plain = (part.replace("\0", "{").replace("\1", "}") for part in parts[::2])
        form = "(.+?)".join(re.escape(part) for part in plain)
        found.append((re.compile(form, re.DOTALL), [int(number) for number in parts[1::2]], chinese))
    return tuple(found)


def translated(text: str, depth: int = 0) -> str:
    """Return a failure's text in the language in use; what has no translation stays as it is."""
    if language() == "en" or not text or len(text) > _LONGEST or depth > _DEEPEST:
        return text
    for form, order, chinese in _patterns():
        match = form.fullmatch(text)
        if match:
            values = dict(zip(order, match.groups(), strict=True))
            shown = (translated(values[number], depth + 1) for number in sorted(values))
            return chinese.format(*shown)
    return text


@cache
def _helps() -> dict[str, str]:
    return {
        " ".join(english.split()): chinese
        for english, chinese in import_module("tonnage.messages.help").MESSAGES.values()
    }


def helped(text: str) -> str:
    """Return a help text in the language in use, paragraph by paragraph; examples stay as they are."""
    if language() == "en":
        return text
    paragraphs = re.split(r"\n\s*\n", text)
    return "\n\n".join(_helps().get(" ".join(one.split()), one) for one in paragraphs)


_ENGLISH: Final[
    dict[int, tuple[Any, str]]
] = {}  # what help was before; the object is kept so that its id stays its own


def _put(thing: Any) -> None:
    """Put the help of a verb or option into the language in use."""
    if thing is not None and getattr(thing, "help", None):
        thing.help = helped(_ENGLISH.setdefault(id(thing), (thing, inspect.cleandoc(thing.help)))[1])


def put_help(command: click.Command) -> None:
    """Put a verb's help, with its options and its own verbs, into the language in use."""
    if language() == "en" and not _ENGLISH:
        return
    _put(command)
    command.short_help = None
    context = click.Context(command, help_option_names=["-h", "--help"])  # the help option is made once
    for option in (*command.params, command.get_help_option(context)):
        _put(option)
    for inner in getattr(command, "commands", {}).values():
        put_help(inner)
