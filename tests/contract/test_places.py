"""Every file of every bundle is taken by what reads it: shells, Compose, systemd, Kubernetes."""

from __future__ import annotations

import pytest
from tests.contract import manifests, readers
from tests.contract.cases import combinations, documents, offers, rendered

from tonnage.render.targets import PLACES

pytestmark = [pytest.mark.contract, pytest.mark.slow]

SCRIPTS = r".*\.(sh|sbatch)"
MANIFESTS = r"kubernetes/(kubernetes|hpa|keda|nccl-test)\.yaml"
# Reader, the files that it reads, and a change to one of them that it has to refuse.
READERS = {
    "bash": (readers.bash, SCRIPTS, ("set -euo pipefail", "if then")),
    "shellcheck": (readers.shellcheck, SCRIPTS, ("set -euo pipefail", "rm $HOME/x")),
    "compose": (readers.compose, r"compose/compose\.yaml", ("    restart: ", "    restarts: ")),
    "compose values": (readers.compose, r"compose/compose\.yaml", ("    init: true", "    init: 7")),
    "systemd": (readers.systemd, r"systemd/.*\.service", ("RestartSec=", "RestartSecs=")),
    "systemd values": (readers.systemd, r"systemd/.*\.service", ("OOMPolicy=stop", "OOMPolicy=stopp")),
    "kubernetes": (readers.kubernetes, MANIFESTS, ("workingDir:", "workdir:")),
    "kubernetes values": (readers.kubernetes, MANIFESTS, ("ReadWriteOnce", "ReadWriteOne")),
    "kubernetes scalers": (readers.kubernetes, MANIFESTS, ("type: AverageValue", "type: Average")),
    "kubernetes of others": (readers.kubernetes, MANIFESTS, ("pollingInterval:", "interval:")),
    "kubernetes ties": (readers.kubernetes, MANIFESTS, ("claimName: ", "claimName: x-")),
}


@pytest.mark.parametrize(("program", "goal", "place"), combinations())
def test_every_file_is_taken_by_its_reader(program, goal, place):
    kinds = dict.fromkeys((reader, pattern) for reader, pattern, _ in READERS.values())
    found = [
        (reader, pattern, path, text, offer.what)
        for offer in offers(program, goal, place)
        if offer.bundle
        for path, text in offer.files.items()
        for reader, pattern in kinds
        if readers.matches(place, path, pattern)
    ]
    wrong = [
        f"{path} of {what}: {said.strip()}"
        for reader, pattern, path, text, what in found
        if (said := readers.read_all(reader, pattern)[text])
    ]
    assert not wrong, "\n".join(dict.fromkeys(wrong))


@pytest.mark.parametrize("name", READERS)
def test_a_planted_fault_is_refused(name):
    reader, pattern, (right, broken) = READERS[name]
    text = next(
        t for o in rendered() for p, t in o.files.items() if readers.matches(o.place, p, pattern) and right in t
    )
    assert reader([text, text.replace(right, broken)])[0] == ""
    assert reader([text, text.replace(right, broken)])[1] != ""


@pytest.mark.parametrize(("program", "goal"), [key[:2] for key in combinations() if key[2] == "kubernetes"])
def test_a_scaler_finds_what_it_scales(program, goal):
    for offer in offers(program, goal, "kubernetes"):
        if offer.bundle is not None and "hpa.yaml" in offer.files:
            objects = [
                one for path in ("kubernetes.yaml", "hpa.yaml", "keda.yaml") for one in documents(offer.files[path])
            ]
            assert not manifests.complaints(objects)
            objects[-1]["spec"]["scaleTargetRef"]["name"] = "another"
            assert any("to be scaled" in said for said in manifests.complaints(objects))


# Read in other files of these tests.
ELSEWHERE = {"slurm": r"slurm/.*\.sbatch", "skypilot": r"skypilot/(task|nccl-test)\.yaml"}


@pytest.mark.parametrize("place", PLACES)
def test_every_file_of_a_place_has_a_reader(place):
    """A place whose own file no reader here knows would pass unseen; files of the programs stand in several places."""
    known = [pattern for _, pattern, _ in READERS.values()] + list(ELSEWHERE.values())
    paths = {one: {path for offer in rendered(one) for path in offer.files} for one in PLACES}
    own = paths[place].difference(*(found for one, found in paths.items() if one != place))
    unread = {path for path in own if not any(readers.matches(place, path, pattern) for pattern in known)}
    assert own
    assert unread <= {"router.conf", "adapter-rule.yaml"}  # nginx and prometheus-adapter, which no test here runs
