"""What a text is, by its name and by what stands in it; documents with snippets are taken apart."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from typing import Final

from tonnage.diagnose.lint.types import Document, Kind
from tonnage.diagnose.lint.yaml_text import Rows, Table, at, read_json

__all__ = ["documents_of", "kind_of"]

_FENCE: Final = re.compile(r"^([ \t]*)(`{3,}|~{3,})[ \t]*([\w.+-]*)[^\n]*$")
_LANGUAGES: Final = {
    "python": Kind.PYTHON, "py": Kind.PYTHON, "python3": Kind.PYTHON, "bash": Kind.SHELL, "sh": Kind.SHELL,
    "shell": Kind.SHELL, "console": Kind.SHELL, "zsh": Kind.SHELL, "dockerfile": Kind.DOCKERFILE, "docker": Kind.DOCKERFILE,
    "ini": Kind.UNIT, "systemd": Kind.UNIT, "service": Kind.UNIT,
}  # fmt: skip
_TEXT_LANGUAGES: Final = ("", "text", "txt", "plain", "plaintext", "code", "conf", "toml")
_CHINESE: Final = re.compile(r"[\u3000-\u303f\u3400-\u9fff\uff00-\uffef]")
_SHELL_WORDS: Final = (
    "export", "sudo", "docker", "torchrun", "deepspeed", "accelerate", "python", "python3", "pip", "apt", "apt-get", "echo",
    "vllm", "horovodrun", "nvidia-smi", "nvcc", "llama-server", "CUDA_VISIBLE_DEVICES", "NCCL_DEBUG", "mpirun", "ollama",
    "podman", "nvidia-docker", "systemctl", "modprobe", "cat", "./", "kt",
)  # fmt: skip
_MOST_LINES: Final = 20_000


def documents_of(name: str, text: str) -> tuple[Document, ...]:
    """Return the documents that a file holds: itself, or the snippets of a page and the prose around them.

    >>> [d.kind.value for d in documents_of("a.md", "Set it:\\n\\n```bash\\nexport A=1\\n```\\n")]
    ['shell', 'prose']
    """
    lowered = name.lower().rpartition("/")[2]
    if lowered.endswith((".md", ".markdown", ".mdx", ".rst")):
        return tuple(_markdown(name, text))
    if lowered.endswith(".ipynb"):
        return tuple(_notebook(name, text))
    if lowered.endswith(".txt") and not lowered.startswith("requirements"):
        return tuple(_plain(name, text))
    kind = kind_of(name, text)
    if kind is None and _CHINESE.search(text):
        return tuple(_plain(name, text))
    return () if kind is None else (Document(file=name, kind=kind, text=text),)


def kind_of(name: str, text: str) -> Kind | None:
    """Return what a text is, None where it is of no kind that is read here."""
    last = name.lower().rpartition("/")[2]
    if last.endswith((".py", ".pyw")):
        return Kind.PYTHON
    if last.startswith(("dockerfile", "containerfile")) or last.endswith((".dockerfile", ".containerfile")):
        return Kind.DOCKERFILE
    if last.endswith((".service", ".socket", ".timer")):
        return Kind.UNIT
    if last.endswith((".sh", ".bash", ".zsh", ".sbatch", ".slurm", ".env")) or last == ".env":
        return Kind.SHELL
    if last.endswith((".yaml", ".yml")):
        return _kind_of_yaml(text)
    if last.endswith(".json"):
        return _kind_of_json(text)
    if last.endswith(".conf"):
        if re.search(r"^\s*(?:blacklist|options)\s+\S", text, re.MULTILINE):
            return Kind.MODPROBE
        return Kind.UNIT if re.search(r"^\[(?:Service|Unit)\]", text, re.MULTILINE) else None
    return _sniffed(text)


def _sniffed(text: str) -> Kind | None:
    """Return what a text without a telling name is."""
    head = text.lstrip("\ufeff \t\r\n")
    first = head.partition("\n")[0]
    if first.startswith("#!"):
        return Kind.PYTHON if "python" in first else Kind.SHELL
    if re.search(r"^\[(?:Service|Unit)\]\s*$", text, re.MULTILINE):
        return Kind.UNIT
    if head.startswith("{") and head.rstrip().endswith("}"):
        return _kind_of_json(text)
    if re.search(r"^FROM\s+\S+", head, re.MULTILINE) and re.search(
        r"^(?:RUN|CMD|ENTRYPOINT|COPY|WORKDIR)\s", head, re.MULTILINE
    ):
        return Kind.DOCKERFILE
    if re.search(r"^\s*(?:blacklist\s+\w+|options\s+\w+\s+\w+=)", text, re.MULTILINE):
        return Kind.MODPROBE
    if _is_python(text):
        return Kind.PYTHON
    if _is_shell(text.split("\n")):
        return Kind.SHELL
    if re.match(r"(?:[\w-]+:\s|---)", head):
        kind = _kind_of_yaml(text)
        return None if kind is Kind.SETTINGS else kind
    return None


def _has(text: str, key: str) -> bool:
    return re.search(rf"^[ \t-]*[\"']?{key}[\"']?\s*:", text, re.MULTILINE) is not None


def _has_top(text: str, key: str) -> bool:
    return re.search(rf"^[\"']?{key}[\"']?\s*:", text, re.MULTILINE) is not None


def _kind_of_yaml(text: str) -> Kind:
    if _has_top(text, "distributed_type") or _has_top(text, "compute_environment"):
        return Kind.ACCELERATE
    if _has_top(text, "apiVersion") and _has_top(text, "kind"):
        return Kind.ALERTS if re.search(r"^kind:\s*PrometheusRule", text, re.MULTILINE) else Kind.KUBERNETES
    if _has_top(text, "scrape_configs") or _has_top(text, "rule_files"):
        return Kind.PROMETHEUS
    if _has_top(text, "groups") and (_has(text, "alert") or _has(text, "record")):
        return Kind.ALERTS
    if _has_top(text, "services"):
        return Kind.COMPOSE
    if _has_top(text, "zero_optimization"):
        return Kind.DEEPSPEED
    return Kind.SETTINGS


def _kind_of_json(text: str) -> Kind:
    marks = ("zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size")
    if any(f'"{mark}"' in text for mark in marks) and '"training_arguments"' not in text:
        return Kind.DEEPSPEED
    if '"distributed_type"' in text and '"compute_environment"' in text:
        return Kind.ACCELERATE
    if '"panels"' in text and '"expr"' in text:
        return Kind.DASHBOARD
    return Kind.SETTINGS


def _is_python(text: str) -> bool:
    """Whether a text parses and does what scripts do: imports, calls with a result, definitions."""
    if not text.strip():
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    telling = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.With)
    for node in tree.body:
        if isinstance(node, telling):
            return True
        value = getattr(node, "value", None)
        if isinstance(node, ast.Assign | ast.Expr) and isinstance(value, ast.Call):
            return True
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            return True
    return False


def _is_shell(lines: list[str]) -> bool:
    """Whether some line begins as a command does."""
    for line in lines[:500]:
        word = line.strip().partition(" ")[0].partition("=")[0]
        if word in _SHELL_WORDS or word.startswith("./"):
            return True
        if re.match(r"(?:[A-Z][A-Z0-9_]{2,}=\S+\s+)+\S", line):
            return True
    return False


def _markdown(name: str, text: str) -> Iterator[Document]:
    lines = text.split("\n")
    prose = [""] * len(lines)
    i = 0
    while i < len(lines):
        fence = _FENCE.match(lines[i])
        if fence is None:
            prose[i] = lines[i]
            i += 1
            continue
        start = i + 1
        end = start
        while end < len(lines) and not re.match(rf"^\s*{re.escape(fence[2][0])}{{{len(fence[2])},}}\s*$", lines[end]):
            end += 1
        yield from _snippet(name, lines[start:end], start + 1, fence[3].lower())
        i = end + 1
    yield Document(file=name, kind=Kind.PROSE, text="\n".join(prose))


def _snippet(name: str, lines: list[str], first_line: int, language: str) -> Iterator[Document]:
    margin = min((len(x) - len(x.lstrip(" ")) for x in lines if x.strip()), default=0)
    plain = [x[margin:] if x.strip() else "" for x in lines]
    if language in ("console", "shell-session"):
        plain = [x.removeprefix("$ ") for x in plain]
        margin += 2 if any(x.startswith("$ ") for x in lines) else 0
    text = "\n".join(plain)
    if language in _LANGUAGES:
        kind = _LANGUAGES[language]
        if kind is Kind.UNIT and not re.search(r"^\[\w+\]", text, re.MULTILINE):
            return
    elif language in ("yaml", "yml"):
        kind = _kind_of_yaml(text)
    elif language in ("json", "jsonc"):
        kind = _kind_of_json(text)
    elif language in _TEXT_LANGUAGES:
        found = _sniffed(text)
        if found is None:
            yield Document(file=name, kind=Kind.PROSE, text=text, first_line=first_line, indent=margin)
            return
        kind = found
    else:
        return
    yield Document(file=name, kind=kind, text=text, first_line=first_line, indent=margin)


def _notebook(name: str, text: str) -> Iterator[Document]:
    """Yield the code of all cells as one script, and their shell lines as another, each line with its place in the file."""
    try:
        cells = at(read_json(text), "cells")
    except ValueError:
        return
    script: list[tuple[str, int]] = []
    shell: list[tuple[str, int]] = []
    for cell in cells if isinstance(cells, list) else ():
        if not isinstance(cell, Table) or cell.get("cell_type") != "code":
            continue
        for line, number in _cell_lines(cell):
            is_magic = re.match(r"\s*([!%])", line)
            if is_magic and is_magic[1] == "!":
                shell.append((line.strip()[1:], number))
            script.append(("pass" if is_magic else line, number))
    for kind, lines in ((Kind.SHELL, shell), (Kind.PYTHON, script)):
        if lines:
            yield Document(
                file=name, kind=kind, text="\n".join(line for line, _ in lines),
                lines_in_file=tuple(number for _, number in lines),
            )  # fmt: skip


def _cell_lines(cell: Table) -> Iterator[tuple[str, int]]:
    source = cell.get("source", "")
    if isinstance(source, Rows):
        for part, number in zip(source, source.lines, strict=True):
            for line in str(part).removesuffix("\n").split("\n"):
                yield line, number
    else:
        for line in str(source).split("\n"):
            yield line, cell.lines.get("source", 1)


def _plain(name: str, text: str) -> Iterator[Document]:
    """Yield the snippets of a text without fences: runs of lines that are no prose and read as code."""
    lines = text.split("\n")[:_MOST_LINES]
    prose = list(lines)
    start: int | None = None
    for i, line in enumerate([*lines, "。"]):
        if _is_prose(line):
            if start is not None:
                for first, last in _blocks(lines, start, i):
                    block = lines[first:last]
                    margin = min((len(x) - len(x.lstrip(" ")) for x in block if x.strip()), default=0)
                    kind = _sniffed("\n".join(x[margin:] for x in block))
                    if kind is not None:
                        prose[first:last] = [""] * (last - first)
                        yield from _snippet(name, block, first + 1, "")
                start = None
        elif start is None and line.strip():
            start = i
    yield Document(file=name, kind=Kind.PROSE, text="\n".join(prose))


def _blocks(lines: list[str], start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield a run whole where it reads as one thing, else its parts between blank lines."""
    block = lines[start:end]
    margin = min((len(x) - len(x.lstrip(" ")) for x in block if x.strip()), default=0)
    if _sniffed("\n".join(x[margin:] for x in block)) is not None:
        yield start, end
        return
    first: int | None = None
    for i in range(start, end + 1):
        blank = i == end or not lines[i].strip()
        if blank and first is not None:
            yield first, i
            first = None
        elif not blank and first is None:
            first = i


def _is_prose(line: str) -> bool:
    """Whether a line is running text: Chinese outside a comment or a quoted word, a bullet, a table's cell."""
    code, _, _ = line.partition("#")
    code = re.sub(r"\"[^\"]*\"|'[^']*'", "", code)
    return bool(_CHINESE.search(code)) or line.lstrip().startswith(("•", "* ", "- ")) or "\t" in line.strip()
