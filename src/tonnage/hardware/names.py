"""Which device is meant by a name as people write it: "4080", "NVIDIA A100-SXM4-80GB", "M2 Ultra", "2x RTX 3090".

A name falls into tokens. Those that tell one device from another (4080, ti, super, m2) must agree exactly; maker, brand,
form factor and memory size may be left out, and where they are given they must not contradict.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from tonnage import datafiles
from tonnage.errors import RequestError, UnknownNameError

GPUS = "hardware/gpus.csv"
_LONGEST_NAME = 120

# Words that may be left out of a name. A query that has one must not contradict the device's own.
_BRANDS = frozenset(
    [
        "nvidia",
        "amd",
        "ati",
        "intel",
        "apple",
        "huawei",
        "google",
        "aws",
        "geforce",
        "radeon",
        "rtx",
        "gtx",
        "rx",
        "arc",
        "quadro",
        "tesla",
        "instinct",
        "ascend",
        "pro",
    ]
)
_FORMS = frozenset(
    ["sxm", "pcie", "nvl", "oam", "pg506", "hbm2", "hbm2e", "hbm3", "hbm3e", "gddr5", "gddr6", "gddr6x", "gddr7"]
)
_IGNORED = frozenset(
    [
        "gpu",
        "gpus",
        "graphics",
        "card",
        "cards",
        "generation",
        "gen",
        "edition",
        "corporation",
        "inc",
        "r",
        "tm",
        "accelerator",
        "core",
        "cores",
        "device",
        "the",
        "hgx",
        "dgx",
        "integrated",
        "unified",
        "memory",
        "with",
        "of",
        "per",
        "version",
        "mac",
        "studio",
        "mini",
        "macbook",
        "imac",
        "book",
    ]
)
_SYNONYMS = {
    "sxm2": "sxm", "sxm3": "sxm", "sxm4": "sxm", "sxm5": "sxm", "sxm6": "sxm", "pcie5": "pcie", "pcie4": "pcie",
    "mobile": "laptop", "notebook": "laptop", "modded": "mod", "modified": "mod", "ws": "workstation",
    "se": "server", "spark": "spark", "geforcertx": "rtx", "maxq": "maxq",
}  # fmt: skip
_COUNT = re.compile(r"^\s*(\d{1,6})\s*[x×*]\s*(?=[A-Za-z])|(?:\s*:\s*|\s+[x×*]\s*)(\d{1,6})\s*$", re.IGNORECASE)
_SIZE_TOLERANCE = 0.04  # 16376 MiB, "16 GB" and "15.99 GiB" are one size


def _words(text: str) -> list[str]:
    text = text.lower().replace("‑", "-").replace("macbook pro", " ").replace("mac pro", " ")
    text = re.sub(r"\bmax-?\s?q\b", "maxq", text)
    text = re.sub(r"(\d+(?:\.\d+)?)\s*gi?b\b", r" \1gb ", text)
    text = re.sub(r"(\d+)\s*-?\s*(?:gpu\s*)?cores?\b", r" \1core ", text)
    text = re.sub(r"\b(rtx|gtx|rx|arc|geforce|radeon|tesla|quadro|instinct|ascend)(?=[a-z]?\d)", r"\1 ", text)
    text = re.sub(r"(?<=\d)(ti|super|xtx|xt|gre)\b", r" \1", text)
    text = re.sub(r"\b(ti)(super)\b", r"\1 \2", text)
    text = re.sub(r"[^a-z0-9.+]+", " ", text)
    return [_SYNONYMS.get(w.strip("."), w.strip(".")) for w in text.split() if w.strip(".")]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A device's name in tokens: `needed` tell it apart, `allowed` may also be said."""

    slug: str
    needed: frozenset[str]
    allowed: frozenset[str]
    sizes: tuple[float, ...]
    is_unofficial: bool

    def has_size(self, word: str) -> bool:
        """Whether a size such as "24gb" is one of this device's."""
        said = float(word.removesuffix("gb"))
        return any(abs(said - own) <= _SIZE_TOLERANCE * own for own in self.sizes)


def _is_size(word: str) -> bool:
    return re.fullmatch(r"\d+(\.\d+)?gb", word) is not None


