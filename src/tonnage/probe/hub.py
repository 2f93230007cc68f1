"""The hubs: a model's config.json and the beginnings of its weights, by bounded requests; never a whole weights file.

Hugging Face goes through `huggingface_hub` (an extra) for address, token and cache, so `HF_ENDPOINT`, `HF_TOKEN` and
`HF_HUB_OFFLINE` mean what they mean elsewhere; ModelScope through its HTTP interface.
"""

from __future__ import annotations

import os
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from tonnage.errors import BadFileError, OutsideError
from tonnage.model.safetensors import parse_json
from tonnage.model.types import Model
from tonnage.probe.repository import read_repository

_TIMEOUT_SECONDS: Final = 20.0
_MAX_LIST_BYTES: Final = 64 << 20
_HUGGING_FACE: Final = "https://huggingface.co"
_MODELSCOPE: Final = "www.modelscope.cn"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a server answered: a status, the bytes that were asked for, and the file's size where it says."""

    status: int
    data: bytes
    file_bytes: int | None
    error_code: str = ""


class _KeepToken(urllib.request.HTTPRedirectHandler):
    """Follow a redirect, but give the token to the host that it is meant for only."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        follow = super().redirect_request(req, fp, code, msg, headers, newurl)
        if follow is not None and urllib.parse.urlsplit(newurl).netloc != urllib.parse.urlsplit(req.full_url).netloc:
            follow.headers.pop("Authorization", None)
            follow.unredirected_hdrs.pop("Authorization", None)
        return follow


def get(url: str, num_bytes: int, headers: dict[str, str], *, is_range: bool) -> Reply:
    """Return at most so many bytes from the beginning of what lies at an address."""
    asked = {key: value for key, value in headers.items() if value} | {"Accept-Encoding": "identity"}
    if is_range:
        asked["Range"] = f"bytes=0-{num_bytes - 1}"
    request = urllib.request.Request(url, headers=asked)  # noqa: S310  http or https, checked by `_endpoint`
    opener = urllib.request.build_opener(_KeepToken)
    try:
        with opener.open(request, timeout=_TIMEOUT_SECONDS) as response:
            return Reply(
                status=response.status,
                data=response.read(num_bytes),
                file_bytes=_file_bytes(response.status, response.headers),
            )
    except urllib.error.HTTPError as error:
        with error:
            return Reply(status=error.code, data=b"", file_bytes=None, error_code=error.headers.get("X-Error-Code", ""))
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise OutsideError(
            f"cannot be reached: {str(reason)[:200]}", where=_host(url), fix="check the network, or give a config.json"
        ) from None


def _file_bytes(status: int, headers: Any) -> int | None:
    """Return the size of a file from the headers of an answer."""
    said = headers.get("Content-Range", "").rpartition("/")[2] if status == 206 else headers.get("Content-Length", "")
    return int(said) if said.isascii() and said.isdecimal() and len(said) < 19 else None


def _host(url: str) -> str:
    return urllib.parse.urlsplit(url).netloc


def _endpoint(text: str, default: str) -> str:
    """Return a server's address with its scheme, http or https."""
    address = (text or default).rstrip("/")
    address = address if "://" in address else f"https://{address}"
    if urllib.parse.urlsplit(address).scheme not in ("http", "https"):
        raise OutsideError(f"'{address[:80]}' is not a web address", where="endpoint", fix=f"use {default}")
    return address


