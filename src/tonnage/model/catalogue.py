"""Models known by name without a file: `data/models/models.jsonl`, one line of facts a model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Final

from tonnage import datafiles
from tonnage.errors import UnknownNameError
from tonnage.model.hf import model_from_config
from tonnage.model.types import Model, Quantization

_NUM_SUGGESTIONS: Final = 3
# words of a hub id that change nothing in the model's shape, so that people leave them out
_PREFIXES: Final = ("meta-", "nvidia-")
_SUFFIXES: Final = ("-hf", "-instruct", "-it", "-chat", "-base", "-pt")


@cache
def _lines() -> dict[str, str]:
    """Return the catalogue's lines by full name, unparsed: one model needs only one of them."""
    text = datafiles.text("models/models.jsonl")
    return {line.split('"', 4)[3]: line for line in text.splitlines() if line}


@cache
def _spellings() -> dict[str, str]:
    """Return full names by what people may write; what is more exact comes last and wins."""
    short = {name.rpartition("/")[2].casefold(): name for name in reversed(_lines())}
    brief = {_brief(name): full for name, full in sorted(short.items(), key=lambda pair: -len(pair[0]))}
    full = {name.casefold(): name for name in reversed(_lines())}
    renamed = {
        _with_owner(name, change(name.rpartition("/")[2])): of
        for change in (_brief, _bare)
        for name, of in full.items()
    }
    return brief | short | renamed | full


def _bare(name: str) -> str:
    """Return a name without its maker's: `meta-llama-3.1-8b-instruct` is `llama-3.1-8b-instruct`."""
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return name


def _with_owner(full: str, short: str) -> str:
    """Return a short name under the owner of a full one."""
    return f"{full.rpartition('/')[0]}/{short}" if "/" in full else short


def _full_name(name: str) -> str | None:
    """Return the full name of what people wrote, with the maker's name in it or without: hub ids change so."""
    written = name.strip().casefold()
    bare = _with_owner(written, _bare(written.rpartition("/")[2]))
    return _spellings().get(written) or _spellings().get(bare)


def _brief(name: str) -> str:
    """Return a name without the words that people leave out: `meta-llama-3.1-8b-instruct` is `llama-3.1-8b`."""
    name = _bare(name)
    before = ""
    while before != name:
        before = name
        for suffix in _SUFFIXES:
            name = name.removesuffix(suffix)
    return name


def names() -> tuple[str, ...]:
    """Return the full names of the models in the catalogue, in its order."""
    return tuple(_lines())


def has(name: str) -> bool:
    """Whether the catalogue has a model of this name."""
    return _full_name(name) is not None


def find(name: str) -> Model:
    """Return a model of the catalogue.

    Parameters
    ----------
    name : str
        Its hub id, or the part after the slash, in any case; words like `-Instruct` may be left out.

    Returns
    -------
    Model
        With status `catalogue`, or `reconstructed` where the configuration was put together from published figures.

    Raises
    ------
    UnknownNameError
        The catalogue has no such model; with the nearest names.

    Examples
    --------
    >>> find("qwen3.5-27b").name
    'Qwen/Qwen3.5-27B'
    """
    full = _full_name(name)
    if full is None:
        raise UnknownNameError(
            f"no model is called '{name[:80]}'",
            where="model",
            fix="give a config.json, a .gguf, a .safetensors or a hub id",
            suggestions=nearest(name),
        )
    facts = json.loads(_lines()[full])
    model = model_from_config(facts["config"], name=full, source=facts["source"])
    return replace(
        model,
        status="reconstructed" if facts["status"] == "reconstructed" else "catalogue",
        quantization=_quantization(facts.get("quantization")),
    )


def config(name: str) -> Mapping[str, Any]:
    """Return the fields of a catalogue model's config.json that decide its shape."""
    return json.loads(_lines()[_full_name(name) or ""])["config"]


def _quantization(facts: Mapping[str, Any] | None) -> Quantization | None:
    """Return what a line says of the weights' format; None where they are in the model's own type."""
    if facts is None:
        return None
    others = tuple((component, scheme) for component, scheme in facts.get("other_schemes", ()))
    return Quantization(
        scheme=facts["scheme"],
        unquantized=tuple(facts.get("unquantized", ())),
        group_size=facts.get("group_size"),
        other_schemes=others,
    )


def nearest(name: str) -> tuple[str, ...]:
    """Return the names most like one that is not there, the likeliest first: those that go on like it, then others."""
    import difflib  # noqa: PLC0415 - only a wrong name needs it

    wanted = name.strip().casefold()[:80]
    longer = sorted((spelling for spelling in _spellings() if wanted and spelling.startswith(wanted)), key=len)
    close = difflib.get_close_matches(wanted, _spellings(), n=2 * _NUM_SUGGESTIONS, cutoff=0.6)
    return tuple(dict.fromkeys(_spellings()[spelling] for spelling in longer + close))[:_NUM_SUGGESTIONS]
