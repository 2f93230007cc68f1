"""Which device is meant by a name as people write it: "4080", "NVIDIA A100-SXM4-80GB", "M2 Ultra", "2x RTX 3090".

A name falls into tokens. Those that tell one device from another (4080, ti, super, m2) must agree exactly; maker, brand,
form factor and memory size may be left out, and where they are given they must not contradict.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache

from tonnage import datafiles
from tonnage.errors import RequestError, UnknownNameError
from tonnage.nouns import noun
from tonnage.units import GIB

GPUS = "hardware/gpus.csv"
_LONGEST_NAME = 120
_MOST_DEVICES = 100_000
_SIZE_TOLERANCE = 0.04  # 16376 MiB, "16 GB" and "15.99 GiB" are one size

# Words that may be left out of a name; a query that has one must not contradict the device's own.
_BRANDS = {
    "nvidia", "amd", "intel", "apple", "huawei", "google", "aws", "geforce", "radeon", "rtx", "gtx", "rx", "arc", "quadro",
    "tesla", "instinct", "ascend",
}  # fmt: skip
_FORMS = {"sxm", "pcie", "nvl", "oam", "hbm2", "hbm2e", "hbm3", "hbm3e", "gddr5", "gddr6", "gddr6x", "gddr7"}
_IGNORED = {
    "gpu", "gpus", "graphics", "card", "cards", "generation", "gen", "edition", "corporation", "inc", "r", "tm", "device",
    "accelerator", "core", "cores", "the", "with", "of", "per", "hgx", "dgx", "integrated", "unified", "memory", "mac",
    "studio", "mini", "macbook", "imac", "ati", "nvlink", "desktop", "one", "version", "budget", "on", "blackwell",
}  # fmt: skip
_SYNONYMS = {
    "sxm2": "sxm", "sxm3": "sxm", "sxm4": "sxm", "sxm5": "sxm", "sxm6": "sxm", "mobile": "laptop", "notebook": "laptop",
    "modded": "mod", "modified": "mod", "ws": "workstation", "se": "server",
}  # fmt: skip
_COUNT = re.compile(
    r"^\s*(\d{1,9})\s*[x×*]\s*(?!tx?\b)(?=[A-Za-z]|\d{4})|(?:\s*:\s*|\s+[x×*]\s*|(?<=\d)[x×])(\d{1,9})\s*$",
    re.IGNORECASE,
)


@noun
class Match:
    """What a name stands for: a row, the memory size said, and what the name left open."""

    slug: str
    sold_bytes: int | None = None  # the size said, where the device comes in several
    assumed: str = ""  # "SXM4, 80 GB": settled by custom, not by the name


@noun
class _Known:
    """A device's name in tokens: `needed` tell it apart, `allowed` may also be said."""

    slug: str
    needed: frozenset[str]
    allowed: frozenset[str]
    sizes: tuple[float, ...]
    is_unofficial: bool

    def has_size(self, word: str) -> bool:
        """Whether a size such as "24gb" is one of this device's."""
        said = _gib(word)
        return any(abs(said - own) <= _SIZE_TOLERANCE * own for own in self.sizes)


def _words(text: str) -> list[str]:
    text = text.lower().replace("\u2011", "-").replace("macbook pro", " ").replace("mac pro", " ")
    text = re.sub(r"\bmax-?\s?q\b", "maxq", text)
    text = re.sub(r"(?<![a-z0-9.])(\d+(?:\.\d+)?)\s*g(?:i?b)?\b", r" \1gb ", text)
    text = re.sub(r"\b(\d{4})m\b", r"\1 laptop", text)
    text = re.sub(r"(\d+)\s*-?\s*(?:gpu\s*)?cores?\b", r" \1core ", text)
    text = re.sub(r"\b(rtx|gtx|rx|arc|geforce|radeon|tesla|quadro|instinct|ascend)(?=[a-z]?\d)", r"\1 ", text)
    text = re.sub(r"(ti)(super)\b", r"\1 \2", text)
    text = re.sub(r"(?<=\d)(ti|super|xtx|xt|gre|d)\b", r" \1", text)
    text = re.sub(r"[^a-z0-9.+]+", " ", text)
    return [_SYNONYMS.get(w.strip("."), w.strip(".")) for w in text.split() if w.strip(".")]


def _is_size(word: str) -> bool:
    return re.fullmatch(r"\d+(\.\d+)?gb", word) is not None


def _gib(word: str) -> float:
    return float(word.removesuffix("gb"))


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9+]+", "", text.lower())


def _sizes(row: Mapping[str, str]) -> tuple[float, ...]:
    said = [row["memory_gb"], *row["memory_options_gb"].split("|"), *row["also_sold_as_gb"].split("|")]
    reported = [float(row["memory_mib"]) / 1024] if row["memory_mib"] else []
    return tuple(float(s) for s in said if s) + tuple(reported)


def _known_name(row: Mapping[str, str], name: str) -> _Known:
    words = set(_words(name))
    optional = {w for w in words if w in _BRANDS | _FORMS | _IGNORED or _is_size(w) or w == "mod"}
    if row["vendor"] in ("AMD", "Intel"):
        optional |= {"pro"}
    about = {row["vendor"].lower(), row["architecture"].lower()}
    about |= {*_words(row["form_factor"]), *_words(row["memory_type"])}
    if row["vendor"] == "NVIDIA" and row["form_factor"] in ("PCIe", "laptop"):
        about |= {"geforce"} & set(_words(row["name"])) | {"rtx", "tesla"} - ({"rtx"} if "gtx" in words else set())
    if row["is_unofficial"] == "yes":
        about.add("mod")
    return _Known(
        slug=row["slug"],
        needed=frozenset(words - optional),
        allowed=frozenset(words | about | _IGNORED),
        sizes=_sizes(row),
        is_unofficial=row["is_unofficial"] == "yes",
    )


