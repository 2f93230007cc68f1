"""A plan and a place become a bundle; and what writing it would change in a folder that holds an earlier one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from difflib import unified_diff
from enum import StrEnum
from typing import Any, Final

from tonnage import __version__
from tonnage.errors import BadFileError
from tonnage.nouns import noun
from tonnage.render.types import Bundle, BundleFile

MANIFEST: Final = "manifest.json"
FORMAT: Final = 1


class State(StrEnum):
    """What becomes of one file of a folder."""

    NEW = "new"
    SAME = "same"
    CHANGED = "changed"  # ours, to be written anew
    EDITED = "edited"  # a person changed it: left alone
    TAKEN = "taken"  # there already and not ours: left alone
    STALE = "stale"  # ours and unchanged, no longer part of the bundle: removed


@noun
class Change:
    """One file: what is there, what is to be there, and what happens."""

    path: str
    state: State
    old: str | None
    new: str | None
    is_behind: bool = False  # edited, and the bundle no longer says what the edit began from

    @property
    def diff(self) -> str:
        """The difference as `diff -u` shows it; empty where there is none."""
        old, new = (self.old or "").splitlines(keepends=True), (self.new or "").splitlines(keepends=True)
        names = (f"a/{self.path}" if self.old is not None else "/dev/null", f"b/{self.path}")
        if self.new is None:
            names = (names[0], "/dev/null")
        return "".join(line if line.endswith("\n") else line + "\n" for line in unified_diff(old, new, *names))


def digest(text: str) -> str:
    """Return the sha256 of a text in UTF-8, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def manifest(bundle: Bundle) -> dict[str, Any]:
    """Return what `manifest.json` holds: each file with purpose and hash, and how to start and stop."""
    return {
        "format": FORMAT,
        "written_by": f"tonnage {__version__}",
        "name": bundle.name,
        "place": bundle.place,
        "start": bundle.start,
        "stop": bundle.stop,
        "files": [
            {
                "path": file.path,
                "sha256": digest(file.text),
                "purpose": file.purpose,
                "is_executable": file.is_executable,
            }
            for file in sorted(bundle.files, key=lambda file: file.path)
        ],
    }


def manifest_text(bundle: Bundle) -> str:
    """Return the text of `manifest.json`."""
    return json.dumps(manifest(bundle), indent=2, ensure_ascii=False) + "\n"


def read_manifest(text: str, where: str = MANIFEST) -> Mapping[str, str]:
    """Return the sha256 of each file that an earlier bundle wrote.

    Raises
    ------
    BadFileError
        Not a manifest, or of a later version.
    """
    try:
        table = json.loads(text)
        entries = {str(one["path"]): str(one["sha256"]) for one in table["files"]}
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BadFileError("not a manifest of a bundle", where=where, fix="give another folder with --to") from None
    if table.get("format") != FORMAT:
        raise BadFileError(f"format {table.get('format')} is not known", where=where, fix="upgrade tonnage")
    return entries


def compare(bundle: Bundle, held: Mapping[str, str], written: Mapping[str, str]) -> tuple[Change, ...]:
    """Return what writing a bundle would do to a folder.

    Parameters
    ----------
    bundle : Bundle
        What is to be there.
    held : mapping of str to str
        Texts of the folder's files, by path: those of the bundle and those of the earlier manifest that exist.
    written : mapping of str to str
        Hashes by the earlier manifest; empty where there was none.

    Returns
    -------
    tuple of Change
        By path. A file that a person changed since it was written is never written over.
    """
    changes = [_change(file, held.get(file.path), written) for file in bundle.files]
    wanted = {file.path for file in bundle.files}
    changes += [
        Change(path=path, state=State.STALE, old=held[path], new=None)
        for path, sha256 in written.items()
        if path not in wanted and path in held and digest(held[path]) == sha256
    ]
    return tuple(sorted(changes, key=lambda change: change.path))


def _change(file: BundleFile, old: str | None, written: Mapping[str, str]) -> Change:
    if old is None:
        state = State.NEW
    elif old == file.text:
        state = State.SAME
    elif file.path not in written:
        state = State.TAKEN
    else:
        state = State.CHANGED if digest(old) == written[file.path] else State.EDITED
    is_behind = state is State.EDITED and digest(file.text) != written[file.path]
    return Change(path=file.path, state=state, old=old, new=file.text, is_behind=is_behind)
