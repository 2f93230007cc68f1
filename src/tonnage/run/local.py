"""Makes a run folder of a plan or a bundle, and says what each attempt starts."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tonnage import __version__
from tonnage.errors import BadFileError, RequestError
from tonnage.messages import say
from tonnage.nouns import noun
from tonnage.plan.file import read_plan
from tonnage.plan.types import Plan
from tonnage.probe.located import located
from tonnage.record.environment import environment
from tonnage.record.files import read_object, replace_text
from tonnage.record.folder import Folder, run_text
from tonnage.record.types import Predicted, Run, Status
from tonnage.render.bundle import MANIFEST, digest, manifest_text, read_manifest
from tonnage.render.services import service_of
from tonnage.render.targets.local import bundle
from tonnage.render.types import Bundle
from tonnage.run.health import health_url
from tonnage.run.types import Launch, Settings
from tonnage.workload.types import Serving

__all__ = ["Target", "find_target", "launch_of", "predicted_of", "settings_of"]

JOB: Final = "job.json"
ACCELERATE: Final = "accelerate.json"
DEEPSPEED: Final = "deepspeed.json"
_SLOW_WRITE_BYTES_PER_S: Final = 100e6
_SLOW_READ_BYTES_PER_S: Final = 100e6  # a slow disk, or a network of 1 Gbit/s
_LARGEST_BYTES: Final = 64 << 20  # of a bundle's files
_MAKING: Final = ".making"  # there as long as a run folder is not whole
_PATH_ONLY: Final = re.compile(r"^bash ([\w.-]+)$")


@noun
class Source:
    """What is to be run: the files of a bundle, where they lie, and the plan that they carry out."""

    name: str
    place: str
    start: str
    files: Mapping[str, str]  # by path, with the texts
    executables: frozenset[str] = frozenset()
    manifest: str = ""
    plan: Plan | None = None
    plan_text: str | None = None
    origin: Path | None = None  # the folder of a bundle; None: rendered just now


@noun
class Target:
    """A run folder, and what it is made of where it is not there yet."""

    folder: Folder
    source: Source | None = None

    def open(self, *, data: Path | None = None, num_steps: int | None = None, is_cpu: bool = False) -> Run:
        """Return the run: made now, or that which is there already; its lock is held by the caller.

        Raises
        ------
        RequestError
            The folder holds a run of another plan, a finished one, or something else.
        """
        if not self.folder.is_run:
            assert self.source is not None
            return make_run(self.folder, self.source, data=data, num_steps=num_steps, is_cpu=is_cpu)
        if self.source is not None and self.source.manifest != _text_or_none(self.folder.bundle / MANIFEST):
            raise RequestError(say("run.other_plan"), where=str(self.folder.path)[:200], fix=say("run.fix_to"))
        return reopen(self.folder, data=data, num_steps=num_steps)

    @property
    def plan(self) -> Plan | None:
        """The plan that is carried out, where there is one."""
        if self.source is not None:
            return self.source.plan
        text = _text_or_none(self.folder.plan_file)
        return None if text is None else read_plan(text, str(self.folder.plan_file))


def find_target(spec: str, plan_text: str | None, to: Path | None) -> Target:
    """Return the run folder that words name: a run's own, that of a bundle, or that of a plan.

    Parameters
    ----------
    spec : str
        A run folder, a bundle's folder, or the name of a plan file.
    plan_text : str or None
        The plan file's text, where `spec` is no folder.
    to : Path or None
        Where a run is made; by default `run` in a bundle's folder, `runs/NAME` for a plan.

    Returns
    -------
    Target
        Nothing is written yet.
    """
    if plan_text is not None:
        plan, is_gone = located(read_plan(plan_text, spec), Path(spec).parent)
        if is_gone:
            raise RequestError(say("run.model_gone"), where=plan.request.model[:200], fix=say("run.fix_model_gone"))
        _refuse_other_machines(plan)
        source = source_of_plan(bundle(service_of(plan)), plan, plan_text)
        return Target(folder=_folder(to or Path("runs") / source.name), source=source)
    place = Path(spec)
    if Folder(path=place).is_run:
        if to is not None and to.resolve() != place.resolve():
            raise RequestError(say("run.to_of_a_run"), where="--to", fix=say("run.fix_leave_to"))
        return Target(folder=_folder(place))
    return Target(folder=_folder(to or place / "run"), source=source_of_bundle(place))


def _refuse_other_machines(plan: Plan) -> None:
    """Refuse a plan over several machines where nothing says which of them this is.

    Raises
    ------
    RequestError
        The plan needs more machines than this one.
    """
    number = plan.estimate.candidate.cluster.num_nodes
    if number > 1 and not {"MASTER_ADDR", "NODE_RANK"} <= set(os.environ):
        raise RequestError(say("run.several_machines", num=number), where="PLAN", fix=say("run.fix_several"))


def _folder(path: Path) -> Folder:
    return Folder(path=path.resolve())


def _text_or_none(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def settings_of(run: Run, plan: Plan | None = None, **given: Any) -> Settings:
    """Return how patient to be with a run: as given, else by the size of its weights and checkpoints."""
    defaults = Settings()
    write = (run.predicted.checkpoint_bytes or 0.0) / _SLOW_WRITE_BYTES_PER_S
    read = 0.0 if plan is None else plan.estimate.storage.weights_bytes / _SLOW_READ_BYTES_PER_S
    asked = {name: value for name, value in given.items() if value is not None}
    return replace(
        defaults,
        **{
            "grace_seconds": defaults.grace_seconds + write,
            "save_seconds": defaults.save_seconds + 3 * write,
            "start_seconds": defaults.start_seconds + read,
            **asked,
        },
    )


def source_of_bundle(folder: Path) -> Source:
    """Return what a bundle's folder holds.

    Raises
    ------
    RequestError
        No bundle lies there, or one of another place than this machine.
    BadFileError
        Its manifest or a file is broken.
    """
    known = folder / MANIFEST
    if not known.is_file():
        fix = "give a plan file, a folder that tonnage deploy wrote, or a run folder"
        raise RequestError("neither a bundle nor a run lies here", where=str(folder)[:200], fix=fix)
    text = known.read_text(encoding="utf-8")
    read_manifest(text, str(known))
    table = json.loads(text)
    start, place = str(table.get("start", "")), str(table.get("place", ""))
    if _PATH_ONLY.match(start) is None:
        fix = f"start it with: {start}" if start else "write the bundle again with --place local"
        raise RequestError(f"a bundle for {place or 'nowhere'} is not started here", where=str(folder)[:200], fix=fix)
    files: dict[str, str] = {}
    for one in table["files"]:
        path = Path(one["path"])
        if path.is_absolute() or ".." in path.parts:
            raise BadFileError(f"names a file outside: {one['path'][:80]}", where=str(known), fix="write it again")
        files[one["path"]] = _text(folder / path)
    plan_text = files.get("plan.toml")
    return Source(
        name=str(table.get("name") or folder.resolve().name),
        place=place,
        start=start,
        files=files,
        executables=frozenset(one["path"] for one in table["files"] if one.get("is_executable")),
        manifest=text,
        plan=None if plan_text is None else read_plan(plan_text, str(folder / "plan.toml")),
        plan_text=plan_text,
        origin=folder,
    )


def source_of_plan(files: Bundle, plan: Plan, plan_text: str) -> Source:
    """Return what a plan renders to, for this machine."""
    return Source(
        name=files.name,
        place=files.place,
        start=files.start,
        files={file.path: file.text for file in files.files},
        executables=frozenset(file.path for file in files.files if file.is_executable),
        manifest=manifest_text(files),
        plan=plan,
        plan_text=plan_text,
    )


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            raise BadFileError("larger than any file of a bundle", where=str(path), fix="write the bundle again")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise BadFileError(f"cannot be read: {reason}", where=str(path), fix="write the bundle again") from None


def make_run(folder: Folder, source: Source, *, data: Path | None, num_steps: int | None, is_cpu: bool = False) -> Run:
    """Make a run folder; `run.json` comes last, so that a folder without it is no run.

    Raises
    ------
    RequestError
        The folder holds something else, or the job takes no data or steps.
    """
    held = {p.name for p in folder.path.iterdir()} if folder.path.exists() else set[str]()
    if held - {folder.lock_file.name} and _MAKING not in held:
        raise RequestError("is not empty and holds no run", where=str(folder.path)[:200], fix=say("run.fix_to"))
    files = _with_options(source, data, num_steps, is_cpu=is_cpu)
    folder.path.mkdir(parents=True, exist_ok=True)
    (folder.path / _MAKING).touch()
    shutil.rmtree(folder.bundle, ignore_errors=True)
    folder.bundle.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        at = folder.bundle / path
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_text(text, encoding="utf-8", newline="\n")
        at.chmod(0o755 if path in source.executables else 0o644)
    (folder.bundle / MANIFEST).write_text(source.manifest, encoding="utf-8", newline="\n")
    if source.origin is not None:
        _link_engine(source.origin, folder.bundle)
    if source.plan_text is not None:
        replace_text(folder.plan_file, source.plan_text)
    replace_text(folder.environment_file, json.dumps(environment(), indent=2, ensure_ascii=False) + "\n")
    run = _run_of(source, files)
    replace_text(folder.run_file, run_text(run))
    (folder.path / _MAKING).unlink()
    return run


def _link_engine(origin: Path, bundle: Path) -> None:
    """Let the copy find the engine that was installed beside the bundle."""
    for name in (".venv", "data"):
        if (origin / name).exists() and not (bundle / name).exists():
            (bundle / name).symlink_to((origin / name).resolve())


def _run_of(source: Source, files: Mapping[str, str]) -> Run:
    plan = source.plan
    job = _job(files)
    is_server = plan is not None and isinstance(plan.estimate.candidate.workload, Serving)
    return Run(
        name=source.name,
        key=uuid.uuid4().hex,
        kind="serving" if is_server else "training",
        status=Status.STARTING,
        engine="" if plan is None else plan.estimate.candidate.engine,
        place=source.place,
        created=time.time(),
        plan=None if plan is None else "plan.toml",
        num_steps=_num_steps(job),
        predicted=Predicted() if plan is None else predicted_of(plan),
        code={
            "tonnage": __version__,
            **{path: digest(text) for path, text in sorted(files.items()) if path.endswith((".py", ".sh"))},
        },
    )


def predicted_of(plan: Plan) -> Predicted:
    """Return what a plan expects of its run."""
    estimate = plan.estimate
    performance = estimate.performance

    def best(name: str) -> float | None:
        value = getattr(performance, name)
        return None if value is None else value.best

    step = performance.step_seconds
    return Predicted(
        step_seconds=None if step is None else step.best,
        step_seconds_high=None if step is None else step.high,
        tokens_per_s=best("tokens_per_s"),
        mfu_ratio=best("mfu_ratio"),
        memory_bytes=estimate.footprint.total.best,
        host_memory_bytes=estimate.footprint.host_total.best,
        checkpoint_bytes=estimate.storage.checkpoints_bytes,
    )


def _with_options(source: Source, data: Path | None, num_steps: int | None, *, is_cpu: bool) -> dict[str, str]:
    """Return the files with the person's data, steps and processors put into the job."""
    files = dict(source.files)
    job = _job(files)
    if job is None:
        flag = next((name for name, is_asked in (("--data", data is not None), ("--steps", num_steps is not None),
                                                 ("--cpu", is_cpu)) if is_asked), None)  # fmt: skip
        if flag is not None:
            raise RequestError(say("run.no_job"), where=flag, fix=say("run.fix_no_job"))
        return files
    if data is not None:
        if not data.exists():
            raise RequestError("no such file or folder", where=f"--data {data}"[:200], fix="name your text")
        place = str(data.resolve())
        job["data"] = {**job["data"], "path": place} if isinstance(job.get("data"), dict) else place
    if num_steps is not None:
        set_steps(job, num_steps)
    if is_cpu:
        job.setdefault("training_arguments", {})["use_cpu"] = True
        files |= _for_processors(files)
    files[JOB] = json.dumps(job, indent=2, ensure_ascii=False) + "\n"
    return files


