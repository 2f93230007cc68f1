"""The user's defaults: a TOML file with a table for each verb, its keys the verb's flags without their dashes."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

import click

from tonnage.errors import BadFileError

_LARGEST_BYTES: Final = 1 << 20
_EVERYWHERE: Final = ("lang", "quiet", "json")


def path() -> Path:
    """Return where the user's defaults lie."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111  pathlib raises without a home
    return Path(os.environ.get("TONNAGE_CONFIG") or f"{base}/tonnage/config.toml")


def defaults(verb: str, command: click.Command, verbs: Collection[str]) -> dict[str, Any]:
    """Return the defaults of one verb by the names of its parameters.

    Parameters
    ----------
    verb : str
        Its name, that of its table.
    command : click.Command
        What the file may set: its options.
    verbs : collection of str
        All verbs: no other table may stand in the file.

    Returns
    -------
    dict
        Empty where there is no file.

    Raises
    ------
    BadFileError
        Not TOML, a table or key that is none, a value that no option takes.
    """
    found = _read(path())
    where = str(path())
    for name, value in found.items():
        if name not in (*_EVERYWHERE, *verbs):
            raise _unknown(f"[{name}]" if isinstance(value, dict) else name, (*verbs, *_EVERYWHERE), where)
    table = found.get(verb, {})
    if not isinstance(table, dict):
        raise BadFileError(f"{verb} is not a table", where=where, fix=f"write [{verb}] and the settings below it")
    options = {_plain(flag): option for option in command.params for flag in option.opts if flag.startswith("--")}
    set_everywhere = {name: found[name] for name in _EVERYWHERE if name in found and name in options}
    values: dict[str, Any] = {}
    for name, value in {**set_everywhere, **table}.items():
        option = options.get(_plain(name))
        if option is None:
            raise _unknown(f"{name} in [{verb}]", options, where)
        values |= _value(option, name, value, where)
    return values


def _read(place: Path) -> dict[str, Any]:
    try:
        with place.open("rb") as file:
            text = file.read(_LARGEST_BYTES + 1)
        if len(text) > _LARGEST_BYTES:
            raise BadFileError("larger than any settings", where=str(place), fix="mend or remove it")
        import tomllib

        return tomllib.loads(text.decode("utf-8-sig"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadFileError(f"cannot be read: {reason}", where=str(place), fix="mend or remove it") from None


def _plain(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")


def _value(option: click.Parameter, name: str, value: object, where: str) -> dict[str, Any]:
    assert option.name is not None
    if isinstance(option, click.Option) and option.flag_value is not None and isinstance(value, bool):
        is_choice = isinstance(option.flag_value, str)
        if is_choice:
            return {option.name: option.flag_value} if value else {}
    parts = value if isinstance(value, list) else [value]
    if not all(isinstance(part, (str, int, float)) for part in parts) or (
        isinstance(value, list) and not option.multiple
    ):
        raise BadFileError(f"{name} cannot be {str(value)[:40]!r}", where=where, fix="write it as after the flag")
    return {option.name: parts if option.multiple else value}


def _unknown(what: str, known: Collection[str], where: str) -> BadFileError:
    import difflib

    near = difflib.get_close_matches(what.strip("[]").partition(" ")[0].replace("-", "_"), known, n=2, cutoff=0.5)
    fix = f"did you mean {', '.join(near)}?" if near else f"known are {', '.join(sorted(known)[:40])}"
    return BadFileError(f"{what} is not a setting", where=where, fix=fix)
