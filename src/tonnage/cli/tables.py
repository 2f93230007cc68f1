"""Plain aligned tables for the terminal: no borders, East Asian widths counted, colour only where asked for."""

from __future__ import annotations

from collections.abc import Sequence
from unicodedata import east_asian_width

from tonnage.cli.options import wants_colour

_NOT_FIRST = frozenset("，。；：、）》」！？")
_NOT_LAST = frozenset("（《「“")
_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}


def printable(text: str) -> str:
    """Return a text of a file without the control characters that a terminal would obey.

    >>> printable("a\\x1b[2Jb")
    'a?[2Jb'
    """
    return "".join(c if c.isprintable() else "?" for c in text)


def width(text: str) -> int:
    """Return how many columns a terminal gives a text: wide characters take two.

    >>> width("16 GiB"), width("显存")
    (6, 4)
    """
    return len(text) if text.isascii() else sum(1 + (east_asian_width(c) in "WF") for c in text)


def pad(text: str, columns: int, *, is_right: bool = False) -> str:
    """Fill a text with spaces up to a number of columns.

    >>> pad("显存", 6) + "|", pad("7", 3, is_right=True)
    ('显存  |', '  7')
    """
    gap = " " * (columns - width(text))
    return gap + text if is_right else text + gap


def style(text: str, name: str) -> str:
    """Colour a text, on a terminal that wants colours only."""
    return f"\x1b[{_STYLES[name]}m{text}\x1b[0m" if wants_colour() else text


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = (), indent: str = ""
) -> list[str]:
    """Return the lines of a table; the columns named in `right` are set flush right.

    >>> print("\\n".join(table(("card", "GiB"), (("rtx-4080", "16.0"), ("h100", "79.6")), right=(1,))))
    card       GiB
    rtx-4080  16.0
    h100      79.6
    """
    widths = [max(width(row[i]) for row in (header, *rows)) for i in range(len(header))]

    def line(row: Sequence[str]) -> str:
        cells = [pad(cell, widths[i], is_right=i in right) for i, cell in enumerate(row)]
        return (indent + "  ".join(cells)).rstrip()

    return [style(line(header), "dim"), *(line(row) for row in rows)]


def wrap(text: str, *, columns: int = 100, indent: str = "") -> list[str]:
    """Break a text into lines of at most so many columns; Chinese may break anywhere, other words at spaces.

    >>> wrap("one two three", columns=8, indent=". ")
    ['. one', '. two', '. three']
    """
    lines: list[str] = []
    line, used, room = "", 0, columns - width(indent)
    for piece in _pieces(text):
        size = width(piece)
        if used + size > room and line:
            lines.append(indent + line.rstrip())
            line, used = "", 0
            piece = piece.lstrip()  # noqa: PLW2901  a line does not begin with the space it was broken at
            size = width(piece)
        line, used = line + piece, used + size
    return [*lines, indent + line.rstrip()] if line else lines


def _pieces(text: str) -> list[str]:
    """Cut a text where a line may end: before a space, and around wide characters."""
    pieces: list[str] = []
    for character in text:
        is_wide = east_asian_width(character) in "WF"
        joins = character in _NOT_FIRST or not (is_wide or character == " " or (pieces and _ends_wide(pieces[-1])))
        if pieces and (joins or pieces[-1][-1] in _NOT_LAST):
            pieces[-1] += character
        else:
            pieces.append(character)
    return pieces


def _ends_wide(piece: str) -> bool:
    return east_asian_width(piece[-1]) in "WF"
