"""`tonnage deploy`: the files that start a plan."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tonnage.cli.options import common, emit_json, note
from tonnage.messages import say

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tonnage.plan.types import Plan
    from tonnage.render.bundle import Change
    from tonnage.render.types import Bundle, Scaling

_LARGEST_BYTES = 8 << 20


@click.command("deploy")
@click.argument("path", metavar="PLAN")
@click.option("--to", "folder", required=True, metavar="DIR", help="Folder to write to; - prints the files instead.")
@click.option(
    "--place", default="local", show_default=True, help="local, compose, systemd, kubernetes, slurm, skypilot."
)
@click.option("--engine", help="Program that runs the plan, where it is another: torchrun, llamafactory, axolotl …")
@click.option("--diff", "is_diff", is_flag=True, help="Show what would change, and change nothing.")
@click.option("--replicas", default=1, show_default=True, type=click.IntRange(1, 1024), help="Copies of a server.")
@click.option("--port", type=click.IntRange(1, 65535), help="Port of a server; the engine's own by default.")
@click.option("--scale", metavar="MIN..MAX", help="Replicas follow the load (kubernetes); 0 scales to zero with KEDA.")
@click.option(
    "--scale-target", type=float, metavar="N", help="Requests a replica, as tonnage simulate --autoscale finds."
)
@click.option(
    "--scale-on",
    type=click.Choice(("waiting", "in-flight")),
    default="waiting",
    show_default=True,
    help="Which of them.",
)
@click.option("--monitor", "is_monitored", is_flag=True, help="Add what Prometheus and Alertmanager read.")
@common
def command(
    path: str,
    folder: str,
    place: str,
    engine: str | None,
    is_diff: bool,
    replicas: int,
    port: int | None,
    scale: str | None,
    scale_target: float | None,
    scale_on: str,
    is_monitored: bool,
    is_json: bool,
    is_quiet: bool,
) -> int:
    """Write the files that start a plan, with the flags that the prediction assumed.

    A file that you changed since is never written over.

    \b
    tonnage plan Qwen/Qwen3.5-27B --gpu rtx-4090 --pick 1 -o plan.toml
    tonnage deploy plan.toml --to bundle
    tonnage deploy plan.toml --to bundle --place systemd --diff
    tonnage deploy train.toml --to bundle --engine torchrun
    """
    from tonnage import api
    from tonnage.cli.plan import read_text
    from tonnage.errors import RequestError
    from tonnage.plan.file import LARGEST_BYTES
    from tonnage.render.bundle import State, compare, manifest, manifest_text
    from tonnage.render.quote import shell_words

    if not folder.strip():
        raise RequestError("names no folder", where="--to", fix="write --to bundle, or --to - to print the files")
    plan = _located(api.read_plan(read_text(path, LARGEST_BYTES), path), Path(path).parent, is_quiet=is_quiet)
    bundle = api.deploy(
        plan,
        place=place,
        num_replicas=replicas,
        port=port,
        engine=engine,
        is_monitored=is_monitored,
        scaling=_scaling(scale, scale_target, scale_on),
    )
    if folder == "-":
        if is_json:
            emit_json(manifest(bundle))
        else:
            print(_printed(bundle), end="")
        return 0
    at = Path(folder)
    changes = compare(bundle, *_held(bundle, at))
    if is_diff:
        print("".join(change.diff for change in changes if change.state is not State.SAME), end="")
    else:
        _write(bundle, changes, at, manifest_text(bundle))
    foreign = None if is_diff else _foreign_start(bundle, changes)
    if is_json:
        emit_json({**manifest(bundle), "changes": [{"path": c.path, "state": str(c.state)} for c in changes]})
    elif foreign is not None:
        text = "deploy.foreign_start" if foreign.state is State.TAKEN else "places.start_behind"
        print(say(text, path=str(at / foreign.path)))
    elif not is_diff:
        print(
            say(
                "deploy.written",
                path=folder,
                num=sum(change.state in (State.NEW, State.CHANGED) for change in changes),
                start=" && ".join((f"cd {shell_words([folder])}", *bundle.before, bundle.start)),
            )
        )
    for change in changes:
        if change.state in (State.EDITED, State.TAKEN):
            text = "deploy.kept" if change.state is State.EDITED else "deploy.taken"
            note(say(text, path=str(at / change.path)), is_quiet=is_quiet)
    return 0 if foreign is None else 3


def _located(plan: Plan, beside: Path, *, is_quiet: bool) -> Plan:
    """Name a model of this machine by where it lies: scripts run in the bundle's folder, where its own words lead nowhere."""
    from tonnage.probe.located import located

    found, is_gone = located(plan, beside)
    if is_gone:
        note(say("places.model_gone", path=plan.request.model), is_quiet=is_quiet)
    return found


