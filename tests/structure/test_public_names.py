"""`__all__` is honest: what it lists exists and is documented, and what `api` defines it lists."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from types import ModuleType

import pytest

import tonnage
from tonnage import api

LATE = ("tonnage.jobs", "tonnage.__main__", "tonnage.oracle")  # programs, and what needs an extra
MODULES = [
    m.name for m in pkgutil.walk_packages(tonnage.__path__, "tonnage.") if not m.name.startswith(LATE)
]  # fmt: skip


def faults(module: ModuleType) -> list[str]:
    found = [] if (module.__doc__ or "").strip() else [f"{module.__name__} does not say which question it answers"]
    for name in getattr(module, "__all__", ()):
        value = getattr(module, name, None)
        if value is None:
            found.append(f"{module.__name__}.{name} is listed and missing")
        elif (inspect.isfunction(value) or inspect.isclass(value)) and not inspect.getdoc(value):
            found.append(f"{module.__name__}.{name} is listed and undocumented")
    return found


def unlisted(module: ModuleType) -> set[str]:
    """Return the public functions and classes defined in a module that its `__all__` leaves out."""
    defined = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isfunction(value) or inspect.isclass(value))
        and value.__module__ == module.__name__
    }
    return defined - set(getattr(module, "__all__", ()))


@pytest.mark.parametrize("name", MODULES)
def test_modules_are_documented(name):
    assert faults(importlib.import_module(name)) == []


def test_the_api_lists_its_verbs():
    assert unlisted(api) == set()


def test_planted_faults_are_found():
    module = ModuleType("planted")
    exec("def f(): ...\ndef g():\n    'Says it.'\n__all__ = ['f', 'g', 'h']", vars(module))
    assert len(faults(module)) == 3
    module.__all__ = ["g"]
    module.f.__module__ = module.g.__module__ = "planted"
    assert unlisted(module) == {"f"}
