"""A strict small reader of YAML and JSON that keeps the line of every key and item.

It reads what deployment files are written in: block and flow collections, plain and quoted words, block scalars,
comments, anchors with their aliases, several documents. What is more than that (complex keys, tags that build
objects) is refused with its line, so that nothing is misread silently.
"""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any, Final

__all__ = ["Rows", "Table", "at", "line_of", "read_json", "read_yaml"]

_DEEPEST: Final = 60
_LONGEST_LINE: Final = 1 << 16
_WORDS: Final = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "yes": True, "Yes": True, "on": True, "On": True,
    "false": False, "False": False, "FALSE": False, "no": False, "No": False, "off": False, "Off": False,
}  # fmt: skip
_INTEGER: Final = re.compile(r"[-+]?(?:0|[1-9][0-9_]{0,30})", re.ASCII)
_FLOAT: Final = re.compile(r"[-+]?(?:[0-9][0-9_]{0,30})?\.?[0-9]{0,30}(?:[eE][-+]?[0-9]{1,3})?", re.ASCII)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\n": ""}
_BLOCK: Final = re.compile(r"[|>][-+0-9]{0,3}")


class Table(dict[str, Any]):
    """A mapping with the line of each key."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, int] = {}
        self.line = 0

    def put(self, key: str, value: Any, line: int) -> None:
        """Keep a value with its line."""
        self[key] = value
        self.lines[key] = line


class Rows(list[Any]):
    """A sequence with the line of each item."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[int] = []

    def put(self, value: Any, line: int) -> None:
        """Keep an item with its line."""
        self.append(value)
        self.lines.append(line)


def at(value: Any, path: str) -> Any:
    """Return what stands at a dotted path, None where nothing does.

    >>> at(read_yaml("a:\\n  b: 3")[0], "a.b")
    3
    """
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def line_of(value: Any, path: str) -> int:
    """Return the line of the last key of a dotted path that is there."""
    line = 1
    for key in path.split("."):
        if not isinstance(value, Table) or key not in value:
            break
        line, value = value.lines[key], value[key]
    return line


def read_json(text: str) -> Any:
    """Return a JSON value with lines.

    Raises
    ------
    ValueError
        Not JSON, or nested too deeply.
    """
    try:
        json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    flow = _Flow(text, 1)
    return flow.value(0)


def read_yaml(text: str) -> list[Any]:
    """Return the documents of a YAML text.

    Raises
    ------
    ValueError
        More than this reader reads; the text tells the line.
    """
    lines = text.split("\n")
    if any(len(line) > _LONGEST_LINE for line in lines):
        raise ValueError("a line is longer than 64 KiB")
    starts = [i for i, line in enumerate(lines) if re.match(r"---(?:\s|$)", line)]
    bounds = [0, *starts, len(lines)]
    found = []
    for start, end in pairwise(bounds):
        part = lines[start:end]
        if part and re.match(r"---(?:\s|$)", part[0]):
            part[0] = "   " + part[0][3:]
        stop = next((i for i, line in enumerate(part) if line.rstrip() == "..."), len(part))
        reader = _Reader(part[:stop], start)
        if reader.peek() is not None:
            found.append(reader.whole())
    return found


def scalar(word: str) -> Any:
    """Return what a plain word means: null, truth, a number, else itself.

    >>> scalar("8"), scalar("0.9"), scalar("no"), scalar("v1.2.3")
    (8, 0.9, False, 'v1.2.3')
    """
    if word in _WORDS:
        return _WORDS[word]
    if _INTEGER.fullmatch(word):
        return int(word.replace("_", ""))
    if any(c.isdigit() for c in word) and _FLOAT.fullmatch(word):
        try:
            return float(word.replace("_", ""))
        except ValueError:
            return word
    return word


def _unquote(text: str) -> str:
    if text[0] == "'":
        return text[1:-1].replace("''", "'")
    return _ESCAPE.sub(lambda m: _ESCAPES.get(m[1], chr(int(m[1][1:], 16)) if len(m[1]) > 1 else m[1]), text[1:-1])


