"""Python scripts as calls, names and settings, read by `ast` and never executed."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Mapping
from typing import Final

from tonnage.diagnose.lint.types import Command, Edit, Setting
from tonnage.nouns import noun

__all__ = ["Call", "Code", "NameSeen", "argument_removal", "argument_rename", "constant", "read_python", "span"]

_VARIABLE: Final = re.compile(r"(?:NCCL|TORCH|PYTORCH|CUDA|TF|VLLM|HF|TRANSFORMERS|XLA|HOROVOD|DS|SGLANG)_[A-Z0-9_]+")
_RUNNERS: Final = ("subprocess.run", "subprocess.Popen", "subprocess.check_call", "subprocess.call",
                   "subprocess.check_output", "os.system")  # fmt: skip


@noun
class Call:
    """A call with the full name of what is called, as imports tell it."""

    name: str
    line: int
    node: ast.Call
    keywords: Mapping[str, ast.keyword]

    @property
    def tail(self) -> str:
        """The last part of the name."""
        return self.name.rpartition(".")[2]


@noun
class NameSeen:
    """A dotted name in use or imported, in full."""

    name: str
    line: int
    node: ast.AST


@noun
class Code:
    """What a script holds."""

    tree: ast.Module
    text: str
    calls: tuple[Call, ...]
    names: tuple[NameSeen, ...]
    settings: tuple[Setting, ...]
    commands: tuple[Command, ...]
    bound: frozenset[str]  # every name that the script itself binds or imports
    used: Mapping[str, int]  # every plain name that is read, with its first line


def read_python(text: str) -> Code:
    """Return what a script holds.

    Raises
    ------
    ValueError
        It does not parse: the text tells line and reason.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except SyntaxError as error:
        raise ValueError(f"line {error.lineno or 1}: {error.msg}") from None
    except (RecursionError, MemoryError):
        raise ValueError("nested too deeply") from None
    nodes = list(ast.walk(tree))
    aliases = _aliases(nodes)
    calls = tuple(
        Call(
            name=name,
            line=node.lineno,
            node=node,
            keywords={k.arg: k for k in node.keywords if k.arg},
        )
        for node in nodes
        if isinstance(node, ast.Call) and (name := _called(node, aliases))
    )
    return Code(
        tree=tree,
        text=text,
        calls=calls,
        names=tuple(_names(nodes, aliases)),
        settings=tuple(_settings(nodes, calls, tree)),
        commands=tuple(_commands(calls)),
        bound=frozenset(_bound(nodes)),
        used=_used(nodes),
    )


def _aliases(nodes: list[ast.AST]) -> dict[str, str]:
    found: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {a.asname: a.name for a in node.names if a.asname}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    return found


def _dotted(node: ast.AST, aliases: Mapping[str, str]) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        parts.append(aliases.get(node.id, node.id))
    elif isinstance(node, ast.Call) and parts:
        parts.append("()")
    else:
        return ""
    return ".".join(reversed(parts))


def _called(node: ast.Call, aliases: Mapping[str, str]) -> str:
    return _dotted(node.func, aliases)


def _names(nodes: list[ast.AST], aliases: Mapping[str, str]) -> Iterator[NameSeen]:
    inner = {id(n.value) for n in nodes if isinstance(n, ast.Attribute)}
    for node in nodes:
        if isinstance(node, ast.Attribute | ast.Name) and id(node) not in inner:
            name = _dotted(node, aliases)
            if name and not (isinstance(node, ast.Name) and "." not in name):
                yield NameSeen(name=name, line=node.lineno, node=node)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield NameSeen(name=alias.name, line=node.lineno, node=node)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                yield NameSeen(name=f"{node.module}.{alias.name}", line=node.lineno, node=node)


