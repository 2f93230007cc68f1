"""Reads lines as a log, without files."""

from __future__ import annotations

import pytest

from tonnage.diagnose import match
from tonnage.diagnose.symptoms import symptoms
from tonnage.diagnose.types import Diagnosis
from tonnage.probe.evidence import Reader


def read(*logs: str | bytes, **named: str | bytes) -> Diagnosis:
    """Diagnose logs that are given as texts; keywords name their files."""
    reader = Reader()
    for name, log in [*((f"log-{i}", one) for i, one in enumerate(logs)), *named.items()]:
        reader.read(name.replace("__", "/"), [log.encode() if isinstance(log, str) else log])
    return match.diagnose(reader.hits, reader.seen, symptoms())


@pytest.fixture
def diagnose():
    return read