def _for_processors(files: Mapping[str, str]) -> dict[str, str]:
    """Return the launchers' own files for a machine without a device: there is no memory to pin for one."""
    found: dict[str, str] = {}
    if ACCELERATE in files:
        found[ACCELERATE] = _json({**json.loads(files[ACCELERATE]), "use_cpu": True})
    if DEEPSPEED in files:
        table = json.loads(files[DEEPSPEED])
        zero = table.get("zero_optimization", {})
        moved = {
            name: {**zero[name], "pin_memory": False} for name in ("offload_optimizer", "offload_param") if name in zero
        }
        found[DEEPSPEED] = _json({**table, "zero_optimization": {**zero, **moved}})
    return found


def _json(table: Mapping[str, Any]) -> str:
    return json.dumps(table, indent=2, ensure_ascii=False) + "\n"


def set_steps(job: dict[str, Any], num_steps: int) -> None:
    """Let a job end after so many optimizer steps."""
    arguments = job.setdefault("training_arguments", {})
    arguments.pop("num_train_epochs", None)
    arguments["max_steps"] = num_steps


def _job(files: Mapping[str, str]) -> dict[str, Any] | None:
    try:
        table = json.loads(files[JOB])
    except (KeyError, ValueError):
        return None
    return table if isinstance(table, dict) else None


