"""Opens files that people name, never waiting for one that gives nothing; writes a person's own without losing the old.

What gives nothing is a kernel's log, or a pipe that nobody writes to.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO, Final

from tonnage.errors import BadFileError, OutsideError

_NO_WAIT: Final = getattr(os, "O_NONBLOCK", 0)


def open_file(path: Path | str) -> BinaryIO:
    """Open a file for reading; one that would make a reader wait for ever is opened so that it gives nothing.

    A pipe that somebody writes to is waited for; a named pipe without a writer is empty.
    """
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | _NO_WAIT))  # noqa: SIM115  the caller closes it
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        os.set_blocking(file.fileno(), True)
    return file


def read_bytes(path: Path | str, most: int) -> bytes:
    """Return the beginning of a file.

    Raises
    ------
    OSError
        It cannot be read, or has nothing to give now.
    """
    with open_file(path) as file:
        data = file.read(most)
    if data is None:  # a file of the kernel whose next line has not come yet
        raise OSError(0, "it is no stored file: reading it waits for something to happen")
    return data


def read_text(path: Path | str, most: int, fix: str) -> str:
    """Return a small file's text.

    Raises
    ------
    BadFileError
        No such file, none that can be read, no text, or one longer than `most` bytes.
    """
    try:
        if stat.S_ISCHR(os.stat(path).st_mode) or stat.S_ISBLK(os.stat(path).st_mode):  # noqa: PTH116  a path or a text
            raise BadFileError("is a device, no file", where=str(path)[:200], fix=fix)
        data = read_bytes(path, most + 1)
        if len(data) > most:
            raise BadFileError(f"is larger than {most >> 20} MiB", where=str(path)[:200], fix=fix)
        return data.decode("utf-8-sig", errors="replace")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadFileError(f"cannot be read: {reason}", where=str(path)[:200], fix=fix) from None


def replace_text(path: Path, text: str, *, fix: str) -> None:
    """Write a file aside, then in one step in place of the old one.

    Raises
    ------
    OutsideError
        The folder or file cannot be written, with the cure that is given; the old file is as it was.
    """
    import tempfile  # noqa: PLC0415  most verbs write nothing

    aside: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", dir=path.parent, prefix=f".{path.stem}-", encoding="utf-8", delete=False
        ) as file:
            aside = file.name
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(aside).replace(path)
    except OSError as error:
        if aside is not None:
            Path(aside).unlink(missing_ok=True)
        raise OutsideError(f"cannot be written: {error.strerror}", where=str(path), fix=fix) from None
