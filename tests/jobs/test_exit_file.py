"""A launcher ends with a code of its own: the program writes down the one that it ends with."""

import os
import subprocess
import sys
from pathlib import Path

import tonnage

TRAIN = Path(tonnage.__file__).parent / "jobs" / "train.py"


def test_the_code_is_written_where_it_is_asked_for(tmp_path):
    env = {**os.environ, "TONNAGE_EXIT_FILE": str(tmp_path / "code")}
    said = subprocess.run(
        [sys.executable, str(TRAIN), "no-such-job.json"], cwd=tmp_path, env=env, capture_output=True, check=False
    )
    assert said.returncode == 2
    assert (tmp_path / "code").read_text() == "2"


def test_nothing_is_written_where_nobody_asks(tmp_path):
    env = {name: value for name, value in os.environ.items() if name != "TONNAGE_EXIT_FILE"}
    subprocess.run([sys.executable, str(TRAIN)], cwd=tmp_path, env=env, capture_output=True, check=False)
    assert list(tmp_path.iterdir()) == []
