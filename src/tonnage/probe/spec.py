"""What a MODEL argument means: the catalogue first, then files, then a hub."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from tonnage.errors import OutsideError, RequestError, UnknownNameError
from tonnage.model import catalogue
from tonnage.model.types import Model

if TYPE_CHECKING:
    from tonnage.probe.hub import Hub, ModelScope

_LONGEST: Final = 4096
_MODELSCOPE: Final = "modelscope:"
# A page of a hub as a browser shows it: the repository, a revision, a file.
_PAGE: Final = re.compile(
    r"(?:https?://)?(?:(?P<hub>huggingface\.co|hf\.co|hf-mirror\.com)|(?:www\.)?modelscope\.cn/models)"
    r"/(?P<id>[\w.-]+/[\w.-]+)(?:/(?:tree|blob|resolve|raw|file/view)/(?P<revision>[^/?#]+)(?:/(?P<file>[^?#]*))?"
    r"|/(?:summary|files|discussions|file/view)?)?/?(?:[?#].*)?",
    re.ASCII | re.IGNORECASE,
)
_MAIN: Final = ("main", "master")
_HUB_ID: Final = re.compile(r"(?P<id>[A-Za-z0-9][\w.-]{0,95}/[\w.-]{1,96})(?::(?P<chosen>[\w./-]{1,96}))?", re.ASCII)


def read_spec(spec: str, stdin: BinaryIO | None = None) -> Model:
    """Return the model that a text names."""
    spec = spec.strip()
    if not spec or len(spec) > _LONGEST or not spec.isprintable():
        what = "no model is named" if not spec else f"'{_shown(spec)}' is not a name"
        raise RequestError(what, where="MODEL", fix="name one, as Qwen/Qwen3.5-27B, or give a file")
    if spec != "-" and catalogue.has(spec):
        return catalogue.find(spec)
    if _PAGE.fullmatch(spec) and catalogue.has(named := hub_id_of(spec).removeprefix(_MODELSCOPE)):
        return catalogue.find(named)
    from tonnage.probe import files  # noqa: PLC0415 - the catalogue needs no reader of files

    if spec == "-":
        return files.read_stream(stdin or sys.stdin.buffer)
    path = files.existing_path(spec)
    if path is not None:
        return files.read_path(path)
    if files.looks_like_path(spec) and not _PAGE.fullmatch(spec):
        raise files.refuse_path(spec)
    return _from_hub(hub_id_of(spec))


def hub_id_of(spec: str) -> str:
    """Return the hub id that the address of a page names; anything else as it is."""
    page = _PAGE.fullmatch(spec)
    if page is None:
        if "://" in spec[:12]:
            fix = "give owner/name, or a page of huggingface.co or modelscope.cn"
            raise RequestError(f"'{_shown(spec)}' is no model's page", where="MODEL", fix=fix)
        return spec
    if (page["revision"] or "main").lower() not in _MAIN:
        what = f"the revision '{_shown(page['revision'])}' cannot be chosen"
        raise RequestError(what, where="MODEL", fix=f"give {page['id']}, or a config.json of that revision")
    wanted = page["file"] or ""
    chosen = f":{wanted.removesuffix('.gguf')}" if wanted.endswith(".gguf") else ""
    return f"{'' if page['hub'] else _MODELSCOPE}{page['id']}{chosen}"


def read_config(spec: str) -> Mapping[str, Any]:
    """Return the config.json of the model that a text names, as it is parsed.

    Raises
    ------
    RequestError
        The text names no model with a config.json: standard input, a GGUF file, weights without one.
    """
    spec = spec.strip()
    if _PAGE.fullmatch(spec):
        spec = hub_id_of(spec)
    if catalogue.has(named := spec.removeprefix(_MODELSCOPE)):
        return catalogue.config(named)
    from tonnage.probe import files, repository  # noqa: PLC0415 - the catalogue needs no reader of files

    path = None if spec == "-" else files.existing_path(spec)
    if path is not None and not path.is_dir() and path.suffix != ".json":
        path = path.parent
    if path is not None:
        folder = files.Folder(path=path if path.is_dir() else path.parent)
        name = repository.CONFIG if path.is_dir() or path.name.endswith(".index.json") else path.name
        found = repository.read_json(folder, name)
    else:
        found = (
            None if spec == "-" or files.looks_like_path(spec) else repository.read_json(_hub(spec)[0], "config.json")
        )
    if found is None:
        raise RequestError("there is no config.json", where=_shown(spec), fix="give the model's config.json or folder")
    return found


def _hub(spec: str) -> tuple[Hub | ModelScope, str]:
    """Return the hub's repository that a text names, and the file chosen of it."""
    is_modelscope = spec.lower().startswith(_MODELSCOPE)
    match = _HUB_ID.fullmatch(spec[len(_MODELSCOPE) :] if is_modelscope else spec)
    if (
        match is None
        or any(part[-1] in ".-" or part[0] in ".-" for part in match["id"].split("/"))
        or re.search(r"--|\.\.|\.git$", match["id"])
    ):
        raise UnknownNameError(
            f"no model is called '{_shown(spec)}'",
            where="MODEL",
            fix="a hub id reads owner/name; a file has its path",
            suggestions=catalogue.nearest(spec),
        )
    from tonnage.probe import hub  # noqa: PLC0415 - the catalogue and files need no network

    place = hub.ModelScope(model_id=match["id"]) if is_modelscope else hub.open_hub(match["id"])
    return place, match["chosen"] or ""


def _from_hub(spec: str) -> Model:
    from tonnage.probe import hub  # noqa: PLC0415 - the catalogue and files need no network

    place, chosen = _hub(spec)
    try:
        return hub.read(place, chosen)
    except OutsideError as error:
        close = catalogue.nearest(place.model_id)
        if not close:
            raise
        raise OutsideError(
            error.what, where=error.where, fix=f"{error.fix}; in the catalogue: {', '.join(close)}"
        ) from error


def _shown(spec: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in spec[:80])
