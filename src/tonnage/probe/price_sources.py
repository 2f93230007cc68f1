"""The public price catalogues: fetched over the web into the person's price file, within limits of size and time."""

from __future__ import annotations

import io
import os
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from tonnage.errors import BadFileError, OutsideError, RequestError
from tonnage.hardware.price_catalogues import read_euro_rates, read_gpuhunt, read_skypilot
from tonnage.hardware.price_tables import PriceTable, joined, provider_name, without_providers
from tonnage.probe.prices import read_own, today, write_own

_LARGEST_DOWNLOAD_BYTES: Final = 64 << 20
_LARGEST_TABLE_BYTES: Final = 256 << 20
_LONGEST_VERSION_BYTES: Final = 256
_CHUNK_BYTES: Final = 1 << 16
_TIMEOUT_SECONDS: Final = 20.0
_LONGEST_FETCH_SECONDS: Final = 180.0

# gpuhunt publishes a catalogue for each provider; those that it asks live are not among them. SkyPilot's file of GCP
# splits the price of GPU and host and is left out.
_GPUHUNT: Final = "https://dstack-gpu-pricing.s3.eu-west-1.amazonaws.com/v3"
_GPUHUNT_PROVIDERS: Final = ("aws", "azure", "gcp", "lambdalabs", "nebius", "oci", "runpod", "verda", "cloudrift")
_SKYPILOT: Final = "https://raw.githubusercontent.com/skypilot-org/skypilot-catalog/master/catalogs/v8"
_SKYPILOT_PROVIDERS: Final = (
    "vast",
    "shadeform",
    "aws",
    "lambda",
    "nebius",
    "oci",
    "runpod",
    "verda",
    "seeweb",
    "hyperstack",
)
_ECB: Final = "https://www.ecb.europa.eu/stats/eurofxref/eurofxref-daily.xml"
SOURCES: Final = ("gpuhunt", "skypilot", "ecb")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """What came of one catalogue."""

    source: str
    provider: str
    address: str
    table: PriceTable = field(default_factory=PriceTable)
    fault: str = ""


def refresh(sources: Iterable[str] = SOURCES, say: Callable[[Fetched], None] = lambda _: None) -> tuple[Fetched, ...]:
    """Fetch the public catalogues into the person's file; what fails keeps its older prices.

    Parameters
    ----------
    sources : iterable of str
        gpuhunt, skypilot, ecb. Of a provider in both catalogues the first that answers counts.
    say : callable
        Told of each as it comes.

    Returns
    -------
    tuple of Fetched
        What came of each.

    Raises
    ------
    OutsideError
        Nothing at all could be fetched: the file is as it was.
    BadFileError
        The person's own file is broken: nothing is overwritten.
    """
    old = read_own()
    day, done, results = today(), set[str](), list[Fetched]()
    for source, provider, fetch in _tasks(sources, day):
        if provider in done:
            continue
        try:
            address, table = fetch()
            fault = "" if table.num_prices else "holds no price that could be read"
        except (OutsideError, BadFileError) as error:
            address, table, fault = error.where, PriceTable(), error.what
        result = Fetched(source=source, provider=provider, address=address, table=table, fault=fault)
        if not fault:
            done.add(provider)
        say(result)
        results.append(result)
    if not done:
        first = results[0] if results else None
        what = f"no catalogue could be fetched: {first.fault}" if first else "nothing to fetch"
        fix = "check the network or a proxy; `tonnage prices import FILE` takes prices of your own"
        raise OutsideError(what, where=first.address if first else "", fix=fix)
    new = PriceTable()
    for result in results:
        new = joined(new, result.table)
    write_own(joined(without_providers(old, (r.provider for r in results if not r.fault)), new))
    return tuple(results)


Task = tuple[str, str, Callable[[], tuple[str, PriceTable]]]


def _tasks(sources: Iterable[str], day: str) -> list[Task]:
    """Return what to fetch: source, provider, and how."""
    tasks: list[Task] = []
    for source in sources:
        if source == "gpuhunt":
            tasks += [(source, provider_name(p), _gpuhunt(p, day)) for p in _GPUHUNT_PROVIDERS]
        elif source == "skypilot":
            tasks += [(source, provider_name(p), _skypilot(p, day)) for p in _SKYPILOT_PROVIDERS]
        elif source == "ecb":
            tasks.append((source, source, _rates))
        else:
            raise RequestError(f"'{source[:40]}' is no source", where="--source", fix=f"one of {', '.join(SOURCES)}")
    return tasks


