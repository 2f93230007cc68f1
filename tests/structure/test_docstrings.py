"""Public functions say what they take and give, and the units they say are the units they are annotated with."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from types import ModuleType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import numpy as np
import pytest

import tonnage
from tonnage.units import Bytes, BytesPerS, Count, Seconds

PACKAGES = ("tonnage.estimate", "tonnage.model", "tonnage.api")
SECTIONS = re.compile(r"^(Parameters|Returns|Raises|Notes|References|Examples|Yields)\n-+$", re.MULTILINE)


def modules(package: str) -> Iterator[ModuleType]:
    root = importlib.import_module(package)
    yield root
    for found in pkgutil.walk_packages(getattr(root, "__path__", ()), f"{package}."):
        yield importlib.import_module(found.name)


def public_functions(module: ModuleType) -> Iterator[Callable[..., Any]]:
    for name, value in vars(module).items():
        function = inspect.unwrap(value) if callable(value) else value
        if inspect.isfunction(function) and function.__module__ == module.__name__ and not name.startswith("_"):
            yield function


def sections(docstring: str) -> dict[str, str]:
    """Split a numpy-style docstring into its sections."""
    parts = SECTIONS.split(docstring)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def described(section: str) -> dict[str, str]:
    """Return each named entry of a section with its indented description: `name, other : type` gives two."""
    found: dict[str, str] = {}
    for block in re.split(r"\n(?=\S)", section.strip("\n")):
        head, _, body = block.partition("\n")
        for name in head.partition(" : ")[0].split(","):
            found[name.strip().lstrip("*")] = body
    return found


def unit(annotation: Any) -> str | None:
    """Return the unit of an annotated quantity: `Bytes` gives "B"; optional ones too."""
    if get_origin(annotation) is Annotated:
        return next((m for m in annotation.__metadata__ if isinstance(m, str)), None)
    return next((u for a in get_args(annotation) if (u := unit(a))), None)


def says(description: str, wanted: str) -> bool:
    return f"[{wanted}]" in description.replace("–", "-")


@cache
def names_for_types(module: str) -> dict[str, Any]:
    """Return what a module imports under `if TYPE_CHECKING:`, which its annotations name."""
    names: dict[str, Any] = {}
    for node in ast.parse(inspect.getsource(importlib.import_module(module))).body:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            exec(compile(ast.Module(body=node.body, type_ignores=[]), module, "exec"), names)
    return names


def faults(function: Callable[..., Any]) -> list[str]:
    """Return what is wrong with a public function's docstring."""
    name = f"{function.__module__}.{function.__qualname__}"
    docstring = inspect.getdoc(function)
    if not docstring:
        return [f"{name}: no docstring"]
    hints = get_type_hints(
        function, {**function.__globals__, **names_for_types(function.__module__)}, include_extras=True
    )
    given = {p: unit(hints.get(p)) for p in inspect.signature(function).parameters}
    returned = unit(hints.get("return"))
    parts = sections(docstring)
    is_formula = returned is not None or any(given.values())
    is_verb = function.__module__ == "tonnage.api"
    if not is_formula and not is_verb:
        return []
    found: list[str] = []
    described_parameters = described(parts.get("Parameters", ""))
    for parameter, wanted in given.items():
        if parameter not in described_parameters:
            found.append(f"{name}: parameter {parameter} is not described")
        elif wanted and not says(described_parameters[parameter], wanted):
            found.append(f"{name}: parameter {parameter} is annotated [{wanted}], its description says otherwise")
    if "Returns" not in parts and hints.get("return") is not type(None):
        found.append(f"{name}: no Returns section")
    elif returned and not says(parts["Returns"], returned):
        found.append(f"{name}: returns [{returned}], its Returns section says otherwise")
    if is_formula and "References" not in parts and "erive" not in docstring:
        found.append(f"{name}: neither a reference nor a derivation")
    return found


FUNCTIONS = [f for package in PACKAGES for module in modules(package) for f in public_functions(module)]


@pytest.mark.parametrize("module", sorted({f.__module__ for f in FUNCTIONS}))
def test_units_said_are_units_annotated(module):
    assert [fault for f in FUNCTIONS if f.__module__ == module for fault in faults(f)] == []


def test_the_packages_are_looked_into():
    assert {f"tonnage.{p}" for p in ("estimate.types", "model.types")} <= {
        m.__name__ for p in PACKAGES for m in modules(p)
    }
    assert tonnage.__version__


def right(num_tokens: Count, rate_bytes_per_s: BytesPerS, *, cache_bytes: Bytes | None = None) -> Seconds:
    """Time to read a cache.

    Parameters
    ----------
    num_tokens : numeric
        Tokens. [1]
    rate_bytes_per_s : numeric
        Rate of the memory,
        one device. [B/s]
    cache_bytes : numeric, optional
        Cache. [B]

    Returns
    -------
    numeric
        Time. [s]

    Notes
    -----
    Derived.
    """
    return num_tokens * cache_bytes / rate_bytes_per_s


def planted(change: Callable[[str], str]) -> Callable[..., Any]:
    """Return the right function with a fault in its docstring."""

    def wrong(num_tokens: Count, rate_bytes_per_s: BytesPerS, *, cache_bytes: Bytes | None = None) -> Seconds:
        return right(num_tokens, rate_bytes_per_s, cache_bytes=cache_bytes)

    wrong.__doc__ = change(textwrap.dedent(right.__doc__ or ""))
    return wrong


def test_a_right_docstring_passes():
    assert faults(right) == []
    assert right(2, 4.0, cache_bytes=np.array([2.0])).tolist() == [1.0]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda doc: doc.replace("Tokens. [1]", "Tokens. [B]"), "num_tokens is annotated [1]"),
        (lambda doc: doc.replace("[B/s]", "[GB/s]"), "rate_bytes_per_s is annotated [B/s]"),
        (lambda doc: doc.replace("Time. [s]", "Time. [ms]"), "returns [s]"),
        (lambda doc: doc.replace("cache_bytes : numeric", "size : numeric"), "cache_bytes is not described"),
        (lambda doc: doc.replace("Derived.", "True."), "neither a reference nor a derivation"),
        (lambda doc: doc.split("Returns")[0], "no Returns section"),
        (lambda _: "", "no docstring"),
    ],
)
def test_a_planted_fault_is_found(change, fault):
    assert any(fault in found for found in faults(planted(change)))
