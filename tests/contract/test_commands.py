"""The commands as they stand in each place: their options are the engine's own, and the start script gets to them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.contract.cases import SERVE, VARIABLES, combinations, documents, offers, rendered, words
from tests.engines.test_options import PROGRAMS, RECORDED, known_options, wrong_words

pytestmark = [pytest.mark.contract, pytest.mark.slow]

STANDS_ON = {"ktransformers": "sglang"}  # whose options are the server's own


def recorded(program: str) -> str | None:
    """Return the list that a program's options are in, or None where its own parser reads them elsewhere."""
    name = program.replace("-", "_").replace(".", "_")
    name = STANDS_ON.get(name, name)
    return name if name in RECORDED else None


def own_words(line: list[str]) -> list[str]:
    """Return what the engine itself is given: behind a launcher, an interpreter or the program's name."""
    if line[0] == "torchrun":
        at = next(n for n, word in enumerate(line) if word == "-m" or word.endswith(".py"))
        return line[at + (2 if line[at] == "-m" else 1) :]
    return line[3:] if line[:2] == ["python", "-m"] else line[1:]


def planned(kind: str, place: str | None = None):
    return [key for key in combinations() if (key[1] == SERVE) == (kind == SERVE) and place in (None, key[2])]


@pytest.mark.parametrize(("program", "goal", "place"), [key for key in planned(SERVE) if recorded(key[0])])
def test_a_server_is_told_nothing_that_it_does_not_know(program, goal, place):
    known, wrong = known_options(recorded(program)), set()
    for offer in offers(program, goal, place):
        if offer.bundle is not None:
            wrong |= set(wrong_words(own_words(words(offer)), known))
    assert not wrong


@pytest.mark.parametrize(("program", "goal", "place"), [key for key in planned("job") if key[0] in PROGRAMS])
def test_a_program_that_trains_is_told_nothing_that_it_does_not_know(program, goal, place):
    known, wrong = known_options(PROGRAMS[program]), set()
    for offer in offers(program, goal, place):
        if offer.bundle is not None:
            wrong |= set(wrong_words(own_words(words(offer)), known))
    assert not wrong


@pytest.mark.parametrize("place", sorted({key[2] for key in combinations()}))
def test_a_flag_that_is_not_known_would_be_seen_in_every_place(place):
    offer = next(offer for offer in rendered(place, SERVE) if offer.program == "vllm")
    assert words(offer)[:2] == ["vllm", "serve"]
    known = {name: values for name, values in known_options("vllm").items() if name != "--port"}
    assert wrong_words(own_words(words(offer)), known) == ["--port"]


# A script of the bundle that something in it runs; notes and comments name commands of other folders too.
RUN = re.compile(r"\bbash (?:/(?:bundle|scratch|tmp)/)?([a-z-]+\.sh)\b")


def runs(text: str) -> set[str]:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith(("#", "echo", "tell", "step"))]
    return set(RUN.findall("\n".join(lines)))


@pytest.mark.parametrize(("program", "goal", "place"), combinations())
def test_every_script_that_is_run_is_in_the_bundle(program, goal, place):
    for offer in [one for one in offers(program, goal, place) if one.bundle is not None]:
        read = [text for path, text in offer.files.items() if path.endswith((".sh", ".sbatch", ".service", ".yaml"))]
        wanted = set().union(*map(runs, read))
        assert wanted <= set(offer.files) | ({"start.sh"} if place == "kubernetes" else set()), offer.what
        if place == "kubernetes":
            objects = documents(offer.files["kubernetes.yaml"])
            held = {key for one in objects if one["kind"] == "ConfigMap" for key in one["data"]}
            assert runs(offer.files["kubernetes.yaml"]) <= held, offer.what


def test_a_script_that_is_not_there_would_be_seen():
    assert runs("exec bash /scratch/start.sh && bash install.sh\n# bash other.sh\n") == {"start.sh", "install.sh"}


# Stands for every program: it writes down what it was called with. `python -c` asks for a version and gets none.
STUB = """#!/bin/sh
[ "$1" = -c ] && exit 1
printf '%s\\n' "${0##*/}" "$@" > "$CALLED"
"""


@pytest.mark.parametrize(("program", "goal", "place"), [key for key in combinations() if key[2] == "local"])
def test_the_start_script_gets_to_its_command(program, goal, place, tmp_path):
    """Bash runs it, on a machine that has every program and no device, up to the program itself."""
    found = [offer for offer in offers(program, goal, place) if offer.bundle is not None]
    for number, offer in enumerate(found[:4]):
        given = words(offer)
        called = started(offer.files, given[0], tmp_path / str(number))
        assert called[0] == given[0]
        only_on_large_machines = [word for word in given if word not in called]
        assert only_on_large_machines in ([], ["--numa-bind"], ["--numa-binding", "node"]), offer.what


def started(files: dict[str, str], program: str, folder: Path) -> list[str]:
    """Run a bundle's start script beside stubs; return what the program was called with.

    What the script looks for, and other scripts of the bundle bring, is there: programs, and files of weights.
    """
    programs = folder / "programs"
    programs.mkdir(parents=True)
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    for looked_for in re.findall(r"\[ -[ed] (\S+) \]", files["start.sh"]):
        at = folder / shlex.split(looked_for)[0]
        if folder in at.parents and not at.exists():
            at.mkdir(parents=True)
    # interface.py's answer, where it is asked; a name is enough where the script only looks for a program.
    stubs = {"python3": "#!/bin/sh\necho lo\n", program: STUB, "python": STUB}
    for name in re.findall(r"command -v (\S+)", files["start.sh"]):
        stubs.setdefault(name, STUB)
    for name, text in stubs.items():
        (programs / name).write_text(text, encoding="utf-8")
        (programs / name).chmod(0o755)
    called = folder / "called"
    done = subprocess.run(
        [shutil.which("bash"), "start.sh"], cwd=folder, capture_output=True, text=True, check=False,
        env={"PATH": f"{programs}:{os.environ['PATH']}", "CALLED": str(called), "NCCL_NET": "Socket", **VARIABLES},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return called.read_text(encoding="utf-8").splitlines()


def test_a_start_script_that_stops_before_its_command_would_be_seen(tmp_path):
    offer = next(iter(rendered("local")))
    broken = offer.files["start.sh"].replace("\nexec ", "\nfalse\nexec ")
    with pytest.raises(AssertionError):
        started({**offer.files, "start.sh": broken}, words(offer)[0], tmp_path)