def _bound(nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                yield "*" if alias.name == "*" else (alias.asname or alias.name).partition(".")[0]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            yield node.id
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name


def _used(nodes: list[ast.AST]) -> dict[str, int]:
    found: dict[str, int] = {}
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found[node.id] = min(node.lineno, found.get(node.id, node.lineno))
    return found


def constant(node: ast.AST | None) -> object:
    """Return a literal's value; None for anything else, and for None itself."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        value = node.operand.value
        return -value if isinstance(value, int | float) else None
    return node.value if isinstance(node, ast.Constant) else None


def _text(node: ast.AST | None) -> str | None:
    value = constant(node)
    return value if isinstance(value, str) else None


def _is_environ(node: ast.AST) -> bool:
    return ast.unparse(node) in ("os.environ", "environ") if isinstance(node, ast.Attribute | ast.Name) else False


def _settings(nodes: list[ast.AST], calls: tuple[Call, ...], tree: ast.Module) -> Iterator[Setting]:
    top = {id(n) for n in tree.body}
    for node in nodes:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
            if isinstance(target, ast.Subscript) and _is_environ(target.value):
                name = _text(target.slice)
                alone = id(node) in top and node.lineno == node.end_lineno and len(tree.body) > 1
                edit = Edit(line=node.lineno, start=0, end_line=node.lineno + 1, end=0, text="") if alone else None
                if name:
                    yield Setting(name=name, value=_value(node.value), line=node.lineno, edit=edit)
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                name = _text(key)
                if name and _VARIABLE.fullmatch(name) and key is not None:
                    yield Setting(name=name, value=_value(value), line=key.lineno)
    for call in calls:
        if call.name in ("os.environ.setdefault", "os.putenv") and len(call.node.args) == 2:
            name = _text(call.node.args[0])
            if name:
                yield Setting(name=name, value=_value(call.node.args[1]), line=call.line)
        elif call.name == "os.environ.update":
            for keyword in call.keywords.values():
                yield Setting(name=keyword.arg or "", value=_value(keyword.value), line=keyword.value.lineno)


def _value(node: ast.AST) -> str | None:
    value = constant(node)
    if value is None and isinstance(node, ast.Call) and getattr(node.func, "id", "") == "str" and node.args:
        value = constant(node.args[0])
    return None if value is None else str(value)


def _commands(calls: tuple[Call, ...]) -> Iterator[Command]:
    """Yield the commands that a script starts and writes out literally."""
    from tonnage.diagnose.lint.shell import commands_of  # noqa: PLC0415  few scripts start others

    for call in calls:
        if call.name not in _RUNNERS or not call.node.args:
            continue
        first = call.node.args[0]
        if isinstance(first, ast.List | ast.Tuple):
            words = [_text(e) or "?" for e in first.elts]
            if words and words[0] != "?":
                yield Command(words=tuple(words), line=call.line)
        elif (text := _text(first)) is not None:
            yield from (Command(words=c.words, env=c.env, line=call.line) for c in commands_of(text))


def span(text: str, node: ast.AST, new: str) -> Edit:
    """Return the edit that puts a text in place of a node; `ast` counts bytes, editors characters."""
    lines = text.split("\n")
    first, last = node.lineno, node.end_lineno or node.lineno  # pyright: ignore[reportAttributeAccessIssue]
    start = len(lines[first - 1].encode()[: node.col_offset].decode(errors="ignore"))  # pyright: ignore[reportAttributeAccessIssue]
    end = len(lines[last - 1].encode()[: node.end_col_offset].decode(errors="ignore"))  # pyright: ignore[reportAttributeAccessIssue]
    return Edit(line=first, start=start, end_line=last, end=end, text=new)


def argument_rename(text: str, node: ast.keyword, new: str) -> Edit:
    """Return the edit that gives an argument another name."""
    whole = span(text, node, new)
    return Edit(
        line=whole.line, start=whole.start, end_line=whole.line, end=whole.start + len(node.arg or ""), text=new
    )


def argument_removal(text: str, node: ast.AST) -> Edit:
    """Return the edit that takes an argument out of a call, with its comma, or its line where it stands alone."""
    lines = text.split("\n")
    edit = span(text, node, "")
    before = lines[edit.line - 1][: edit.start]
    after = lines[edit.end_line - 1][edit.end :]
    comma = re.match(r"\s*,", after)
    rest = after[comma.end() :] if comma else after
    if not before.strip() and not rest.partition("#")[0].strip():
        return Edit(line=edit.line, start=0, end_line=edit.end_line + 1, end=0, text="")
    if comma:
        blank = len(rest) - len(rest.lstrip(" "))
        return Edit(
            line=edit.line, start=edit.start, end_line=edit.end_line, end=edit.end + comma.end() + blank, text=""
        )
    cut = re.search(r",\s*$", before)
    return Edit(line=edit.line, start=cut.start() if cut else edit.start, end_line=edit.end_line, end=edit.end, text="")
