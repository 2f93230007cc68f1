"""What careless and hostile people do: closed pipes, full disks, odd terminals, broken settings, pipes for files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import call_tonnage

import tonnage as package

ASK = ("plan", "Qwen/Qwen3-8B", "--gpu", "rtx-4090", "--engine", "llama.cpp")


def run_shell(script: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run the command line as `t` of a shell."""
    start = (
        f'export PYTHONPATH="{Path(package.__file__).parent.parent}"; t() {{ "{sys.executable}" -m tonnage "$@"; }}; '
    )
    shell = ["bash", "-c", start + script]
    return subprocess.run(shell, env=dict(os.environ) | environment, capture_output=True, check=False, timeout=60)


@pytest.mark.parametrize(
    ("script", "code", "said"),
    [
        ("t gpus | head -1 > /dev/null; exit ${PIPESTATUS[0]}", 0, b""),
        ("t gpus 4090 >&-", 0, b""),
        ("t plan nope --json >&- 2>&-", 2, b""),
        ("t gpus 4090 > /dev/full", 4, b"No space left"),
        ("t plan nope --json > /dev/full", 2, b"no model is called"),
    ],
    ids=["the reader goes", "closed", "all closed", "full", "full at a failure"],
)
@pytest.mark.skipif(sys.platform != "linux", reason="platform: /dev/full")
def test_output_that_cannot_be_written(script, code, said):
    done = run_shell(script)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert b"fault of ours" not in done.stderr
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr


def test_a_terminal_without_the_characters():
    done = run_shell("t gpus 4090 --lang zh && t gpus 4090 --json --lang zh", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout.decode("ascii").splitlines()[-1])["schema"] == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x =", "cannot be read"),
        ("plan = 3", "plan is not a table"),
        ("[plam]\ncontext = 1", "did you mean plan"),
        ("[plan]\nmicro-batsch = 1", "did you mean micro_batch"),
        ("[plan]\nspec = 'x'", "spec in [plan] is not a setting"),
        ("[plan]\ncontext = [1, 2]", "context cannot be"),
        ("[plan]\nbudget = 1979-05-27", "budget cannot be"),
        ("[plan]\nset = {a = 1}", "set cannot be"),
        ("[plan]\ncontext = 0.5", "--context"),
        ("lang = 'xx'", "--lang"),
        ("a = " + "[" * 5000, "cannot be read"),
    ],
)
def test_settings_that_are_none(text, said, tmp_path, monkeypatch):
    place = tmp_path / "config.toml"
    place.write_text(text)
    monkeypatch.setenv("TONNAGE_CONFIG", str(place))
    answer = call_tonnage(*ASK)
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize("place", ["/dev/zero", "/"])
def test_settings_that_are_no_file(place, monkeypatch):
    monkeypatch.setenv("TONNAGE_CONFIG", place)
    answer = call_tonnage(*ASK)
    assert (answer.code, answer.err.count("\n")) == (2, 1)


def test_settings_are_written_as_flags(tmp_path, monkeypatch):
    place = tmp_path / "config.toml"
    place.write_text('json = true\nquiet = true\n[plan]\nmicro-batch = 2\npretrain = true\ngpu = "h100:8"\n')
    monkeypatch.setenv("TONNAGE_CONFIG", str(place))
    request = call_tonnage("plan", "Qwen/Qwen3-8B").json["request"]
    assert (request["goal"], request["pins"]) == ("pretrain", {"micro_batch_size": 2})
    assert request["gpus"] == [{"gpu": "h100", "num_gpus": 8}]
    assert call_tonnage("plan", "nope").json["error"]["where"] == "MODEL"


def test_json_and_the_plan_file_do_not_mix():
    answer = call_tonnage(*ASK, "--json", "-o", "-")
    assert answer.code == 2
    assert set(answer.json) == {"error"}


@pytest.mark.parametrize("words", [("explain",), (*ASK, "--import")])
def test_a_pipe_that_nobody_writes_to_is_empty(words, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    answer = call_tonnage(*words, str(pipe))
    assert (answer.code, answer.err.count("\n")) == (2, 1)


def test_a_plan_file_with_a_byte_order_mark(tmp_path):
    text = call_tonnage(*ASK, "-o", "-").out
    place = tmp_path / "plan.toml"
    place.write_text("\ufeff" + text, encoding="utf-8")
    assert call_tonnage("explain", str(place)).code == 0


@pytest.mark.parametrize("verb", ["model", "explain", "plan"])
@pytest.mark.parametrize("place", ["/proc/kmsg", "/dev/zero", "/dev/tty"])
def test_files_that_never_end_or_never_begin(verb, place):
    done = run_shell(f'timeout 20 bash -c \'t() {{ "{sys.executable}" -m tonnage "$@"; }}; t {verb} {place}\'')
    assert done.returncode == 2, done.stderr
    assert done.stderr.count(b"\n") == 1