def _num_steps(job: dict[str, Any] | None) -> int | None:
    arguments = (job or {}).get("training_arguments")
    value = arguments.get("max_steps") if isinstance(arguments, dict) else None
    return value if isinstance(value, int) and value > 0 else None


def reopen(folder: Folder, *, data: Path | None, num_steps: int | None) -> Run:
    """Return a run that is there already, with another number of steps where one is given.

    Raises
    ------
    RequestError
        It is finished, its job takes no steps, or other data are asked for.
    """
    run = folder.read()
    if data is not None:
        raise RequestError(say("run.other_data"), where="--data", fix=say("run.fix_to"))
    if num_steps is not None and num_steps != run.num_steps:
        job = read_object(folder.bundle / JOB)
        if job is None:
            raise RequestError(say("run.no_job"), where="--steps", fix=say("run.fix_no_job"))
        set_steps(job, num_steps)
        replace_text(folder.bundle / JOB, json.dumps(job, indent=2, ensure_ascii=False) + "\n")
        run = replace(run, num_steps=num_steps, status=Status.STOPPED)
        folder.write(run)
    elif run.status is Status.FINISHED:
        fix = say("run.fix_finished", path=str(folder.path))
        raise RequestError(say("run.finished_already", step=run.last_step), where=str(folder.path)[:200], fix=fix)
    return run