@dataclass(frozen=True, slots=True, kw_only=True)
class Hub:
    """A model on the Hugging Face hub or a mirror of it, as a `Repository`."""

    model_id: str
    endpoint: str = _HUGGING_FACE
    headers: dict[str, str] = field(default_factory=dict[str, str])
    is_offline: bool = False
    is_local: bool = False

    @property
    def label(self) -> str:
        """What to call the place in messages."""
        return self.model_id

    def names(self) -> tuple[str, ...]:
        """List the files."""
        if self.is_offline:
            return tuple(sorted(name for name in _USUAL if self._cached(name)))
        reply = self._get(f"{self.endpoint}/api/models/{self.model_id}", _MAX_LIST_BYTES, is_range=False)
        self._check(reply)
        if reply.status != 200:
            raise self._missing()
        siblings = parse_json(reply.data, self.model_id).get("siblings")
        entries = cast("list[Any]", siblings) if isinstance(siblings, list) else []
        found = [cast("dict[str, Any]", entry).get("rfilename") for entry in entries if isinstance(entry, dict)]
        return tuple(sorted(name for name in found if isinstance(name, str)))

    def head(self, name: str, num_bytes: int) -> tuple[bytes, int | None]:
        """Return the beginning of a file and its size."""
        cached = self._cached(name)
        if cached is not None:
            with cached.open("rb") as file:
                return file.read(num_bytes), cached.stat().st_size
        if self.is_offline:
            raise self._offline()
        reply = self._get(self._url(name), num_bytes, is_range=True)
        self._check(reply)
        if reply.status not in (200, 206):
            raise OutsideError(f"answered {reply.status} for {name}", where=_host(self.endpoint), fix="try again later")
        return reply.data, reply.file_bytes

    def whole(self, name: str, most: int) -> bytes | None:
        """Return a small file, or None where there is none of this name."""
        if self.is_offline:
            return self._offline_whole(name, most)
        try:
            reply = self._get(self._url(name), most + 1, is_range=False)
        except OutsideError:
            cached = self._cached(name)
            if cached is None:
                raise
            return cached.read_bytes()
        self._check(reply)
        if reply.status == 404:
            return None
        if reply.status != 200:
            raise OutsideError(f"answered {reply.status} for {name}", where=_host(self.endpoint), fix="try again later")
        return _whole(reply.data, most, f"{self.model_id}/{name}")

    def _offline_whole(self, name: str, most: int) -> bytes | None:
        cached = self._cached(name)
        if cached is not None:
            return _whole(cached.read_bytes(), most, str(cached))
        if not any(self._cached(usual) for usual in _USUAL):
            raise self._offline()
        return None

    def _get(self, url: str, num_bytes: int, *, is_range: bool) -> Reply:
        return get(url, num_bytes, self.headers, is_range=is_range)

    def _url(self, name: str) -> str:
        return f"{self.endpoint}/{self.model_id}/resolve/main/{urllib.parse.quote(name)}"

    def _cached(self, name: str) -> Path | None:
        """Return a file that huggingface_hub has downloaded before."""
        from huggingface_hub import try_to_load_from_cache  # noqa: PLC0415  an extra, and slow to import

        found = try_to_load_from_cache(self.model_id, name)
        return Path(found) if isinstance(found, str) else None

    def _check(self, reply: Reply) -> None:
        """Raise what a refusal means."""
        page = f"{self.endpoint}/{self.model_id}"
        if reply.error_code == "GatedRepo":
            raise OutsideError(
                f"{self.model_id} is gated",
                where=_host(self.endpoint),
                fix=f"accept its licence at {page}, then `hf auth login`, or give its config.json",
            )
        if reply.error_code == "RepoNotFound" or reply.status == 401:
            raise self._missing()
        if reply.status == 403:
            raise OutsideError(
                f"{self.model_id} is not open to this token",
                where=_host(self.endpoint),
                fix=f"see {page}, or `hf auth login`",
            )
        if reply.status == 429 or reply.status >= 500:
            raise OutsideError(
                f"answered {reply.status}",
                where=_host(self.endpoint),
                fix="try again later, or set HF_ENDPOINT to a mirror",
            )

    def _missing(self) -> OutsideError:
        return OutsideError(
            f"there is no model {self.model_id}, or it is private",
            where=_host(self.endpoint),
            fix="check the name, or `hf auth login` for a private one",
        )

    def _offline(self) -> OutsideError:
        return OutsideError(
            f"{self.model_id} is not in the catalogue nor in the cache, and the hub is switched off (HF_HUB_OFFLINE)",
            where=_host(self.endpoint),
            fix="unset HF_HUB_OFFLINE, or give a config.json",
        )


