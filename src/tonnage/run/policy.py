"""Whether starting again can help: pure, so that each rule is a table in a test."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from tonnage.messages import say
from tonnage.run.types import Decision, End, EndKind, Settings, Verdict

__all__ = ["decide", "signature"]

_NUMBERS: Final = re.compile(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?")
_MISSING_TYPES: Final = ("ModuleNotFoundError", "ImportError")


def signature(end: End) -> tuple[str, str, str, int | None]:
    """Return what makes two ends the same: kind, type, message without its numbers, and the step.

    >>> signature(End(kind=EndKind.ERROR, type="ValueError", message="rank 3 at 0x7f12", step=7))
    ('error', 'ValueError', 'rank # at #', 7)
    """
    return str(end.kind), end.type, _NUMBERS.sub("#", end.message), end.step


def decide(ends: Sequence[End], settings: Settings, *, is_server: bool = False) -> Decision:
    """Return what to do after the last of the attempts of one supervisor.

    Parameters
    ----------
    ends : sequence of End
        How each attempt ended, in order.
    settings : Settings
        Patience and pauses.
    is_server : bool
        A server that ends without being asked has failed, whatever its code.

    Returns
    -------
    Decision
        A restart only where it can help.
    """
    last = ends[-1]
    if last.kind is EndKind.FINISHED and not is_server:
        return Decision(verdict=Verdict.FINISH)
    if last.kind is EndKind.STOPPED:
        return Decision(verdict=Verdict.STOP, exit_code=75)
    if last.kind is EndKind.REQUEST:
        return Decision(verdict=Verdict.FAIL, why=last.detail, exit_code=2)
    if last.kind is EndKind.MISSING or last.type in _MISSING_TYPES:
        return Decision(verdict=Verdict.FAIL, why=last.detail, exit_code=4)
    if last.kind in (EndKind.LEFT, EndKind.LOST):
        return Decision(verdict=Verdict.RESTART, why=last.detail)
    failures = [end for end in ends if end.kind not in (EndKind.LEFT, EndKind.LOST)]
    if len(failures) > 1 and signature(failures[-1]) == signature(failures[-2]):
        return Decision(verdict=Verdict.GIVE_UP, why=say("run.same_twice", what=last.detail), exit_code=3)
    stuck = num_without_progress(failures)
    if stuck >= settings.patience:
        return Decision(verdict=Verdict.GIVE_UP, why=say("run.no_progress", num=stuck, what=last.detail), exit_code=3)
    pause = min(settings.longest_backoff_seconds, settings.backoff_seconds * 2 ** max(0, stuck - 1))
    return Decision(verdict=Verdict.RESTART, why=last.detail, wait_seconds=pause)


def num_without_progress(ends: Sequence[End]) -> int:
    """Return how many of the last attempts got no further than the ones before them; the first one counts."""
    best, stuck = -1, 0
    for end in ends:
        reached = -1 if end.reached is None else end.reached
        stuck = 1 if reached > best else stuck + 1
        best = max(best, reached)
    return stuck
