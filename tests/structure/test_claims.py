"""Each of the 148 claims is answered by a test or a golden file that exists, unless its issue is still open."""

from __future__ import annotations

import ast
import csv
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

from tonnage.cli import VERBS

VERDICTS = {"right", "conditional", "wrong", "outdated", "no such thing"}
ISSUES = ("BACKBONE", "TRAINING", "INFERENCE", "CHOOSE", "DEPLOY", "TRAIN", "DIAGNOSE", "WATCH", "SERVE", "SIMULATE",
          "WEB")  # fmt: skip
Row = Mapping[str, str]


@cache
def functions(path: Path) -> set[str]:
    return {n.name for n in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(n, ast.FunctionDef)}


def exists(answer: str, root: Path) -> bool:
    """Whether an answer is there: a file under tests, or `tests/file.py::test_name[case]`."""
    name, _, test = answer.partition("::")
    path = root / name
    if not name.startswith("tests/") or not path.is_file():
        return False
    if not test:
        return path.suffix != ".py"
    return test.partition("[")[0] in functions(path)


def faults(rows: Sequence[Row], open_issues: set[str], root: Path) -> list[str]:
    found: list[str] = []
    if [row["id"] for row in rows] != [str(n) for n in range(1, 149)]:
        found.append("the claims are not numbered from 1 to 148")
    for row in rows:
        where = f"claim {row['id']}"
        found += [f"{where}: no {column}" for column in ("claim", "today", "source", "issue") if not row[column]]
        issues = row["issue"].split()
        if row["verdict"] not in VERDICTS:
            found.append(f"{where}: {row['verdict']!r} is no verdict")
        if not set(issues) <= set(ISSUES):
            found.append(f"{where}: no issue is called {row['issue']!r}")
        if not row["answer"] and not open_issues & set(issues):
            found.append(f"{where}: no answer, and {row['issue']} is closed")
        found += [f"{where}: {a} does not exist" for a in row["answer"].split() if not exists(a, root)]
        if row["answer"] and not row["command"]:
            found.append(f"{where}: an answer without a command that shows it")
        if row["command"] and shlex.split(row["command"])[:1] != ["tonnage"]:
            found.append(f"{where}: {row['command']!r} is no command of ours")
    return found


@pytest.fixture(scope="module")
def claims(root) -> list[Row]:
    return list(csv.DictReader((root / "docs" / "claims.csv").read_text("utf-8").splitlines()))


@pytest.fixture(scope="module")
def open_issues(root) -> set[str]:
    return set((root / "docs" / "open_issues.txt").read_text("utf-8").split())


def test_every_claim_is_answered(claims, open_issues, root):
    assert open_issues <= set(ISSUES)
    assert faults(claims, open_issues, root) == []


def test_deployment_is_answered_whole(claims):
    """Of the claims on preparing and deploying none waits for another issue."""
    mine = [row for row in claims if 43 <= int(row["id"]) <= 98]
    assert len(mine) == 56
    assert [row["id"] for row in mine if not row["answer"]] == []


def test_commands_answer(claims, tonnage):
    """A command shown beside a claim runs, and answers yes or no."""
    commands = sorted({row["command"] for row in claims if row["command"]})
    shown = {command: tonnage(*shlex.split(command)[1:]) for command in commands if shlex.split(command)[1] in VERBS}
    assert {command: (a.code, a.err[:200]) for command, a in shown.items() if a.code not in {0, 3}} == {}


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"answer": ""}, "no answer, and BACKBONE is closed"),
        ({"answer": "tests/structure/test_claims.py::test_that_is_not_there"}, "does not exist"),
        ({"answer": "tests/golden/not_there.txt"}, "does not exist"),
        ({"answer": "src/tonnage/api.py"}, "does not exist"),
        ({"verdict": "perhaps"}, "is no verdict"),
        ({"issue": "SOMEDAY"}, "no issue is called"),
        ({"source": ""}, "no source"),
        ({"command": ""}, "without a command"),
        ({"command": "rm -r x"}, "no command of ours"),
        ({"id": "2"}, "not numbered"),
    ],
)
def test_a_planted_fault_is_found(root, change, fault):
    right = {"id": "1", "claim": "c", "verdict": "right", "today": "t", "source": "s", "issue": "BACKBONE",
             "answer": "tests/structure/test_claims.py::test_every_claim_is_answered",
             "command": "tonnage model x"}  # fmt: skip
    rows = [right | {"id": str(n)} for n in range(1, 149)]
    assert faults(rows, set(), root) == []
    rows[0] |= change
    assert Counter(fault in found for found in faults(rows, set(), root))[True] == 1