def launch_of(folder: Folder, run: Run, plan: Plan | None) -> Launch:
    """Return what each attempt of a run starts.

    The launcher comes from the bundle's own environment, else from where tonnage itself runs, else from PATH. Ranks say
    in each line who they are; torch's launchers do not start anything again by themselves, and leave ranks as much time
    to stop as the supervisor does.
    """
    start = json.loads((folder.bundle / MANIFEST).read_text(encoding="utf-8"))["start"]
    text = _start_text(folder, start)
    devices = 0 if plan is None else len(plan.estimate.candidate.cluster.node.devices)
    has_launcher = re.search(r"\b(torchrun|accelerate launch|deepspeed)\s", text) is not None
    is_server = run.kind == "serving"
    beside = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    return Launch(
        command=tuple(start.split()),
        folder=folder.bundle,
        env={
            "PATH": os.pathsep.join(beside),
            "PYTHONUNBUFFERED": "1",
            "PYTHONFAULTHANDLER": "1",
            # deepspeed 0.19.8 accelerator/real_accelerator.py takes the accelerator's name from here
            **({"DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": ""} if _is_on_cpu(folder) else {}),
            # torch 2.13 torch/distributed/argparse_util.py: PET_<FLAG> sets a flag of torchrun that is not given
            "PET_MAX_RESTARTS": "0",
            "PET_TEE": "3",
            "PET_LOG_DIR": str(folder.scratch),
            "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "[rank${rank}]:",
            # torch 2.13 distributed_c10d.py and ProcessGroupNCCL: what a hung collective is diagnosed from
            "TORCH_FR_BUFFER_SIZE": "2000",
            "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
            "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        },
        ranks=1 if not has_launcher or devices == 1 else devices,
        is_server=is_server,
        health_url=health_url(service_of(plan).probe, text) if is_server and plan is not None else None,
        has_heartbeat=(folder.bundle / JOB).is_file(),
    )


def _is_on_cpu(folder: Folder) -> bool:
    job = read_object(folder.bundle / JOB)
    return isinstance(job, dict) and bool(dict(job.get("training_arguments") or {}).get("use_cpu"))


def _start_text(folder: Folder, start: str) -> str:
    match = _PATH_ONLY.match(start)
    assert match is not None
    try:
        return (folder.bundle / match[1]).read_text(encoding="utf-8")
    except OSError:
        return ""
