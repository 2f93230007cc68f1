"""Reads what `tonnage lint` is to look at: files and folders, with limits; what is not read is told with the reason."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import BinaryIO, Final

from tonnage.diagnose.lint.kinds import documents_of
from tonnage.diagnose.lint.types import Unread
from tonnage.errors import BadFileError
from tonnage.nouns import noun
from tonnage.probe.plain_file import read_bytes

__all__ = ["Sources", "installed_fields", "read_sources"]

LARGEST_BYTES: Final = 4 << 20
_MOST_FILES: Final = 5_000
_MOST_SEEN: Final = 200_000
_SKIPPED_FOLDERS: Final = frozenset((
    ".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv", ".tox", ".mypy_cache", ".ruff_cache",
    "site-packages", ".ipynb_checkpoints", ".cache",
))  # fmt: skip
_ENDINGS: Final = (
    ".py", ".sh", ".bash", ".sbatch", ".slurm", ".env", ".yaml", ".yml", ".json", ".service", ".conf", ".md", ".ipynb",
    ".dockerfile",
)  # fmt: skip
_NAMES: Final = ("dockerfile", "containerfile", "prometheus", "compose", "docker-compose", ".env")


@noun
class Sources:
    """Texts by the name under which they are reported, and what was not read."""

    texts: dict[str, str]
    unread: tuple[Unread, ...]


def read_sources(paths: Sequence[str], stdin: BinaryIO | None = None) -> Sources:
    """Return the texts of files, of the files in folders, and of standard input (`-`).

    Raises
    ------
    BadFileError
        A path that was named is not there or cannot be read.
    """
    texts: dict[str, str] = {}
    unread: list[Unread] = []
    for path in paths:
        if path == "-":
            held = stdin.read(LARGEST_BYTES + 1) if stdin else b""
            _keep("-", held, texts, unread, must=True)
            continue
        place = Path(path)
        if not place.exists():
            raise BadFileError("is not there", where=path[:200], fix="name a file or folder")
        if place.is_dir():
            for file in _files(place, unread):
                _read(file, texts, unread, must=False)
        else:
            _read(place, texts, unread, must=True)
    return Sources(texts=texts, unread=tuple(unread))


def _read(file: Path, texts: dict[str, str], unread: list[Unread], *, must: bool) -> None:
    name = str(file)
    try:
        if not file.is_file():
            unread.append(Unread(file=name, line=0, reason="a device or a pipe"))
            return
        if file.stat().st_size > LARGEST_BYTES:
            unread.append(Unread(file=name, line=0, reason=f"larger than {LARGEST_BYTES >> 20} MiB"))
            return
        held = read_bytes(file, LARGEST_BYTES + 1)
    except (OSError, ValueError) as error:
        if must:
            reason = getattr(error, "strerror", None) or str(error)
            raise BadFileError(f"cannot be read: {reason}", where=name[:200], fix="name a readable file") from None
        unread.append(Unread(file=name, line=0, reason=getattr(error, "strerror", None) or "cannot be read"))
        return
    _keep(name, held, texts, unread, must=must)


def _keep(name: str, held: bytes, texts: dict[str, str], unread: list[Unread], *, must: bool) -> None:
    if len(held) > LARGEST_BYTES:
        unread.append(Unread(file=name, line=0, reason=f"larger than {LARGEST_BYTES >> 20} MiB"))
    elif b"\0" in held[: 1 << 16]:
        unread.append(Unread(file=name, line=0, reason="binary"))
    else:
        text = held.decode("utf-8", errors="replace")
        if must and not documents_of(name, text):
            unread.append(Unread(file=name, line=0, reason="of no kind that is read"))
        texts[name] = text


def _files(folder: Path, unread: list[Unread]) -> Iterator[Path]:
    """Yield the files of a folder that may be of a kind that is read; links are not followed."""
    num_seen = num_given = 0
    for place, folders, names in os.walk(folder, followlinks=False):
        folders[:] = sorted(d for d in folders if d not in _SKIPPED_FOLDERS)
        for name in sorted(names):
            num_seen += 1
            lowered = name.lower()
            if not lowered.endswith(_ENDINGS) and not lowered.startswith(_NAMES):
                continue
            file = Path(place) / name
            if file.is_symlink():
                unread.append(Unread(file=str(file), line=0, reason="a link"))
                continue
            num_given += 1
            if num_given > _MOST_FILES or num_seen > _MOST_SEEN:
                unread.append(
                    Unread(file=str(folder), line=0, reason=f"more than {_MOST_FILES} files: the rest is left")
                )
                return
            yield file


def installed_fields() -> tuple[str, frozenset[str]] | None:
    """Return the release of transformers on this machine and the fields of its TrainingArguments, read, never imported."""
    try:
        package = metadata.distribution("transformers")
        place = next(
            (
                Path(str(package.locate_file(f)))
                for f in package.files or ()
                if str(f) == "transformers/training_args.py"
            ),
            None,
        )
        if place is None:
            return None
        tree = ast.parse(place.read_text(encoding="utf-8"))
    except (metadata.PackageNotFoundError, OSError, SyntaxError, ValueError):
        return None
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == "TrainingArguments":
            fields = {s.target.id for s in node.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)}
            return f"transformers {package.version}", frozenset(fields)
    return None
