"""`tonnage logs`: what the ranks of a run printed."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tonnage.cli.options import common, write_json
from tonnage.messages import say

if TYPE_CHECKING:
    from tonnage.record.folder import Folder

_PAUSE_SECONDS: Final = 0.2


@click.command("logs")
@click.argument("run", metavar="RUN")
@click.option("--rank", type=click.IntRange(0), help="Only this rank; by default every file, the launcher's first.")
@click.option("--attempt", type=click.IntRange(0), help="This attempt. [the last]")
@click.option("--follow", "-f", "is_followed", is_flag=True, help="Go on as it is written, until the run ends.")
@common
def command(run: str, rank: int | None, attempt: int | None, is_followed: bool, is_json: bool, is_quiet: bool) -> int:
    """Show what the ranks of a run printed.

    \b
    tonnage logs runs/mine
    tonnage logs runs/mine --rank 3 --follow
    """
    from tonnage.errors import RequestError
    from tonnage.record.folder import Folder

    del is_quiet
    folder = Folder(path=Path(run))
    attempts = folder.read().attempts
    if not attempts:
        raise RequestError(say("run.no_attempts"), where=run[:200], fix=say("run.fix_list"))
    number = attempts[-1].number if attempt is None else attempt
    paths = _paths(folder, number, rank)
    if is_json:
        write_json({"schema": 1, "attempt": number, "files": [str(path) for path in paths]})
        return 0
    for path in paths if not is_followed else ():
        if len(paths) > 1:
            print(f"==> {path.name} <==")
        _copy(path)
    if is_followed:
        _follow(folder, number, rank)
    return 0


def _paths(folder: Folder, attempt: int, rank: int | None) -> list[Path]:
    from tonnage.errors import RequestError

    place = folder.logs(attempt)
    known = sorted(place.glob("*.log")) if place.is_dir() else []
    if rank is None:
        return known
    path = folder.log(attempt, rank)
    if path not in known:
        names = ", ".join(one.stem for one in known) or "-"
        raise RequestError(
            say("run.no_log", rank=rank, attempt=attempt),
            where=str(folder.path)[:200],
            fix=say("run.fix_log", known=names),
        )
    return [path]


def _copy(path: Path) -> None:
    sys.stdout.flush()
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        shutil.copyfileobj(file, sys.stdout)


def _follow(folder: Folder, attempt: int, rank: int | None) -> None:
    """Print what is new in each file until nobody supervises the run."""
    offsets: dict[Path, int] = {}
    is_last = False
    while True:
        now = folder.read().attempts[-1].number
        paths = _paths(folder, attempt, rank)
        for path in paths:
            data = _new(path, offsets)
            if data:
                label = f"{path.stem}: " if rank is None else ""
                for line in data.decode(errors="replace").splitlines():
                    print(f"{label}{line}")
        sys.stdout.flush()
        if is_last:
            return
        if now > attempt:
            attempt, offsets = attempt + 1, {}
            continue
        is_last = not folder.is_supervised
        if not is_last:
            time.sleep(_PAUSE_SECONDS)


def _new(path: Path, offsets: dict[Path, int]) -> bytes:
    """Return the whole lines that were added to a file."""
    with path.open("rb") as file:
        file.seek(offsets.get(path, 0))
        data = file.read()
    data = data[: data.rfind(b"\n") + 1]
    offsets[path] = offsets.get(path, 0) + len(data)
    return data
