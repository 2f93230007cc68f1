"""What a document holds that rules look at: commands, settings, images, code, tables of keys."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tonnage.diagnose.lint.python_code import Code, read_python
from tonnage.diagnose.lint.shell import commands_of, settings_of, split_words
from tonnage.diagnose.lint.types import Command, Document, Edit, Image, Kind, Setting
from tonnage.diagnose.lint.yaml_text import Rows, Table, at, read_json, read_yaml
from tonnage.nouns import noun

__all__ = ["Entry", "Seen", "docker_image", "look"]

_TABLES: Final = (Kind.COMPOSE, Kind.KUBERNETES, Kind.ACCELERATE, Kind.PROMETHEUS, Kind.ALERTS, Kind.SETTINGS)
_NAMES_OF_IMAGES: Final = ("run", "create", "pull")
# Options of docker run that take no value (docker container run, reference): every other takes the next word.
_DOCKER_FLAGS: Final = frozenset((
    "-d", "--detach", "--init", "-i", "--interactive", "--privileged", "-P", "--publish-all", "--read-only", "--rm", "-t",
    "--tty", "--no-healthcheck", "--oom-kill-disable", "--sig-proxy", "--disable-content-trust", "-q", "--quiet", "-it", "-ti",
    "-dit", "-itd", "-td", "-di", "-dt", "--help", "--use-api-socket",
))  # fmt: skip


@noun
class Entry:
    """A setting of a unit: `Restart=always` below `[Service]`."""

    section: str
    key: str
    value: str
    line: int


@noun
class Seen:
    """A document with what was read in it; `trouble` says why a part could not be."""

    document: Document
    code: Code | None = None
    commands: tuple[Command, ...] = ()
    settings: tuple[Setting, ...] = ()
    images: tuple[Image, ...] = ()
    entries: tuple[Entry, ...] = ()
    tables: tuple[Any, ...] = ()
    trouble: str = ""

    @property
    def kind(self) -> Kind:
        """The document's kind."""
        return self.document.kind


def look(document: Document) -> Seen:
    """Read a document; what cannot be read is told and left aside."""
    try:
        return _READERS[document.kind](document)
    except ValueError as error:
        return Seen(document=document, trouble=str(error))
    except RecursionError:
        return Seen(document=document, trouble="nested too deeply")


def _python(document: Document) -> Seen:
    code = read_python(document.text)
    return Seen(document=document, code=code, commands=code.commands, settings=code.settings,
                images=tuple(_images_of(code.commands, document)))  # fmt: skip


def _shell(document: Document) -> Seen:
    commands = commands_of(document.text)
    return Seen(
        document=document,
        commands=commands,
        settings=settings_of(document.text),
        images=tuple(_images_of(commands, document)),
    )


def _nothing(document: Document) -> Seen:
    return Seen(document=document)


def _dockerfile(document: Document) -> Seen:
    commands: list[Command] = []
    settings: list[Setting] = []
    images: list[Image] = []
    stages: set[str] = set()
    for line, word, rest in instructions(document.text):
        if word == "FROM":
            parts = [p for p in rest.split() if not p.startswith("--")]
            if parts and parts[0] not in stages and "$" not in parts[0]:
                images.append(Image(name=parts[0], line=line, edit=_edit_of(document, line, parts[0])))
            if len(parts) > 2 and parts[1].lower() == "as":
                stages.add(parts[2])
        elif word == "ENV":
            words = split_words(rest) or []
            if words and "=" not in words[0]:
                settings.append(Setting(name=words[0], value=" ".join(words[1:]), line=line))
            else:
                pairs = [w.partition("=") for w in words]
                whole = Edit(line=line, start=0, end_line=line + 1, end=0, text="") if len(pairs) == 1 else None
                settings += [Setting(name=n, value=v, line=line, edit=whole) for n, _, v in pairs]
        elif word in ("RUN", "CMD", "ENTRYPOINT"):
            commands += _exec_or_shell(rest, line)
    return Seen(document=document, commands=tuple(commands), settings=tuple(settings), images=tuple(images))