@cache
def _names() -> tuple[_Known, ...]:
    return tuple(
        _known_name(row, name)
        for row in datafiles.rows(GPUS)
        for name in (row["name"], *row["aliases"].split("|"))
        if name
    )


@cache
def _exact() -> dict[str, str]:
    """Return names without spaces and signs that belong to one device only."""
    owners: dict[str, set[str]] = {}
    for row in datafiles.rows(GPUS):
        for name in (row["name"], *row["aliases"].split("|")):
            if name:
                owners.setdefault(_plain(name), set()).add(row["slug"])
    names = {name: slugs.pop() for name, slugs in owners.items() if len(slugs) == 1}
    return names | {_plain(row["slug"]): row["slug"] for row in datafiles.rows(GPUS)}


@cache
def _rows() -> dict[str, dict[str, str]]:
    return {row["slug"]: row for row in datafiles.rows(GPUS)}


def row_of(slug: str) -> Mapping[str, str]:
    """Return the row of a slug that is known to exist."""
    return _rows()[slug]


def _matching(words: Iterable[str]) -> list[str]:
    said = [w for w in words if w not in _IGNORED]
    sizes = {w for w in said if _is_size(w)}
    rest = set(said) - sizes
    found = [
        known
        for known in _names()
        if known.needed and known.needed <= rest <= known.allowed and (not sizes or any(map(known.has_size, sizes)))
    ]
    official = [known for known in found if not known.is_unofficial or "mod" in rest]
    return list(dict.fromkeys(known.slug for known in official or found))


def split_count(text: str) -> tuple[str, int]:
    """Split "2x RTX 3090", "rtx-3090:2" or "RTX 3090 x2" into the name and the number.

    >>> split_count("2x RTX 3090"), split_count("h100-sxm5:8"), split_count("4080")
    (('RTX 3090', 2), ('h100-sxm5', 8), ('4080', 1))
    """
    match = _COUNT.search(text)
    if match is None:
        return text.strip(), 1
    count = int(match[1] or match[2])
    name = (text[: match.start()] + text[match.end() :]).strip()
    if not 1 <= count <= _MOST_DEVICES or not name:
        raise RequestError(f"'{text[:60]}' is not a device and a number", where="gpu", fix='write it like "rtx-3090:2"')
    return name, count


def suggestions(query: str, limit: int = 5) -> tuple[str, ...]:
    """Return the slugs that come nearest to a name, best first."""
    from difflib import SequenceMatcher  # noqa: PLC0415  only a wrong name needs it

    words = {w for w in _words(query) if w not in _IGNORED}
    shared: dict[str, float] = {}
    for known in _names():
        score = len(words & known.needed) / max(len(words | known.needed), 1)
        shared[known.slug] = max(score, shared.get(known.slug, 0.0))
    plain = _plain(query)
    scored = [(max(SequenceMatcher(None, plain, _plain(slug)).ratio(), score), slug) for slug, score in shared.items()]
    best = sorted(scored, key=lambda pair: (-pair[0], pair[1]))[:limit]
    return tuple(slug for score, slug in best if score >= 0.5)


def resolve(query: str) -> Match:
    """Return the device a name stands for.

    Raises
    ------
    UnknownNameError
        Nothing by that name, or more than one; the suggestions say which.
    """
    if len(query) > _LONGEST_NAME or not _plain(query):
        raise UnknownNameError(f"'{query[:60]}' is not the name of a device", where="gpu", fix="see: tonnage gpus")
    if slug := _exact().get(_plain(query)):
        return _match(slug, query)
    for text in (query, re.sub(r"\([^)]*\)", " ", query)):
        found = _matching(_words(text))
        if len(found) == 1:
            return _match(found[0], text)
        if found:
            return _choose(query, found)
    raise UnknownNameError(
        f"no device is named '{query[:60]}'", where="gpu", fix="see: tonnage gpus", suggestions=suggestions(query)
    )


def _match(slug: str, text: str, assumed: str = "") -> Match:
    """Return a match, with the memory size said or assumed where the device comes in several."""
    row = row_of(slug)
    options = [float(s) for s in row["memory_options_gb"].split("|") if s]
    if not options:
        return Match(slug=slug, assumed=assumed)
    said = [_gib(w) for w in _words(text) if _is_size(w)]
    if said:
        nearest = min(options, key=lambda option: abs(option - said[0]))
        return Match(slug=slug, sold_bytes=round(nearest * GIB), assumed=assumed)
    left_open = f"{row['memory_gb']} GB" if len(options) > 1 else ""
    return Match(slug=slug, assumed=", ".join(filter(None, (assumed, left_open))))


def _choose(query: str, found: list[str]) -> Match:
    """Settle a name that leaves the variant open, where a usual one is on record; else ask."""
    words = set(_words(query))
    for row in datafiles.rows("hardware/usual_variants.csv"):
        if row["slug"] in found and set(_words(row["name"])) <= words:
            return _match(row["slug"], query, row["assumed"])
    raise UnknownNameError(
        f"'{query[:60]}' may mean {len(found)} devices", where="gpu", fix="name one", suggestions=tuple(found[:6])
    )
