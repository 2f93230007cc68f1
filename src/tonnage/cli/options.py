"""Options that every verb takes: --json, --quiet, --lang."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import click

from tonnage.messages import LANGUAGES, choose_language, language

_SILENT_SECONDS = 1.0
Function = TypeVar("Function", bound=Callable[..., Any])


def locale_language() -> str:
    """Return the language that the environment's locale asks for."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        if value := os.environ.get(name):
            return "zh" if value.lower().startswith("zh") else "en"
    return "en"


def language_asked(arguments: Sequence[str]) -> str:
    """Return the language that a command line asks for, before its options are read: --lang, else the environment."""
    words = [word.partition("=")[2] for word in arguments if word.startswith("--lang=")]
    words += [after for word, after in pairwise(arguments) if word == "--lang"]
    asked = words[0] if words else os.environ.get("TONNAGE_LANG") or locale_language()
    return asked if asked in LANGUAGES else "en"


def _choose(ctx: click.Context, param: click.Parameter, value: str | None) -> str:
    """Set the language that the option or the settings file names; without one that of `language_asked` stays."""
    del ctx, param
    if value is not None:
        choose_language(value)
    return value or language()


def _remember_json(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
    """Tell `main` that failures are objects too: a variable or the settings file may have asked for it."""
    del param
    if isinstance(ctx.obj, dict):
        ctx.obj["is_json"] = value
    return value


def common(function: Function) -> Function:
    """Add the options that every verb takes; the function receives `is_json` and `is_quiet`."""
    for decorate in (
        click.option(
            "--json",
            "is_json",
            is_flag=True,
            is_eager=True,
            envvar="TONNAGE_JSON",
            callback=_remember_json,
            help="One JSON object on standard output, nothing else there.",
        ),
        click.option(
            "-q",
            "--quiet",
            "is_quiet",
            is_flag=True,
            envvar="TONNAGE_QUIET",
            help="Nothing on standard error but failures.",
        ),
        click.option(
            "--lang",
            type=click.Choice(LANGUAGES),
            callback=_choose,
            expose_value=False,
            is_eager=True,
            help="Language of the output; by default the locale's.",
        ),
    ):
        function = decorate(function)
    return function


def emit_json(value: dict[str, Any]) -> None:
    """Print one JSON object with its schema number."""
    write_json({"schema": 1, **value})


def write_json(value: dict[str, Any]) -> None:
    """Print one JSON object, in characters that standard output can hold."""
    is_unicode = "utf" in (getattr(sys.stdout, "encoding", None) or "utf-8").lower()
    print(json.dumps(value, ensure_ascii=not is_unicode, allow_nan=False))


def note(text: str, *, is_quiet: bool) -> None:
    """Say something beside the answer, on standard error."""
    if not is_quiet:
        print(text, file=sys.stderr)


def put_text(path: str, text: str) -> bool:
    """Write a text to a file, whole or not at all, or print it where the path is -; return whether a file was written.

    An earlier file survives a full disk. Devices and pipes are written as they are.
    """
    if path == "-":
        print(text, end="")
        return False
    from tonnage.errors import RequestError
    from tonnage.record.files import replace_text

    place = Path(path)
    try:
        if place.parent.is_dir() and (place.is_file() or not place.exists()):
            replace_text(place.resolve(), text)
        else:
            place.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RequestError(f"cannot be written: {error.strerror}", where=path[:200], fix="name another place") from None
    return True


@contextmanager
def waiting(text: str, *, is_quiet: bool) -> Iterator[None]:
    """Say to who sits before a terminal what takes longer than a second."""
    if is_quiet or not sys.stderr.isatty():
        yield
        return
    import threading

    timer = threading.Timer(_SILENT_SECONDS, note, (text,), {"is_quiet": False})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def wants_colour() -> bool:
    """Whether to colour: a terminal, and neither NO_COLOR nor a dumb one."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