def instructions(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the instructions of a Dockerfile: line, word, the rest with joined line ends."""
    lines = text.split("\n")
    i = 0
    while i < len(lines):
        start, line = i, lines[i].strip()
        while line.endswith("\\") and i + 1 < len(lines):
            i += 1
            following = lines[i].strip()
            line = line[:-1].rstrip() + " " + ("\\" if following.startswith("#") else following)
        i += 1
        word, _, rest = line.partition(" ")
        if word and not word.startswith("#"):
            yield start + 1, word.upper(), rest.strip()


def _exec_or_shell(rest: str, line: int) -> list[Command]:
    if rest.startswith("["):
        try:
            words = json.loads(rest)
        except (ValueError, RecursionError):
            return []
        return [Command(words=tuple(map(str, words)), line=line)] if words else []
    plain = re.sub(r"^(?:--\w+=\S+\s+)+", "", rest)
    return [Command(words=c.words, env=c.env, line=line) for c in commands_of(plain)]


def _unit(document: Document) -> Seen:
    entries = tuple(unit_entries(document.text))
    commands: list[Command] = []
    settings: list[Setting] = []
    for entry in entries:
        if entry.key.startswith("Exec"):
            commands += [Command(words=c.words, env=c.env, line=entry.line)
                         for c in commands_of(entry.value.lstrip("-@:+!"))]  # fmt: skip
        elif entry.key == "Environment":
            for word in split_words(entry.value) or []:
                name, _, value = word.partition("=")
                whole = Edit(line=entry.line, start=0, end_line=entry.line + 1, end=0, text="")
                is_alone = len(split_words(entry.value) or []) == 1
                settings.append(Setting(name=name, value=value, line=entry.line, edit=whole if is_alone else None))
    return Seen(document=document, entries=entries, commands=tuple(commands), settings=tuple(settings),
                images=tuple(_images_of(commands, document)))  # fmt: skip


def unit_entries(text: str) -> Iterator[Entry]:
    """Yield the settings of a unit file, with lines joined that end in a backslash."""
    section = ""
    lines = text.split("\n")
    i = 0
    while i < len(lines):
        start, line = i, lines[i].strip()
        while line.endswith("\\") and i + 1 < len(lines):
            i += 1
            line = line[:-1].rstrip() + " " + lines[i].strip()
        i += 1
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
        elif "=" in line and not line.startswith(("#", ";")):
            key, _, value = line.partition("=")
            yield Entry(section=section, key=key.strip(), value=value.strip(), line=start + 1)


def _tables(document: Document) -> Seen:
    is_json = document.text.lstrip("\ufeff \t\r\n").startswith(("{", "["))
    tables = (read_json(document.text),) if is_json else tuple(read_yaml(document.text))
    commands: list[Command] = []
    settings: list[Setting] = []
    images: list[Image] = []
    for table in tables:
        if document.kind is Kind.COMPOSE:
            _compose(document, table, commands, settings, images)
        elif document.kind is Kind.KUBERNETES:
            _kubernetes(document, table, commands, settings, images)
        elif document.kind is Kind.SETTINGS and isinstance(table, Table):
            _task(table, commands, settings)
    return Seen(
        document=document, tables=tables, commands=tuple(commands), settings=tuple(settings), images=tuple(images)
    )


def _task(table: Table, commands: list[Command], settings: list[Setting]) -> None:
    """Read the scripts of a task: `setup` and `run` as SkyPilot has them, `script` as CI has."""
    for key in ("setup", "run"):
        if isinstance(table.get(key), str):
            first = table.lines[key] + 1
            commands += commands_of(table[key], first)
            settings += [Setting(name=s.name, value=s.value, line=s.line) for s in settings_of(table[key], first)]
    for key in ("envs", "env"):
        _put_environment(table.get(key), settings)


def _put_environment(held: Any, settings: list[Setting]) -> None:
    if isinstance(held, Table):
        settings += [
            Setting(name=n, value=None if v is None else _word(v), line=held.lines[n]) for n, v in held.items()
        ]
    elif isinstance(held, Rows):
        for one, line in zip(held, held.lines, strict=True):
            if isinstance(one, str):
                name, equals, value = one.partition("=")
                settings.append(Setting(name=name, value=value if equals else None, line=line))
            elif isinstance(one, Table) and "name" in one:
                value = one.get("value")
                settings.append(
                    Setting(name=str(one["name"]), value=None if value is None else _word(value), line=line)
                )


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _words_of(value: Any) -> list[str]:
    if isinstance(value, str):
        return split_words(value) or []
    return [_word(v) for v in value] if isinstance(value, list) else []


def _compose(
    document: Document, table: Any, commands: list[Command], settings: list[Setting], images: list[Image]
) -> None:
    services = table.get("services") if isinstance(table, Table) else None
    if not isinstance(services, Table):
        return
    for name, service in services.items():
        if not isinstance(service, Table):
            continue
        line = services.lines[name]
        _put_environment(service.get("environment"), settings)
        image = service.get("image")
        if isinstance(image, str):
            at_line = service.lines["image"]
            images.append(Image(name=image, line=at_line, edit=_edit_of(document, at_line, image)))
        words = [*_words_of(service.get("entrypoint")), *_words_of(service.get("command"))]
        if words:
            at_line = service.lines.get("command", line)
            program = _program_of_image(str(image or "")) if "entrypoint" not in service else ()
            commands.append(Command(words=(*program, *words), line=at_line))


def _kubernetes(
    document: Document, table: Any, commands: list[Command], settings: list[Setting], images: list[Image]
) -> None:
    for spec in _specs(table, 0):
        for key in ("containers", "initContainers"):
            for one in spec.get(key) or ():
                if not isinstance(one, Table):
                    continue
                _put_environment(one.get("env"), settings)
                image = one.get("image")
                if isinstance(image, str):
                    images.append(Image(name=image, line=one.lines["image"],
                                        edit=_edit_of(document, one.lines["image"], image)))  # fmt: skip
                program = () if "command" in one else _program_of_image(str(image or ""))
                words = [*program, *_words_of(one.get("command")), *_words_of(one.get("args"))]
                if words:
                    commands.append(Command(words=tuple(words), line=one.lines.get("args", one.line)))


def _specs(value: Any, depth: int) -> Iterator[Table]:
    if depth > 40:
        return
    if isinstance(value, Table):
        if isinstance(value.get("containers"), list):
            yield value
        for inner in value.values():
            yield from _specs(inner, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            yield from _specs(inner, depth + 1)


def _program_of_image(image: str) -> tuple[str, ...]:
    """Return the words that an image's own entry point puts in front."""
    name = image.partition("@")[0].rpartition("/")[2].partition(":")[0]
    return {"vllm-openai": ("vllm", "serve")}.get(name, ())


def _images_of(commands: tuple[Command, ...] | list[Command], document: Document) -> Iterator[Image]:
    for command in commands:
        name = docker_image(command.words)
        if name and "$" not in name:
            yield Image(name=name, line=command.line, edit=_edit_of(document, command.line, name))


def docker_image(words: tuple[str, ...]) -> str | None:
    """Return the image that a docker or podman command names.

    >>> docker_image(("docker", "run", "-d", "-p", "9090:9090", "--name", "x", "prom/prometheus"))
    'prom/prometheus'
    """
    place = docker_image_place(words)
    return None if place is None else words[place]


def docker_image_place(words: tuple[str, ...]) -> int | None:
    """Return where the image stands in the words."""
    if not words or words[0].rpartition("/")[2] not in ("docker", "podman", "nerdctl", "nvidia-docker"):
        return None
    i = 1
    while i < len(words) and words[i] not in _NAMES_OF_IMAGES:
        if words[i] not in ("container", "image"):
            return None
        i += 1
    i += 1
    while i < len(words) and words[i].startswith("-"):
        is_flag = words[i] in _DOCKER_FLAGS or "=" in words[i]
        i += 1 if is_flag else 2
    return i if i < len(words) else None


def _edit_of(document: Document, line: int, word: str) -> Edit | None:
    """Return where a word stands, on its line or one of the lines that follow in one command."""
    lines = document.lines
    for number in range(line, min(line + 40, len(lines) + 1)):
        place = lines[number - 1].find(word)
        if place >= 0:
            return Edit(line=number, start=place, end_line=number, end=place + len(word), text=word)
    return None


def rules_of(tables: tuple[Any, ...]) -> Iterator[Table]:
    """Yield the alerting and recording rules of rule files and of PrometheusRule objects."""
    for table in tables:
        groups = at(table, "groups") or at(table, "spec.groups") or ()
        for group in groups if isinstance(groups, list) else ():
            for rule in (group.get("rules") or ()) if isinstance(group, Mapping) else ():
                if isinstance(rule, Table):
                    yield rule


_READERS: Final = {
    Kind.PYTHON: _python,
    Kind.SHELL: _shell,
    Kind.DOCKERFILE: _dockerfile,
    Kind.UNIT: _unit,
    Kind.MODPROBE: _nothing,
    Kind.PROSE: _nothing,
    Kind.DEEPSPEED: _tables,
    Kind.DASHBOARD: _tables,
    **dict.fromkeys(_TABLES, _tables),
}
