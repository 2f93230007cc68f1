"""The rules: data that says what is wrong, since when, and what is right today; most need no code.

A rule of `data/lint/*.toml` has an id, the kinds it is for, a severity, `what` and `today` in English and Chinese, a
source, an example that it finds and one that it does not. How it finds: `setting` (an environment variable), `name` (a
Python name), `call` with `argument` (a keyword), `command`, `image`, `entry` (a unit's setting), `text` (a line); or
nothing of this, then a check of `checks/` finds it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from tonnage import datafiles
from tonnage.diagnose.lint.python_code import argument_removal, argument_rename, span
from tonnage.diagnose.lint.seen import Seen
from tonnage.diagnose.lint.types import Edit, Hit, Kind, Severity
from tonnage.messages import language
from tonnage.nouns import noun

__all__ = ["Rule", "hits_of", "rules", "words_of"]

FINDERS = ("setting", "name", "call", "command", "image", "entry", "text")
_LONGEST = 1 << 14


@noun
class Rule:
    """One rule with its words; `finder` is the table as it stands in the data."""

    id: str
    severity: Severity
    kinds: frozenset[Kind]
    what: tuple[str, str]
    today: tuple[str, str]
    source: str
    finder: Mapping[str, Any]
    file: str
    bad: str
    good: str

    @property
    def is_data(self) -> bool:
        """Whether the data alone finds it."""
        return any(name in self.finder for name in (*FINDERS, "prose"))


@cache
def rules() -> Mapping[str, Rule]:
    """Return every rule by its id."""
    found: dict[str, Rule] = {}
    for name in datafiles.names("lint", ".toml"):
        for row in datafiles.table(f"lint/{name}.toml")["rule"]:
            assert row["id"] not in found, f"{row['id']} stands twice"
            found[row["id"]] = Rule(
                id=row["id"],
                severity=Severity(row["severity"]),
                kinds=frozenset(map(Kind, row["kinds"])) if "kinds" in row else frozenset(Kind) - {Kind.PROSE},
                what=(row["what"], row["what_zh"]),
                today=(row["today"], row["today_zh"]),
                source=row["source"],
                finder={
                    k: row[k] for k in row if k in {*FINDERS, "value", "argument", "without", "fix", "prose", "unless"}
                },
                file=row["file"],
                bad=row["bad"],
                good=row["good"],
            )
    return found


def words_of(rule: Rule, hit: Hit) -> tuple[str, str]:
    """Return what is wrong and what is right, in the language in use."""
    place = 1 if language() == "zh" else 0
    values = {name: str(value)[:120] for name, value in hit.values.items()}
    return rule.what[place].format(**values), rule.today[place].format(**values)


def hits_of(rule: Rule, seen: Seen) -> Iterator[Hit]:
    """Yield what a rule of data finds in a document."""
    finder = rule.finder
    if seen.kind is Kind.PROSE:
        form = finder.get("prose")
        if form:
            yield from _lines(rule, seen, form, None)
        return
    if seen.kind not in rule.kinds or (finder.get("unless") and re.search(finder["unless"], seen.document.text)):
        return
    for name in FINDERS:
        if name in finder:
            yield from _FINDERS[name](rule, seen)


def _setting(rule: Rule, seen: Seen) -> Iterator[Hit]:
    form, value = re.compile(rule.finder["setting"]), re.compile(rule.finder.get("value", ".*"), re.DOTALL)
    for one in seen.settings:
        match = form.fullmatch(one.name)
        if match and value.fullmatch(one.value or ""):
            edit = one.edit if rule.finder.get("fix") == "remove" else _renamed(rule, seen, one.line, one.name, match)
            yield Hit(rule=rule.id, line=one.line, values={"name": one.name, "value": one.value or ""}, edit=edit)


def _renamed(rule: Rule, seen: Seen, line: int, name: str, match: re.Match[str]) -> Edit | None:
    """Return the edit that puts a variable's new name in place of the old one."""
    fix = rule.finder.get("fix")
    if not fix or fix == "remove":
        return None
    text = seen.document.lines[line - 1]
    place = text.find(name)
    if place < 0:
        return None
    return Edit(line=line, start=place, end_line=line, end=place + len(name), text=match.expand(fix))


def _name(rule: Rule, seen: Seen) -> Iterator[Hit]:
    form = re.compile(rule.finder["name"])
    for one in seen.code.names if seen.code else ():
        match = form.fullmatch(one.name)
        if match:
            fix, edit = rule.finder.get("fix"), None
            if fix and isinstance(one.node, ast.Attribute) and ast.unparse(one.node) == one.name and seen.code:
                edit = span(seen.code.text, one.node, match.expand(fix))
            yield Hit(rule=rule.id, line=one.line, values={"name": one.name}, edit=edit)


