"""What people read, by id, in English and Chinese.

An id is `area.name`; `messages/<area>.py` holds `MESSAGES = {name: (English, Chinese)}` with `str.format` fields.
A structure test holds both languages to the same fields.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

LANGUAGES = ("en", "zh")
_chosen = ["en"]


def choose_language(language: str) -> None:
    """Set the language of everything said from now on: "en" or "zh"."""
    assert language in LANGUAGES
    _chosen[0] = language


def language() -> str:
    """Return the language in use."""
    return _chosen[0]


def knows(message_id: str) -> bool:
    """Whether there is a message of this id."""
    area, _, name = message_id.partition(".")
    return name in import_module(f"tonnage.messages.{area}").MESSAGES


def say(message_id: str, /, **values: Any) -> str:
    """Return a message in the language in use, its fields filled in."""
    area, _, name = message_id.partition(".")
    pair: tuple[str, str] = import_module(f"tonnage.messages.{area}").MESSAGES[name]
    return pair[LANGUAGES.index(_chosen[0])].format(**values)
