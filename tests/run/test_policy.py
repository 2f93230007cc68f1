"""Starting again only where it can help."""

from __future__ import annotations

import pytest

from tonnage.run.policy import decide, num_without_progress
from tonnage.run.types import End, EndKind, Settings, Verdict

PATIENT = Settings(backoff_seconds=1.0, longest_backoff_seconds=8.0, patience=4)


def error(step, message="broken", reached=None):
    return End(
        kind=EndKind.ERROR, type="ValueError", message=message, step=step, reached=step if reached is None else reached
    )


@pytest.mark.parametrize(
    ("ends", "verdict", "code"),
    [
        ([End(kind=EndKind.FINISHED)], Verdict.FINISH, 0),
        ([End(kind=EndKind.STOPPED)], Verdict.STOP, 75),
        ([End(kind=EndKind.REQUEST)], Verdict.FAIL, 2),
        ([End(kind=EndKind.MISSING)], Verdict.FAIL, 4),
        ([End(kind=EndKind.ERROR, type="ModuleNotFoundError", message="No module named 'torch'")], Verdict.FAIL, 4),
        ([End(kind=EndKind.LEFT)], Verdict.RESTART, 0),
        ([error(7)], Verdict.RESTART, 0),
        ([error(7), error(7)], Verdict.GIVE_UP, 3),
        ([error(7, "rank 3 at 0x7f"), error(7, "rank 1 at 0x55")], Verdict.GIVE_UP, 3),
        ([error(7), error(8)], Verdict.RESTART, 0),
        ([error(7), error(7, "of another kind")], Verdict.RESTART, 0),
        ([error(7), End(kind=EndKind.LEFT), error(7)], Verdict.GIVE_UP, 3),
        ([End(kind=EndKind.KILLED, type="SIGKILL", step=7)] * 2, Verdict.GIVE_UP, 3),
        ([End(kind=EndKind.KILLED, type="SIGKILL", step=7), End(kind=EndKind.KILLED, type="SIGSEGV", step=7)], Verdict.RESTART, 0),
        ([End(kind=EndKind.HANG, type="hang", step=7)] * 2, Verdict.GIVE_UP, 3),
        ([error(n, reached=0) for n in range(3)], Verdict.RESTART, 0),
        ([error(n, reached=0) for n in range(4)], Verdict.GIVE_UP, 3),
        ([error(n) for n in range(40)], Verdict.RESTART, 0),
    ],
)  # fmt: skip
def test_what_follows(ends, verdict, code):
    decision = decide(ends, PATIENT)
    assert (decision.verdict, decision.exit_code) == (verdict, code)


def test_a_server_that_ends_by_itself_has_failed():
    assert decide([End(kind=EndKind.FINISHED)], PATIENT, is_server=True).verdict is Verdict.RESTART


def test_pauses_grow_while_nothing_comes_of_it():
    ends = [error(n, str(n) * 2 + "abcdefg"[n], reached=5) for n in range(4)]
    waits = [
        decide(ends[: n + 1], Settings(backoff_seconds=1, longest_backoff_seconds=3, patience=9)).wait_seconds
        for n in range(4)
    ]
    assert waits == [1, 2, 3, 3]
    assert num_without_progress([error(1), error(1, reached=1), error(2)]) == 1
