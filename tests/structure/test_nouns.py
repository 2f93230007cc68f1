"""Every noun is frozen, has slots and takes its fields by keyword; names carry base units."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import tonnage

PURE = ("model", "workload", "hardware", "estimate", "engines", "search", "plan", "simulate", "monitor", "render",
        "verify", "diagnose", "calibrate")  # fmt: skip
SOURCES = Path(tonnage.__file__).parent
NOT_BASE_UNIT = re.compile(r"_(kb|mb|gb|tb|kib|mib|gib|tib|ms|us|ns|pct|percent|ghz|mhz|kwh)$|^(size|bw|vram|memory)$")


def nouns() -> Iterator[type]:
    for package in PURE:
        for found in pkgutil.walk_packages([str(SOURCES / package)], f"tonnage.{package}."):
            module = importlib.import_module(found.name)
            yield from (
                value
                for value in vars(module).values()
                if isinstance(value, type) and dataclasses.is_dataclass(value) and value.__module__ == found.name
            )


def faults(noun: type) -> list[str]:
    parameters = noun.__dataclass_params__  # pyright: ignore[reportAttributeAccessIssue]
    wanted = {
        "frozen": parameters.frozen,
        "slots": "__slots__" in vars(noun),
        "kw_only": all(field.kw_only for field in dataclasses.fields(noun)),
    }
    return [f"{noun.__module__}.{noun.__qualname__} is not {what}" for what, holds in wanted.items() if not holds]


def names(source: str) -> Iterator[tuple[int, str]]:
    """Yield arguments, fields and assigned names with their lines."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id


def units_not_base(source: str) -> list[str]:
    return [f"{line}: {name}" for line, name in names(source) if NOT_BASE_UNIT.search(name)]


def test_nouns_are_frozen():
    found = list(nouns())
    assert len(found) > 20
    assert [fault for noun in found for fault in faults(noun)] == []


@pytest.mark.parametrize("package", PURE)
def test_names_carry_base_units(package):
    found = {
        str(path.relative_to(SOURCES)): wrong
        for path in sorted((SOURCES / package).rglob("*.py"))
        if (wrong := units_not_base(path.read_text(encoding="utf-8")))
    }
    assert found == {}


def test_planted_nouns_are_found():
    @dataclass
    class Loose:
        num_layers: int

    assert [fault.split(" is not ")[1] for fault in faults(Loose)] == ["frozen", "slots", "kw_only"]


@pytest.mark.parametrize("source", ["def f(cache_gb): ...", "class C:\n    bw: float = 1.0", "step_ms = 2", "size = 1"])
def test_a_planted_name_is_found(source):
    assert units_not_base(source)
    assert not units_not_base(
        source.replace("_gb", "_bytes").replace("bw", "bytes_per_s").replace("_ms", "_seconds").replace("size", "num")
    )