def _scaling(scale: str | None, target: float | None, scale_on: str) -> Scaling | None:
    from tonnage.cli.simulate import above_zero, replica_range
    from tonnage.errors import RequestError
    from tonnage.render.types import Scaling

    bounds = replica_range(scale, "--scale")
    if bounds is None:
        if target is not None:
            raise RequestError("says nothing without a range", where="--scale-target", fix="add --scale 1..8")
        return None
    if target is None:
        raise RequestError(
            "by how many requests is not said",
            where="--scale",
            fix="add --scale-target 4; tonnage simulate PLAN --autoscale finds the best",
        )
    above_zero(target, "--scale-target")
    return Scaling(least=bounds[0], most=bounds[1], target=target, counts_running=scale_on == "in-flight")


def _foreign_start(bundle: Bundle, changes: tuple[Change, ...]) -> Change | None:
    """Return the file that the start command runs or reads where it does not start this plan; None where it does.

    It does not where it is a person's own, or where a person changed an earlier plan's.
    """
    from tonnage.render.bundle import State

    place = {"compose": "compose.yaml", "systemd": f"{bundle.name}.service"}.get(bundle.place)
    read = {*bundle.start.split(), "start.sh", *((place,) if place else ())}
    return next(
        (
            change
            for change in changes
            if change.path in read
            and (change.state is State.TAKEN or (change.state is State.EDITED and change.is_behind))
        ),
        None,
    )


def _printed(bundle: Bundle) -> str:
    """Return the files one after another, each under its name."""
    return "".join(f"==> {file.path} <==\n{file.text}\n" for file in bundle.files)


def _held(bundle: Bundle, folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Read what a folder holds of an earlier bundle; one that cannot be read, or cannot be, is refused."""
    from tonnage.errors import RequestError

    try:
        return _read_folder(bundle, folder)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise RequestError(
            f"cannot be read: {reason}", where=str(folder)[:200], fix="name another place with --to"
        ) from None


def _read_folder(bundle: Bundle, folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Return the texts of the folder's files by path, and the hashes that its manifest gives."""
    from tonnage.errors import RequestError
    from tonnage.render.bundle import MANIFEST, read_manifest

    if folder.exists() and not folder.is_dir():
        raise RequestError("is not a folder", where=str(folder)[:200], fix="name another with --to")
    known = folder / MANIFEST
    written = dict(read_manifest(known.read_text(encoding="utf-8"), str(known))) if known.is_file() else {}
    paths = [path for path in {file.path for file in bundle.files} | set(written) if _is_inside(path)]
    held = {path: _text(folder / path) for path in paths if (folder / path).exists()}
    return held, written


def _is_inside(path: str) -> bool:
    """Whether a manifest's path stays in its folder: an edited manifest must not reach outside."""
    return not Path(path).is_absolute() and ".." not in Path(path).parts


def _text(path: Path) -> str:
    """Return a file's text; bytes that are not UTF-8 make it differ from anything we wrote."""
    return path.read_bytes()[:_LARGEST_BYTES].decode(errors="replace") if path.is_file() else ""


def _write(bundle: Bundle, changes: tuple[Change, ...], folder: Path, manifest: str) -> None:
    """Write all files aside before any is put in its place: a full disk or Ctrl-C leaves the folder as it was."""
    from tonnage.errors import RequestError
    from tonnage.render.bundle import MANIFEST, State

    executable = {file.path for file in bundle.files if file.is_executable}
    texts = {c.path: c.new for c in changes if c.state in (State.NEW, State.CHANGED) and c.new is not None}
    texts[MANIFEST] = _manifest_of(manifest, changes)
    is_new, asides = not folder.exists(), {path: _aside(folder / path) for path in texts}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in texts.items():
            _put(asides[path], text, is_executable=path in executable)
        for path, aside in asides.items():
            aside.replace(folder / path)
        for change in changes:
            if change.state is State.STALE:
                (folder / change.path).unlink()
    except BaseException as error:
        _take_back(folder, asides.values(), is_new=is_new)
        if not isinstance(error, OSError):
            raise
        raise RequestError(
            f"cannot be written: {error.strerror}", where=str(folder)[:200], fix="name another place"
        ) from None


def _take_back(folder: Path, asides: Iterable[Path], *, is_new: bool) -> None:
    """Remove what was begun, and a folder that was not there before."""
    for aside in asides:
        with contextlib.suppress(OSError):
            aside.unlink()
    if is_new:
        shutil.rmtree(folder, ignore_errors=True)


def _manifest_of(manifest: str, changes: tuple[Change, ...]) -> str:
    """Leave a file that was there before us out of the manifest: it stays the person's."""
    from tonnage.render.bundle import State

    table = json.loads(manifest)
    taken = {change.path for change in changes if change.state is State.TAKEN}
    table["files"] = [one for one in table["files"] if one["path"] not in taken]
    return json.dumps(table, indent=2, ensure_ascii=False) + "\n"


def _aside(at: Path) -> Path:
    return at.with_name(f".{at.name}.part")


def _put(at: Path, text: str, *, is_executable: bool) -> None:
    at.parent.mkdir(parents=True, exist_ok=True)
    at.write_text(text, encoding="utf-8", newline="\n")
    at.chmod(0o755 if is_executable else 0o644)