class _Flow:
    """Reads flow collections and quoted words, over line ends."""

    def __init__(self, text: str, line: int) -> None:
        self.text, self.place, self.line = text, 0, line

    def fail(self, what: str) -> ValueError:
        return ValueError(f"line {self.line}: {what}")

    def skip(self) -> None:
        """Go over blanks, line ends and comments."""
        while self.place < len(self.text):
            c = self.text[self.place]
            if c == "\n":
                self.line += 1
            elif c == "#" and (self.place == 0 or self.text[self.place - 1].isspace()):
                end = self.text.find("\n", self.place)
                self.place = len(self.text) if end < 0 else end
                continue
            elif not c.isspace() and c != "\ufeff":
                return
            self.place += 1

    def value(self, depth: int) -> Any:
        if depth > _DEEPEST:
            raise self.fail("nested too deeply")
        self.skip()
        if self.place >= len(self.text):
            raise self.fail("ends too early")
        c = self.text[self.place]
        if c == "{":
            return self.table(depth)
        if c == "[":
            return self.rows(depth)
        if c in "\"'":
            return self.quoted()
        match = re.compile(r"[^,\[\]{}\n#]*?(?=\s*(?:[,\[\]{}\n#]|:(?:\s|$)|$))").match(self.text, self.place)
        word = match[0].strip() if match else ""
        self.place += len(match[0]) if match else 0
        if not word:
            raise self.fail("a value is missing")
        return scalar(word)

    def quoted(self) -> str:
        quote = self.text[self.place]
        form = r'"(?:[^"\\]|\\.)*+"' if quote == '"' else r"'(?:[^']|'')*+'"
        match = re.compile(form, re.DOTALL).match(self.text, self.place)
        if match is None:
            raise self.fail("a quote is not closed")
        self.place += len(match[0])
        self.line += match[0].count("\n")
        return _unquote(re.sub(r"[ \t]*\n\s*", " ", match[0]) if "\n" in match[0] else match[0])

    def table(self, depth: int) -> Table:
        table = Table()
        table.line = self.line
        self.place += 1
        while True:
            self.skip()
            if self.text[self.place : self.place + 1] == "}":
                self.place += 1
                return table
            line = self.line
            key = self.value(depth + 1)
            self.skip()
            value: Any = None
            if self.text[self.place : self.place + 1] == ":":
                self.place += 1
                self.skip()
                value = None if self.text[self.place : self.place + 1] in (",", "}") else self.value(depth + 1)
            table.put(str(key), value, line)
            self.comma("}")

    def rows(self, depth: int) -> Rows:
        rows = Rows()
        self.place += 1
        while True:
            self.skip()
            if self.text[self.place : self.place + 1] == "]":
                self.place += 1
                return rows
            line = self.line
            rows.put(self.value(depth + 1), line)
            self.comma("]")

    def comma(self, end: str) -> None:
        self.skip()
        if self.text[self.place : self.place + 1] == ",":
            self.place += 1
        elif self.text[self.place : self.place + 1] != end:
            raise self.fail(f"expected , or {end}")


