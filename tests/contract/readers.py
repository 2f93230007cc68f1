"""What reads each kind of file for real: given texts, each returns what its tool has against them ("" for nothing).

Texts go to one process of a tool together. A tool that is not installed skips its tests with the reason; where
TONNAGE_REQUIRE_TOOLS is set, as in CI, a skip counts as a failure (tests/conftest.py).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.contract.cases import documents, rendered

Reader = Callable[[Sequence[str]], list[str]]
DRIVERS = Path(__file__).parent / "drivers"


def tool(name: str) -> str:
    """Return the path of a program."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def module(*names: str) -> None:
    """Ask for Python modules."""
    for name in names:
        if find_spec(name) is None:
            pytest.skip(f"the Python module {name} is not installed")


def verdicts(reader: Reader, texts: Iterable[str]) -> dict[str, str]:
    """Return what a reader has against each text."""
    told_apart = list(dict.fromkeys(texts))
    return dict(zip(told_apart, reader(told_apart), strict=True))


@cache
def read_all(reader: Reader, pattern: str) -> dict[str, str]:
    """Return a reader's verdict of every rendered file whose place and path match, once a session."""
    return verdicts(
        reader,
        (text for offer in rendered() for path, text in offer.files.items() if matches(offer.place, path, pattern)),
    )


def matches(place: str, path: str, pattern: str) -> bool:
    """Whether a file of a bundle is of a kind; a pattern is of "place/path"."""
    return re.fullmatch(pattern, f"{place}/{path}") is not None


def written(texts: Sequence[str], folder: Path, name: str) -> list[Path]:
    """Write texts beside one another; `name` has {} for the number."""
    paths = [folder / name.format(n) for n in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return paths


def bash(texts: Sequence[str]) -> list[str]:
    """Bash's own parser."""
    program = tool("bash")
    return [
        subprocess.run([program, "-n"], input=text, text=True, capture_output=True, check=False).stderr
        for text in texts
    ]


# What shellcheck asks about that is meant: each with its reason.
MEANT = {
    1091,  # /etc/os-release is a file of the machine, not of the bundle
    2016,  # a command in single quotes is expanded later, by the program that it is given to
    2043,  # a loop over the programs that a build needs, where a plan needs one
    2317,  # `root` is called by what `step` evaluates
}


def shellcheck(texts: Sequence[str]) -> list[str]:
    """Shellcheck at its strictest level, a process for each core."""
    program = tool("shellcheck")
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(path) for path in written(texts, Path(folder), "{}.sh")]
        number = min(os.cpu_count() or 1, len(paths))
        command = [program, "--format=json1", "--severity=style"]
        started = [
            subprocess.Popen([*command, *paths[n::number]], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for n in range(number)
        ]
        found: dict[str, list[str]] = {path: [] for path in paths}
        for one in started:
            out, errors = one.communicate()
            assert one.returncode in (0, 1), errors
            for said in json.loads(out)["comments"]:
                if said["code"] not in MEANT:
                    found[said["file"]].append(f"line {said['line']}: SC{said['code']}: {said['message']}")
    return ["\n".join(found[path]) for path in paths]


def compose(texts: Sequence[str]) -> list[str]:
    """`docker-compose config`, all files in one process of its own Python; else Docker's plugin, one process a file."""
    with tempfile.TemporaryDirectory() as folder:
        paths = written(texts, Path(folder), "{}/compose.yaml")
        if old := shutil.which("docker-compose"):
            first = Path(old).read_bytes()[:200].split(b"\n")[0].decode(errors="replace")
            if first.startswith("#!") and "python" in first:
                command = [*first[2:].split(), str(DRIVERS / "v1_compose.py")]
                return driven(command, [str(path) for path in paths])
            return [_alone([old, "-f", str(path), "config", "-q"]) for path in paths]
        docker = shutil.which("docker")
        if docker is None or _alone([docker, "compose", "version"]):
            pytest.skip("neither docker-compose nor Docker's plugin is installed")
        return [_alone([docker, "compose", "-f", str(path), "config", "-q"]) for path in paths]


def _alone(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr or ("" if done.returncode == 0 else f"exit code {done.returncode}")


def driven(command: Sequence[str], questions: Any, env: dict[str, str] | None = None) -> list[str]:
    """Ask a program that reads a list of questions as JSON and prints the list of answers as its last line."""
    done = subprocess.run(
        list(command), input=json.dumps(questions), capture_output=True, text=True, check=False,
        env={**os.environ, **(env or {})},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


def systemd(texts: Sequence[str]) -> list[str]:
    """`systemd-analyze verify`: what it prints counts, since a key that it does not know does not change its exit code."""
    program = tool("systemd-analyze")
    with tempfile.TemporaryDirectory() as folder:
        filled = [text.replace("@FOLDER@", folder).replace("@USER@", "root") for text in texts]
        paths = written(filled, Path(folder), "case-{}.service")
        done = subprocess.run(
            [program, "verify", "--man=no", *map(str, paths)], capture_output=True, text=True, check=False
        )
    lines = done.stderr.splitlines()
    strange = [line for line in lines if not re.search(r"case-\d+\.service", line)]
    assert not strange or any(re.search(r"case-\d+\.service", line) for line in lines), strange
    assert done.returncode == 0 or lines
    return ["\n".join(line for line in lines if re.search(rf"case-{n}\.service", line)) for n in range(len(texts))]


def kubernetes(texts: Sequence[str]) -> list[str]:
    """The API's own schemas, unknown fields refused, then what those schemas leave to the server."""
    module("kubernetes_validate")
    from tests.contract.manifests import complaints

    return ["\n".join(complaints(documents(text))) for text in texts]
