"""The exception tree.

::

    TonnageError                  exit 1, ours unless a subclass says otherwise
    ├── RequestError              exit 2, the request is wrong: what, where, how to mend
    │   ├── UnknownNameError      a name that no catalogue has; carries suggestions
    │   └── BadFileError          a file that is not what it should be
    └── OutsideError              exit 4, something outside is missing or unreachable

"Does not fit" is no exception: it is a `Rejection` value and exit 3.
"""

from __future__ import annotations


class TonnageError(Exception):
    """Any failure that tonnage reports in one line: what, where, and how to mend it."""

    exit_code = 1

    def __init__(self, what: str, *, where: str = "", fix: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.fix = fix

    def __str__(self) -> str:
        """Render as one line, without the control characters that a name might bring."""
        line = f"{self.where}: {self.what}" if self.where else self.what
        words = f"{line}; {self.fix}".split() if self.fix else line.split()
        return "".join(c if c.isprintable() else "?" for c in " ".join(words))


class RequestError(TonnageError):
    """The request is wrong; nothing was written."""

    exit_code = 2


class UnknownNameError(RequestError):
    """A name that no catalogue has."""

    def __init__(self, what: str, *, where: str = "", fix: str = "", suggestions: tuple[str, ...] = ()) -> None:
        if suggestions:
            fix = f"did you mean {', '.join(suggestions)}?" + (f" ({fix})" if fix else "")
        super().__init__(what, where=where, fix=fix)
        self.suggestions = suggestions


class BadFileError(RequestError):
    """A file that is missing, truncated or not what it should be."""


class OutsideError(TonnageError):
    """Something outside is missing or unreachable: a driver, an engine, the hub."""

    exit_code = 4
