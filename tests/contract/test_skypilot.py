"""SkyPilot's own loader takes every task."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.contract import readers
from tests.contract.cases import combinations, offers, rendered

pytestmark = [pytest.mark.contract, pytest.mark.slow]

PATTERN = r"skypilot/(task|nccl-test)\.yaml"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def sky(tmp_path_factory):
    """Return a reader: SkyPilot in its own environment, its files in a home of its own."""
    program = ROOT / ".venv-sky" / "bin" / "python"
    if not program.is_file():
        pytest.skip("SkyPilot's environment is not there: make .venv-sky/.installed")
    env = {"HOME": str(tmp_path_factory.mktemp("home")), "PYTHONPATH": "", "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}
    return lambda texts: readers.driven([str(program), str(readers.DRIVERS / "sky_tasks.py")], texts, env)


@pytest.fixture(scope="module")
def verdicts(sky):
    return readers.verdicts(
        sky, (t for o in rendered("skypilot") for p, t in o.files.items() if readers.matches(o.place, p, PATTERN))
    )


@pytest.mark.parametrize(("program", "goal", "place"), [key for key in combinations() if key[2] == "skypilot"])
def test_skypilot_takes_every_task(verdicts, program, goal, place):
    wrong = {
        f"{path} of {offer.what}: {verdicts[text]}"
        for offer in offers(program, goal, place)
        if offer.bundle
        for path, text in offer.files.items()
        if readers.matches(place, path, PATTERN) and verdicts[text]
    }
    assert not wrong


FAULTS = {
    "a field": ("resources:\n", "resource:\n"),
    "a field of the resources": ("disk_size:", "disk:"),
    "a type": ("num_nodes: ", "num_nodes: x"),
    "a strategy": ("strategy: ", "strategy: X"),
    "a device": ("H100:", "H1000:"),
}


@pytest.fixture(scope="module")
def faults(sky):
    """Return what SkyPilot has against a real task, and against it with each fault."""
    tasks = [offer.files["task.yaml"] for offer in rendered("skypilot")]
    pairs = [
        (text, text.replace(right, broken))
        for right, broken in FAULTS.values()
        for text in [next(t for t in tasks if right in t)]
    ]
    said = sky([text for pair in pairs for text in pair])
    return dict(zip(FAULTS, zip(said[::2], said[1::2], strict=True), strict=True))


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_refused(faults, name):
    whole, broken = faults[name]
    assert whole == ""
    assert broken
