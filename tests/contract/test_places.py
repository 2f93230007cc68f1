"""Every file of every bundle is taken by what reads it: shells, Compose, systemd, Kubernetes."""

from __future__ import annotations

import pytest
from tests.contract import readers
from tests.contract.cases import combinations, offers, rendered

from tonnage.render.targets import PLACES

pytestmark = [pytest.mark.contract, pytest.mark.slow]

SCRIPTS = r".*\.(sh|sbatch)"
# Reader, the files that it reads, and a change to one of them that it has to refuse.
READERS = {
    "bash": (readers.bash, SCRIPTS, ("set -euo pipefail", "if then")),
    "shellcheck": (readers.shellcheck, SCRIPTS, ("set -euo pipefail", "rm $HOME/x")),
    "compose": (readers.compose, r"compose\.yaml", ("    restart: ", "    restarts: ")),
    "compose values": (readers.compose, r"compose\.yaml", ("    init: true", "    init: 7")),
    "systemd": (readers.systemd, r".*\.service", ("RestartSec=", "RestartSecs=")),
    "systemd values": (readers.systemd, r".*\.service", ("OOMPolicy=stop", "OOMPolicy=stopp")),
    "kubernetes": (readers.kubernetes, r"kubernetes\.yaml", ("workingDir:", "workdir:")),
    "kubernetes values": (readers.kubernetes, r"kubernetes\.yaml", ("ReadWriteOnce", "ReadWriteOne")),
    "kubernetes ties": (readers.kubernetes, r"kubernetes\.yaml", ("claimName: ", "claimName: x-")),
}


@pytest.mark.parametrize(("program", "goal", "place"), combinations())
def test_every_file_is_taken_by_its_reader(program, goal, place):
    wrong = []
    for reader, pattern in dict.fromkeys((reader, pattern) for reader, pattern, _ in READERS.values()):
        for offer in offers(program, goal, place):
            if offer.bundle is None:
                continue
            for path, text in offer.files.items():
                if readers.matches(path, pattern) and (said := readers.read_all(reader, pattern)[text]):
                    wrong.append(f"{path} of {offer.what}: {said.strip()}")
    assert not wrong, "\n".join(dict.fromkeys(wrong))


@pytest.mark.parametrize("name", READERS)
def test_a_planted_fault_is_refused(name):
    reader, pattern, (right, broken) = READERS[name]
    text = next(t for o in rendered() for p, t in o.files.items() if readers.matches(p, pattern) and right in t)
    assert reader([text, text.replace(right, broken)])[0] == ""
    assert reader([text, text.replace(right, broken)])[1] != ""


def test_every_place_has_files_that_are_read():
    """A place whose own file no reader here knows would pass unseen."""
    known = [pattern for _, pattern, _ in READERS.values()] + [r"task\.yaml"]
    for place in PLACES:
        paths = {path for offer in rendered(place) for path in offer.files}
        own = {path for path in paths if path not in SHARED}
        assert any(readers.matches(path, pattern) for path in own for pattern in known), place


SHARED = {"plan.toml", "README.md", "prepare.sh", "install.sh", "weights.sh", "quantize.py", "train.py", "job.json"}
