"""The fault campaign: runs are hurt in a seeded list of ways, and each has to end as if nothing had happened.

    python validation/faults.py --number 104 --seed 1 --job fake            the supervisor alone, on arithmetic
    python validation/faults.py --number 104 --seed 1 --job fake --write    and keep the report

After each fault the run must end with the loss of the undisturbed run, resume from the newest save that was complete and
whole when the fault came, and leave no process. What is lost, and the time from the fault to the next new step, is told.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import hashlib
import io
import json
import math
import multiprocessing
import os
import random
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "src"), str(Path(__file__).resolve().parent.parent)]

from validation.fake_bundle import write_bundle  # noqa: E402
from validation.train_bundle import DATA, ENGINES, ENVIRONMENT, make_model, write_train_bundle  # noqa: E402

from tonnage import api  # noqa: E402
from tonnage.run import local, supervise  # noqa: E402  before any fork: a supervisor's process then starts at once

assert local, supervise
HERE = Path(__file__).resolve().parent
PATIENCE_SECONDS = 60.0  # for anything to happen
LARGEST_RESTARTS = 4
COLUMNS = ("number", "job", "kind", "rank", "step", "fault_step", "resumed_from", "lost_steps", "allowed_lost_steps",
           "recover_seconds", "attempts", "exit_code", "loss", "verdict", "what")  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault: what is done, to which rank, once which step is reached."""

    number: int
    job: str
    kind: str
    rank: int
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job to hurt: how its bundle is made, and how patient its supervisor is."""

    name: str
    num_ranks: int
    num_steps: int
    save_every: int
    make: Callable[..., Path]
    patience: dict[str, Any] = field(default_factory=dict)
    tolerance: float = 0.0  # of the final loss, relative
    env: dict[str, str] = field(default_factory=dict)
    file_bytes: int = 64  # on a full disk


FAST = {
    "tick_seconds": 0.02, "least_step_seconds": 2.0, "start_seconds": 20.0, "save_seconds": 4.0, "dump_seconds": 0.5,
    "backoff_seconds": 0.02, "grace_seconds": 10.0,
}  # fmt: skip


def fake_job(num_ranks: int, num_steps: int = 24) -> Job:
    """Return the job of arithmetic alone on some ranks."""

    def make(folder: Path, **more: Any) -> Path:
        return write_bundle(
            folder,
            num_ranks=num_ranks,
            num_steps=num_steps,
            save_every=6,
            step_seconds=0.006,
            save_seconds=0.03,
            **more,
        )

    return Job(
        name=f"fake-{num_ranks}", num_ranks=num_ranks, num_steps=num_steps, save_every=6, make=make, patience=FAST
    )


PATIENT = {
    "tick_seconds": 0.05, "least_step_seconds": 10.0, "start_seconds": 150.0, "save_seconds": 30.0, "dump_seconds": 3.0,
    "backoff_seconds": 0.1, "grace_seconds": 60.0,
}  # fmt: skip


def real_job(engine: str) -> Job:
    """Return a training of a tiny mixture of experts by `jobs/train.py`, on two ranks where the engine has several."""
    made = Path(tempfile.gettempdir()) / "tonnage-faults-model"

    def make(folder: Path, **more: Any) -> Path:
        make_model(made)
        return write_train_bundle(folder, engine, made, num_steps=40, save_every=10, **more)

    return Job(
        name=engine, num_ranks=1 if engine == "single" else 2, num_steps=40, save_every=10, make=make, patience=PATIENT,
        env=ENVIRONMENT, file_bytes=256 << 10,
    )  # fmt: skip


REALS = {name: real_job(name) for name in ENGINES}
FAKES = {f"fake-{n}": fake_job(n) for n in (1, 2, 3)}


class Trial:
    """One run under one fault."""

    def __init__(self, job: Job, fault: Fault | None, folder: Path) -> None:
        from tonnage.record.folder import Folder

        self.job, self.fault = job, fault
        more = {"nan_at": fault.step} if fault is not None and fault.kind == "nan in a batch" else {}
        self.bundle = job.make(folder / "bundle", **more)
        self.run = Folder(path=folder / "run")
        self.supervisor = 0
        self.allowed_from: int | None = None  # the step that a resume has to start at, at the least
        self.fault_step: int | None = None
        self.fault_time = 0.0

    def start(self) -> None:
        """Start a supervisor in a process of its own."""
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", DeprecationWarning
            )  # other threads of the test runner, which the child never uses
            self.supervisor = os.fork()
        if self.supervisor:
            return
        code = 1
        try:
            os.environ.update(self.job.env)
            target = str(self.run.path) if self.run.is_run else str(self.bundle)
            to = None if self.run.is_run else self.run.path
            code = api.run(target, to=to, **self.job.patience).exit_code
        except BaseException as error:  # noqa: BLE001  the code is all that the parent sees
            with contextlib.suppress(OSError):
                (self.run.path / "supervisor.txt").write_text(repr(error))
        os._exit(1 if code is None else code)

    def end(self) -> int:
        """Wait for the supervisor's end and return its code."""
        _, status = os.waitpid(self.supervisor, 0)
        return os.waitstatus_to_exitcode(status)

    def has_ended(self) -> bool:
        """Whether the supervisor has ended; it can still be waited for."""
        return os.waitid(os.P_PID, self.supervisor, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def wait(self, is_so: Callable[[], Any], seconds: float = PATIENCE_SECONDS) -> Any:
        """Wait until something holds, or the run has ended."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            found = is_so()
            if found or self.has_ended():
                return found
            time.sleep(0.004)
        return None

    def pid(self, rank: int) -> int | None:
        """Return the process of a rank, once its heartbeat has reached the fault's step."""
        for beat in self.run.heartbeat():
            if beat.rank == rank and beat.step is not None and beat.step >= self.fault.step:
                return beat.pid
        return None

    def saved(self) -> list[int]:
        """Return the steps of the completed checkpoints."""
        from tonnage.record.checkpoints import checkpoints

        return [int(path.name.rpartition("-")[2]) for path in checkpoints(self.run.checkpoints)]

    def note(self) -> None:
        """Keep what had been reached when the fault came."""
        steps = [beat.step for beat in self.run.heartbeat() if beat.step is not None]
        steps += [step.step for step in self.run.steps(0)[-1:]]
        self.fault_step = max(steps, default=0)
        self.allowed_from = max(self.saved(), default=0)
        self.fault_time = time.time()


def kill(trial: Trial, pid: int | None, number: int = signal.SIGKILL) -> bool:
    """Send a signal to a process and keep what had been reached."""
    if pid is None:
        return False
    trial.note()
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
    return True


def saving(trial: Trial) -> bool:
    """Whether a checkpoint of the fault's step or a later one is being written."""
    place = trial.run.checkpoints
    names = [p.name for p in place.glob(".writing-step-*")] if place.is_dir() else []
    return any(int(name.rpartition("-")[2]) >= trial.fault.step for name in names)


def kill_rank(trial: Trial) -> bool:
    return kill(trial, trial.wait(lambda: trial.pid(trial.fault.rank)))


def kill_rank_in_save(trial: Trial) -> bool:
    return bool(trial.wait(lambda: saving(trial))) and kill_now(trial)


def kill_now(trial: Trial) -> bool:
    found = [beat.pid for beat in trial.run.heartbeat() if beat.rank == trial.fault.rank]
    return kill(trial, found[0] if found else None)


def kill_supervisor(trial: Trial) -> bool:
    return bool(trial.wait(lambda: trial.pid(0))) and kill(trial, trial.supervisor)


def kill_supervisor_in_save(trial: Trial) -> bool:
    return bool(trial.wait(lambda: saving(trial))) and kill(trial, trial.supervisor)


def kill_guard(trial: Trial) -> bool:
    if not trial.wait(lambda: trial.pid(0)):
        return False
    told = [event.more.get("pid") for event in trial.run.events() if event.event == "attempt"]
    return kill(trial, told[-1])


def kill_everything(trial: Trial) -> bool:
    """The supervisor and the guard at one blow: the ranks are orphans of nobody."""
    if not trial.wait(lambda: trial.pid(0)):
        return False
    told = [event.more.get("pid") for event in trial.run.events() if event.event == "attempt"]
    with contextlib.suppress(ProcessLookupError):
        os.kill(trial.supervisor, signal.SIGSTOP)
    return kill(trial, told[-1]) and kill(trial, trial.supervisor)


def terminate_supervisor(trial: Trial) -> bool:
    return bool(trial.wait(lambda: trial.pid(0))) and kill(trial, trial.supervisor, signal.SIGTERM)


def terminate_rank(trial: Trial) -> bool:
    return kill(trial, trial.wait(lambda: trial.pid(trial.fault.rank)), signal.SIGTERM)


def stop_rank(trial: Trial) -> bool:
    return kill(trial, trial.wait(lambda: trial.pid(trial.fault.rank)), signal.SIGSTOP)


def slow_rank(trial: Trial) -> bool:
    """Let a rank run a third of the time."""
    pid = trial.wait(lambda: trial.pid(trial.fault.rank))
    if pid is None:
        return False
    trial.note()
    until = time.monotonic() + 0.5
    while time.monotonic() < until and not trial.has_ended():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(0.02)
            os.kill(pid, signal.SIGCONT)
            time.sleep(0.01)
    return True


def spoil(trial: Trial, how: Callable[[Path], None]) -> bool:
    """Damage a file of the newest checkpoint, and kill a rank so that it is asked for."""
    from tonnage.record.checkpoints import checkpoints

    if not trial.wait(lambda: max(trial.saved(), default=0) >= trial.fault.step):
        return False
    place = checkpoints(trial.run.checkpoints)[0]
    files = sorted(path for path in place.rglob("*") if path.is_file())
    how(files[trial.fault.number % len(files)])
    done = kill_now(trial)
    trial.allowed_from = max((step for step in trial.saved() if not place.name.endswith(f"{step:08d}")), default=0)
    return done


def truncate_checkpoint(trial: Trial) -> bool:
    return spoil(trial, lambda path: os.truncate(path, path.stat().st_size // 2))


def flip_checkpoint(trial: Trial) -> bool:
    def flip(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1 << (trial.fault.number % 8)
        path.write_bytes(data)

    return spoil(trial, flip)


def fill_disk(trial: Trial) -> bool:
    """Let a rank write no file beyond a size from now on: its next save fails."""
    pid = trial.wait(lambda: trial.pid(trial.fault.rank))
    if pid is None:
        return False
    trial.note()
    with contextlib.suppress(ProcessLookupError):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (trial.job.file_bytes, trial.job.file_bytes))
    return True


def nan_in_batch(trial: Trial) -> bool:
    """The job has it in its data, once; here it is only waited for."""
    found = trial.wait(lambda: any(event.event == "nonfinite" for event in trial.run.events()))
    if not found:
        return False
    trial.note()
    trial.fault_step = trial.fault.step
    return True


def run_out_of_memory(trial: Trial) -> bool:
    """Put a rank into a control group with room for one page: the kernel kills it when it asks for more."""
    group = trial.run.path.parent / "group"
    pid = trial.wait(lambda: trial.pid(trial.fault.rank))
    place = memory_group()
    if pid is None or place is None:
        return False
    trial.note()
    group.symlink_to(place)
    limit = place / "memory.limit_in_bytes"
    (limit if limit.exists() else place / "memory.max").write_text("4096")
    with contextlib.suppress(ProcessLookupError):
        (place / "cgroup.procs").write_text(str(pid))
    return True


def memory_group() -> Path | None:
    """Make a control group for memory; None where that is not allowed. Versions 1 and 2 of control groups."""
    for root in (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")):
        place = root / f"tonnage-fault-{os.getpid()}-{time.monotonic_ns()}"
        with contextlib.suppress(OSError):
            place.mkdir()
            if (place / "memory.limit_in_bytes").exists() or (place / "memory.max").exists():
                return place
            place.rmdir()
    return None


def _leave_group(folder: Path) -> None:
    with contextlib.suppress(OSError):
        (folder / "group").resolve(strict=True).rmdir()


@cache
def kinds() -> tuple[str, ...]:
    """Return the kinds of faults that this machine allows."""
    place = memory_group()
    if place is not None:
        place.rmdir()
    return tuple(kind for kind in KINDS if place is not None or kind != "OOM-kill by its control group")


KINDS: dict[str, Callable[[Trial], bool]] = {
    "kill -9 a rank": kill_rank,
    "kill -9 a rank in a save": kill_rank_in_save,
    "kill -9 the supervisor": kill_supervisor,
    "kill -9 the supervisor in a save": kill_supervisor_in_save,
    "kill -9 the guard": kill_guard,
    "kill -9 supervisor and guard": kill_everything,
    "SIGTERM to the supervisor": terminate_supervisor,
    "SIGTERM to a rank": terminate_rank,
    "SIGSTOP a rank": stop_rank,
    "a rank slowed 3x": slow_rank,
    "truncated checkpoint": truncate_checkpoint,
    "flipped bit in a checkpoint": flip_checkpoint,
    "full disk": fill_disk,
    "nan in a batch": nan_in_batch,
    "OOM-kill by its control group": run_out_of_memory,
}


def fault_list(jobs: dict[str, Job], number: int, seed: int) -> list[Fault]:
    """Return faults in equal shares over kinds and jobs, at random steps and ranks."""
    chosen = random.Random(seed)
    names, found = list(jobs), []
    allowed = kinds()
    for n in range(number):
        job = jobs[names[(n % len(allowed) + n // len(allowed)) % len(names)]]  # each kind meets each job in turn
        step = chosen.randint(2, job.num_steps - 3)
        if "save" in allowed[n % len(allowed)] or "checkpoint" in allowed[n % len(allowed)]:
            step = min(step, job.num_steps - job.save_every)  # a save is still to come
        found.append(
            Fault(
                number=n, job=job.name, kind=allowed[n % len(allowed)], rank=chosen.randrange(job.num_ranks), step=step
            )
        )
    return found


def final_loss(trial: Trial) -> float | None:
    """Return the loss of the last step."""
    steps = trial.run.steps(0)
    return steps[-1].loss if steps and steps[-1].step == trial.job.num_steps else None


def undisturbed(job: Job, folder: Path) -> float:
    """Return the final loss of a run that nothing happens to."""
    trial = Trial(job, None, folder)
    trial.start()
    code = trial.end()
    loss = final_loss(trial)
    if code or loss is None:
        told = trial.run.path / "supervisor.txt"
        raise SystemExit(
            f"{job.name}: the undisturbed run ended with code {code}: {told.read_text() if told.is_file() else ''}"
        )
    return loss


def hurt(job: Job, fault: Fault, expected: float, folder: Path) -> dict[str, Any]:
    """Run under a fault and return its row of the report."""
    from tonnage.run.processes import leftovers

    trial = Trial(job, fault, folder)
    trial.start()
    hit = KINDS[fault.kind](trial)
    code = trial.end()
    restarts = 0
    while code not in (0, 2, 3, 4) and restarts < LARGEST_RESTARTS:
        restarts += 1
        trial.start()
        code = trial.end()
    run = trial.run.read()
    left = leftovers(run.key)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    loss = final_loss(trial)
    later = [one for one in run.attempts if one.started >= trial.fault_time]
    resumed = (later[0].resumed_from_step or 0) if later else None
    allowed = max(0, (trial.fault_step or 0) - (trial.allowed_from or 0))
    lost = None if resumed is None else max(0, (trial.fault_step or 0) - resumed)
    wrong = []
    if not hit:
        wrong.append("the fault could not be made")
    if code != 0:
        wrong.append(f"ended with code {code}: {run.message}")
    if loss is None or not math.isclose(loss, expected, rel_tol=job.tolerance, abs_tol=0.0):
        wrong.append(f"final loss {loss}, undisturbed {expected}")
    if lost is not None and lost > allowed:
        wrong.append(f"{lost} steps lost, {allowed} allowed")
    if left:
        wrong.append(f"{len(left)} processes left")
    new = [
        step.time
        for step in trial.run.steps(0)
        if step.time and step.time > trial.fault_time and step.step > (trial.fault_step or 0)
    ]
    reasons = " > ".join(f"{one.reason}{': ' + one.detail if one.detail else ''}" for one in run.attempts)
    return {
        "number": fault.number, "job": fault.job, "kind": fault.kind, "rank": fault.rank, "step": fault.step,
        "fault_step": trial.fault_step, "resumed_from": resumed, "lost_steps": lost, "allowed_lost_steps": allowed,
        "recover_seconds": round(min(new) - trial.fault_time, 2) if new else None,
        "attempts": len(run.attempts), "exit_code": code, "loss": loss,
        "verdict": "; ".join(wrong) or "ok", "what": reasons[:200],
    }  # fmt: skip


def _hurt(words: tuple[str, Fault, float]) -> dict[str, Any]:
    name, fault, expected = words
    with tempfile.TemporaryDirectory(prefix="tonnage-fault-") as folder:
        try:
            return hurt(JOBS[name], fault, expected, Path(folder))
        finally:
            _leave_group(Path(folder))
            with contextlib.suppress(ChildProcessError):
                while True:
                    os.waitpid(-1, 0)


JOBS: dict[str, Job] = {**FAKES, **REALS}


def data_digest() -> str:
    """Return a short hash of the text that trainings learn: another text, another loss."""
    digest = hashlib.sha256()
    for path in sorted(DATA.rglob("*.md")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def campaign(
    names: list[str], number: int, seed: int, num_workers: int, kept: Path | None = None, most: int | None = None
) -> list[dict[str, Any]]:
    """Run a list, or the part of it that a file does not hold yet, and return the rows."""
    jobs = {name: JOBS[name] for name in names}
    known = [json.loads(line) for line in kept.read_text().splitlines()] if kept and kept.is_file() else []
    done = {row["number"] for row in known}
    faults = [fault for fault in fault_list(jobs, number, seed) if fault.number not in done][:most]
    table = kept.with_suffix(".losses.json") if kept is not None else None
    expected = json.loads(table.read_text()) if table is not None and table.is_file() else {}
    text = {name: f"{name} {data_digest()}" if name in REALS else name for name in jobs}
    for name in dict.fromkeys(fault.job for fault in faults if text[fault.job] not in expected):
        with tempfile.TemporaryDirectory(prefix="tonnage-fault-") as folder:
            expected[text[name]] = undisturbed(jobs[name], Path(folder))
        if table is not None:
            table.write_text(json.dumps(expected))
    work = [(fault.job, fault, expected[text[fault.job]]) for fault in faults]
    rows = list(known)
    with multiprocessing.get_context("fork").Pool(num_workers, maxtasksperchild=20) as pool:
        for row in pool.imap_unordered(_hurt, work, chunksize=1):
            rows.append(row)
            if kept is not None:
                with kept.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    return sorted(rows, key=lambda row: row["number"])


def as_csv(rows: list[dict[str, Any]]) -> str:
    """Return the rows as CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def from_csv(text: str) -> list[dict[str, Any]]:
    """Return the rows that `as_csv` wrote."""

    def value(name: str, word: str) -> Any:
        if name in ("job", "kind", "verdict", "what"):
            return word
        return None if word == "" else float(word) if name in ("loss", "recover_seconds") else int(word)

    return [{name: value(name, word) for name, word in row.items()} for row in csv.DictReader(io.StringIO(text))]


def as_page(rows: list[dict[str, Any]], seed: int) -> str:
    """Return the report in Markdown, a line a kind; the rows are in the CSV beside it."""
    lines = [
        "# Fault campaign",
        "",
        (
            f"{len(rows)} faults, seed {seed}: {_num_good(rows)} ended as if nothing had happened – the loss of the undisturbed "
            "run to the last bit, no process left, nothing lost that a completed checkpoint held. Every row: "
            "[faults.csv](faults.csv)."
        ),
    ]
    parts = (
        (
            "The supervisor on arithmetic alone",
            FAKES,
            "`validation/fake_job.py` on one, two and three ranks; `make faults`.",
        ),
        (
            "Trainings of a tiny mixture of experts",
            REALS,
            (
                "`jobs/train.py`, started by torchrun on two gloo ranks (one process for single): 40 steps, a save every 10; "
                "`python validation/faults.py --job real --number 75`, whose list goes on."
            ),
        ),
    )
    for title, names, how in parts:
        these = [row for row in rows if row["job"] in names]
        if these:
            lines += ["", f"## {title}", "", f"{len(these)} faults. {how}", "", *_table(these)]
    bad = [row for row in rows if row["verdict"] != "ok"]
    lines += ["", *(f"- {row['number']} {row['job']}, {row['kind']}: {row['verdict']}" for row in bad)]
    return "\n".join(lines).rstrip() + "\n"


def _table(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| fault | jobs | faults | ok | lost steps (most, allowed) | median time to the next step |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for kind in dict.fromkeys(row["kind"] for row in rows):
        these = [row for row in rows if row["kind"] == kind]
        times = sorted(row["recover_seconds"] for row in these if row["recover_seconds"] is not None)
        lost = max((row["lost_steps"] or 0 for row in these), default=0)
        allowed = max(row["allowed_lost_steps"] for row in these)
        names = ", ".join(sorted({row["job"] for row in these}))
        middle = f"{times[len(times) // 2]:.2f} s" if times else "–"
        lines.append(f"| {kind} | {names} | {len(these)} | {_num_good(these)} | {lost}, {allowed} | {middle} |")
    return lines


def _num_good(rows: list[dict[str, Any]]) -> int:
    return sum(row["verdict"] == "ok" for row in rows)


def main() -> int:
    """Run a campaign as the command line says."""
    parser = argparse.ArgumentParser(description="Hurt runs and see how they end.")
    parser.add_argument("--number", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--job", action="append", help="a job by name; fake: all of arithmetic")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--keep", type=Path, help="a file of rows that are done; new ones are added")
    parser.add_argument("--most", type=int, help="do so many faults and no more")
    parser.add_argument("--report", type=Path, nargs="+", help="run nothing: the report of files that --keep wrote")
    parser.add_argument("--write", action="store_true", help="keep FAULTS.md and faults.csv")
    asked = parser.parse_args()
    groups = {"fake": FAKES, "real": REALS}
    if asked.report:
        return report([json.loads(line) for path in asked.report for line in path.read_text().splitlines()], asked)
    names = [name for one in asked.job or ["fake"] for name in groups.get(one, [one])]
    return report(campaign(names, asked.number, asked.seed, asked.workers, asked.keep, asked.most), asked)


def report(rows: list[dict[str, Any]], asked: argparse.Namespace) -> int:
    """Print the report, keep it where asked, and return 3 where a run did not end well."""
    rows = sorted(rows, key=lambda row: (row["job"] in REALS, row["number"]))
    page = as_page(rows, asked.seed)
    if asked.write:
        (HERE / "faults.csv").write_text(as_csv(rows), encoding="utf-8")
        (HERE / "FAULTS.md").write_text(page, encoding="utf-8")
    print(page)
    for row in rows:
        if row["verdict"] != "ok":
            print(json.dumps(row))
    return 0 if all(row["verdict"] == "ok" for row in rows) else 3


if __name__ == "__main__":
    sys.exit(main())
