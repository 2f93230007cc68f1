"""Failures and --help in Chinese: what people meet is translated, whole, and English comes back unharmed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click
import pytest
from tests.conftest import call_tonnage

import tonnage
from tonnage.cli import VERBS, group
from tonnage.cli.translate import helped, translated
from tonnage.messages import choose_language
from tonnage.messages.errors import MESSAGES

SOURCES = Path(tonnage.__file__).parent
RAISED = {"TonnageError", "RequestError", "UnknownNameError", "BadFileError", "OutsideError"}
MET = ("cli/model.py", "cli/gpus.py", "cli/plan.py", "cli/explain.py", "cli/settings.py", "plan/request.py",
       "plan/where.py", "plan/pins.py", "plan/scene.py", "plan/file.py", "probe/spec.py", "probe/files.py", "probe/hub.py",
       "hardware/names.py", "hardware/browse.py", "hardware/host.py", "units.py", "engines/__init__.py",
       "model/catalogue.py", "model/hf/__init__.py", "calibrate/measurements.py", "plan/profile.py")  # fmt: skip
CHINESE = re.compile(r"[\u3400-\u9fff]")


@pytest.fixture
def chinese():
    choose_language("zh")
    yield
    choose_language("en")


def text_of(node: ast.AST | None) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "17" for part in node.values)
    return None


def raised(source: str) -> Iterator[str]:
    """Yield what failures say and how they are mended, where it stands beside the exception; fields become a number."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in RAISED:
            parts = [node.args[0] if node.args else None, *(k.value for k in node.keywords if k.arg == "fix")]
            yield from (text for part in parts if (text := text_of(part)))


def test_what_people_meet_is_translated(chinese):
    texts = sorted({text for name in MET for text in raised((SOURCES / name).read_text("utf-8"))})
    missing = [text for text in texts if not CHINESE.search(translated(text)) and re.search("[a-z]{3} [a-z]{2}", text)]
    assert len(texts) > 80
    assert len(missing) <= len(texts) / 10, missing


def helps(command: click.Command) -> Iterator[str]:
    yield from re.split(r"\n\s*\n", command.help or "")
    for option in command.params:
        if text := getattr(option, "help", None):
            yield text
    for inner in getattr(command, "commands", {}).values():
        yield from helps(inner)


def test_help_is_translated():
    texts = [text for verb in VERBS for text in helps(import_module(f"tonnage.cli.{verb}").command)] + [*helps(group)]
    texts = [text for text in texts if "\b" not in text and re.search("[a-z]{3} [a-z]{2}", text)]
    choose_language("zh")
    missing = [text for text in texts if not CHINESE.search(helped(text))]
    choose_language("en")
    assert len(texts) > 80
    assert len(missing) <= len(texts) / 10, missing


@pytest.mark.parametrize("pair", list(MESSAGES.values()), ids=list(MESSAGES))
def test_every_pair_is_reached(pair, chinese):
    english, wanted = pair
    values = [f"x{n}" for n in range(len(set(re.findall(r"\{\d\}", english))))]
    assert translated(english.format(*values)) == wanted.format(*values)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("plan", "nope"), "没有名为“nope”的模型"),
        (("plan", "Qwen/Qwen3-8B", "--gpu", "rtx-9999"), "没有名为“rtx-9999”的设备; 是否指 rtx-3090"),
        (("plan", "Qwen/Qwen3-8B", "--reserve", "3"), "“3”没有单位"),
        (("plan", "Qwen/Qwen3-8B", "--gup", "x"), "没有选项 --gup"),
        (("model", "/nope.gguf"), "没有这个文件或文件夹"),
        (("gpus", "--sort", "x"), "“x”不是"),
        (("frobnicate",), "没有命令“frobnicate”"),
    ],
)
def test_failures(words, said):
    assert said in call_tonnage("--lang", "zh", *words).err
    answer = call_tonnage(*words[:1], "--lang", "zh", *words[1:])
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert said in answer.err
    english = call_tonnage(*words)
    assert english.code == 2
    assert not CHINESE.search(english.err)


@pytest.mark.parametrize("words", [(verb,) for verb in VERBS] + [(), ("prices", "import")])
def test_help_in_both_languages(words):
    before = call_tonnage(*words, "-h").out
    chinese = call_tonnage("--lang", "zh", *words, "-h").out
    assert CHINESE.search(chinese)
    assert not CHINESE.search(before)
    assert call_tonnage(*words, "-h").out == before