class _Reader:
    """Reads block collections, line by line."""

    def __init__(self, lines: list[str], before: int) -> None:
        self.lines, self.before, self.i = lines, before, 0
        self.anchors: dict[str, Any] = {}

    def fail(self, what: str) -> ValueError:
        return ValueError(f"line {self.before + self.i + 1}: {what}")

    @property
    def number(self) -> int:
        return self.before + self.i + 1

    def peek(self) -> tuple[int, str] | None:
        """Go to the next line that says something; return its indent and text."""
        while self.i < len(self.lines):
            text = self.lines[self.i].strip("\ufeff")
            body = text.lstrip(" ")
            if body.strip() and not body.lstrip().startswith("#") and not text.startswith("%"):
                if body.startswith("\t"):
                    raise self.fail("a tab indents")
                return len(text) - len(body), body.rstrip()
            self.i += 1
        return None

    def whole(self) -> Any:
        value = self.node(0, 0)
        if self.peek() is not None:
            raise self.fail("does not belong to what stands above it")
        return value

    def node(self, least: int, depth: int) -> Any:
        found = self.peek()
        if found is None or found[0] < least:
            return None
        if depth > _DEEPEST:
            raise self.fail("nested too deeply")
        indent, body = found
        if body == "-" or body.startswith("- "):
            return self.sequence(indent, depth)
        if body.startswith("? "):
            raise self.fail("complex keys are not read")
        if self.key(body) is not None:
            return self.mapping(indent, depth)
        return self.inline(body, indent - 1, self.number, depth)

    def key(self, body: str) -> tuple[str, str] | None:
        """Split `key: rest`; None where the line is no key."""
        if body[0] in "\"'":
            match = re.match(r""""((?:[^"\\]|\\.)*+)"\s*:(?:\s+(.*))?$|'((?:[^']|'')*+)'\s*:(?:\s+(.*))?$""", body)
            if match is None:
                return None
            return (match[1], match[2] or "") if match[1] is not None else (match[3], match[4] or "")
        if body[0] in "[{|>#%@`":
            return None
        match = re.match(r"([^:]++(?::(?=\S)[^:]*+)*+):(?:\s+(.*))?$", body)
        if match is None or re.search(r"\s#", match[1]):
            return None
        return match[1].strip(), match[2] or ""

    def mapping(self, indent: int, depth: int) -> Table:
        table = Table()
        table.line = self.number
        while (found := self.peek()) is not None and found[0] == indent:
            pair = None if found[1].startswith("- ") else self.key(found[1])
            if pair is None:
                break
            name, rest = pair
            line = self.number
            value = self.after_key(rest, indent, line, depth)
            if name == "<<":
                for one in value if isinstance(value, list) else [value]:
                    for key, held in (one or {}).items() if isinstance(one, dict) else ():
                        table.setdefault(key, held)
                        table.lines.setdefault(key, line)
            else:
                table.put(name.lstrip("&*!") if name.startswith("!") else name, value, line)
        return table

    def sequence(self, indent: int, depth: int) -> Rows:
        rows = Rows()
        while (found := self.peek()) is not None and found[0] == indent and (found[1] + " ").startswith("- "):
            line = self.number
            rest = found[1][1:]
            bare = rest.lstrip()
            if not bare or bare.startswith("#"):
                self.i += 1
                rows.put(self.node(indent + 1, depth + 1), line)
                continue
            named = re.match(r"\s*&(\S+)\s*", rest)
            if named:
                rest = " " * len(named[0]) + rest[len(named[0]) :]
            self.lines[self.i] = " " * (indent + 1) + rest
            value = self.node(indent + 1, depth + 1)
            if named:
                self.anchors[named[1]] = value
            rows.put(value, line)
        return rows

    def after_key(self, rest: str, indent: int, line: int, depth: int) -> Any:
        anchor = re.match(r"&(\S+)\s*", rest)
        if anchor:
            rest = rest[len(anchor[0]) :]
        rest = re.sub(r"^!!?[\w/-]*\s*", "", rest)
        if not rest or rest.startswith("#"):
            self.i += 1
            found = self.peek()
            is_sequence = found is not None and found[0] == indent and (found[1] + " ").startswith("- ")
            value = self.sequence(indent, depth + 1) if is_sequence else self.node(indent + 1, depth + 1)
        else:
            value = self.inline(rest, indent, line, depth)
        if anchor:
            self.anchors[anchor[1]] = value
        return value

    def inline(self, rest: str, indent: int, line: int, depth: int) -> Any:
        """Read what begins on this line, and goes on over deeper ones."""
        if rest.startswith("*"):
            self.i += 1
            return self.anchors.get(rest[1:].split(maxsplit=1)[0] if len(rest) > 1 else "")
        if _BLOCK.match(rest):
            return self.block(rest, indent)
        if rest[0] in "[{\"'":
            return self.flow(rest, line, depth)
        words = [re.sub(r"\s+#.*$", "", rest).strip()]
        self.i += 1
        has_comment = words[0] != rest.strip()
        while not has_comment and self.i < len(self.lines):
            found = self.peek_raw()
            if found is None or found[0] <= indent or self.key(found[1]) is not None:
                break
            words.append(re.sub(r"\s+#.*$", "", found[1]).strip())
            self.i += 1
        return scalar(words[0]) if len(words) == 1 else " ".join(words)

    def peek_raw(self) -> tuple[int, str] | None:
        text = self.lines[self.i]
        body = text.lstrip(" ")
        if not body.strip() or body.startswith("#"):
            return None
        return len(text) - len(body), body.rstrip()

    def block(self, head: str, indent: int) -> str:
        self.i += 1
        taken: list[str] = []
        while self.i < len(self.lines):
            text = self.lines[self.i]
            if text.strip() and len(text) - len(text.lstrip(" ")) <= indent:
                break
            taken.append(text)
            self.i += 1
        while taken and not taken[-1].strip():
            taken.pop()
        margin = min((len(t) - len(t.lstrip(" ")) for t in taken if t.strip()), default=0)
        plain = [t[margin:] for t in taken]
        return "\n".join(plain) + "\n" if head[0] == "|" else " ".join(p.strip() for p in plain) + "\n"

    def flow(self, rest: str, line: int, depth: int) -> Any:
        """Read a flow value or a quoted word that may go over several lines."""
        start = self.lines[self.i].find(rest)
        text = self.lines[self.i][start:] + "\n" + "\n".join(self.lines[self.i + 1 :])
        flow = _Flow(text, line)
        value = flow.value(depth)
        after, _, _ = text[flow.place :].partition("\n")
        if after.strip() and not after.lstrip().startswith("#"):
            raise flow.fail("something stands after the value")
        self.i += text[: flow.place].count("\n") + 1
        return value