# What a model's repository usually holds; offline, the cache cannot be listed by model.
_USUAL: Final = ("config.json", "model.safetensors", "model.safetensors.index.json")


def _whole(data: bytes, most: int, where: str) -> bytes:
    if len(data) > most:
        raise BadFileError(f"is larger than {most >> 20} MiB", where=where, fix="is it a config.json?")
    return data


def open_hub(model_id: str) -> Hub:
    """Return a model's place on the hub that the environment names."""
    try:
        from huggingface_hub import constants  # noqa: PLC0415  an extra, and slow to import
        from huggingface_hub.utils import build_hf_headers  # noqa: PLC0415
    except ImportError:
        raise OutsideError(
            f"{model_id} is not in the catalogue, and asking the hub needs huggingface_hub",
            where="MODEL",
            fix="pip install 'tonnage[hub]', or give the model's config.json or .gguf",
        ) from None
    return Hub(
        model_id=model_id,
        endpoint=_endpoint(os.environ.get("HF_ENDPOINT", ""), _HUGGING_FACE),
        headers=build_hf_headers(library_name="tonnage"),
        is_offline=bool(constants.HF_HUB_OFFLINE),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelScope:
    """A model on ModelScope, as a `Repository`; `MODELSCOPE_DOMAIN` names another server."""

    model_id: str
    is_local: bool = False

    @property
    def label(self) -> str:
        """What to call the place in messages."""
        return f"modelscope:{self.model_id}"

    @property
    def _address(self) -> str:
        server = _endpoint(os.environ.get("MODELSCOPE_DOMAIN", ""), _MODELSCOPE)
        return f"{server}/api/v1/models/{self.model_id}/repo"

    def names(self) -> tuple[str, ...]:
        """List the files."""
        reply = get(f"{self._address}/files?Revision=master&Recursive=true", _MAX_LIST_BYTES, {}, is_range=False)
        self._check(reply)
        if reply.status != 200:
            raise OutsideError(
                f"there is no model {self.model_id}, or it is private", where=_host(self._address), fix="check the name"
            )
        data = parse_json(reply.data, self.label).get("Data")
        files = cast("dict[str, Any]", data).get("Files") if isinstance(data, dict) else None
        entries = cast("list[Any]", files) if isinstance(files, list) else []
        found = [cast("dict[str, Any]", entry).get("Path") for entry in entries if isinstance(entry, dict)]
        return tuple(sorted(name for name in found if isinstance(name, str)))

    def head(self, name: str, num_bytes: int) -> tuple[bytes, int | None]:
        """Return the beginning of a file and its size."""
        reply = get(self._url(name), num_bytes, {}, is_range=True)
        self._check(reply)
        if reply.status not in (200, 206):
            raise OutsideError(f"answered {reply.status} for {name}", where=_host(self._address), fix="try again later")
        return reply.data, reply.file_bytes

    def whole(self, name: str, most: int) -> bytes | None:
        """Return a small file, or None where there is none of this name."""
        reply = get(self._url(name), most + 1, {}, is_range=False)
        self._check(reply)
        return _whole(reply.data, most, f"{self.label}/{name}") if reply.status == 200 else None

    def _url(self, name: str) -> str:
        return f"{self._address}?Revision=master&FilePath={urllib.parse.quote(name)}"

    def _check(self, reply: Reply) -> None:
        if reply.status in (401, 403):
            raise OutsideError(
                f"{self.model_id} is private or gated", where=_host(self._address), fix="give its config.json instead"
            )
        if reply.status == 429 or reply.status >= 500:
            raise OutsideError(f"answered {reply.status}", where=_host(self._address), fix="try again later")


def read(place: Hub | ModelScope, chosen: str = "") -> Model:
    """Return the model of a hub's repository; `chosen` names one of several GGUF files by a part of its name."""
    return read_repository(place, place.model_id, chosen)
