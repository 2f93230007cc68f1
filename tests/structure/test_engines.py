"""Every folder of engines/ is in ENGINES or TRAINERS under its own name, with a data file of its constants."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

import tonnage
from tonnage import engines

FOLDER = Path(tonnage.__file__).parent / "engines"


def folders(place: Path) -> set[str]:
    return {path.parent.name for path in place.glob("*/__init__.py")}


def difference(place: Path, listed: Iterable[str]) -> set[str]:
    """Return the names that are only a folder, or only in the list."""
    return folders(place) ^ {name.replace("-", "_").replace(".", "_") for name in listed}


def test_engines_are_listed():
    listed = [engine.name for engine in engines.ENGINES]
    trainers = [trainer.name for trainer in engines.TRAINERS]
    assert len(listed) == len(set(listed))
    assert len(trainers) == len(set(trainers))
    listed += [name for name in trainers if name not in listed]
    assert difference(FOLDER, listed) == set()


def test_a_planted_engine_is_found(tmp_path):
    for name in ("vllm", "llama_cpp"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    assert difference(tmp_path, ["vllm", "llama.cpp"]) == set()
    assert difference(tmp_path, ["vllm"]) == {"llama_cpp"}
    assert difference(tmp_path, ["vllm", "llama.cpp", "sglang"]) == {"sglang"}


@pytest.mark.parametrize("name", [engine.name for engine in engines.ENGINES])
def test_every_constant_has_a_range_and_its_evidence(name):
    """A value inside its range, what it means, and where it comes from: a source, a fit, or "assumed" with a reason."""
    entries = engines.find_engine(name).accounting.constants.entries
    assert entries
    for one in entries:
        assert one.low <= one.value <= one.high, one.key
        assert one.meaning, one.key
        assert len(one.evidence) > 6, one.key
        assert "to be" not in one.evidence, one.key
        if one.spread:
            assert one.prior is not None, one.key
            assert one.low <= one.prior <= one.high, one.key
    keys = [one.key for one in entries]
    assert len(keys) == len(set(keys))