def _known_name(row: dict[str, str], name: str) -> _Known:
    words = set(_words(name))
    sizes = [float(row["memory_gb"]), *(float(s) for s in row["memory_options_gb"].split("|") if s)]
    if row["memory_mib"]:
        sizes.append(float(row["memory_mib"]) / 1024)
    optional = {w for w in words if w in _BRANDS or w in _FORMS or _is_size(w) or w in _IGNORED or w == "mod"}
    about = {
        row["vendor"].lower(),
        row["architecture"].lower(),
        *_words(row["form_factor"]),
        *_words(row["memory_type"]),
    }
    about |= {w for w in _BRANDS if w in words} | {"geforce", "rtx"} & _family(row)
    return _Known(
        slug=row["slug"],
        needed=frozenset(words - optional),
        allowed=frozenset(words | about | _IGNORED),
        sizes=tuple(sizes),
        is_unofficial=row["is_unofficial"] == "yes",
    )


def _family(row: dict[str, str]) -> set[str]:
    """Brand words that people add to this maker's cards."""
    return {"NVIDIA": {"geforce", "rtx", "nvidia", "tesla"}}.get(row["vendor"], set())


@cache
def _names() -> tuple[_Known, ...]:
    known: list[_Known] = []
    for row in datafiles.rows(GPUS):
        known += [_known_name(row, name) for name in (row["name"], *row["aliases"].split("|")) if name]
    return tuple(known)


@cache
def _exact() -> dict[str, str]:
    names = {_plain(row["slug"]): row["slug"] for row in datafiles.rows(GPUS)}
    for row in datafiles.rows(GPUS):
        for name in (row["name"], *row["aliases"].split("|")):
            names.setdefault(_plain(name), row["slug"])
    return names


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9+]+", "", text.lower())


def _matching(words: Iterable[str]) -> list[str]:
    said = [w for w in words if w not in _IGNORED]
    sizes = {w for w in said if _is_size(w)}
    rest = set(said) - sizes
    found: list[_Known] = []
    for known in _names():
        fits = known.needed and known.needed <= rest <= known.allowed and all(map(known.has_size, sizes))
        if fits and known not in found:
            found.append(known)
    official = [known for known in found if not known.is_unofficial]
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
    if count < 1 or not name:
        raise RequestError(f"'{text[:60]}' is not a device and a number", where="gpu", fix='write it like "rtx-3090:2"')
    return name, count


def suggestions(query: str, limit: int = 5) -> tuple[str, ...]:
    """Return the slugs that come nearest to a name, best first."""
    words = {w for w in _words(query) if w not in _IGNORED}
    scored: list[tuple[float, str]] = []
    for row in datafiles.rows(GPUS):
        slug = row["slug"]
        near = difflib.SequenceMatcher(None, _plain(query), _plain(slug)).ratio()
        shared = max(len(words & k.needed) / len(words | k.needed) for k in _names() if k.slug == slug)
        scored.append((max(near, shared), slug))
    best = sorted(scored, key=lambda pair: (-pair[0], pair[1]))[:limit]
    return tuple(slug for score, slug in best if score >= 0.5)


def resolve(query: str) -> tuple[str, str]:
    """Return the slug a name stands for, and what had to be assumed ("" when nothing was left open).

    Raises
    ------
    UnknownNameError
        Nothing by that name, or more than one; the suggestions say which.
    """
    if len(query) > _LONGEST_NAME or not _plain(query):
        raise UnknownNameError(f"'{query[:60]}' is not the name of a device", where="gpu", fix="see: tonnage gpus")
    if slug := _exact().get(_plain(query)):
        return slug, ""
    bare = re.sub(r"\([^)]*\)", " ", query)
    for text in (query, bare):
        found = _matching(_words(text))
        if len(found) == 1:
            return found[0], ""
        if found:
            return _choose(query, found)
    raise UnknownNameError(
        f"no device is named '{query[:60]}'", where="gpu", fix="see: tonnage gpus", suggestions=suggestions(query)
    )


def _choose(query: str, found: list[str]) -> tuple[str, str]:
    """Settle a name that leaves the variant open, where a usual one is on record; else ask."""
    for row in datafiles.rows("hardware/usual_variants.csv"):
        if row["slug"] in found and set(_words(row["name"])) <= set(_words(query)):
            return row["slug"], row["assumed"]
    raise UnknownNameError(
        f"'{query[:60]}' may mean {len(found)} devices", where="gpu", fix="name one", suggestions=tuple(found[:6])
    )
