"""Hostile logs: read within a time limit, without a traceback, and without an answer that is not there."""

from __future__ import annotations

import random
import time

import pytest

from tonnage.diagnose.lines import mask, redact, seconds_of
from tonnage.diagnose.symptoms import symptoms

SECONDS = 20.0  # on a machine shared with others; alone each takes well under one
OOM = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB of which 1.00 MiB is free."
LITERALS = [literal for rule in symptoms().values() for pattern in rule.patterns for literal in pattern.find]


def hostile() -> dict[str, bytes]:
    rng = random.Random(7)
    longest = 10 << 20
    return {
        "one line of 10 MB": b"x" * longest,
        "a failure in the middle of 10 MB": b"y" * (longest // 2) + OOM.encode() + b"z" * (longest // 2),
        "nested brackets": b"[{(" * (1 << 20),
        "invalid UTF-8": bytes(rng.randrange(128, 256) for _ in range(1 << 18)) + b"\nerror \xff\xfe\n",
        "colours without end": b"\x1b[" * (1 << 19) + b"31m" + OOM.encode() + b"\x1b]0;" * 1000,
        "carriage returns": b"\r".join(b" %d%%|####| error" % i for i in range(100_000)) + b"\r" + OOM.encode(),
        "no line ends": b"error: failed to allocate " * 200_000,
        "line ends only": b"\n" * (2 << 20),
        "literals in one line": " ".join(LITERALS).encode() * 3,
        "literals in pieces": "\n".join(
            literal[: rng.randrange(1, len(literal))] for literal in LITERALS * 30
        ).encode(),
        "digits": b"NVRM: Xid (PCI:" + b"0" * (1 << 20) + b"): 79",
        "spaces": b"loss" + b" " * (1 << 20) + b"nan",
        "escaped lines": b"\\n".join([b"exit code 1"] * 100_000),
        "zeros": b"\0" * (1 << 20) + OOM.encode(),
    }


@pytest.mark.parametrize(("name", "data"), hostile().items(), ids=lambda value: value if isinstance(value, str) else "")
def test_a_hostile_log_is_read_in_time(name, data, diagnose):
    began = time.process_time()
    answer = diagnose(data)
    assert time.process_time() - began < SECONDS
    found = [one.id for one in answer.findings]
    if OOM.encode() in data and "colours" not in name:
        assert "TORCH_OOM" in found
    for one in answer.findings:
        assert all(len(place.text) <= 400 for place in one.evidence)


def test_interleaved_ranks_are_told_apart(diagnose):
    lines = [f"[rank{i % 8}]: step {i} loss 2.0" for i in range(4000)]
    lines[1234] = f"[rank5]: torch.OutOfMemoryError: {OOM[14:]}"
    lines[2000] = (
        "[rank2]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely."
    )
    first = diagnose("\n".join(lines)).findings[0]
    assert (first.id, first.ranks, first.evidence[0].line) == ("TORCH_OOM", (5,), 1235)


@pytest.mark.parametrize("size", [1, 7, 100, 4096])
def test_the_size_of_blocks_does_not_matter(size):
    from tonnage.probe.evidence import Reader

    data = ("a\n" * 999 + OOM + "\nb\n" * 10).encode()
    reader = Reader()
    reader.read("x", [data[i : i + size] for i in range(0, len(data), size)])
    assert [(hit.symptom, hit.line) for hit in reader.hits] == [("TORCH_OOM", 1000)]
    assert reader.seen[0].num_lines == 1019


SECRET = "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY"


@pytest.mark.parametrize(
    "text",
    [
        f"HF_TOKEN=hf_{SECRET}",
        f"export WANDB_API_KEY={SECRET}",
        f"Authorization: Bearer {SECRET}",
        f"--api-key {SECRET}",
        f"password: {SECRET}",
        f'{{"secret_access_key": "{SECRET}"}}',
        f"https://user:{SECRET}@host/x",
        f"https://{SECRET}@github.com/x",
        f"s3?X-Amz-Signature={SECRET}&x=1",
        f"AKIA{SECRET[:16].upper()}",
        f"sk-{SECRET}",
        f"token='{SECRET}'",
        f"OPENAI_API_KEY: '{SECRET}'",
        f"git clone https://x-access-token:ghp_{SECRET}@github.com/a/b",
        f"eyJ{SECRET}.{SECRET}.{SECRET}",
    ],
)
def test_a_secret_is_not_shown(text, diagnose):
    assert SECRET not in mask(text)
    assert SECRET[:16].upper() not in mask(text) or "AKIA" not in text
    answer = diagnose(f"OSError: [Errno 28] No space left on device {text}")
    assert SECRET not in repr(answer)


@pytest.mark.parametrize(
    "text",
    ["CUDA out of memory", "num_tokens=4096 max_tokens: 128", "token usage: 0.41", "SeqNum=41, OpType=ALLREDUCE"],
)
def test_what_is_no_secret_stays(text):
    assert mask(text) == text


def test_hosts_and_addresses_are_hidden_when_asked():
    text = "Nov 30 10:00:00 gpu-7 kernel: connect to 10.0.0.2<4> of node12.cluster.example.com mac 0c:42:a1:00:11:22 by jane@example.com in /home/user/x fe80::1ff:fe23:4567:890a"
    hidden = redact(text)
    for word in ("gpu-7", "10.0.0.2", "example.com", "0c:42", "jane", "fe80"):
        assert word not in hidden
    assert redact("gpu-1:900:961 [0] NCCL WARN x").startswith("<host>:900")


def test_times_of_many_forms_are_read():
    iso = seconds_of("2026-11-30 10:00:05,250 INFO x")
    assert iso == seconds_of("2026-11-30T10:00:05.25Z x") == seconds_of("E1130 10:00:05.250000 7 x")
    assert seconds_of("INFO 11-30 10:00:05 [x.py:1] y") == seconds_of("Nov 30 10:00:05 gpu-1 x: y") == iso - 0.25
    assert seconds_of("[ 812.1] x") is None