def _base(variable: str, default: str) -> str:
    """Return a catalogue's address, which the environment may set to a mirror."""
    address = (os.environ.get(variable) or default).rstrip("/")
    if urllib.parse.urlsplit(address).scheme not in ("http", "https"):
        raise RequestError(f"'{address[:80]}' is no web address", where=variable, fix=f"use {default}")
    return address


def _gpuhunt(provider: str, day: str) -> Callable[[], tuple[str, PriceTable]]:
    def fetched() -> tuple[str, PriceTable]:
        base = f"{_base('TONNAGE_GPUHUNT_URL', _GPUHUNT)}/{provider}"
        version = download(f"{base}/version", _LONGEST_VERSION_BYTES).decode("ascii", "replace").strip()
        if not version.replace("-", "").replace(".", "").isalnum():
            raise OutsideError("the catalogue's version is none", where=f"{base}/version", fix="try again later")
        address = f"{base}/{version}/catalog.zip"
        text = _member(download(address, _LARGEST_DOWNLOAD_BYTES), f"{provider}.csv", address)
        return address, read_gpuhunt(text, provider, day)

    return fetched


def _skypilot(provider: str, day: str) -> Callable[[], tuple[str, PriceTable]]:
    def fetched() -> tuple[str, PriceTable]:
        address = f"{_base('TONNAGE_SKYPILOT_URL', _SKYPILOT)}/{provider}/vms.csv"
        text = download(address, _LARGEST_DOWNLOAD_BYTES).decode("utf-8", "replace")
        return address, read_skypilot(text, provider, day)

    return fetched


def _rates() -> tuple[str, PriceTable]:
    address = _base("TONNAGE_ECB_URL", _ECB)
    return address, read_euro_rates(download(address, 1 << 20).decode("utf-8", "replace"))


def _member(data: bytes, name: str, address: str) -> str:
    """Return one file of a zip archive; its size unpacked is limited as well."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive, archive.open(name) as member:
            unpacked = member.read(_LARGEST_TABLE_BYTES + 1)
    except (zipfile.BadZipFile, KeyError, OSError, ValueError, NotImplementedError, RuntimeError, EOFError) as error:
        what = f"is no archive that holds {name}: {str(error)[:80]}"
        raise BadFileError(what, where=address, fix="try again later") from None
    if len(unpacked) > _LARGEST_TABLE_BYTES:
        raise BadFileError(f"{name} unpacks to more than 256 MiB", where=address, fix="try again later")
    return unpacked.decode("utf-8", "replace")


class _WebOnly(urllib.request.HTTPRedirectHandler):
    """Follow redirects to the web only."""

    def redirect_request(
        self, req: urllib.request.Request, fp: object, code: int, msg: str, headers: object, newurl: str
    ) -> urllib.request.Request | None:
        if urllib.parse.urlsplit(newurl).scheme not in ("http", "https"):
            return None
        return super().redirect_request(req, fp, code, msg, headers, newurl)  # pyright: ignore[reportArgumentType]


def download(address: str, most: int) -> bytes:
    """Return what lies at an address, at most so many bytes, within three minutes.

    Raises
    ------
    OutsideError
        Unreachable, refused, too slow or too large.
    """
    host = urllib.parse.urlsplit(address).netloc
    request = urllib.request.Request(address, headers={"User-Agent": "tonnage", "Accept-Encoding": "identity"})  # noqa: S310  checked by `_base`
    opener = urllib.request.build_opener(_WebOnly)
    until = time.monotonic() + _LONGEST_FETCH_SECONDS
    chunks: list[bytes] = []
    received = 0
    try:
        with opener.open(request, timeout=_TIMEOUT_SECONDS) as response:
            while chunk := response.read(_CHUNK_BYTES):
                received += len(chunk)
                chunks.append(chunk)
                if received > most:
                    raise OutsideError(
                        f"sent more than {most >> 10} KiB", where=host, fix="it is not what is expected there"
                    )
                if time.monotonic() > until:
                    raise OutsideError("sent too slowly", where=host, fix="try again later")
            said = response.headers.get("Content-Length", "")
    except urllib.error.HTTPError as error:
        with error:
            raise OutsideError(f"answered {error.code}", where=host, fix="try again later") from None
    except (OSError, ValueError, EOFError) as error:
        reason = getattr(error, "reason", None) or error
        raise OutsideError(f"cannot be reached: {str(reason)[:120]}", where=host, fix="check the network") from None
    if said.isascii() and said.isdecimal() and int(said) != received:
        raise OutsideError("broke off", where=host, fix="try again later")
    return b"".join(chunks)