def _call(rule: Rule, seen: Seen) -> Iterator[Hit]:
    form, finder = re.compile(rule.finder["call"]), rule.finder
    argument, value = finder.get("argument"), re.compile(finder.get("value", ".*"), re.DOTALL)
    for one in seen.code.calls if seen.code else ():
        if not form.fullmatch(one.name) or (finder.get("without") or "\0") in one.keywords:
            continue
        keyword = next((k for n, k in one.keywords.items() if re.fullmatch(argument, n)), None) if argument else None
        if argument and (keyword is None or not value.fullmatch(ast.unparse(keyword.value))):
            continue
        has_more = any(k.arg is None for k in one.node.keywords)
        if finder.get("without") and has_more:
            continue
        line = keyword.value.lineno if keyword else one.line
        shown = ast.unparse(keyword.value) if keyword else ""
        edit = _argument_edit(finder.get("fix"), seen, keyword, one.node)
        yield Hit(rule=rule.id, line=line, values={"name": one.name, "value": shown}, edit=edit)


def _argument_edit(fix: str | None, seen: Seen, keyword: ast.keyword | None, node: ast.Call) -> Edit | None:
    """Return the edit of an argument: `remove`, `rename NAME`, `set VALUE` or `add NAME=VALUE`."""
    if fix is None or seen.code is None:
        return None
    text = seen.code.text
    verb, _, rest = fix.partition(" ")
    if verb == "add":
        return add_argument(text, node, rest)
    if keyword is None:
        return None
    if verb == "remove":
        return argument_removal(text, keyword)
    if verb == "set":
        return span(text, keyword.value, rest)
    return argument_rename(text, keyword, rest)


def add_argument(text: str, node: ast.Call, argument: str) -> Edit | None:
    """Return the edit that adds a keyword at the end of a call that stands on one line."""
    whole = span(text, node, "")
    line = text.split("\n")[whole.end_line - 1]
    if whole.line != whole.end_line or line[whole.end - 1 : whole.end] != ")":
        return None
    has_arguments = bool(node.args or node.keywords)
    return Edit(
        line=whole.line, start=whole.end - 1, end_line=whole.line, end=whole.end - 1,
        text=(", " if has_arguments else "") + argument,
    )  # fmt: skip


def _command(rule: Rule, seen: Seen) -> Iterator[Hit]:
    form = re.compile(rule.finder["command"])
    for one in seen.commands:
        text = one.text[:_LONGEST]
        match = form.search(text)
        if match:
            values = {"command": text[:80], "match": match[0], **{k: v or "" for k, v in match.groupdict().items()}}
            edit = None
            if (fix := rule.finder.get("fix")) and one.line <= len(seen.document.lines):
                edit = _replaced(seen, one.line, match[0], match.expand(fix))
            yield Hit(rule=rule.id, line=one.line, values=values, edit=edit)


def _replaced(seen: Seen, line: int, old: str, new: str) -> Edit | None:
    text = seen.document.lines[line - 1]
    place = text.find(old)
    return None if place < 0 else Edit(line=line, start=place, end_line=line, end=place + len(old), text=new)


def _image(rule: Rule, seen: Seen) -> Iterator[Hit]:
    form = re.compile(rule.finder["image"])
    for one in seen.images:
        match = form.fullmatch(one.name)
        if match:
            fix, edit = rule.finder.get("fix"), one.edit
            if edit is not None:
                edit = None if not fix else Edit(line=edit.line, start=edit.start, end_line=edit.line, end=edit.end,
                                                 text=match.expand(fix))  # fmt: skip
            yield Hit(rule=rule.id, line=one.line, values={"image": one.name}, edit=edit)


def _entry(rule: Rule, seen: Seen) -> Iterator[Hit]:
    form, value = re.compile(rule.finder["entry"]), re.compile(rule.finder.get("value", ".*"))
    for one in seen.entries:
        match = form.fullmatch(f"{one.section}.{one.key}")
        if match and value.fullmatch(one.value):
            fix = rule.finder.get("fix")
            edit = _replaced(seen, one.line, one.key, match.expand(fix)) if fix else None
            yield Hit(rule=rule.id, line=one.line, values={"key": one.key, "value": one.value}, edit=edit)


def _text(rule: Rule, seen: Seen) -> Iterator[Hit]:
    yield from _lines(rule, seen, rule.finder["text"], rule.finder.get("fix"))


def _lines(rule: Rule, seen: Seen, form: str, fix: str | None) -> Iterator[Hit]:
    pattern = re.compile(form, re.ASCII)  # Chinese beside a name is no part of it
    is_code = seen.kind is not Kind.PROSE
    for number, line in enumerate(seen.document.lines, 1):
        if is_code and line.lstrip().startswith(("#", "//")):
            continue
        match = pattern.search(line[:_LONGEST])
        if match:
            edit = None
            if fix is not None:
                edit = Edit(line=number, start=match.start(), end_line=number, end=match.end(), text=match.expand(fix))
            values = {"match": match[0], **{k: v or "" for k, v in match.groupdict().items()}}
            yield Hit(rule=rule.id, line=number, values={"name": match[0], "value": "", **values}, edit=edit)


_FINDERS = {
    "setting": _setting,
    "name": _name,
    "call": _call,
    "command": _command,
    "image": _image,
    "entry": _entry,
    "text": _text,
}
